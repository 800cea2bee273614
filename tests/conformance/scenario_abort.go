package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
)

// abortLimit bounds the time from an abort to the end of the operations that it ends, on every rank. It is milliseconds
// where the machine has time.
const abortLimit = 5 * time.Second

// abortedCall has one rank abort a communicator of its own while all others are in a call that waits for it.
func abortedCall(ctx context.Context, s *stage) error {
	collectives := slices.DeleteFunc(s.whole(), func(v plugin.Collective) bool { return !slices.Contains(needsAll, v) })
	if len(collectives) == 0 {
		return absent("no collective in which every rank waits for all others")
	}
	for round := range s.c.Repeat {
		c := s.with(round, collectives[round%len(collectives)], s.c.Count)
		sub, err := s.comm.Split(ctx, 0, s.me)
		if err != nil {
			return err
		}
		err = s.abort(ctx, round%sub.World(), sub, c)
		if closed := sub.Close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("closing the aborted communicator: %w", closed))
		}
		if err == nil {
			err = s.run(round, s.comm, c)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// abort makes everything that a call needs, then has all ranks but one call, and that one abort.
func (s *stage) abort(ctx context.Context, aborts int, sub *host.Communicator, c *Case) error {
	for step := range 2 {
		if err := s.run(step, sub, c); err != nil {
			return err
		}
	}
	list, err := s.prepare(sub, []*Case{c})
	if err != nil {
		return err
	}
	op := &list[0].op
	op.Stream = device.Stream(s.line())
	var started *host.Request
	if s.me != aborts {
		if started, err = sub.Start(op); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	if _, err := s.comm.Exchange(ctx, []byte{1}); err != nil { // now all have called
		return err
	}
	began := time.Now()
	if s.me == aborts {
		sub.Abort("it wants to")
	} else {
		err := started.Wait(ctx)
		if err == nil { // on a device it is in the stream
			err = s.settle(sub)
		}
		if err := aborted(err, aborts); err != nil {
			return fmt.Errorf("%s, in which rank %d has aborted: %w", c.Collective, aborts, err)
		}
	}
	if err := aborted(sub.Do(op), aborts); err != nil {
		return fmt.Errorf("%s, after rank %d has aborted: %w", c.Collective, aborts, err)
	}
	if since := time.Since(began); since > abortLimit {
		return fmt.Errorf("%s ended %v after rank %d had aborted, want at most %v", c.Collective, since, aborts, abortLimit)
	}
	return nil
}

// needsAll are collectives in which every rank waits for all others.
var needsAll = []plugin.Collective{plugin.AllReduce, plugin.AllGather, plugin.ReduceScatter, plugin.AllToAll,
	plugin.Barrier}

// aborted checks that a call has ended as one does whose communicator a rank has aborted.
func aborted(err error, rank int) error {
	var failure *plugin.Error
	switch {
	case err == nil:
		return errors.New("it succeeds")
	case !errors.As(err, &failure) || failure.Code != plugin.Aborted || failure.Rank != rank:
		return fmt.Errorf("want the error %q of rank %d, got: %w", plugin.Aborted.String(), rank, err)
	}
	return nil
}
