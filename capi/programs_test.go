package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryOperation(t *testing.T) {
	binary := program(t, "test/collectives.c")
	for size := 1; size <= 4; size++ {
		t.Run(strconv.Itoa(size), func(t *testing.T) { succeed(t, size, binary) })
	}
}

func TestSignalsAreTheProgramsOwn(t *testing.T) { succeed(t, 2, program(t, "test/signals.c")) }

// Handlers run on a stack that has room for them, whatever the program forgot.
func TestSignalHandlersHaveAStack(t *testing.T) { succeed(t, 2, program(t, "test/handlers.c")) }

// Pointers of C may be numbers, which Go takes for a sign of damage where it moves a stack, as it often does here.
func TestPointersThatAreNumbers(t *testing.T) {
	t.Setenv("GOGC", "1")
	succeed(t, 1, program(t, "test/numbers.c"))
}

// A thread's floating-point environment is the program's, and changes no result.
func TestRoundingOfTheProgramIsItsOwn(t *testing.T) { succeed(t, 3, program(t, "test/rounding.c")) }

func TestForkedChildIsRefused(t *testing.T) { succeed(t, 1, program(t, "test/forked.c")) }

// TestLogLinesGoToTheProgram: and none of them to standard error, but for those of the last communicator.
func TestLogLinesGoToTheProgram(t *testing.T) {
	t.Setenv("SHUNT_LOG", "info")
	r := succeed(t, 1, program(t, "test/log.c"))[0]
	require.Equal(t, 1, strings.Count(r.errors, `level=INFO msg="communicator made" label="one of many" communicator=world`),
		r.errors)
}

func TestFromCPlusPlus(t *testing.T) { succeed(t, 1, program(t, "test/interface.cc")) }

func TestUniqueID(t *testing.T) { succeed(t, 1, program(t, "test/unique_id.c")) }

// Go's poller needs descriptors and aborts the process where there are none.
func TestNoDescriptorsAtFirstUse(t *testing.T) {
	binary := program(t, "test/descriptors.c")
	for spare := range 4 {
		t.Run(strconv.Itoa(spare), func(t *testing.T) { succeed(t, 1, binary, strconv.Itoa(spare)) })
	}
}

// What a program makes its standard streams, where it has none, is not what Go waits with.
func TestClosedStreams(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for rank, r := range world(t, 2, program(t, "test/no_streams.c"), log) {
		if r.err != nil {
			text, _ := os.ReadFile(log)
			t.Errorf("rank %d: %v\n%s", rank, r.err, text)
		}
	}
}

func TestAbortFromAnotherThread(t *testing.T) { succeed(t, 3, program(t, "test/abort.c")) }

func TestFailureIsToldToWhoAsks(t *testing.T) { succeed(t, 2, program(t, "test/failure.c")) }

// What the library refuses before it comes to the communicator is told to the ranks that wait, as what that refuses is.
func TestRefusedCallIsToldToWhoWaits(t *testing.T) {
	binary := program(t, "test/refused.c")
	for name, want := range map[string]string{
		"signal":                         "signal: window 0x",
		"started signal":                 "signal: window 0x",
		"signal in a group":              "signal: window 0x",
		"signal together":                "signal: window 0x",
		"premul_sum":                     "all_reduce: premul_sum needs a scalar",
		"premul_sum of reduce_scatter_v": "reduce_scatter_v: premul_sum needs a scalar",
		"counts on the device":           "all_reduce: only all_to_all_v takes counts in device memory",
		"no operation":                   "run: operation is NULL",
		"no request":                     "start: request is NULL",
		"size":                           "run: shunt_operation.struct_size is 3",
		"reserved":                       "run: shunt_operation.counts_on_device is 0 and reserved is 1",
		"register":                       "register_symmetric: memory is NULL",
		"window":                         "window_create: window is NULL",
		"much":                           "exchange: bytes is 1099511627776; want at most 4194304",
		"negative":                       "exchange: bytes is -1; want 0 or more",
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, succeed(t, 2, binary, name)[0].output, "rank 1 refused its "+want)
		})
	}
}

func TestBlockLimit(t *testing.T) { succeed(t, 2, program(t, "test/block_limit.c")) }

func TestBenchmarkChecksItsResult(t *testing.T) {
	binary := program(t, "../bench/c/bench_calls.c")
	results := succeed(t, 2, binary, "100")
	for _, op := range []string{"all_reduce", "broadcast", "send_recv", "barrier"} {
		require.Contains(t, results[0].output, fmt.Sprintf(`"op": %q, "world": 2`, op))
	}
	require.Empty(t, results[1].output)
}

// The programs for GPUs are built everywhere and run where there are two.
func TestOnGPUs(t *testing.T) {
	for _, source := range []string{"test/gpu.c", "../bench/c/bench_stream.c"} {
		binary := program(t, source)
		results := world(t, 2, binary)
		var exit *exec.ExitError
		for _, r := range results {
			if errors.As(r.err, &exit) && exit.ExitCode() == 77 {
				t.Skipf("no two GPUs: %s", r.errors)
			}
		}
		for rank, r := range results {
			require.NoError(t, r.err, "rank %d:\n%s%s", rank, r.output, r.errors)
		}
	}
}

// Memory of CUDA where there is no driver is refused with the reason.
func TestNoDriver(t *testing.T) {
	t.Setenv("SHUNT_LIBCUDA", "libcuda-that-is-not-there.so")
	results := world(t, 1, program(t, "test/no_driver.c"))
	require.NoError(t, results[0].err, results[0].errors)
}

func TestDeathOfARankIsNamed(t *testing.T) {
	binary := program(t, "test/peer_death.c")
	for end, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "fault": syscall.SIGSEGV} {
		results := world(t, 3, binary, end)
		var exit *exec.ExitError
		require.ErrorAs(t, results[2].err, &exit)
		require.Equal(t, signal, exit.Sys().(syscall.WaitStatus).Signal(), results[2].errors)
		for rank := range 2 {
			require.NoError(t, results[rank].err, results[rank].errors)
		}
	}
}

func TestNothingLeaks(t *testing.T) { succeed(t, 2, program(t, "test/leaks.c"), "100") }

// collections returns how often the garbage collector of a program's libshunt ran.
func collections(t *testing.T, binary string, calls int) int {
	t.Helper()
	t.Setenv("GODEBUG", "gctrace=1")
	t.Setenv("GOGC", "10") // a collection for every few 100 KiB
	results := succeed(t, 1, binary, strconv.Itoa(calls))
	return strings.Count("\n"+results[0].errors, "\ngc ")
}

// 16 bytes for each of the 600,000 calls would be 9 MiB and some twenty collections;
// a few more have been seen on a busy machine, for reasons not known.
func TestBlockingCallsAllocateNothing(t *testing.T) {
	binary := program(t, "../bench/c/bench_calls.c")
	few, many := collections(t, binary, 10), collections(t, binary, 25000) // samples of 8 calls of 3 operations
	require.LessOrEqual(t, many, few+8, "collections in 6,240 calls: %d; in 606,000: %d", few, many)
}
