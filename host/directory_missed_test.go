package host_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// Programs map and unmap memory by handle as they like. Whatever they do, it is
// exported by the calls that use it, on their own goroutine: the driver of these tests
// (gpus) reports every other export, which would break a real driver's heap.
func TestMemoryByHandleIsExportedByCallsAlone(t *testing.T) {
	oneDirect(t)
	const n, count, pieces = 2, long, 6
	rounds := fewer(300, 100)[0]
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(pieces*2*mib, pieces)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		random := rand.New(rand.NewPCG(1, 2)) // alike on all ranks
		direct := int64(0)
		for round := range rounds {
			if random.IntN(4) == 0 {
				piece := int64(random.IntN(pieces)) * 2 * mib
				if err := errors.Join(r.meet(), s.Unmap(piece), s.Map(piece, 2*mib)); err != nil {
					return err
				}
			}
			at := s.Address() + cuda.Ptr(random.IntN(pieces-1)*2*mib+random.IntN(mib)/4*4)
			more, err := gatherLong(r, b[0], at, count, float32(round))
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			direct += more
		}
		if direct == 0 {
			return errors.New("no call went directly, so nothing was exported")
		}
		return done(errors.Join(r.Communicator.Close(), s.Free()))
	})
}

// What only replays use is exported as it is captured, for no call is given it later.
func TestCapturedMemoryByHandleIsReachedByReplays(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(4*mib, 2)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		g, err := r.graph(func() error {
			return r.AllGather(pointer(b[0]), pointer(s.Address()+mib), count, plugin.Float32, r)
		})
		if err != nil {
			return err
		}
		replay := func() (int64, error) {
			before := cudaipctest.Direct.Load()
			err := errors.Join(r.meet(), g.replay(), r.meet())
			return cudaipctest.Direct.Load() - before, err
		}
		for round := 0; ; round++ {
			direct, err := replay()
			if err != nil || round > 500 {
				return errors.Join(err, errors.New("replays never went directly"))
			}
			if all, err := everyoneSays(r, direct == n); err != nil || all {
				return done(errors.Join(err, g.destroy(), r.Communicator.Close(), s.Free()))
			}
		}
	})
}

// everyoneSays is everyone with memory of its own.
func everyoneSays(r *rank, yes bool) (bool, error) {
	b, done := r.buffers(1, 1)
	all, err := everyone(r, b[0], b[1], yes)
	return all, done(err)
}

// A group receives into one tensor by parts, but for its own: what a kernel needs is one export from the first to the
// last.
func TestGroupsExportTheMemoryOfAllTheirReceives(t *testing.T) {
	const n, count = 3, 400_000 // messages that go past the channel
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(16*mib, 8)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		exported := func() bool {
			for _, e := range host.Exports(r.Communicator) {
				first, last := 0, n // of the parts, its own aside
				if r.Rank() == 0 {
					first = 1
				} else if r.Rank() == n-1 {
					last = n - 1
				}
				if e[0] <= int64(s.Address())+int64(first*count*4) && e[0]+e[1] >= int64(s.Address())+int64(last*count*4) {
					return true
				}
			}
			return false
		}
		for round := 0; ; round++ {
			var group host.Group
			for p := range n {
				if p == r.Rank() {
					continue
				}
				at := s.Address() + cuda.Ptr(p*count*4)
				group.Add(host.Operation{Collective: plugin.Send, DType: plugin.Float32, Send: pointer(b[0]), Count: count, Root: p,
					Stream: r})
				group.Add(host.Operation{Collective: plugin.Recv, DType: plugin.Float32, Recv: pointer(at), Count: count, Root: p,
					Stream: r})
			}
			if err := errors.Join(group.Run(r.Communicator), r.meet()); err != nil || round > 500 {
				return errors.Join(err, errors.New("the group's memory was never exported as one"))
			}
			if all, err := everyoneSays(r, exported()); err != nil || all {
				return done(errors.Join(err, r.Communicator.Close(), s.Free()))
			}
		}
	})
}

// What a peer could not map once is tried again, and a registration waits for that.
func TestRefusedImportsAreTriedAgain(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	for _, test := range []struct {
		call               string
		pieces, registered bool
	}{{"EnablePeer", false, false}, {"ImportRange", true, false}, {"ImportRange", true, true}} {
		call, pieces := test.call, test.pieces
		t.Run(fmt.Sprintf("%s, registered %v", call, test.registered), func(t *testing.T) {
			deviceWorld(t, n, func(r *rank) error {
				b, done := r.buffers(count, n*count)
				recv, free := b[1], func() error { return nil }
				if pieces {
					s, err := r.segment(2*mib, 1)
					if err != nil {
						return err
					}
					recv, free = s.Address(), s.Free
				}
				if r.Rank() == 1 {
					r.driver.Fail(call, 0, cuda.OutOfMemory)
				}
				r.all.meet() // else rank 1 may have imported what rank 0 registers before its driver refuses
				var err error
				if test.registered {
					err = r.Register(pointer(recv), 2*mib)
				}
				err = errors.Join(err, directly(r, b[0], recv, count))
				if r.Rank() == 1 && r.driver.Pending(call) {
					err = errors.Join(err, errors.New("nothing was refused"))
				}
				return done(errors.Join(err, r.Communicator.Close(), free()))
			})
		})
	}
}

// Graphs hold addresses. Other memory may be mapped there between two replays: what
// replays write must arrive in it, at once after Deregister, and otherwise soon, without
// a call.
func TestReplaysOntoMemoryThatIsMappedAnew(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprintf("told %v", told), func(t *testing.T) {
			agree := agreement(n)
			deviceWorld(t, n, func(r *rank) error {
				s, err := r.segment(2*mib, 1)
				if err != nil {
					return err
				}
				b, done := r.buffers(count)
				if err := r.fill(b[0], count, 1+float32(r.Rank())); err != nil {
					return err
				}
				g, err := r.graph(func() error {
					return r.AllGather(pointer(b[0]), pointer(s.Address()), count, plugin.Float32, r)
				})
				if err != nil {
					return err
				}
				for direct := false; !direct; {
					before := cudaipctest.Direct.Load()
					agree(true)
					err := g.replay()
					agree(true)
					if direct = cudaipctest.Direct.Load() == before+n; !agree(err == nil) {
						return err
					}
				}
				if told {
					err = r.Deregister(pointer(s.Address()))
				}
				err = errors.Join(err, s.Unmap(0), s.Map(0, 2*mib))
				if !told {
					err = errors.Join(err, eventually("the memory to be withdrawn", func() bool {
						for _, e := range host.Exports(r.Communicator) {
							if e[0] == int64(s.Address()) {
								return false
							}
						}
						return true
					}))
				}
				if !agree(err == nil) {
					return errors.Join(err, errors.New("a rank has failed"))
				}
				err = g.replay()
				for p := range n {
					got, failed := r.read(s.Address()+cuda.Ptr(4*p*count), count)
					err = errors.Join(err, failed)
					if failed == nil && (got[0] != 1+float32(p) || got[count-1] != got[0]) {
						err = errors.Join(err, fmt.Errorf("rank %d's block is %v to %v", p, got[0], got[count-1]))
					}
				}
				return done(errors.Join(err, g.destroy(), r.Communicator.Close(), s.Free()))
			})
		})
	}
}

// A kernel that has found an export may still wait for peers: they keep it mapped when
// it is withdrawn, until the kernel ends.
func TestWithdrawnMemoryStaysMappedForTheKernelInFlight(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	agree := agreement(n)
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count, n*count)
		if err := r.Register(pointer(b[1]), n*count*4); err != nil {
			return err
		}
		if err := gatherDirectly(r, b[0], b[1], count, 1); err != nil {
			return err
		}
		if err := r.fill(b[0], count, 7+float32(r.Rank())); err != nil {
			return err
		}
		gather := func() error {
			return r.AllGather(pointer(b[0]), pointer(b[1]), count, plugin.Float32, r)
		}
		agree(true)
		before := cudaipctest.Direct.Load()
		var err error
		if r.Rank() == 0 {
			err = errors.Join(gather(), eventually("the kernel to begin", func() bool { return host.Begun(r.Communicator) }),
				r.Deregister(pointer(b[1])),
				eventually("its end to be awaited", func() bool { return host.Awaited(r.Communicator) == 1 }))
		}
		agree(true)
		if r.Rank() == 1 {
			err = errors.Join(err, gather())
		}
		if err = errors.Join(err, r.sync()); err != nil {
			return err
		}
		agree(true)
		if direct := cudaipctest.Direct.Load() - before; direct != n {
			return fmt.Errorf("%d calls went directly, so nothing was in flight", direct)
		}
		for p := range n {
			if got, err := r.read(b[1]+cuda.Ptr(4*p*count), 1); err != nil || got[0] != 7+float32(p) {
				return fmt.Errorf("rank %d's block is %v, %w", p, got, err)
			}
		}
		return done(eventually("the withdrawal to end", func() bool {
			return r.Rank() == 1 ||
				host.Awaited(r.Communicator) == 0
		}))
	})
}
