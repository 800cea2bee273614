package conformance

import (
	"errors"
	"slices"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// symmetricCases returns the cases that run with receive memory that is registered as
// symmetric: single collectives that have algorithms of their own for it, and
// whose receive memory can be at one offset on all ranks.
func symmetricCases(list []Case) []Case {
	return slices.DeleteFunc(list, func(c Case) bool {
		if c.OddRanks {
			return true
		}
		switch c.Collective {
		case plugin.AllReduce, plugin.AllGather, plugin.AllToAll, plugin.Broadcast:
		case plugin.Scatter:
			if c.InPlace {
				return true // at the root it lies within what is sent
			}
		default:
			return true
		}
		return c.Scenario != "" || c.bytes() == 0
	})
}

// explainer is one of a communicator's two.
type explainer func(plugin.Collective, plugin.DType, plugin.Op, int64) (selector.Explanation, error)

func (r *rank) explainer(comm *host.Communicator) explainer {
	if r.symmetric {
		return comm.ExplainSymmetric
	}
	return comm.Explain
}

// makeRoom empties the arena, with room for a rank's buffers. Symmetric memory has
// room for any rank's, so that all ranks make and register it together.
func (r *rank) makeRoom(c *Case, l *layout) error {
	if !r.symmetric {
		return r.arena.reset(l.room(c))
	}
	most := int64(0)
	for rank := range c.World {
		most = max(most, c.layoutOf(rank).room(c))
	}
	if int64(len(r.arena.memory)) >= most {
		return r.arena.reset(most)
	}
	var errs []error
	if r.arena.image != nil {
		for _, comm := range r.comms {
			errs = append(errs, comm.Deregister(r.arena.image.Pointer(0)))
		}
	}
	if errs = append(errs, r.arena.reset(most)); errors.Join(errs...) != nil {
		return errors.Join(errs...)
	}
	for _, comm := range r.comms {
		errs = append(errs, comm.RegisterSymmetric(r.arena.image.Pointer(0), int64(len(r.arena.memory))))
	}
	return errors.Join(errs...)
}
