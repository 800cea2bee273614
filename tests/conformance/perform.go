package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// replays is the number of launches of a graph in mode graph.
const replays = 3

// act is something to enqueue, with what it needs before and must give after.
type act struct {
	// fill carves the buffers out of the arena and writes what they hold at the
	// given turn. Every turn carves the same buffers; what they hold differs.
	fill func(turn uint64) error
	// enqueue calls the operations, with the addresses of the last fill.
	enqueue func(stream host.Stream) error
	// check compares the arena with what the last fill promised.
	check func() error
}

// perform runs an act as the axis says. On device memory everything is in
// stream order: the copy of the input to the device, the operations, the copy
// of every byte of the arena back. Nothing waits in between; the arena is
// compared when the stream has ended.
//
// A wrong result is returned when all turns have run, so that no rank leaves the
// others waiting; any other error ends the rank's life.
func (r *rank) perform(comm *host.Communicator, axis Axis, a act) error {
	if !axis.onDevice() {
		if err := a.fill(0); err != nil {
			return err
		}
		if err := a.enqueue(nil); err != nil {
			return pool.Fatal(err)
		}
		return a.check()
	}
	mode, kind := axis.parts()
	own := r.device.Streams[r.place(comm)]
	into := own
	if kind == defaultStream {
		into = 0
	}
	var wrong []error
	turn := uint64(0)
	one := func(what string, run func() error) error {
		if err := a.fill(turn); err != nil {
			return err
		}
		if err := r.inStream(comm, into, run); err != nil {
			return fmt.Errorf("turn %d (%s): %w", turn, what, err)
		}
		if err := a.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("turn %d (%s): %w", turn, what, err))
		}
		turn++
		return nil
	}
	eagerly := func() error { return one("eager", func() error { return a.enqueue(device.Stream(into)) }) }
	var err error
	switch mode {
	case Eager:
		err = eagerly()
	case Graph:
		if err = a.fill(turn); err != nil {
			break
		}
		turn++
		err = r.replayed(own, a, func(g *device.Graph) error {
			for range replays {
				if err := one("replay", func() error { return g.Launch(into) }); err != nil {
					return err
				}
			}
			return nil
		})
	case Mixed:
		if err = eagerly(); err != nil {
			break
		}
		err = r.replayed(own, a, func(g *device.Graph) error {
			for range 2 {
				if err := one("replay", func() error { return g.Launch(into) }); err != nil {
					return err
				}
			}
			return eagerly()
		})
	default:
		err = fmt.Errorf("axis %q", axis)
	}
	if err != nil {
		return pool.Fatal(errors.Join(append([]error{err}, wrong...)...))
	}
	return errors.Join(wrong...)
}

// place returns the number of a communicator's stream; sub-groups use the first.
func (r *rank) place(comm *host.Communicator) int {
	return max(slices.Index(r.comms[:], comm), 0)
}

// replayed captures an act and lets use launch the graph.
func (r *rank) replayed(s cuda.Stream, a act, use func(*device.Graph) error) error {
	g, err := r.device.Capture(s, func() error { return a.enqueue(device.Stream(s)) })
	if err != nil {
		return err
	}
	return errors.Join(use(g), g.Destroy())
}

// inStream copies the arena to the device, runs, copies it back, all in one
// stream, and waits for that.
func (r *rank) inStream(comm *host.Communicator, s cuda.Stream, run func() error) error {
	if err := r.arena.push(s); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	if err := r.arena.pull(s); err != nil {
		return err
	}
	return comm.Synchronize(device.Stream(s))
}
