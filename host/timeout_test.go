package host_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

const tooShort = time.Second // what ranks are made with; one comes later than that

// comesLate is called by all ranks: with the timeout that they were made with the call would fail.
func comesLate(rank int, call func() error) error {
	if rank == 1 {
		time.Sleep(tooShort + tooShort/2)
	}
	return call()
}

// away returns the error of a call that rank 1 does not make.
func away(c *host.Communicator, call func() error) error {
	if c.Rank() != 1 {
		return call()
	}
	return errors.Join(eventually("the timeout", func() bool { return c.Err() != nil }), c.Err())
}

func timedOut(t *testing.T, errs []error) {
	t.Helper()
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "no response from peer rank 1", "rank %d", rank)
		require.ErrorContains(t, err, "for 300ms", "rank %d", rank)
	}
}

func TestSetTimeout(t *testing.T) {
	for _, inherited := range []bool{false, true} {
		adjust := func(_ int, o *host.Options) { o.Timeout = tooShort }
		timedOut(t, worldErrors(t, 2, adjust, func(c *host.Communicator) error {
			for _, bad := range []time.Duration{0, -1, math.MinInt64} {
				if err := c.SetTimeout(bad); !errors.Is(err, plugin.InvalidArgument) {
					return errors.Join(errors.New("a timeout was not refused"), err)
				}
			}
			barrier := func() error { return c.Barrier(nil) }
			err := errors.Join(barrier(), c.SetTimeout(time.Minute))
			if err == nil {
				err = comesLate(c.Rank(), barrier)
			}
			if err != nil {
				return err
			}
			if !inherited {
				return errors.Join(c.SetTimeout(300*time.Millisecond), away(c, barrier))
			}
			part, err := c.Split(t.Context(), 0, 0)
			if err != nil {
				return err
			}
			defer part.Close()
			barrier = func() error { return part.Barrier(nil) }
			return errors.Join(comesLate(c.Rank(), barrier), part.SetTimeout(300*time.Millisecond), away(part, barrier))
		}))
	}
}

// What is being called keeps its own, and its error says so.
func TestSetTimeoutDuringACall(t *testing.T) {
	timedOut(t, worldErrors(t, 2, nil, func(c *host.Communicator) error {
		err := errors.Join(c.Barrier(nil), c.SetTimeout(300*time.Millisecond))
		if err != nil {
			return err
		}
		return away(c, func() error {
			r, err := c.DoFor(&host.Operation{Collective: plugin.Barrier}, time.Millisecond)
			if err != nil || r == nil {
				return errors.Join(errors.New("it has ended"), err)
			}
			return errors.Join(c.SetTimeout(time.Minute), r.Wait(t.Context()))
		})
	}))
}

// On a GPU it bounds what is enqueued already.
func TestSetTimeoutOfWhatIsEnqueued(t *testing.T) {
	timedOut(t, deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.Timeout = tooShort }, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		call := func() error { return r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r) }
		if err := errors.Join(call(), r.sync()); err != nil {
			return err
		}
		if r.Rank() == 0 { // enqueued with the timeout of before
			if err := errors.Join(call(), r.SetTimeout(time.Minute)); err != nil {
				return err
			}
		} else if err := comesLate(1, call); err != nil {
			return err
		}
		if err := errors.Join(r.sync(), r.Barrier(r), r.sync(), r.SetTimeout(time.Minute)); err != nil {
			return err
		}
		return away(r.Communicator, func() error {
			return errors.Join(call(), r.SetTimeout(300*time.Millisecond), r.sync())
		})
	}))
}

func TestSetTimeoutOfAClosedCommunicator(t *testing.T) {
	for _, err := range worldErrors(t, 2, nil, func(c *host.Communicator) error {
		return errors.Join(c.Close(), c.SetTimeout(time.Second))
	}) {
		require.ErrorIs(t, err, plugin.Closed)
	}
}
