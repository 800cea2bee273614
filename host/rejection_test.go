package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// heard is a logger's output, which several ranks write.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) lines(with string) (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(h.text.String()) {
		if strings.Contains(line, with) {
			lines = append(lines, line)
		}
	}
	return lines
}

// patient returns what adjusts a rank's options: its waits end soon, and its warnings are recorded.
func patient(timeout time.Duration, log *heard) func(int, *host.Options) {
	return func(_ int, o *host.Options) {
		o.Timeout, o.Logger = timeout, slog.New(slog.NewTextHandler(log, nil))
	}
}

const sumRefused = "rank 2 refused its all_reduce: count -1 is negative"

// Rank 2's arguments are wrong. It returns that at once; the others, which wait for it, after SHUNT_STALL_WARNING from
// the log and in the end from their error.
func TestARefusedCallIsNamedToThoseWhoWait(t *testing.T) {
	for name, known := range map[string]int{"first call": 0, "later call": 1} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SHUNT_STALL_WARNING", "100ms")
			var log heard
			early := 0 // warnings of before the refusal: rank 2 may be late
			errs := worldErrors(t, 4, patient(1500*time.Millisecond, &log), func(c *host.Communicator) error {
				x := make([]float32, 4)
				for range known {
					if err := c.Do(summed(x)); err != nil {
						return err
					}
				}
				op := summed(x)
				if c.Rank() == 2 {
					op.Count = -1
				}
				err := c.Do(op)
				if c.Rank() == 2 {
					early = len(log.lines("operation is waiting"))
					if plugin.CodeOf(err) != plugin.InvalidArgument || c.Err() != nil {
						return fmt.Errorf("rank 2's own error is %w", err)
					}
					// The program continues for a while before it ends.
					err = errors.Join(eventually("somebody's timeout", func() bool { return c.Err() != nil }), c.Err())
				}
				return err
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
				require.ErrorContains(t, err, sumRefused, "rank %d", rank)
			}
			warnings := log.lines("operation is waiting")[early:]
			require.NotEmpty(t, warnings)
			for _, line := range warnings {
				require.Contains(t, line, `refused="`+sumRefused+`"`)
			}
		})
	}
}

// Every way in which a call can be refused is reported, in the words of the error.
func TestWhateverIsRefusedIsTold(t *testing.T) {
	x := make([]float32, 64)
	f32 := func(op host.Operation) host.Operation {
		op.DType = plugin.Float32
		return op
	}
	group := func(ops ...host.Operation) func(*host.Communicator) error {
		return func(c *host.Communicator) error {
			var g host.Group
			for _, op := range ops {
				g.Add(op)
			}
			return g.Run(c)
		}
	}
	do := func(op host.Operation) func(*host.Communicator) error {
		return func(c *host.Communicator) error { return c.Do(&op) }
	}
	cases := map[string]func(*host.Communicator) error{
		"all_reduce: count -1 is negative": do(f32(host.Operation{Collective: plugin.AllReduce,
			Count: -1})),
		"all_reduce: unknown dtype 99": do(host.Operation{Collective: plugin.AllReduce, DType: 99}),
		"all_reduce: unknown reduction op 77": do(f32(host.Operation{Collective: plugin.AllReduce,
			Op: 77})),
		"all_reduce: send memory is null but 4 bytes are needed": do(f32(host.Operation{Collective: plugin.AllReduce,
			Count: 1, Recv: at(x)})),
		"broadcast: root 2 is not a rank of a world of 2":    do(f32(host.Operation{Collective: plugin.Broadcast, Root: 2})),
		"send: peer -1 is not a rank of a world of 2":        do(f32(host.Operation{Collective: plugin.Send, Root: -1})),
		"send: a rank cannot send to itself outside a group": do(f32(host.Operation{Collective: plugin.Send, Root: 1})),
		"is not aligned to the 4 bytes of float32": do(f32(host.Operation{Collective: plugin.Recv, Count: 1,
			Recv: unsafe.Add(at(x), 1)})),
		"put: no window":             do(f32(host.Operation{Collective: plugin.Put})),
		"unknown collective 1234":    do(host.Operation{Collective: 1234}),
		"recv: count -3 is negative": group(f32(host.Operation{Collective: plugin.Recv, Count: -3})),
		"barrier: a group takes send, recv and one-sided operation": group(host.Operation{Collective: plugin.Barrier}),
		"group: 1 sends to itself but 0 receives from itself": group(f32(host.Operation{Collective: plugin.Send,
			Root: 1})),
		"sends 4 bytes to itself but receives 8": group(f32(host.Operation{Collective: plugin.Send, Count: 1, Send: at(x),
			Root: 1}),
			f32(host.Operation{Collective: plugin.Recv, Count: 2, Recv: at(x[8:]), Root: 1})),
		"split: color -7 is negative": func(c *host.Communicator) error {
			_, err := c.Split(context.Background(), -7, 0)
			return err
		},
		"new_window: -1 bytes": func(c *host.Communicator) error {
			_, err := c.NewWindow(context.Background(), -1)
			return err
		},
		"register: the buffer has 0 bytes": func(c *host.Communicator) error { return c.Register(at(x), 0) },
		"all_reduce: send memory": func(c *host.Communicator) error { // of a call that is known but for its addresses
			good := *summed(x[:8])
			if err := c.Do(&good); err != nil {
				return err
			}
			good.Send = nil
			return c.Do(&good)
		},
	}
	peer := make(chan *host.Communicator, 1)
	world(t, 2, func(c *host.Communicator) error {
		if c.Rank() == 0 {
			peer <- c
			return errors.Join(c.Do(summed(make([]float32, 8))), c.Barrier(nil)) // the communicator is as good as it was
		}
		theirs := <-peer
		var errs []error
		for want, refuse := range cases {
			if err := refuse(c); plugin.CodeOf(err) != plugin.InvalidArgument && plugin.CodeOf(err) != plugin.Mismatch {
				errs = append(errs, fmt.Errorf("%q: %w", want, err))
			}
			if text := host.Refused(theirs, 1); !strings.HasPrefix(text, "rank 1 refused its ") ||
				!strings.Contains(text, want) {
				errs = append(errs, fmt.Errorf("%q is told as %q", want, text))
			}
		}
		return errors.Join(append(errs, c.Barrier(nil))...)
	})
}

// A rank whose call is refused may try again; afterwards it is not reported to others, whatever they wait for.
func TestARefusedCallMayBeMadeAgain(t *testing.T) {
	errs := worldErrors(t, 2, patient(time.Second, &heard{}), func(c *host.Communicator) error {
		x := make([]float32, 4)
		for range 3 {
			if c.Rank() == 1 {
				bad := summed(x)
				bad.Send = nil
				if err := c.Do(bad); plugin.CodeOf(err) != plugin.InvalidArgument {
					return err
				}
			}
			if err := c.Do(summed(x)); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			return errors.Join(eventually("somebody's timeout", func() bool { return c.Err() != nil }), c.Err())
		}
		return c.Do(summed(x))
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.NotContains(t, err.Error(), "refused", "rank %d", rank)
	}
}

// A rank that ends its program after an error closes the communicator.
func TestARejectionIsToldOfARankThatHasClosed(t *testing.T) {
	for name, known := range map[string]int{"first call": 0, "later call": 1} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SHUNT_STALL_WARNING", "100ms")
			errs := worldErrors(t, 3, nil, func(c *host.Communicator) error {
				x := make([]float32, 4)
				for range known {
					if err := c.Do(summed(x)); err != nil {
						return err
					}
				}
				op := summed(x)
				if c.Rank() == 2 {
					op.Count = -1
				}
				return c.Do(op)
			})
			for rank, err := range errs[:2] {
				require.NotEqual(t, plugin.Timeout, plugin.CodeOf(err), "rank %d: %v", rank, err)
				require.ErrorContains(t, err, sumRefused, "rank %d", rank)
			}
		})
	}
}

// A rank that skips what it was refused is off by one, which shows later.
func TestARejectionIsToldWhenRanksDisagreeLater(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 4)
		if err := errors.Join(c.Do(summed(x)), c.Barrier(nil)); err != nil {
			return err
		}
		op := summed(x)
		if c.Rank() == 1 {
			op.Send = nil
		}
		if err := c.Do(op); err != nil && c.Rank() == 0 {
			return err
		}
		return c.Barrier(nil)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		// The next call may be compared before rank 1 has noted that it went on.
		require.Regexp(t, "rank 1 (had refused its call #3,|refused its) all_reduce: send memory is null but 16 bytes are needed",
			err.Error(), "rank %d", rank)
	}
}

// A call that all ranks were refused explains nothing later.
func TestARejectionOfAllIsNotToldLater(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 4)
		op := summed(x)
		op.Send = nil
		if err := c.Do(op); plugin.CodeOf(err) != plugin.InvalidArgument {
			return err
		}
		if err := errors.Join(c.Barrier(nil), c.Barrier(nil)); err != nil {
			return err
		}
		op = summed(x)
		op.Count -= int64(c.Rank())
		return c.Do(op)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.NotContains(t, err.Error(), "refused", "rank %d", rank)
	}
}

// The same is reported to ranks that wait in a message for one whose call was refused.
func TestARefusedSendIsToldToItsReceiver(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	var log heard
	errs := worldErrors(t, 2, patient(time.Second, &log), func(c *host.Communicator) error {
		x := make([]float32, 4)
		if c.Rank() == 0 {
			return c.Recv(at(x), 4, plugin.Float32, 1, nil)
		}
		if err := c.Send(nil, 4, plugin.Float32, 0, nil); plugin.CodeOf(err) != plugin.InvalidArgument {
			return err
		}
		return errors.Join(eventually("somebody's timeout", func() bool { return c.Err() != nil }), c.Err())
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "rank 1 refused its send: send memory is null but 16 bytes are needed", "rank %d", rank)
	}
	require.NotEmpty(t, log.lines(`refused="rank 1 refused its send: send memory is null`))
}

// The same on GPUs, where the host does not see an operation wait.
func TestDeviceRefusedCallIsNamedToThoseWhoWait(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	var log heard
	errs := deviceErrors(t, gpus(t, 3), patient(1500*time.Millisecond, &log), func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		sum := func(count int64) error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r)
		}
		if err := errors.Join(sum(10), r.sync()); err != nil {
			return err
		}
		if r.Rank() != 2 {
			return errors.Join(sum(10), r.sync())
		}
		if err := sum(-1); plugin.CodeOf(err) != plugin.InvalidArgument {
			return err
		}
		return errors.Join(eventually("somebody's timeout", func() bool { return r.Err() != nil }), r.Err())
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, sumRefused, "rank %d", rank)
	}
	require.NotEmpty(t, log.lines(`refused="`+sumRefused+`"`))
}

// What fails because a stream was being captured concerns the graph alone. The call
// gets no number, so that the ranks' counts stay alike, and peers may know of it.
func TestDeviceCallRefusedInACaptureIsToldAndNotCounted(t *testing.T) {
	peer := make(chan *host.Communicator, 1)
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(10, 10)
		if err := errors.Join(deviceSum(r, 10), r.meet()); err != nil {
			return err
		}
		if r.Rank() == 0 {
			peer <- r.Communicator
		} else {
			if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
				return err
			}
			r.driver.Fail("Submit", 0, cuda.CaptureInvalid)
			err := r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
			if plugin.CodeOf(err) != plugin.Device || r.Err() != nil {
				return fmt.Errorf("capturing gave %w", err)
			}
			if text := host.Refused(<-peer, 1); !strings.HasPrefix(text, "rank 1 refused its all_reduce: ") {
				return fmt.Errorf("told is %q", text)
			}
			g, err := r.driver.EndCapture(r.ctx, r.stream)
			if err = errors.Join(err, r.driver.DestroyGraph(g)); err != nil {
				return err
			}
		}
		if err := errors.Join(deviceSum(r, 10), r.meet()); err != nil {
			return err
		}
		if n := host.Collectives(r.Communicator); n != 4 {
			return fmt.Errorf("%d collectives were counted, want 4", n)
		}
		return done(r.Err())
	})
}
