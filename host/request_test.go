package host_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

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

// What earlier calls have used may be freed memory by now, and the collector may be at work: it ends the program
// where it finds such an address.
func TestTheMemoryOfEarlierCallsMayBeGone(t *testing.T) {
	type node struct{ next *node }
	var list *node // a chain, which the collector follows step by step
	for range 1 << 18 {
		list = &node{list}
	}
	var collector sync.WaitGroup
	var over atomic.Bool
	defer collector.Wait()
	defer over.Store(true)
	collector.Go(func() {
		for !over.Load() {
			runtime.GC()
		}
		runtime.KeepAlive(list)
	})
	const n = 4
	world(t, n, func(c *host.Communicator) error {
		for range 20 {
			for _, sizes := range [][]int{{64 << 10}, {1, 1, 1}} { // nothing takes the place of the long ones at once
				var g host.Group
				for i, size := range sizes {
					g.Add(*message(plugin.Send, make([]byte, size), (c.Rank()+1+i)%n))
					g.Add(*message(plugin.Recv, make([]byte, size), (c.Rank()+n-1-i)%n))
				}
				if err := g.Run(c); err != nil {
					return err
				}
				runtime.GC()
				runtime.GC()
			}
		}
		return nil
	})
}

// A group without operations ends at once, however it is run.
func TestEmptyGroupsEndAtOnce(t *testing.T) {
	run := func(c *host.Communicator) error {
		var g host.Group
		started, err := g.Start(c)
		if err != nil {
			return err
		}
		if done, err := started.Test(); !done || err != nil {
			return errors.Join(errWrong, err)
		}
		waiting, err := g.RunFor(c, little)
		if waiting != nil {
			return errWrong
		}
		return errors.Join(err, g.Run(c))
	}
	world(t, 1, run)
	deviceWorld(t, 1, func(r *rank) error { return run(r.Communicator) })
}

// A group of one operation is a group: it takes no collective, whether it waits for its turn or not.
func TestGroupsOfOneTakeNoCollectives(t *testing.T) {
	for name, run := range map[string]func(g *host.Group, c *host.Communicator) (*host.Request, error){
		"run":     func(g *host.Group, c *host.Communicator) (*host.Request, error) { return nil, g.Run(c) },
		"run_for": func(g *host.Group, c *host.Communicator) (*host.Request, error) { return g.RunFor(c, little) },
		"start":   func(g *host.Group, c *host.Communicator) (*host.Request, error) { return g.Start(c) },
	} {
		come := make(chan struct{})
		world(t, 2, func(c *host.Communicator) error {
			var g host.Group
			g.Add(*summed([]float32{1}))
			if c.Rank() == 1 || name == "run" {
				request, err := run(&g, c)
				if request != nil {
					err = request.Wait(t.Context())
				}
				if plugin.CodeOf(err) != plugin.InvalidArgument {
					return fmt.Errorf("%s gave %w", name, err)
				}
				if name == "run" {
					return nil
				}
				<-come
				return c.Barrier(nil)
			}
			first, err := c.Start(&host.Operation{Collective: plugin.Barrier}) // in front, until rank 1 comes
			require.NoError(t, err)
			second, err := run(&g, c)
			close(come)
			if err != nil || second == nil {
				return errors.Join(errWrong, err)
			}
			if err = second.Wait(t.Context()); plugin.CodeOf(err) != plugin.InvalidArgument {
				return fmt.Errorf("%s behind a barrier gave %w", name, err)
			}
			return first.Wait(t.Context())
		})
	}
}
