package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// mistakeLimit bounds the time until a call that cannot succeed fails. It may wait for longer, until its deadline.
const mistakeLimit = 100 * time.Millisecond

// mistakes has one rank call something else than the others. No call may succeed that needs what that rank did not
// call. Each mistake has a communicator of its own, which ends with it.
func mistakes(ctx context.Context, s *stage) error {
	if s.comm.World() == 1 {
		return nil
	}
	return errors.Join(s.otherCall(ctx), s.otherLength(ctx, s.c.Count/2), s.otherLength(ctx, 2*s.c.Count))
}

// otherCall has one rank call another collective than the others.
func (s *stage) otherCall(ctx context.Context) error {
	all := slices.DeleteFunc(s.whole(), func(v plugin.Collective) bool { return !slices.Contains(needsAll, v) })
	if len(all) < 2 {
		return nil
	}
	all = all[:2]
	odd := int(s.c.Seed % uint64(s.comm.World()))
	c := s.with(0, all[0], s.c.Count)
	if s.me == odd {
		c = s.with(0, all[1], s.c.Count)
	}
	return s.mistake(ctx, fmt.Sprintf("%s on rank %d, and %s on the others", all[1], odd, all[0]), true,
		func(sub *host.Communicator) (*host.Operation, error) {
			for step, collective := range all { // plans are there, so that no exchange for them finds the mistake
				if err := s.run(step, sub, s.with(step, collective, s.c.Count)); err != nil {
					return nil, err
				}
			}
			if _, err := s.comm.Exchange(ctx, nil); err != nil { // no rank is in a right call any more
				return nil, err
			}
			list, err := s.prepare(sub, []*Case{c})
			if err != nil {
				return nil, err
			}
			return &list[0].op, nil
		})
}

// otherLength has rank 1 receive a message of another length than rank 0 sends. A sender may have ended before any rank
// can find out.
func (s *stage) otherLength(ctx context.Context, length int64) error {
	what := fmt.Sprintf("a send of %d elements and a recv of %d", s.c.Count, length)
	return s.mistake(ctx, what, s.me == 1, func(*host.Communicator) (*host.Operation, error) {
		op := &host.Operation{Collective: plugin.Send, DType: s.c.DType, Count: s.c.Count, Root: 1}
		if s.me == 1 {
			op = &host.Operation{Collective: plugin.Recv, DType: s.c.DType, Count: length}
		}
		if err := s.rank.arena.reset(need(op.DType, op.Count, 0)); err != nil {
			return nil, err
		}
		b, err := s.rank.arena.buffer("message", op.DType, op.Count, 0, 1)
		if err != nil || s.me > 1 {
			return nil, err
		}
		op.Send, op.Recv = b.pointer(0), b.pointer(0)
		return op, nil
	})
}

// mistake makes this rank's call, if it has one, on a communicator of its own. Where it matters it must not succeed.
func (s *stage) mistake(ctx context.Context, what string, matters bool,
	call func(*host.Communicator) (*host.Operation, error)) error {
	sub, err := s.comm.Split(ctx, 0, s.me)
	if err != nil {
		return err
	}
	op, wrong := call(sub)
	var request *host.Request
	if op != nil {
		request, err = sub.DoFor(op, mistakeLimit)
	}
	succeeds := op != nil && request == nil && err == nil
	_, err = s.comm.Exchange(ctx, nil) // all have called
	sub.Abort("its mistake was made")
	if request != nil { // its memory is in use until then
		succeeds = request.Wait(ctx) == nil
	}
	if succeeds && matters {
		wrong = fmt.Errorf("%s: %s succeeds on rank %d", what, op.Collective, s.me)
	}
	return errors.Join(wrong, err, sub.Close())
}
