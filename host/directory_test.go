package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// long is the elements of a message that plans may send directly between buffers.
const long = 1 << 18

// fill writes a value to every element of device memory.
func (r *rank) fill(p cuda.Ptr, n int, v float32) error {
	values := make([]float32, n)
	for i := range values {
		values[i] = v
	}
	q, err := r.floats(values)
	return errors.Join(err, r.driver.Copy(r.ctx, p, q, int64(4*n), r.stream), r.sync(), r.free(q))
}

// gatherLong runs an all_gather of messages that go directly if they can; it checks the
// result and returns how many of its calls went directly, on this process's ranks
// together.
func gatherLong(r *rank, send, recv cuda.Ptr, count int, v float32) (direct int64, err error) {
	if err := errors.Join(r.fill(send, count, v+float32(r.Rank())), r.Barrier(r), r.sync()); err != nil {
		return 0, err
	}
	before := cudaipctest.Direct.Load()
	err = r.AllGather(pointer(send), pointer(recv), int64(count), plugin.Float32, r)
	if err = errors.Join(err, r.Barrier(r), r.sync()); err != nil {
		return 0, err
	}
	direct = cudaipctest.Direct.Load() - before
	for p := range r.World() {
		for _, i := range []int{0, count - 1} {
			got, err := r.read(recv+cuda.Ptr(4*(p*count+i)), 1)
			if err != nil || got[0] != v+float32(p) {
				return 0, errors.Join(err, fmt.Errorf("element %d of rank %d's block is %v, want %v", i, p, got, v+float32(p)))
			}
		}
	}
	return direct, r.meet() // no rank counts the next call's
}

// gatherDirectly is gatherLong where every rank's call must go directly.
func gatherDirectly(r *rank, send, recv cuda.Ptr, count int, v float32) error {
	direct, err := gatherLong(r, send, recv, count, v)
	if err == nil && direct != int64(r.World()) {
		err = fmt.Errorf("%d calls went directly", direct)
	}
	return err
}

// oneDirect forces the algorithm that can go directly.
func oneDirect(t *testing.T) { t.Setenv("SHUNT_ALGO", "all_gather=cudaipc/direct") }

func TestDirectoryTakesUpWhatKernelsMissed(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count, n*count)
		direct, err := gatherLong(r, b[0], b[1], count, 1)
		if err != nil || direct != 0 {
			return fmt.Errorf("%d calls went directly at first, %w", direct, err)
		}
		// Every rank asks as often as the others: the last verdict of each round
		// is the same for all.
		for round := 0; direct != n; round++ {
			if direct, err = gatherLong(r, b[0], b[1], count, float32(round)); err != nil {
				return err
			}
			if round > 500 {
				return errors.New("the buffers were never mapped")
			}
		}
		return done(nil)
	})
}

func TestRegisterMakesTheNextCallDirect(t *testing.T) {
	oneDirect(t)
	const n, count = 3, long
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count, n*count)
		err := r.Register(pointer(b[1]), n*count*4)
		if err != nil {
			return err
		}
		if err := gatherDirectly(r, b[0], b[1], count, 7); err != nil {
			return err
		}
		if err := r.Deregister(pointer(b[1])); err != nil {
			return err
		}
		if direct, err := gatherLong(r, b[0], b[1], count, 9); err != nil || direct != 0 {
			return fmt.Errorf("%d calls went directly to what was deregistered, %w", direct, err)
		}
		if err := r.Deregister(pointer(b[0])); !errors.Is(err, plugin.InvalidArgument) {
			return fmt.Errorf("deregistering what was not registered gave %w", err)
		}
		return done(nil)
	})
}

func TestRegisterServesShareableMemory(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		m, err := r.driver.CreateMemory(r.ctx, r.Rank(), n*count*4)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		if err := r.Register(pointer(m.Address), n*count*4); err != nil {
			return err
		}
		if err := gatherDirectly(r, b[0], m.Address, count, 3); err != nil {
			return err
		}
		return done(errors.Join(r.Communicator.Close(), r.driver.Unmap(r.ctx, m)))
	})
}

func TestRegisterFailsAlike(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(100)
		p, bytes := b[0], int64(400)
		if r.Rank() == 1 {
			bytes = 1 << 30
		}
		err := r.Register(pointer(p), bytes)
		if !errors.Is(err, plugin.Unsupported) || !contains(err, "rank 1") ||
			!contains(err, "are not within one allocation") {
			return fmt.Errorf("registering too much gave %w", err)
		}
		if r.Rank() == 0 {
			r.driver.Fail("ExportIPC", 0, cuda.NotSupported)
		}
		q, err := r.floats(make([]float32, 100))
		if err != nil {
			return err
		}
		if err := r.Register(pointer(q), 400); !errors.Is(err, plugin.Unsupported) || !contains(err, "rank 0") {
			return fmt.Errorf("an export that fails gave %w", err)
		}
		host := make([]float32, 10)
		if err := r.Register(at(host), 40); !errors.Is(err, plugin.Unsupported) {
			return fmt.Errorf("registering host memory gave %w", err)
		}
		return done(r.free(q))
	})
}

func TestDirectoryNoticesThatMemoryWasFreedAndMadeAgain(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count, n*count)
		if err := r.Register(pointer(b[1]), n*count*4); err != nil {
			return err
		}
		if err := gatherDirectly(r, b[0], b[1], count, 1); err != nil {
			return err
		}
		// The address may come back with other memory behind it. What peers have
		// mapped is the old one: writing there would be lost.
		old := b[1]
		for try := 0; ; try++ {
			if err := r.driver.Free(r.ctx, b[1]); err != nil {
				return err
			}
			again, err := r.floats(make([]float32, n*count))
			if err != nil {
				return err
			}
			b[1] = again
			if again == old || try == 20 {
				break
			}
		}
		if b[1] != old && r.Rank() == 0 {
			t.Log("the address did not come back")
		}
		for round := range 3 {
			if _, err := gatherLong(r, b[0], b[1], count, float32(10+round)); err != nil {
				return err
			}
		}
		return done(nil)
	})
}

func TestWindowsAreReachedDirectly(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		w, err := r.NewWindow(context.Background(), n*count*4)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		recv := cuda.Ptr(uintptr(w.Local()))
		var direct int64
		for round := 0; direct != n; round++ {
			if direct, err = gatherLong(r, b[0], recv, count, float32(round)); err != nil {
				return err
			}
			if round > 500 {
				return errors.New("the window was never reached directly")
			}
		}
		return done(errors.Join(r.Barrier(r), r.sync(), w.Close()))
	})
}

func TestRegisterOfHostMemoryIsNothingToDo(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		b := make([]byte, 10)
		return errors.Join(c.Register(at(b), 10), c.Deregister(at(b)))
	})
}

// Memory that its owner has freed goes back within a second: while nothing is called,
// while a graph is replayed that has to do with other memory alone, and while one is
// replayed whose kernels look for other memory all the time.
func TestRule18FreedMemoryIsUnmappedWithoutACall(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	for name, elements := range map[string]int{"idle": 0, "small replays": 1, "long replays": count} {
		t.Run(name, func(t *testing.T) {
			agree := agreement(n)
			deviceWorld(t, n, func(r *rank) error {
				if err := r.settle(); err != nil {
					return err
				}
				b, done := r.buffers(count, max(1, elements), n*max(1, elements))
				if elements > 1 {
					if err := r.Register(pointer(b[2]), int64(4*n*elements)); err != nil {
						return err
					}
				}
				g, err := r.graph(func() error {
					switch elements {
					case 0:
						return nil
					case 1:
						return r.AllReduce(pointer(b[1]), pointer(b[2]), 1, plugin.Float32, plugin.OpSum, r)
					}
					return r.AllGather(pointer(b[1]), pointer(b[2]), int64(elements), plugin.Float32, r)
				})
				if err != nil {
					return err
				}
				memory := func() string { return fmt.Sprint(r.driver.Leaks()[:2]) } // allocations and their handles
				agree(true)
				before := memory()
				agree(true)
				m, err := r.driver.CreateMemory(r.ctx, r.Rank(), n*count*4)
				if err != nil {
					return err
				}
				if err := r.Register(pointer(m.Address), n*count*4); err != nil {
					return err
				}
				if err := gatherDirectly(r, b[0], m.Address, count, 3); err != nil {
					return err
				}
				err = r.driver.Unmap(r.ctx, m)
				freed := time.Now()
				late := func() bool { return time.Since(freed) > 10*time.Second }
				for !agree(memory() == before || late()) { // all ranks end together
					for range 4 { // so that there is one under way at most times
						err = errors.Join(err, g.launch())
					}
					err = errors.Join(err, r.driver.SynchronizeStream(r.ctx, r.stream))
				}
				if took := time.Since(freed); took > time.Second {
					err = errors.Join(err, fmt.Errorf("the memory came back after %v: %s, at first %s", took, memory(), before))
				}
				return done(errors.Join(err, r.sync(), g.destroy()))
			})
		})
	}
}

// A program may use more allocations than a rank exports: those that it no longer uses give way to new ones.
func TestMoreAllocationsThanExports(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	agree := agreement(n)
	deviceWorld(t, n, func(r *rank) error {
		sizes := make([]int, plugin.DirectoryExports+1)
		for i := range sizes {
			sizes[i] = n * count
		}
		b, done := r.buffers(append(sizes, count)...)
		send := b[len(sizes)]
		for i, recv := range b[:len(sizes)] {
			began := time.Now()
			for direct := int64(0); direct != n; {
				var err error
				if direct, err = gatherLong(r, send, recv, count, float32(i)); err != nil {
					return err
				}
				if agree(time.Since(began) > 15*time.Second) { // unused for two looks, a second each
					return fmt.Errorf("no call into allocation %d of %d has gone directly", i, len(sizes))
				}
			}
		}
		return done(nil)
	})
}

// agreement returns a barrier of a test's ranks, which they may call again and again, and
// which reports whether all of them said yes. It calls no communicator.
func agreement(n int) func(yes bool) bool {
	var mu sync.Mutex
	all := sync.NewCond(&mu)
	came, round, verdict, last := 0, 0, true, true
	return func(yes bool) bool {
		mu.Lock()
		defer mu.Unlock()
		mine := round
		verdict = verdict && yes
		if came++; came == n {
			came, round, last, verdict = 0, round+1, verdict, true
			all.Broadcast()
		}
		for mine == round {
			all.Wait()
		}
		return last
	}
}

// everyone runs an all_reduce and reports whether all ranks say yes.
func everyone(r *rank, send, recv cuda.Ptr, yes bool) (bool, error) {
	v := float32(0)
	if yes {
		v = 1
	}
	err := errors.Join(r.fill(send, 1, v), r.AllReduce(pointer(send), pointer(recv), 1, plugin.Float32, plugin.OpMin, r),
		r.sync())
	if err != nil {
		return false, err
	}
	all, err := r.read(recv, 1)
	return err == nil && all[0] == 1, err
}
