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
// exported by calls that were given it, on their own goroutine: the driver of these
// tests tells of every other one (gpus), which is how a real one's heap breaks.
func TestMemoryByHandleIsExportedByCallsAlone(t *testing.T) {
	oneDirect(t)
	const n, count, pieces = 2, long, 6
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(pieces*2*mib, pieces)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		random := rand.New(rand.NewPCG(1, 2)) // alike on all ranks
		direct := int64(0)
		for round := range 300 {
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
		if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
			return err
		}
		err = r.AllGather(pointer(b[0]), pointer(s.Address()+mib), count, plugin.Float32, r)
		graph, ended := r.driver.EndCapture(r.ctx, r.stream)
		if err = errors.Join(err, ended); err != nil {
			return err
		}
		x, err := r.driver.Instantiate(r.ctx, graph)
		if err != nil {
			return err
		}
		replay := func() (int64, error) {
			before := cudaipctest.Direct.Load()
			err := errors.Join(r.meet(), r.driver.LaunchGraph(r.ctx, x, r.stream), r.driver.SynchronizeStream(r.ctx, r.stream), r.meet())
			return cudaipctest.Direct.Load() - before, err
		}
		for round := 0; ; round++ {
			direct, err := replay()
			if err != nil || round > 500 {
				return errors.Join(err, errors.New("replays never went directly"))
			}
			if all, err := everyoneSays(r, direct == n); err != nil || all {
				return done(errors.Join(err, r.driver.DestroyGraphExec(x), r.driver.DestroyGraph(graph), r.Communicator.Close(), s.Free()))
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

// A group receives into one tensor by parts, but for its own: what a kernel wants is
// one export from the first to the last.
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
				group.Add(host.Operation{Collective: plugin.Send, DType: plugin.Float32, Send: pointer(b[0]), Count: count, Root: p, Stream: r})
				group.Add(host.Operation{Collective: plugin.Recv, DType: plugin.Float32, Recv: pointer(at), Count: count, Root: p, Stream: r})
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
