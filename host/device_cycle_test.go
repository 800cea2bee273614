package host_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

var cycles = flag.Int("host.cycles", 12, "communicators that TestCommunicatorsLeaveNothing makes and closes")

// holdings counts the resources of a process and its drivers.
type holdings struct {
	drivers                           []map[string]int
	objects, goroutines, files, lines int
}

func look(t *testing.T, drivers []*cudatest.Driver) (h holdings) {
	t.Helper()
	require.NoError(t, host.Collect()) // what graphs held that are gone
	for _, d := range drivers {
		h.drivers = append(h.drivers, d.Held())
	}
	for range 3 { // finalizers take a round of their own
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.objects, h.goroutines = int(m.HeapObjects), runtime.NumGoroutine()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	h.files, h.lines = len(files), strings.Count(string(maps), "\n")
	return h
}

// Communicators that are made and closed leave nothing behind, on GPUs, in the
// Go heap or in the process, whatever was done with them.
func TestCommunicatorsLeaveNothing(t *testing.T) {
	const n = 2
	drivers := gpus(t, n)
	var first holdings
	warm := *cycles / 3
	for i := range *cycles {
		if i == warm {
			first = look(t, drivers)
		}
		require.NoError(t, errors.Join(deviceErrors(t, drivers, nil, func(r *rank) error { return r.live(i) })...),
			"communicator %d", i)
		if every := *cycles / 6; every > 0 && i%every == every-1 {
			h := look(t, drivers)
			t.Logf("%d communicators: %d objects, %d goroutines, %d descriptors, %d mappings, rank 0's GPU %v", i+1, h.objects,
				h.goroutines, h.files, h.lines, h.drivers[0])
		}
	}
	// What has ended may still be on its way out.
	var last holdings
	err := eventually("what was closed to be gone", func() bool {
		last = look(t, drivers)
		return last.goroutines <= first.goroutines && last.files <= first.files &&
			reflect.DeepEqual(last.drivers, first.drivers)
	})
	require.NoError(t, err, "%+v, then %+v", first, last)
	made := *cycles - warm
	require.LessOrEqual(t, last.objects-first.objects, 2000+made/2, "%d objects, then %d, after %d communicators",
		first.objects, last.objects, made)
	// The Go heap has mappings of its own, which come as it is used.
	require.LessOrEqual(t, last.lines-first.lines, 20+made/20, "mappings")
}

// live does everything once that holds something: windows, buffers that peers
// map, graphs that outlive their communicator, sub-groups, streams that go.
func (r *rank) live(round int) error {
	b, _ := r.buffers(1000, 1000)
	w, err := r.NewWindow(context.Background(), 1<<16)
	if err != nil {
		return err
	}
	half, err := r.Split(context.Background(), 0, r.Rank())
	if err != nil {
		return err
	}
	sum := func(c *host.Communicator) error {
		return c.AllReduce(pointer(b[0]), pointer(b[1]), 1000, plugin.Float32, plugin.OpSum, r)
	}
	if err := errors.Join(r.Register(pointer(b[1]), 4000), sum(r.Communicator), sum(half), r.sync()); err != nil {
		return err
	}
	g, err := r.graph(func() error { return errors.Join(sum(r.Communicator), sum(half)) })
	if err != nil {
		return err
	}
	if round%2 == 0 {
		if err := r.driver.DestroyGraphExec(g.exec); err != nil {
			return err
		}
	}
	another, err := r.driver.NewStream(r.ctx, 0)
	if err != nil {
		return err
	}
	on := &rank{Communicator: r.Communicator, driver: r.driver, ctx: r.ctx, stream: another}
	err = errors.Join(r.Barrier(on), on.sync(), r.driver.DestroyStream(r.ctx, another))
	err = errors.Join(err, half.Close(), w.Close(), r.Communicator.Close(), r.driver.SynchronizeStream(r.ctx, r.stream))
	if round%2 == 1 {
		err = errors.Join(err, r.driver.DestroyGraphExec(g.exec))
	}
	return errors.Join(err, r.driver.DestroyGraph(g.graph), r.free(b...))
}
