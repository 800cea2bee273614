package host_test

import (
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// A call after Close is refused by its name, all in the same words, whether the job still runs or not.
func TestCallsAfterCloseAreNamed(t *testing.T) {
	for _, goesOn := range []bool{false, true} {
		world(t, 1, func(c *host.Communicator) error {
			if goesOn {
				part, err := c.Split(t.Context(), 0, 0)
				if err != nil {
					return err
				}
				defer part.Close()
			}
			return callsAfterClose(t, c)
		})
	}
}

func callsAfterClose(t *testing.T, c *host.Communicator) error {
	t.Helper()
	ctx := t.Context()
	x := make([]float32, 4)
	p := at(x)
	window, err := c.NewWindow(ctx, 64)
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	sum := host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Op: plugin.OpSum, Send: p, Recv: p,
		Count: 4}
	group := func() *host.Group {
		g := &host.Group{}
		g.Add(sum)
		g.Add(sum)
		return g
	}
	for name, call := range map[string]func() error{
		"all_reduce": func() error { return c.AllReduce(p, p, 4, plugin.Float32, plugin.OpSum, nil) },
		"barrier":    func() error { return c.Barrier(nil) },
		"send":       func() error { return c.Send(p, 4, plugin.Float32, 0, nil) },
		"broadcast":  func() error { return c.Do(&host.Operation{Collective: plugin.Broadcast, Send: p, Recv: p}) },
		"gather": func() error {
			_, err := c.Start(&host.Operation{Collective: plugin.Gather, Send: p, Recv: p})
			return err
		},
		"all_gather": func() error {
			_, err := c.DoFor(&host.Operation{Collective: plugin.AllGather, Send: p, Recv: p}, time.Second)
			return err
		},
		"group":         func() error { return group().Run(c) },
		"group ":        func() error { _, err := group().Start(c); return err },
		"group  ":       func() error { _, err := group().RunFor(c, time.Second); return err },
		"new_window":    func() error { _, err := c.NewWindow(ctx, 64); return err },
		"put":           func() error { return window.Put(0, 0, p, 16) },
		"split":         func() error { _, err := c.Split(ctx, 0, 0); return err },
		"shrink":        func() error { _, err := c.Shrink(ctx); return err },
		"subset":        func() error { _, err := c.Subset(ctx, []int{0}); return err },
		"exchange":      func() error { _, err := c.Exchange(ctx, nil); return err },
		"register":      func() error { return c.Register(p, 16) },
		"deregister":    func() error { return c.Deregister(p) },
		"synchronize":   func() error { return c.Synchronize(nil) },
		"synchronize ":  func() error { _, err := c.SynchronizeFor(nil, time.Second); return err },
		"peer_address":  func() error { _, err := c.PeerAddress(p, 0); return err },
		"new_window_at": func() error { _, err := c.NewWindowAt(p, 64); return err },
		"set delays":    func() error { return c.SetDelays("") },
		"explain":       func() error { _, err := c.Explain(plugin.AllReduce, plugin.Float32, plugin.OpSum, 8); return err },
		"explain ": func() error {
			_, err := c.ExplainSymmetric(plugin.AllReduce, plugin.Float32, plugin.OpSum, 8)
			return err
		},
		"plan of barrier": func() error { _, err := c.PlanTexts(plugin.Barrier, plugin.Float32, plugin.OpSum, 0); return err },
	} {
		err := call()
		want := strings.TrimSpace(name) + " on rank 0: communicator world is closed"
		if plugin.CodeOf(err) != plugin.Closed || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	return nil
}

// The error of a started operation that nobody has asked for is Close's, whether it fails before or meanwhile; one that
// was asked for, and what only repeats it, is not.
func TestCloseReturnsTheErrorThatNobodyHasHeard(t *testing.T) {
	x := make([]float32, 8)
	differing := func(c *host.Communicator) host.Operation {
		return host.Operation{Collective: plugin.AllReduce, Send: at(x), Recv: at(x), Count: int64(1 + c.Rank()),
			DType: plugin.Float32, Op: plugin.OpSum}
	}
	unmatched := func(c *host.Communicator) host.Operation {
		return host.Operation{Collective: plugin.Recv, Recv: at(x), Count: 1, DType: plugin.Float32, Root: 1 - c.Rank()}
	}
	for _, test := range []struct {
		operation func(c *host.Communicator) host.Operation
		asks      bool
		want      plugin.Code
	}{{unmatched, false, plugin.Timeout}, {differing, false, plugin.Mismatch}, {differing, true, plugin.OK}} {
		errs := worldErrors(t, 2, func(_ int, o *host.Options) { o.Timeout = 2 * time.Second },
			func(c *host.Communicator) error {
				op := test.operation(c)
				first, err := c.Start(&op)
				if err != nil {
					return err
				}
				if _, err = c.Start(&op); err != nil { // it waits behind the first
					return err
				}
				if test.asks && plugin.CodeOf(first.Wait(t.Context())) != plugin.Mismatch {
					return errors.New("ranks that disagree have not failed")
				}
				return nil
			})
		for rank, err := range errs {
			require.Equal(t, test.want, plugin.CodeOf(err), "rank %d: %v", rank, err)
		}
	}
}

// Close returns no error of a call that returns it itself, though it may not have done so yet.
func TestCloseReturnsNoErrorOfACall(t *testing.T) {
	x := make([]float32, 8)
	receive := host.Operation{Collective: plugin.Recv, Recv: at(x), Count: 1, DType: plugin.Float32}
	for _, operations := range [][]host.Operation{{receive}, {receive, receive}} {
		errs := worldErrors(t, 2, func(_ int, o *host.Options) { o.Timeout = time.Second },
			func(c *host.Communicator) error {
				mine := slices.Clone(operations)
				for i := range mine {
					mine[i].Root = 1 - c.Rank()
				}
				ended, err := host.Enqueue(c, mine...)
				if err != nil {
					return err
				}
				<-ended
				if c.Err() == nil {
					return errors.New("a receive that nobody sends to has ended well")
				}
				return nil
			})
		require.NoError(t, errors.Join(errs...))
	}
}

// A rank that closes a communicator which has failed says nothing of that in its page, which others may read before the
// failure is told to them.
func TestClosingAfterAFailureIsNotTold(t *testing.T) {
	for _, failed := range []bool{false, true} {
		closed := make(chan struct{})
		errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
			if err := c.Barrier(nil); err != nil {
				return err
			}
			if c.Rank() == 0 {
				defer close(closed)
				if failed {
					c.Abort("enough")
				}
				return c.Close()
			}
			<-closed
			return errors.New(host.StateOf(c, 0))
		})
		require.NoError(t, errs[0])
		if failed {
			require.ErrorContains(t, errs[1], "called #1 barrier")
		} else {
			require.EqualError(t, errs[1], "has closed the communicator")
		}
	}
}

// A rank that waits for one of its host which has closed the communicator is told long before it would be warned.
func TestWhoWaitsForARankThatHasLeftIsToldAtOnce(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "10m")
	x := make([]float32, 8)
	for name, call := range map[string]func(c *host.Communicator, w *host.Window) error{
		"barrier": func(c *host.Communicator, _ *host.Window) error { return c.Barrier(nil) },
		"recv": func(c *host.Communicator, _ *host.Window) error {
			return c.Recv(at(x), 8, plugin.Float32, 0, nil)
		},
		"wait": func(_ *host.Communicator, w *host.Window) error { return w.Wait(0, 1) },
	} {
		errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
			w, err := c.NewWindow(t.Context(), 64)
			if err := errors.Join(err, c.Barrier(nil)); err != nil || c.Rank() == 0 {
				return err
			}
			return call(c, w)
		})
		require.NoError(t, errs[0], name)
		require.ErrorIs(t, errs[1], plugin.Closed, name)
		require.ErrorContains(t, errs[1], "has closed the communicator", name)
	}
}

// A call that panics leaves a communicator that has failed, and that can be closed.
func TestAPanicInACallLeavesTheTurn(t *testing.T) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(page)) }()
	nowhere := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(page))), 1)
	x, counts := make([]float32, 8), []int64{1}
	op := host.Operation{Collective: plugin.AllToAllV, Send: at(x), Recv: at(x), SendCounts: counts, SendDispls: counts,
		RecvCounts: nowhere, RecvDispls: counts, DType: plugin.Float32}
	for name, call := range map[string]func(c *host.Communicator) error{
		"do":     func(c *host.Communicator) error { return c.Do(&op) },
		"do for": func(c *host.Communicator) error { _, err := c.DoFor(&op, time.Minute); return err },
	} {
		errs := worldErrors(t, 1, nil, func(c *host.Communicator) error {
			func() {
				defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
				defer func() { require.NotNil(t, recover(), name) }()
				t.Error(name, call(c))
			}()
			return c.Barrier(nil)
		})
		require.ErrorIs(t, errs[0], plugin.Internal, name)
		require.ErrorContains(t, errs[0], "ended with a panic", name)
	}
}
