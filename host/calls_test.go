package host_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// unmarked is a transport whose plans leave no room for marks.
type unmarked struct{ shm.Transport }

func (u unmarked) Info() plugin.Info {
	info := u.Transport.Info()
	info.Name, info.Features = "unmarked", info.Features&^plugin.FeatureMarks
	return info
}

// bare is a transport without plans: the generic algorithms do it all.
type bare struct{ shm.Transport }

func (b bare) Info() plugin.Info {
	info := b.Transport.Info()
	info.Name = "bare"
	return info
}

func (bare) Supports(plugin.Request) plugin.Support { return plugin.Support{Reason: "it is bare"} }

func init() {
	host.Register(unmarked{})
	host.Register(bare{})
}

// odd is the rank of dissenters that calls something else.
const dissenters, odd = 3, 1

// callOf describes a call in a test; operation makes an Operation of it.
type callOf struct {
	collective plugin.Collective
	dtype      plugin.DType
	op         plugin.Op
	root       int
	count      int64
	uneven     bool // of collectives with counts of their own: one pair's is larger
}

// operation returns the call on a rank, with memory from a fence.
func (w callOf) operation(rank int, f *fence) *host.Operation {
	const n = dissenters
	op := &host.Operation{Collective: w.collective, DType: w.dtype, Op: w.op, Root: w.root, Count: w.count}
	// What rank a gives to rank b.
	given := func(a, b int) int64 {
		if w.uneven && (a == odd || w.collective == plugin.ScatterV) && b != a && rank == odd {
			return w.count + 1
		}
		return w.count
	}
	even := func(of func(peer int) int64) (counts []int64) {
		for peer := range n {
			counts = append(counts, of(peer))
		}
		return counts
	}
	send, recv := w.count, w.count
	switch w.collective {
	case plugin.AllGather, plugin.Gather:
		recv *= n
	case plugin.ReduceScatter, plugin.Scatter:
		send *= n
	case plugin.AllToAll:
		send, recv = send*n, recv*n
	case plugin.AllGatherV, plugin.ReduceScatterV:
		counts := even(func(block int) int64 {
			if w.uneven && block == 0 {
				return w.count + 1
			}
			return w.count
		})
		if w.collective == plugin.AllGatherV {
			op.RecvCounts, op.Count, recv = counts, counts[rank], n*w.count+1
			send = op.Count
		} else {
			op.SendCounts, send, recv = counts, n*w.count+1, counts[rank]
		}
	case plugin.AllToAllV:
		op.SendCounts = even(func(to int) int64 { return given(rank, to) })
		op.RecvCounts = even(func(int) int64 { return w.count })
		send, recv = n*(w.count+1), n*w.count
	case plugin.GatherV:
		if w.uneven && rank == odd {
			op.Count = w.count + 1
		}
		send, recv = op.Count, n*w.count
		if rank == w.root {
			op.RecvCounts = even(func(int) int64 { return w.count })
		}
	case plugin.ScatterV:
		if w.uneven && rank == odd {
			op.Count = w.count + 1
		}
		send, recv = n*w.count, op.Count
		if rank == w.root {
			op.SendCounts = even(func(int) int64 { return w.count })
		}
	}
	size := w.dtype.Bytes()
	op.Send, op.Recv = f.at(0, send*size), f.at(1, recv*size)
	return op
}

// fence is memory that ends where none is: a read or write past what a call was given is a fault.
type fence struct {
	t     *testing.T
	areas [2][]byte
}

const fenceBytes = 4 << 20

func newFence(t *testing.T) *fence {
	f := &fence{t: t}
	page := syscall.Getpagesize()
	for i := range f.areas {
		area, err := syscall.Mmap(-1, 0, fenceBytes+page, syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON)
		require.NoError(t, err)
		require.NoError(t, syscall.Mprotect(area[fenceBytes:], syscall.PROT_NONE))
		f.areas[i] = area[:fenceBytes]
		t.Cleanup(func() { require.NoError(t, syscall.Munmap(area)) })
	}
	return f
}

const untouched = 0x5A

// at returns the address of so many bytes at the end of an area. What lies before them is
// marked.
func (f *fence) at(i int, bytes int64) unsafe.Pointer {
	before := f.areas[i][:fenceBytes-bytes]
	before = before[max(0, len(before)-4096):]
	for k := range before {
		before[k] = untouched
	}
	if bytes == 0 {
		return nil
	}
	return unsafe.Pointer(&f.areas[i][fenceBytes-bytes])
}

// intact reports whether nothing was written before what at gave last.
func (f *fence) intact(send, recv unsafe.Pointer) error {
	for i, p := range []unsafe.Pointer{send, recv} {
		end := fenceBytes
		if p != nil {
			end = int(uintptr(p) - uintptr(unsafe.Pointer(&f.areas[i][0])))
		}
		for k, b := range f.areas[i][max(0, end-4096):end] {
			if b != untouched {
				return fmt.Errorf("area %d was written %d bytes before its memory: %w", i, min(end, 4096)-k, errWrong)
			}
		}
	}
	return nil
}

// differences returns the ways in which a rank's call can differ from a call.
func differences(w callOf) map[string]callOf {
	all := map[string]callOf{}
	add := func(name string, change func(*callOf)) {
		other := w
		change(&other)
		all[name] = other
	}
	add("collective", func(o *callOf) {
		o.collective = plugin.AllReduce
		if w.collective == plugin.AllReduce {
			o.collective = plugin.AllGather
		}
	})
	if w.collective == plugin.Barrier {
		return all
	}
	add("dtype of another size", func(o *callOf) { o.dtype = plugin.Float64 })
	add("dtype of the same size", func(o *callOf) { o.dtype = plugin.Int32 })
	if w.collective.Reduces() {
		add("op", func(o *callOf) { o.op = plugin.OpMax })
	}
	if w.collective.Rooted() {
		add("root", func(o *callOf) { o.root = odd })
	}
	if w.collective.Varying() {
		add("counts", func(o *callOf) { o.uneven = true })
	} else {
		add("count", func(o *callOf) { o.count++ })
		add("larger count", func(o *callOf) { o.count += 20_000 })
	}
	return all
}

// Every collective, with every argument in which a rank may differ from the others, in the first call of a communicator
// and when all plans are known: all ranks soon return an error, and nothing outside their memory was touched.
func TestRanksThatDisagreeAreTold(t *testing.T) {
	for _, transport := range []string{"shm", "bare", "unmarked"} {
		t.Run(transport, func(t *testing.T) {
			for _, collective := range plugin.Collectives() {
				if collective.PointToPoint() {
					continue
				}
				for _, count := range []int64{2, 3000, 50_000} {
					w := callOf{collective: collective, dtype: plugin.Float32, count: count}
					all := differences(w)
					for i, difference := range slices.Sorted(maps.Keys(all)) {
						other := all[difference]
						for j, known := range callsBefore {
							if transport != "shm" && count == 2 && (i+int(collective))%len(callsBefore) != j {
								continue // each difference with one of them; shm has all
							}
							if count > 2 && known > 0 {
								if count == 3000 { // its first call is enough, between the two others
									continue
								}
								known = 20
							}
							t.Run(fmt.Sprintf("%s/%s/%d/%d", collective, difference, count, known), func(t *testing.T) {
								t.Parallel()
								testDissent(t, transport, w, other, known)
							})
						}
					}
				}
			}
		})
	}
}

func testDissent(t *testing.T, transport string, all, other callOf, known int) {
	fences := [dissenters]*fence{}
	for rank := range fences {
		fences[rank] = newFence(t)
	}
	var late [dissenters]time.Duration
	errs := worldErrors(t, dissenters, func(_ int, o *host.Options) {
		o.Timeout, o.Transports = time.Minute, []string{"builtin:" + transport}
	}, func(c *host.Communicator) error {
		rank := c.Rank()
		f := fences[rank]
		alike := other
		alike.uneven = false
		for i := range known { // and the plan of the other call is known too
			w := all
			if i%2 == 1 {
				w = alike
			}
			if err := c.Do(w.operation(rank, f)); err != nil {
				return fmt.Errorf("call %d, alike: %w", i, err)
			}
		}
		w := all
		if rank == odd {
			w = other
		}
		op := w.operation(rank, f)
		began := time.Now()
		err := c.Do(op)
		switch all.collective {
		case plugin.AllReduce, plugin.AllGather, plugin.AllGatherV, plugin.ReduceScatter, plugin.ReduceScatterV,
			plugin.AllToAll, plugin.AllToAllV, plugin.Barrier:
			// Every rank waits for all others, so all return the error; but a rank that gives a block of another length has
			// received all of its own.
			if err == nil && !(w.uneven && w.collective == plugin.AllToAllV) {
				return fmt.Errorf("the call itself ended well: %w", errWrong)
			}
		}
		// A rank that waits for no other returns it later.
		err = errors.Join(err, eventually("the verdict", func() bool { return c.Err() != nil }), c.Err())
		late[rank] = time.Since(began)
		return errors.Join(err, f.intact(op.Send, op.Recv))
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.NotErrorIs(t, err, errWrong, "rank %d", rank)
		require.ErrorContains(t, err, "ranks disagree", "rank %d", rank)
		require.ErrorContains(t, err, fmt.Sprintf("rank %d", odd), "rank %d", rank)
		require.ErrorContains(t, err, all.collective.String(), "rank %d", rank)
		require.Less(t, late[rank], 4*time.Second, "rank %d", rank)
	}
}

// A semaphore that has long not been raised still bears the mark of the call that raised it last: not of one of this
// call's number, and of no call that is remembered, however many calls have come between.
func TestCallsOfLongAgoAreNotTakenForTheLatest(t *testing.T) {
	for _, transport := range []string{"shm", "bare"} {
		for _, between := range []plugin.Collective{plugin.Barrier, plugin.Broadcast} {
			for _, count := range fewer[int64](50_000, 2048) {
				t.Run(fmt.Sprintf("%s/%s/%d", transport, between, count), func(t *testing.T) {
					t.Parallel()
					testCallsOfLongAgo(t, transport, between, count)
				})
			}
		}
	}
}

func testCallsOfLongAgo(t *testing.T, transport string, between plugin.Collective, count int64) {
	fences := [dissenters]*fence{}
	for rank := range fences {
		fences[rank] = newFence(t)
	}
	require.NoError(t, errors.Join(worldErrors(t, dissenters, func(_ int, o *host.Options) {
		o.Timeout, o.Transports = time.Minute, []string{"builtin:" + transport}
	}, func(c *host.Communicator) error {
		f := fences[c.Rank()]
		small := callOf{collective: between, dtype: plugin.Float32, count: 2}.operation(c.Rank(), f)
		calls := 0
		do := func(op *host.Operation) error {
			calls++
			return c.Do(op)
		}
		for _, apart := range []int{1 << 16, 1<<16 + 40} { // in 16 bits the same number, and one that is remembered
			for again := range 2 {
				last := calls + apart
				for _, collective := range plugin.Collectives() {
					if collective.PointToPoint() {
						continue
					}
					w := callOf{collective: collective, dtype: plugin.Float32, count: count}
					if err := do(w.operation(c.Rank(), f)); err != nil {
						return fmt.Errorf("%s, call #%d, %d apart: %w", collective, calls, apart, err)
					}
				}
				for again == 0 && calls < last {
					if err := do(small); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})...))
}

// Two ranks that both take themselves for the root only write. The next call in which
// they wait for each other tells them, a barrier as well as any.
func TestTwoRootsAreToldByTheNextCall(t *testing.T) {
	for name, next := range map[string]func(c *host.Communicator, x []float32) error{
		"barrier":    func(c *host.Communicator, _ []float32) error { return c.Barrier(nil) },
		"all_reduce": func(c *host.Communicator, x []float32) error { return c.Do(summed(x)) },
	} {
		t.Run(name, func(t *testing.T) {
			errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
				x := make([]float32, 4)
				broadcast := func(root int) error { return c.Broadcast(at(x), at(x), 4, plugin.Float32, root, nil) }
				for i := range 20 {
					if err := errors.Join(broadcast(i%2), next(c, x)); err != nil {
						return fmt.Errorf("calls that are alike: %w", err)
					}
				}
				if err := broadcast(c.Rank()); err != nil {
					return err
				}
				if err := next(c, x); err != nil {
					return err
				}
				return errWrong
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.NotErrorIs(t, err, errWrong, "rank %d", rank)
				require.ErrorContains(t, err, "called #41 broadcast, count 4 of float32, root 0", "rank %d", rank)
				require.ErrorContains(t, err, "called #41 broadcast, count 4 of float32, root 1", "rank %d", rank)
			}
		})
	}
}
