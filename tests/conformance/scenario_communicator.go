package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
)

// several returns a few different operations to have in flight together.
func (s *stage) several(round int, count int64) []*Case {
	var cases []*Case
	for i, collective := range []plugin.Collective{plugin.AllReduce, plugin.AllToAllV, plugin.Broadcast, plugin.AllGather,
		plugin.Barrier, plugin.ReduceScatter} {
		c := s.with(round*10+i, collective, count>>(i%3))
		c.Root = (round + i) % c.World
		cases = append(cases, c)
	}
	return cases
}

func nonBlocking(ctx context.Context, s *stage) error {
	var requests []*host.Request
	defer func() { // an error that was not asked for is that of Close
		for _, r := range requests {
			if r != nil {
				_, _ = r.Test()
			}
		}
	}()
	for round := range s.c.Repeat {
		list, err := s.prepare(s.comm, s.several(round, s.c.Count))
		if err != nil {
			return err
		}
		if err := push(list, s.line()); err != nil {
			return err
		}
		requests = make([]*host.Request, len(list))
		for i, p := range list {
			p.op.Stream = device.Stream(s.line())
			if requests[i], err = s.comm.Start(&p.op); err != nil {
				return fmt.Errorf("start %d: %w", i, s.rank.notOffered(s.comm, err, p.c))
			}
		}
		last := len(requests) - 1
		for {
			done, err := requests[last].Test()
			if err != nil {
				return fmt.Errorf("test: %w", s.rank.notOffered(s.comm, err, list[last].c))
			}
			if done {
				break
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			runtime.Gosched()
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // to the other ranks, which may be more than processors
		}
		// They end in the order they were started, so all have ended.
		for i := last; i >= 0; i-- {
			done, err := requests[i].Test()
			if err != nil {
				return fmt.Errorf("operation %d: %w", i, s.rank.notOffered(s.comm, err, list[i].c))
			}
			if !done {
				return fmt.Errorf("operation %d has not ended though %d has", i, last)
			}
			if err := requests[i].Wait(ctx); err != nil {
				return fmt.Errorf("wait %d: %w", i, err)
			}
		}
		if err := errors.Join(pull(list, s.line()), s.settle(s.comm), verifyAll(list)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func twoCommunicators(_ context.Context, s *stage) error {
	first, err := s.prepare(s.comm, append(s.several(1, s.c.Count), s.several(2, s.c.Count)...))
	if err != nil {
		return err
	}
	half := len(first) / 2
	errs := make([]error, 2)
	if err := errors.Join(push(first, s.line()), s.settle(s.comm)); err != nil {
		return err
	}
	var group sync.WaitGroup
	for i, comm := range s.rank.comms {
		part := first[i*half : (i+1)*half]
		var line cuda.Stream // on a device, each communicator has its own
		if s.rank.device != nil {
			line = s.rank.device.Streams[i]
		}
		for _, p := range part {
			p.op.Stream = device.Stream(line)
		}
		group.Go(func() {
			for round := range s.c.Repeat {
				for _, p := range part {
					if err := s.rank.notOffered(comm, comm.Do(&p.op), p.c); err != nil {
						errs[i] = fmt.Errorf("communicator %d, round %d, %s: %w", i, round, p.c.Name(), err)
						return
					}
				}
			}
			if s.rank.device != nil {
				errs[i] = errors.Join(pull(part, line), comm.Synchronize(device.Stream(line)))
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return verifyAll(first)
}

func splitGroups(ctx context.Context, s *stage) error {
	world := s.comm.World()
	splits := []struct {
		name       string
		color, key func(rank int) int
	}{
		{"one group, reversed", func(int) int { return 7 }, func(r int) int { return -r }},
		{"even and odd", func(r int) int { return r % 2 }, func(int) int { return 0 }},
		{"everybody alone", func(r int) int { return r }, func(int) int { return 0 }},
		{"all but rank 0", func(r int) int {
			if r == 0 {
				return host.NoColor
			}
			return 3
		}, func(r int) int { return r }},
	}
	for number, split := range splits {
		color := split.color(s.me)
		sub, err := s.comm.Split(ctx, color, split.key(s.me))
		if err != nil {
			return fmt.Errorf("%s: %w", split.name, err)
		}
		if color == host.NoColor {
			if sub != nil {
				return errors.Join(fmt.Errorf("%s: rank %d is in a group it did not ask for", split.name, s.me), sub.Close())
			}
		} else if err := s.inGroup(number, sub, world, color, split.color, split.key); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", split.name, err), sub.Close())
		}
		parent := s.with(1000+number, plugin.AllReduce, s.c.Count)
		if err := s.run(number, s.comm, parent); err != nil {
			return fmt.Errorf("the parent, with the group open: %w", err)
		}
		if sub != nil {
			if err := sub.Close(); err != nil {
				return fmt.Errorf("%s: close: %w", split.name, err)
			}
		}
		if err := s.run(number, s.comm, parent); err != nil {
			return fmt.Errorf("the parent, with the group closed: %w", err)
		}
	}
	return nil
}

// inGroup checks a group's ranks and runs collectives on it.
func (s *stage) inGroup(number int, sub *host.Communicator, world, color int, colorOf, keyOf func(int) int) error {
	size, place := 0, 0
	for r := range world {
		if colorOf(r) != color {
			continue
		}
		size++
		if keyOf(r) < keyOf(s.me) || keyOf(r) == keyOf(s.me) && r < s.me {
			place++
		}
	}
	if sub.World() != size || sub.Rank() != place {
		return fmt.Errorf("rank %d of %d, want rank %d of %d", sub.Rank(), sub.World(), place, size)
	}
	inner := *s
	inner.comm = sub
	for round := range s.c.Repeat {
		for i, collective := range s.whole() {
			h := hash(s.c.Seed, uint64(number), uint64(round), uint64(i))
			c := inner.with(number*1000+round*100+i+color*7919, collective, s.c.Count)
			c.Root = int(h % uint64(size))
			if err := inner.run(round, sub, c); err != nil {
				return err
			}
		}
	}
	return nil
}
