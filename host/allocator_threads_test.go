package host_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// oneProcess is a machine of n devices that one process drives; its driver is every rank's.
func oneProcess(t *testing.T, n int) []*cudatest.Driver {
	t.Helper()
	o := cudatest.Options{Devices: n, Kernels: maps.Clone(cudaipctest.Kernels())}
	d := cudatest.New(o)
	drivers, byDevice := make([]*cudatest.Driver, n), map[int]*cudatest.Driver{}
	for i := range drivers {
		drivers[i], byDevice[i] = d, d
	}
	machine.Lock()
	machine.drivers = byDevice
	machine.Unlock()
	t.Cleanup(func() {
		require.Empty(t, d.Leaks())
		require.Empty(t, d.Hazards())
		d.Close()
	})
	return drivers
}

// wrongOrders collects what the check of the locks reports.
func wrongOrders(t *testing.T) func() []string {
	t.Helper()
	var mu sync.Mutex
	var list []string
	t.Cleanup(lockorder.Check(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, text)
	}))
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		taken := list
		list = nil
		return taken
	}
}

// Eight threads of one process, four for each of two GPUs, allocate, free, capture and run collectives; the plain
// allocator is all threads' of a GPU, the symmetric one each thread's own. Results are right, locks are taken in order,
// nothing is left.
func TestAllocatorsOfManyThreads(t *testing.T) {
	const n, threads, rounds = 2, 4, 24
	orders := wrongOrders(t)
	errs := deviceErrors(t, oneProcess(t, n), nil, func(r *rank) error {
		plain, err := r.NewAllocator(host.AllocatorOptions{SegmentBytes: 2 << 20})
		if err != nil {
			return err
		}
		var workers [threads]*worker
		for i := range workers {
			if workers[i], err = newWorker(r, plain, uint64(i)); err != nil {
				return err
			}
		}
		var all sync.WaitGroup
		failed := make([]error, threads)
		for i, w := range workers {
			all.Go(func() {
				for round := range rounds {
					if err := w.round(round); err != nil {
						failed[i] = fmt.Errorf("thread %d, round %d: %w", i, round, err)
						_ = w.Close() // the other rank need not wait
						return
					}
				}
			})
		}
		all.Wait()
		err = errors.Join(failed...)
		for _, w := range workers {
			err = errors.Join(err, w.end())
		}
		if err != nil {
			return err
		}
		err = eventually("idle segments", func() bool { return plain.Trim() == nil && plain.Stats().Segments == 0 })
		return errors.Join(err, plain.Destroy())
	})
	require.NoError(t, errors.Join(errs...))
	require.Empty(t, orders())
}

// worker is a thread of a rank: a communicator, a stream and a symmetric allocator of its own.
type worker struct {
	*rank
	plain, symmetric *host.Allocator
	random           *rand.Rand
	other            cuda.Stream
}

func newWorker(r *rank, plain *host.Allocator, seed uint64) (*worker, error) {
	c, err := r.Split(context.Background(), 0, 0)
	if err != nil {
		return nil, err
	}
	w := &worker{rank: &rank{Communicator: c, driver: r.driver, ctx: r.ctx}, plain: plain,
		random: rand.New(rand.NewPCG(seed, 7))} // alike on all ranks
	if w.stream, err = r.driver.NewStream(r.ctx, 0); err == nil {
		w.other, err = r.driver.NewStream(r.ctx, 0)
	}
	if err == nil {
		w.symmetric, err = c.NewAllocator(host.AllocatorOptions{Symmetric: true, SegmentBytes: 2 << 20})
	}
	return w, err
}

func (w *worker) end() error {
	return errors.Join(w.sync(), w.symmetric.Destroy(), w.Close(), w.driver.DestroyStream(w.ctx, w.stream),
		w.driver.DestroyStream(w.ctx, w.other))
}

type onStream cuda.Stream

func (s onStream) Handle() unsafe.Pointer { return pointer(cuda.Ptr(s)) }

// round makes one all_reduce, every fourth time in a graph that is replayed, and checks it.
func (w *worker) round(round int) error {
	count := 1 + w.random.IntN(40_000)
	bytes := int64(4 * count)
	x, err := w.plain.Alloc(bytes, w)
	if err != nil {
		return err
	}
	y, err := w.symmetric.Alloc(bytes, w)
	if err != nil {
		return err
	}
	value := float32(round + w.Rank())
	want := repeated(float32(2*round+1), count)
	if err := w.fill(device(x), count, value); err != nil {
		return err
	}
	if round%4 == 3 {
		err = w.replayed(x, y, count)
	} else {
		err = w.AllReduce(x, y, int64(count), plugin.Float32, plugin.OpSum, w)
	}
	if err := errors.Join(err, w.expect(device(y), want)); err != nil {
		return err
	}
	if w.random.IntN(3) == 0 { // not all_reduce, so the ranks need not agree
		err = errors.Join(w.plain.RecordStream(x, onStream(w.other)), w.plain.RecordStream(x, w))
	}
	err = errors.Join(err, w.plain.Free(x, w), w.symmetric.Free(y, w))
	switch w.random.IntN(12) {
	case 0:
		err = errors.Join(err, w.plain.Trim())
	case 1:
		err = errors.Join(err, w.symmetric.Trim())
	}
	return err
}

// replayed captures an all_reduce through memory that is allocated and freed in the capture, and replays it twice.
func (w *worker) replayed(x, y unsafe.Pointer, count int) error {
	d := w.driver
	if err := d.BeginCapture(w.ctx, w.stream); err != nil {
		return err
	}
	between, err := w.plain.Alloc(int64(4*count), w)
	if err == nil {
		err = errors.Join(w.AllReduce(x, between, int64(count), plugin.Float32, plugin.OpSum, w),
			d.Copy(w.ctx, device(y), device(between), int64(4*count), w.stream), w.plain.Free(between, w))
	}
	graph, ended := d.EndCapture(w.ctx, w.stream)
	if err = errors.Join(err, ended); err != nil {
		return err
	}
	exec, err := d.Instantiate(w.ctx, graph)
	if err = errors.Join(err, d.DestroyGraph(graph)); err != nil {
		return err
	}
	for range 2 {
		err = errors.Join(err, d.LaunchGraph(w.ctx, exec, w.stream))
	}
	return errors.Join(err, w.sync(), d.DestroyGraphExec(exec))
}

// A thread that grows an allocator while it holds a turn is named, before it can wait, and that it makes memory then.
func TestRule08ReversedLockOrderIsReported(t *testing.T) {
	orders := wrongOrders(t)
	deviceWorld(t, 1, func(r *rank) error {
		a, err := r.NewAllocator(host.AllocatorOptions{})
		if err != nil {
			return err
		}
		require.Empty(t, orders())
		host.UnderTurn(r.Communicator, func() { err = a.Reserve(1) })
		list := orders()
		require.Len(t, list, 2)
		require.Contains(t, list[0], "a goroutine that holds a communicator's turn waits for an allocator's growth lock")
		require.Contains(t, list[1], "holds a communicator's turn and an allocator's growth lock calls cuMemCreate")
		return errors.Join(err, a.Destroy())
	})
	require.Empty(t, orders(), "the turn was given back")
}
