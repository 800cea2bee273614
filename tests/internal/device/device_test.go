package device_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
)

var (
	replays = flag.Int("device.replays", 100, "replays of a graph of a hundred operations; two graphs are played a fiftieth as often, and a five-hundredth as many communicators made")
	inits   = flag.Int("device.inits", 3, "communicators made one after the other to measure their time and memory")
)

func TestMain(m *testing.M) {
	machine.Register()
	pool.Main()
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// size returns the number of ranks of a test: as many as there are GPUs, up to four.
func size(t *testing.T) int {
	t.Helper()
	if lacks := device.Lacks(2); lacks != "" {
		t.Skipf("no two GPUs: %s", lacks)
	}
	if !machine.Real() {
		return 3
	}
	n, err := device.Count()
	if err != nil {
		t.Fatal(err)
	}
	return min(n, 4)
}

// scenario runs one of the suite's scenarios, on its smaller size, so many
// rounds.
func scenario(t *testing.T, name string, rounds int) {
	t.Helper()
	conformance.Test(t, conformance.Config{
		Transport: machine.Builtin, Worlds: []int{size(t)}, Memory: plugin.MemoryKindCuda,
		Modes: []conformance.Mode{conformance.Eager},
		Local: !machine.Real(), Rounds: rounds, Timeout: 5 * time.Minute, MaxFailures: 1,
		Filter: regexp.MustCompile(`^` + name + `/w\d+/uint8/n(1025|4097)/cuda\.eager\.(own|default)/x\d+$`),
	})
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// Rules 2 and 6: counters that a replay repeats or lowers, or a replay that
// needs the host, make a result wrong or never come.
func TestGraphOfAHundredBetweenEagerCalls(t *testing.T) {
	scenario(t, "graph_hundred", *replays)
}

func TestTwoGraphsOfOneCommunicator(t *testing.T) { scenario(t, "two_graphs", max(*replays/50, 1)) }

// Rule 5: whichever of the two ends first, what is replayed is right, and
// neither device memory nor descriptors stay.
func TestGraphsAndCommunicatorsEndInEitherOrder(t *testing.T) {
	scenario(t, "graph_lives", max(*replays/500, 2))
}

// Rule 11: what the communicator keeps goes from stream to stream.
func TestOperationsOnChangingStreams(t *testing.T) { scenario(t, "stream_switch", max(*replays/50, 2)) }

// made is the cost of making a communicator on one rank.
type made struct {
	Context time.Duration // CUDA's own: driver and context
	Init    []time.Duration
	First   []time.Duration // the first operation on each
	Bytes   int64           // device memory of one communicator, as it says
	Taken   int64           // less device memory after init, in bytes
	Kept    int64           // and after the last close
}

func init() {
	pool.Handle("device init", func(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
		var r struct {
			job.Request
			Times int
		}
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, err
		}
		var m made
		start := time.Now()
		j, err := job.New(w, plugin.MemoryKindCuda, 64)
		if err != nil {
			return nil, err
		}
		m.Context = time.Since(start)
		free := func() (n int64) {
			if err == nil {
				n, _, err = j.Device.Driver.MemoryInfo(j.Device.Context)
			}
			return n
		}
		before := free()
		for i := range r.Times {
			request := r.Request
			request.ID = fmt.Sprintf("%s-%d", r.ID, i)
			start := time.Now()
			if err := j.Join(ctx, request); err != nil {
				return nil, err
			}
			m.Init = append(m.Init, time.Since(start))
			m.Taken, m.Bytes = before-free(), j.Comm.DeviceBytes()
			start = time.Now()
			if err := j.Sum(j.Comm); err != nil {
				return nil, err
			}
			m.First = append(m.First, time.Since(start))
			if err := j.Leave(); err != nil {
				return nil, err
			}
			if i == 0 {
				before = free() // modules and the like are CUDA's to keep
			}
		}
		m.Kept = before - free()
		if err := errors.Join(err, j.Close()); err != nil {
			return nil, err
		}
		return json.Marshal(m)
	})
}

// A communicator of four ranks costs at most a second beyond CUDA's own start,
// and 64 MiB of each device.
func TestTimeAndMemoryOfACommunicator(t *testing.T) {
	n := size(t)
	ranks, err := newRanks(n)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(struct {
		job.Request
		Times int
	}{job.Request{
		ID: "file://" + filepath.Join(t.TempDir(), "meet"), Transport: machine.Builtin, Memory: plugin.MemoryKindCuda,
		Timeout: time.Minute,
	}, *inits})
	if err != nil {
		t.Fatal(err)
	}
	result, err := ranks.Run(t.Context(), pool.Case{Handler: "device init", Payloads: [][]byte{payload},
		Timeout: 5 * time.Minute})
	if err == nil {
		err = errors.Join(result.Err(), ranks.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range result.Outcomes {
		var m made
		if err := json.Unmarshal(o.Payload, &m); err != nil {
			t.Fatal(err)
		}
		t.Logf("rank %d of %d: CUDA %v; init %v; first operation %v; %d KiB of device memory by its own account, %d KiB by the driver's, %d KiB kept",
			o.Rank, n, m.Context, m.Init, m.First, m.Bytes>>10, m.Taken>>10, m.Kept>>10)
		if m.Bytes <= 0 || m.Bytes > 64<<20 || m.Taken > 64<<20 {
			t.Errorf("rank %d: %d bytes of device memory, %d by the driver's account; at most 64 MiB", o.Rank, m.Bytes, m.Taken)
		}
		if m.Kept > 2<<20 {
			t.Errorf("rank %d: %d bytes of device memory kept after close", o.Rank, m.Kept)
		}
		if machine.Real() {
			for _, took := range m.Init {
				if took > time.Second {
					t.Errorf("rank %d: init took %v", o.Rank, took)
				}
			}
		}
	}
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// newRanks returns processes on GPUs, with variables env, or goroutines on some in memory.
func newRanks(n int, env ...string) (interface {
	Run(context.Context, pool.Case) (*pool.Result, error)
	Close() error
}, error) {
	if machine.Real() {
		return pool.New(pool.Options{World: n, Env: env})
	}
	return pool.NewLocal(pool.Options{World: n})
}
