package bench

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/nccl"
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// The kernels of kernels/bench.cu, in Go.

func parameter(g cudatest.Grid, i int) uint64 {
	return binary.LittleEndian.Uint64(g.Launch.Params[8*i:])
}

func memoryOf(at, bytes uint64) []byte { return unsafe.Slice((*byte)(address(at)), bytes) }

func patterned(g cudatest.Grid, visit func(have, want []byte)) {
	to, count, block, first, size := parameter(g, 0), parameter(g, 1), parameter(g, 2), parameter(g, 3), parameter(g, 5)
	for i := range count {
		visit(memoryOf(to+i*size, size), memoryOf(block+(first+i)%parameter(g, 4)*size, size))
	}
}

func awaited(g cudatest.Grid) {
	word := (*uint64)(address(parameter(g, 0)))
	for atomic.LoadUint64(word) != parameter(g, 1) {
		select {
		case <-g.Done:
			return
		default:
		}
	}
}

var goKernels = map[string]cudatest.Kernel{
	"bench_fill": func(g cudatest.Grid) { patterned(g, func(have, want []byte) { copy(have, want) }) },
	"bench_wrong": func(g cudatest.Grid) {
		patterned(g, func(have, want []byte) {
			if !bytes.Equal(have, want) {
				*(*uint64)(address(parameter(g, 6)))++
			}
		})
	},
	"bench_gate": awaited,
	"bench_busy": func(g cudatest.Grid) {
		busyKernels.Add(1)
		holdBusy.RLock()
		defer holdBusy.RUnlock()
		for end := time.Now().Add(time.Duration(parameter(g, 0))); time.Now().Before(end); {
			runtime.Gosched()
		}
	},
}

// busyKernels counts the kernels of other work that have begun. They do not end while
// holdBusy is locked.
var (
	busyKernels atomic.Int64
	holdBusy    sync.RWMutex
)

// meeting counts barriers; a rank alone need not wait.
type meeting struct {
	entered int
	driver  cuda.Driver
	ctx     cuda.Context
}

func (m *meeting) Synchronize(s host.Stream) error {
	return m.driver.SynchronizeStream(m.ctx, cuda.Stream(uintptr(s.Handle())))
}

func (m *meeting) Barrier(host.Stream) error {
	m.entered++
	return nil
}

func space1(t *testing.T, c *Config) (*deviceSpace, *cudatest.Driver, *meeting) {
	driver := cudatest.New(cudatest.Options{Devices: 2, Kernels: goKernels})
	t.Cleanup(driver.Close)
	m := &meeting{driver: driver}
	d, err := newDeviceSpace(driver, 1, c, m, 64<<10)
	require.NoError(t, err)
	m.ctx = d.ctx
	t.Cleanup(func() {
		require.NoError(t, d.close())
		require.Empty(t, driver.Leaks())
	})
	return d, driver, m
}

func TestDeviceCountsWhatIsWrong(t *testing.T) {
	c := Config{World: 2, Min: 8, Max: 64 << 10, Factor: 4, DType: plugin.Float16, Memory: plugin.MemoryKindCuda}
	d, _, _ := space1(t, &c)
	p := newPattern(c.DType, plugin.OpSum, c.World)
	a, err := d.buffer(recvBuffer, 40000)
	require.NoError(t, err)
	require.NoError(t, d.poison(a))
	body := a.part(200, 30000)
	require.NoError(t, d.fill(body, p, 1, 77))
	for first, want := range map[int64]bool{77: true, 78: false} {
		n, err := d.wrong(body, p, 1, first)
		require.NoError(t, err)
		require.Equal(t, want, n == 0, "%d wrong", n)
	}
	// Exactly what was changed is counted, in the pattern and around it.
	for _, at := range []int64{0, 4093, 14999} {
		memoryOf(uint64(body.pointer())+uint64(2*at), 2)[1] ^= 1
	}
	n, err := d.wrong(body, p, 1, 77)
	require.NoError(t, err)
	require.Equal(t, int64(3), n)
	n, err = d.unpoisoned(a.part(0, 200))
	require.NoError(t, err)
	require.Zero(t, n)
	memoryOf(uint64(a.pointer())+199, 1)[0] = 0
	n, err = d.unpoisoned(a.part(0, 200))
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
}

func repeated(name string, times int) []string { return slices.Repeat([]string{name}, times) }

func TestDeviceTimesCandidatesInTurn(t *testing.T) {
	for _, mode := range []Mode{Eager, Graph} {
		for _, busy := range []int{0, 50} {
			c := Config{World: 2, Min: 8, Max: 4096, Factor: 4, DType: plugin.Float32, Memory: plugin.MemoryKindCuda,
				Iterations: 200, Busy: busy}
			d, driver, m := space1(t, &c)
			rounds, places := 5, map[int]int{0: 28, 1: 26, 2: 26} // of two captures
			if busy > 0 {                                         // batches are longer
				rounds, places = 1, map[int]int{0: 134, 1: 134, 2: 132}
			}
			var calls []string
			runs := map[int]int{}
			call := func(name string) func(int) error {
				return func(slot int) error {
					calls = append(calls, name)
					runs[slot]++
					return driver.Set(d.ctx, d.memory[sendBuffer]+cuda.Ptr(4*slot), 1, 4, d.own)
				}
			}
			p := &prepared{shape: shape{elements: 2, send: 2, recv: 2}, job: job{mode: mode}, slots: make([]slot, 3)}
			list := []candidate{{call: call("a")}, {name: "nccl", call: call("b")}}
			busyKernels.Store(0)
			iterations, err := d.samples(&rank{config: c}, p, list)
			require.NoError(t, err)
			require.Equal(t, 200, iterations)
			require.Equal(t, busy > 0, busyKernels.Load() > 0)
			for _, candidate := range list {
				require.Len(t, candidate.samples, rounds)
				require.LessOrEqual(t, candidate.covered, busy*rounds)
				if busy == 0 {
					require.Zero(t, candidate.covered)
				}
				for _, us := range candidate.samples {
					require.Positive(t, us)
				}
			}
			require.Equal(t, 2*(rounds+warmUps), m.entered, "ranks meet before every batch")
			operations := 200 / rounds
			if mode == Graph {
				require.Equal(t, slices.Concat(repeated("a", operations), repeated("b", operations)), calls, "captured once")
				require.Equal(t, places, runs)
			} else {
				ab := slices.Concat(repeated("a", operations), repeated("b", operations))
				ba := slices.Concat(repeated("b", operations), repeated("a", operations))
				firsts := map[string]bool{}
				for round := range slices.Chunk(calls, 2*operations) {
					require.True(t, slices.Equal(ab, round) || slices.Equal(ba, round), "%v", round)
					firsts[round[0]] = true
				}
				require.Len(t, calls, (rounds+warmUps)*2*operations)
				require.Len(t, firsts, 2, "each is first in some rounds")
			}
		}
	}
}

// Work beside a batch outlasts it where it is asked for enough, has an end
// however long the batch takes, and tells when it was over too early.
func TestDeviceRunsBesideOtherWork(t *testing.T) {
	c := Config{World: 2, Min: 8, Max: 4096, Factor: 4, DType: plugin.Float32, Memory: plugin.MemoryKindCuda, Busy: 50}
	d, driver, _ := space1(t, &c)
	record := func(e cuda.Event) {
		require.NoError(t, driver.Record(d.ctx, e, d.own))
		require.NoError(t, driver.SynchronizeStream(d.ctx, d.own))
	}
	begin := func(idle float64, samples ...float64) {
		holdBusy.Lock()
		busyKernels.Store(0)
		require.NoError(t, d.occupy(idle, samples, 1))
		for busyKernels.Load() == 0 {
			runtime.Gosched()
		}
		record(d.start)
	}
	end := func() { // of the work
		holdBusy.Unlock()
		require.NoError(t, driver.SynchronizeStream(d.ctx, d.side))
	}
	covered := func(want bool) {
		have, err := d.covered()
		require.NoError(t, err)
		require.Equal(t, want, have)
	}
	for _, batch := range []struct {
		idle, last float64 // microseconds
		kernels    int64   // of 100 microseconds, or a little more
	}{{100, 100, 12}, {100, 5000, 86}, {100, 1e9, 131}, {1e5, 1e5, 513}} {
		begin(batch.idle, batch.last)
		record(d.stop)
		end()
		covered(true)
		require.Equal(t, batch.kernels, busyKernels.Load())
	}
	begin(100) // over before the batch is
	end()
	record(d.stop)
	covered(false)
	require.NoError(t, d.occupy(1, nil, 1)) // over before the batch begins
	require.NoError(t, driver.SynchronizeStream(d.ctx, d.side))
	record(d.start)
	record(d.stop)
	covered(false)
}

// What fails during a capture ends the capture, and leaves nothing.
func TestDeviceCaptureFails(t *testing.T) {
	c := Config{World: 2, Min: 8, Max: 4096, Factor: 4, DType: plugin.Float32, Memory: plugin.MemoryKindCuda}
	d, _, _ := space1(t, &c)
	p := &prepared{shape: shape{elements: 2}, job: job{test: &tests[0], mode: Graph}, slots: make([]slot, 1)}
	_, err := d.samples(&rank{config: c}, p, []candidate{{call: func(int) error {
		return plugin.Errorf(plugin.Internal,
			"no")
	}}})
	require.ErrorContains(t, err, "all_reduce of shunt, 0 elements: no")
	require.NoError(t, d.driver.BeginCapture(d.ctx, d.own))
	g, err := d.driver.EndCapture(d.ctx, d.own)
	require.NoError(t, err)
	require.NoError(t, d.driver.DestroyGraph(g))
}

// Half-made state is given back wherever making it fails.
func TestDeviceSpaceFails(t *testing.T) {
	c := Config{World: 2, Min: 8, Max: 4096, Factor: 4, DType: plugin.Float32, Memory: plugin.MemoryKindCuda}
	for call, times := range map[string]int{"NewStream": 2, "NewEvent": 4, "LoadModule": 1, "AllocHost": 1, "Alloc": 4,
		"Function": int(deviceKernels)} {
		for after := range times {
			driver := cudatest.New(cudatest.Options{Devices: 1, Kernels: goKernels})
			driver.Fail(call, after, cuda.OutOfMemory)
			_, err := newDeviceSpace(driver, 0, &c, &meeting{}, 0)
			require.Error(t, err, call)
			require.Empty(t, driver.Leaks(), call)
			driver.Close()
		}
	}
	driver := cudatest.New(cudatest.Options{Devices: 1})
	defer driver.Close()
	_, err := newDeviceSpace(driver, 1, &c, &meeting{}, 0)
	require.ErrorIs(t, err, plugin.InvalidArgument)
}

// Every measurement's operations, written as NCCL's, move the same bytes: what
// every rank sends to a peer, the peer receives.
func TestTranslate(t *testing.T) {
	for _, allToAll := range []bool{true, false} {
		for i := range tests {
			const world = 3
			type pair struct{ from, to int }
			sent, received := map[pair]int64{}, map[pair]int64{}
			skipped := 0
			for r := range world {
				s := tests[i].shape(place{world, r, 1}, 1000)
				for k := range s.operations {
					s.operations[k].DType = plugin.Float32
				}
				list, ok := translate(s.operations, r, world, allToAll)
				if !ok || s.window != noWindow {
					skipped++
					continue
				}
				for _, o := range list {
					switch o.Kind {
					case nccl.Send:
						sent[pair{r, int(o.Peer)}] += o.Count
					case nccl.Recv:
						received[pair{int(o.Peer), r}] += o.Count
					default:
						require.Len(t, list, 1, "a collective of its own")
						require.Equal(t, s.operations[0].Count, o.Count)
					}
				}
			}
			require.Contains(t, []int{0, world}, skipped, "%s: all ranks or none", tests[i].name)
			require.Equal(t, sent, received, tests[i].name)
			if tests[i].name == "all_to_all_v" || tests[i].name == "gather" {
				require.NotEmpty(t, sent, tests[i].name)
			}
		}
	}
}
