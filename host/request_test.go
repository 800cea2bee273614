package host_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// The counts and displacements of an operation that waits are the caller's again when the call that starts it returns.
func TestCountsAreTheCallersOnceAnOperationIsStarted(t *testing.T) {
	starts := map[string]func(c *host.Communicator, op host.Operation, overwrite func()) (*host.Request, error){
		"start": func(c *host.Communicator, op host.Operation, overwrite func()) (*host.Request, error) {
			defer overwrite()
			return c.Start(&op)
		},
		"do_for": func(c *host.Communicator, op host.Operation, overwrite func()) (*host.Request, error) {
			defer overwrite()
			return c.DoFor(&op, little)
		},
		"group start": func(c *host.Communicator, op host.Operation, overwrite func()) (*host.Request, error) {
			var g host.Group
			g.Add(op)
			overwrite()
			return g.Start(c)
		},
		"group run_for": func(c *host.Communicator, op host.Operation, overwrite func()) (*host.Request, error) {
			var g host.Group
			g.Add(op)
			overwrite()
			return g.RunFor(c, little)
		},
	}
	for _, collective := range []plugin.Collective{plugin.AllGatherV, plugin.ReduceScatterV, plugin.AllToAllV,
		plugin.GatherV, plugin.ScatterV} {
		for name, start := range starts {
			come := make(chan struct{})
			world(t, 2, func(c *host.Communicator) error {
				lists := [4][]int64{{2, 2}, {0, 2}, {2, 2}, {0, 2}}
				send, recv := make([]float32, 4), make([]float32, 4)
				op := host.Operation{Collective: collective, DType: plugin.Float32, Op: plugin.OpSum, Send: at(send),
					Recv: at(recv), Count: 2, SendCounts: lists[0], SendDispls: lists[1], RecvCounts: lists[2],
					RecvDispls: lists[3]}
				switch collective {
				case plugin.AllGatherV, plugin.GatherV:
					op.SendCounts, op.SendDispls = nil, nil
				case plugin.ReduceScatterV, plugin.ScatterV:
					op.RecvCounts, op.RecvDispls = nil, nil
				}
				if c.Rank() == 1 {
					<-come
					return errors.Join(c.Barrier(nil), c.Do(&op))
				}
				first, err := c.Start(&host.Operation{Collective: plugin.Barrier}) // in front, until rank 1 comes
				if err != nil {
					return err
				}
				second, err := start(c, op, func() {
					for _, list := range lists {
						list[0], list[1] = -7, -7
					}
				})
				close(come)
				if err != nil {
					return err
				}
				if err = errors.Join(first.Wait(t.Context()), second.Wait(t.Context())); err != nil {
					return fmt.Errorf("%s, %s: %w", collective, name, err)
				}
				return nil
			})
		}
	}
}

// A group that is filled again while its operations wait does not change them.
func TestGroupsMayBeFilledAgain(t *testing.T) {
	come := make(chan struct{})
	world(t, 2, func(c *host.Communicator) error {
		x, y := ramp(c.Rank(), 4), make([]float32, 4)
		message := host.Operation{Collective: plugin.Send, Send: at(x), Count: 4, DType: plugin.Float32, Root: 1}
		if c.Rank() == 1 {
			<-come
			return errors.Join(c.Barrier(nil), c.Recv(at(y), 4, plugin.Float32, 0, nil), equal(y, ramp(0, 4)))
		}
		first, err := c.Start(&host.Operation{Collective: plugin.Barrier})
		require.NoError(t, err)
		var g host.Group
		g.Add(message)
		second, err := g.Start(c)
		require.NoError(t, err)
		g.Add(host.Operation{Collective: plugin.Broadcast, Root: -1})
		close(come)
		return errors.Join(first.Wait(t.Context()), second.Wait(t.Context()))
	})
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
