package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// Close returns while a kernel of this rank waits for a peer, which may only come when this thread continues: a kernel
// of the communicator that is closed, or of another one on the same GPU. The kernel ends well when the peer does come,
// also where the peer needs memory of the communicator that it has not mapped yet.
func TestDeviceCloseBesideAKernelThatWaitsForAPeer(t *testing.T) {
	for name, of := range map[string]closing{
		"its own":                    {count: 10},
		"another's":                  {count: 10, another: true},
		"with new memory":            {count: 1 << 15},
		"of a part, with new memory": {count: 1 << 15, split: true},
		"another's, with new memory": {count: 1 << 15, another: true},
		"registered memory":          {count: 1 << 20, register: (*host.Communicator).Register},
		"symmetric memory":           {count: 1 << 20, register: (*host.Communicator).RegisterSymmetric},
		"a message that comes":       {count: 1 << 15, from: 1, to: 0},
		"a message that goes":        {count: 1 << 15, from: 0, to: 1},
	} {
		t.Run(name, func(t *testing.T) {
			drivers := gpusOf(t, []int{0, 1}, cudatest.Options{Devices: 2, HostFreesWait: true})
			adjust := func(_ int, o *host.Options) { o.Timeout = 10 * time.Second }
			errs := deviceErrors(t, drivers, adjust, of.besideAKernel)
			require.NoError(t, errors.Join(errs...))
		})
	}
}

// closing says what is called in which communicator before one is closed.
type closing struct {
	another, split bool // another one than is called; one that was split from the first
	count          int64
	register       func(c *host.Communicator, p unsafe.Pointer, bytes int64) error // the receive memory
	from, to       int                                                             // where they differ, a message is sent
}

// call is the operation of a rank, of count elements, whose result is 3.
func (of closing) call(r *rank, c *host.Communicator, b []cuda.Ptr, count int64) error {
	switch {
	case of.from == of.to:
		return c.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r)
	case r.Rank() == of.from:
		return c.Send(pointer(b[0]), count, plugin.Float32, of.to, r)
	}
	return c.Recv(pointer(b[1]), count, plugin.Float32, of.from, r)
}

func (of closing) besideAKernel(r *rank) error {
	n := int(of.count)
	b, done := r.buffers(n, n)
	calls := r.Communicator
	var err error
	if of.split {
		calls, err = r.Split(context.Background(), 0, 0)
	}
	call := func(count int64) error { return of.call(r, calls, b, count) }
	send, first := 1+float32(r.Rank()), func() error { return errors.Join(call(10), r.sync()) }
	if of.from != of.to { // ranks agree on nothing before messages
		send, first = 3, func() error { return nil }
	}
	err = errors.Join(err, r.fill(b[0], n, send), first())
	if of.register != nil {
		err = errors.Join(err, of.register(calls, pointer(b[1]), 4*of.count), call(of.count), r.sync())
	}
	closed := calls
	if of.another {
		var failed error
		closed, failed = r.Split(context.Background(), 0, 0)
		err = errors.Join(err, failed)
	}
	if err = errors.Join(err, r.fill(b[1], n, 0), r.meet()); err != nil {
		return err
	}
	if r.Rank() == 0 {
		began := time.Now()
		err = errors.Join(call(of.count), closed.Close())
		if took := time.Since(began); took > 5*time.Second {
			err = errors.Join(err, fmt.Errorf("Close took %v", took))
		}
	}
	r.all.meet()
	if r.Rank() == 1 {
		err = errors.Join(err, call(of.count))
	}
	err = errors.Join(err, r.driver.SynchronizeStream(r.ctx, r.stream))
	got, failed := r.read(b[1], n)
	if receives := of.from == of.to || r.Rank() == of.to; receives && (failed != nil || got[0] != 3 || got[n-1] != 3) {
		err = errors.Join(err, failed, fmt.Errorf("the result is %v", got[n-1]))
	}
	r.all.meet()
	return done(errors.Join(err, closed.Close(), calls.Close(), r.Close(), host.Collect()))
}

// What fails only after Close has begun is reported all the same: by Close, or in the log where it comes later.
func TestDeviceFailuresOfAClosedCommunicator(t *testing.T) {
	const short = 500 * time.Millisecond
	for name, timeout := range map[string]time.Duration{"by Close": short, "in the log": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			var log heard
			errs := deviceErrors(t, gpus(t, 2), patient(timeout, &log), func(r *rank) error {
				const n = 10
				b, done := r.buffers(n, n)
				reduce := func() error {
					return r.AllReduce(pointer(b[0]), pointer(b[1]), n, plugin.Float32, plugin.OpSum, r)
				}
				if err := errors.Join(reduce(), r.sync(), r.meet()); err != nil {
					return err
				}
				if r.Rank() == 0 {
					err := errors.Join(reduce(), r.Close(), r.driver.SynchronizeStream(r.ctx, r.stream))
					if timeout != short { // without a further call
						err = errors.Join(err, eventually("a line", func() bool { return len(log.lines("level=ERROR")) > 0 }))
					}
					r.all.meet()
					return done(errors.Join(err, host.Collect()))
				}
				r.all.meet()
				return done(r.Close())
			})
			require.NoError(t, errs[1])
			told := strings.Join(log.lines("level=ERROR"), "")
			if timeout == short {
				require.ErrorIs(t, errs[0], plugin.Timeout)
				told += errs[0].Error()
			} else {
				require.NoError(t, errs[0])
			}
			require.Contains(t, told, "rank 0 closed the communicator while an operation was running, which got no response from "+
				"peer rank 1 (pid ")
		})
	}
}
