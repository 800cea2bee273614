package host_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// device returns an allocation's address on the GPU.
func device(p unsafe.Pointer) cuda.Ptr { return cuda.Ptr(uintptr(p)) }

// Blocks of a symmetric allocator are symmetric memory, over several growths, and also where the ranks' streams end
// their work at different times.
func TestSymmetricAllocatorServesCopyEngines(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			byCopy(t, n)
			deviceWorld(t, n, func(r *rank) error {
				const count = 100_000 // 2 or 3 blocks a segment
				for range r.Rank() {  // of others each rank has as many as it likes
					if own, err := r.NewAllocator(host.AllocatorOptions{}); err != nil {
						return err
					} else if err := own.Destroy(); err != nil {
						return err
					}
				}
				a, err := r.NewAllocator(host.AllocatorOptions{Symmetric: true, SegmentBytes: 1})
				if err != nil {
					return err
				}
				b, done := r.buffers(count)
				var kept []unsafe.Pointer
				for i := range 8 {
					recv, err := a.Alloc(int64(4*n*count), r)
					if err != nil {
						return err
					}
					by, err := copied(r, func() error { return r.AllGather(pointer(b[0]), recv, count, plugin.Float32, r) })
					if err != nil || by != int64(n) {
						return fmt.Errorf("call %d: %d ranks by copies, want %d, %w", i, by, n, err)
					}
					var want []float32
					for p := range n {
						want = append(want, block(p, 0, count)...)
					}
					if err := r.expect(device(recv), want); err != nil {
						return err
					}
					if kept = append(kept, recv); i%3 == 2 {
						if err := a.Free(kept[1], r); err != nil {
							return err
						}
						kept = append(kept[:1], kept[2:]...)
					}
				}
				for _, p := range kept {
					err = errors.Join(err, a.Free(p, r))
				}
				before := a.Stats()
				err = errors.Join(err, r.sync(), a.Trim())
				if s := a.Stats(); err != nil || before.Segments < 2 || s.Segments != 0 || s.Cached != 0 || s.InUse != 0 {
					return fmt.Errorf("%+v became %+v by a trim, %w", before, s, err)
				}
				return done(a.Destroy())
			})
		})
	}
}

// Messages from and to a plain allocator's memory go straight between the ranks from the first call on, though it was
// not registered; a trim withdraws it, and the memory outlives the communicator.
func TestAllocatorMemoryIsMappedByPeers(t *testing.T) {
	const n, count = 3, 1 << 18
	var outlived [n]func() error
	oneDirect(t)
	deviceWorld(t, n, func(r *rank) error {
		a, err := r.NewAllocator(host.AllocatorOptions{SegmentBytes: 2 << 20})
		if err != nil {
			return err
		}
		x, err := a.Alloc(4*count, r)
		if err != nil {
			return err
		}
		y, err := a.Alloc(4*count*n, r)
		if err != nil {
			return err
		}
		mapped := func() bool { return host.Known(r.Communicator, device(x)) && host.Known(r.Communicator, device(y)) }
		if err := errors.Join(eventually("peers that map the memory", mapped), r.meet()); err != nil {
			return err
		}
		err = errors.Join(gatherDirectly(r, device(x), device(y), count, 3), a.Free(y, r), r.sync(), a.Trim())
		if s := a.Stats(); err != nil || s.Segments != 1 || s.InUse != 4*count || host.Known(r.Communicator, device(y)) {
			return fmt.Errorf("a trim left %+v, %w", s, err)
		}
		outlived[r.Rank()] = func() error {
			if _, err := a.Alloc(8<<20, nil); plugin.CodeOf(err) != plugin.Closed {
				return fmt.Errorf("an alloc that must grow gave, without communicator, %w", err)
			}
			return errors.Join(a.Free(x, nil), a.Trim(), a.Destroy())
		}
		err = errors.Join(err, r.Close(), outlived[r.Rank()]())
		return err
	})
}

// Ranks that ask for different bytes get an error, and nothing hangs or leaks.
func TestSymmetricAllocatorMismatch(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		a, err := r.NewAllocator(host.AllocatorOptions{Symmetric: true})
		if err != nil {
			return err
		}
		_, err = a.Alloc(int64(1000*(r.Rank()+1)), r)
		if plugin.CodeOf(err) != plugin.Mismatch || !strings.Contains(err.Error(),
			"rank 0 wants to grow for 1024 bytes with 0 free blocks, rank 1 to grow for 2048 bytes with 0 free blocks") {
			return fmt.Errorf("ranks that disagree got %w", err)
		}
		p, err := a.Alloc(5000, r) // the communicator works on
		if err != nil {
			return err
		}
		return errors.Join(a.Free(p, r), r.sync(), a.Destroy())
	})
}

// Whatever keeps rank 1 from growing, both ranks return its reason, and can go on.
func TestSymmetricAllocatorFailsOnAllRanks(t *testing.T) {
	undone := func(r *rank) error { return nil }
	for name, c := range map[string]struct {
		fail   func(*rank) (host.Stream, error)
		undo   func(*rank) error
		reason string
	}{
		"an unknown stream": {func(*rank) (host.Stream, error) { return unknownStream{}, nil }, undone, "CUDA_ERROR_INVALID_HANDLE"},
		"a failed query": {func(r *rank) (host.Stream, error) {
			r.driver.Fail("CaptureInfo", 0, cuda.InvalidValue)
			return r, nil
		}, undone, "CUDA_ERROR_INVALID_VALUE"},
		"a capture": {func(r *rank) (host.Stream, error) {
			return r, r.driver.BeginCapture(r.ctx, r.stream)
		}, func(r *rank) error {
			g, err := r.driver.EndCapture(r.ctx, r.stream)
			return errors.Join(err, r.driver.DestroyGraph(g))
		}, "the stream is being captured"},
	} {
		t.Run(name, func(t *testing.T) {
			deviceWorld(t, 2, func(r *rank) error {
				a, err := r.NewAllocator(host.AllocatorOptions{Symmetric: true})
				if err != nil {
					return err
				}
				stream := host.Stream(r)
				undo := undone
				if r.Rank() == 1 {
					if stream, err = c.fail(r); err != nil {
						return err
					}
					undo = c.undo
				}
				_, failed := a.Alloc(1000, stream)
				if err := undo(r); err != nil {
					return err
				}
				want := fmt.Sprintf("alloc on rank %d: rank 1: ", r.Rank())
				if failed == nil || !strings.HasPrefix(failed.Error(), want) || !strings.Contains(failed.Error(), c.reason) {
					return fmt.Errorf("want %q and %q, got %w", want, c.reason, failed)
				}
				p, err := a.Alloc(1000, r)
				if err != nil {
					return err
				}
				return errors.Join(a.Free(p, r), r.sync(), a.Destroy())
			})
		})
	}
}

var unknown byte

type unknownStream struct{}

func (unknownStream) Handle() unsafe.Pointer { return unsafe.Pointer(&unknown) }

// Whichever rank runs out of memory: all ranks get the error, after the cached segments were given back and were not
// enough.
func TestAllocatorOutOfMemory(t *testing.T) {
	for _, symmetric := range []bool{false, true} {
		t.Run(fmt.Sprint("symmetric ", symmetric), func(t *testing.T) {
			deviceWorld(t, 2, func(r *rank) error {
				a, err := r.NewAllocator(host.AllocatorOptions{Symmetric: symmetric, SegmentBytes: 4 << 20})
				if err != nil {
					return err
				}
				p, err := a.Alloc(3<<20, r)
				if err != nil {
					return err
				}
				if err := errors.Join(a.Free(p, r), r.sync(), r.meet()); err != nil {
					return err
				}
				// Not enough for the second segment: the first is given back, and then there is room.
				if !symmetric || r.Rank() == 1 {
					r.driver.Fail("CreateMemory", 0, cuda.OutOfMemory)
				}
				if p, err = a.Alloc(5<<20, r); err != nil {
					return err
				}
				if s := a.Stats(); s.Segments != 1 || s.InUse != 5<<20 || s.Cached != 1<<20 {
					return fmt.Errorf("after a retry: %+v", s)
				}
				if err := r.meet(); err != nil {
					return err
				}
				r.driver.Limit(2 << 20) // never enough
				_, err = a.Alloc(9<<20, r)
				for _, part := range []string{"9437184 bytes (a segment of 10485760)", "5242880 bytes in use in 1 blocks",
					"1048576 cached in 1 segments", "CUDA_ERROR_OUT_OF_MEMORY"} {
					if plugin.CodeOf(err) != plugin.OutOfMemory || !strings.Contains(err.Error(), part) {
						return fmt.Errorf("%q is not in: %w", part, err)
					}
				}
				r.driver.Limit(0)
				return errors.Join(r.meet(), a.Free(p, r), r.sync(), a.Destroy())
			})
		})
	}
}

// Errors of wrong calls say what is wrong.
func TestAllocatorRefusals(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		a, err := r.NewAllocator(host.AllocatorOptions{})
		if err != nil {
			return err
		}
		other, err := r.NewAllocator(host.AllocatorOptions{})
		if err != nil {
			return err
		}
		p, err := a.Alloc(1000, r)
		if err != nil {
			return err
		}
		freed, err := a.Alloc(1000, r)
		if err = errors.Join(err, a.Free(freed, r)); err != nil {
			return err
		}
		_, negative := a.Alloc(-1, r)
		_, none := a.Alloc(0, r)
		_, huge := a.Alloc(1<<62+1, r)
		_, options := r.NewAllocator(host.AllocatorOptions{SegmentBytes: -1})
		for _, refused := range []struct {
			err  error
			want string
		}{
			{negative, "alloc on rank %d: -1 bytes; want 1 to"}, {none, "alloc on rank %d: 0 bytes; want 1 to"},
			{huge,
				"alloc on rank %d: 4611686018427387905 bytes; want 1 to"}, {options, "new_allocator on rank %d: segments of -1 bytes"},
			{a.Free(freed, r), "the memory is free already"},
			{a.Free(unsafe.Add(p, 512), r), "it lies 512 bytes into the block at"},
			{other.Free(p, r), "it is not memory of this allocator, which serves device %d"},
			{a.Free(nil, r), "it is not memory of this allocator"},
			{a.RecordStream(freed, r), "record_stream on rank %d"}, {a.Reserve(0), "reserve on rank %d: 0 bytes"},
			{a.Destroy(), "1 blocks of 1024 bytes are allocated; free them first"},
		} {
			want := refused.want
			if strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, r.Rank())
			}
			if plugin.CodeOf(refused.err) != plugin.InvalidArgument || !strings.Contains(refused.err.Error(), want) {
				return fmt.Errorf("%q is not in: %w", want, refused.err)
			}
		}
		err = errors.Join(a.Free(p, r), r.sync(), a.Destroy(), other.Destroy())
		_, used := a.Alloc(1, r)
		if err != nil || plugin.CodeOf(used) != plugin.Closed || plugin.CodeOf(a.Destroy()) != plugin.Closed ||
			plugin.CodeOf(a.Reserve(1)) != plugin.Closed || plugin.CodeOf(a.Trim()) != plugin.Closed {
			return fmt.Errorf("after destroy: %w, %w", err, used)
		}
		return nil
	})
	world(t, 2, func(c *host.Communicator) error {
		if _, err := c.NewAllocator(host.AllocatorOptions{}); plugin.CodeOf(err) != plugin.Unsupported {
			return fmt.Errorf("an allocator of host memory: %w", err)
		}
		return nil
	})
}

// While a stream does not move, nothing but Destroy waits for it, and that not for ever: all memory stays then, as
// ranks may differ in what has ended, and everything else continues.
func TestAllocatorsWaitForNoStream(t *testing.T) {
	t.Cleanup(host.ReplaceDestroyWait(20 * time.Millisecond))
	for _, symmetric := range []bool{false, true} {
		t.Run(fmt.Sprint("symmetric ", symmetric), func(t *testing.T) {
			deviceWorld(t, 2, func(r *rank) error {
				a, err := r.NewAllocator(host.AllocatorOptions{Symmetric: symmetric, SegmentBytes: 2 << 20})
				if err != nil {
					return err
				}
				word, err := r.driver.AllocHost(r.ctx, 8)
				if err != nil {
					return err
				}
				held, err := a.Alloc(2<<20, r)
				if err == nil {
					err = errors.Join(r.driver.WaitValue(r.ctx, r.stream, word.Device, 1), a.Free(held, r), a.Trim())
				}
				other, failed := a.Alloc(3<<20, nil)
				if err = errors.Join(err, failed, a.Free(other, nil), r.Synchronize(nil), a.Trim()); err != nil {
					return err
				}
				if s := a.Stats(); s.Segments != 1 || s.Cached != 2<<20 {
					return fmt.Errorf("the stream's segment should be all there is: %+v", s)
				}
				other, err = a.Alloc(3<<20, nil)
				if err = errors.Join(err, a.Free(other, nil), r.Synchronize(nil)); err != nil {
					return err
				}
				if err := a.Destroy(); plugin.CodeOf(err) != plugin.Timeout ||
					!strings.Contains(err.Error(), " 2097152 bytes are still used by work that has not ended") {
					return fmt.Errorf("destroy before the end of the work: %w", err)
				}
				if s := a.Stats(); s.Segments != 2 {
					return fmt.Errorf("a destroy that fails should change nothing: %+v", s)
				}
				return errors.Join(r.driver.WriteValue(r.ctx, 0, word.Device, 1), r.sync(), a.Destroy(),
					r.driver.FreeHost(r.ctx, word))
			})
		})
	}
}

// What a program registers of a symmetric allocator's memory ends by itself: the segment stays symmetric, also while
// only one rank has deregistered.
func TestDeregisterLeavesAnAllocatorsSegmentSymmetric(t *testing.T) {
	const n, count = 2, 100
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		a, err := r.NewAllocator(host.AllocatorOptions{Symmetric: true})
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		p, err := a.Alloc(4*n*count, r) // where its segment begins
		if err != nil {
			return err
		}
		gather := func() error {
			by, err := copied(r, func() error { return r.AllGather(pointer(b[0]), p, count, plugin.Float32, r) })
			if err == nil && by != n {
				err = fmt.Errorf("%d ranks by copies, want %d", by, n)
			}
			return errors.Join(err, r.expect(device(p), append(block(0, 0, count), block(1, 0, count)...)))
		}
		if err = errors.Join(r.Register(p, 4*n*count), gather()); err == nil && r.Rank() == 0 {
			err = r.Deregister(p)
		}
		if err = errors.Join(err, gather()); err != nil {
			return fmt.Errorf("rank 0 has deregistered: %w", err)
		}
		if r.Rank() == 1 {
			err = r.Deregister(p)
		}
		if err = errors.Join(err, gather()); err != nil {
			return fmt.Errorf("both have deregistered: %w", err)
		}
		if err = errors.Join(r.RegisterSymmetric(p, 4*n*count), gather(), r.Deregister(p), gather()); err != nil {
			return fmt.Errorf("registered as symmetric: %w", err)
		}
		err = errors.Join(a.Free(p, r), r.sync(), a.Trim())
		if s := a.Stats(); err != nil || s.Segments != 0 {
			return fmt.Errorf("a trim left %+v, %w", s, err)
		}
		return done(a.Destroy())
	})
}
