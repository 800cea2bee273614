package host

import (
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// Explain says which transport and algorithm an operation of the given size
// would use, what it would fall back to, and why each other was not chosen.
// bytes is one rank's message: count times element size. It is local and
// prepares nothing.
func (c *Communicator) Explain(collective plugin.Collective, dtype plugin.DType, op plugin.Op, bytes int64) (selector.Explanation, error) {
	if !collective.Valid() || !dtype.Valid() || (collective.Reduces() && !op.Valid()) || bytes < 0 {
		return selector.Explanation{}, plugin.Errorf(plugin.InvalidArgument, "explain: collective %d, dtype %d, op %d, %d bytes", collective, dtype, op, bytes)
	}
	return c.explain(call.SignatureOf(collective, dtype, op), bytes)
}

// ExplainSymmetric is Explain for receive memory that is registered as symmetric.
func (c *Communicator) ExplainSymmetric(collective plugin.Collective, dtype plugin.DType, op plugin.Op, bytes int64) (selector.Explanation, error) {
	if !collective.Valid() || !dtype.Valid() || (collective.Reduces() && !op.Valid()) || bytes < 0 {
		return selector.Explanation{}, plugin.Errorf(plugin.InvalidArgument, "explain: collective %d, dtype %d, op %d, %d bytes", collective, dtype, op, bytes)
	}
	key := call.SignatureOf(collective, dtype, op)
	key.Symmetric = c.device != nil && c.world > 1 && key.CanBeSymmetric()
	return c.explain(key, bytes)
}

func (c *Communicator) explain(key call.Signature, bytes int64) (selector.Explanation, error) {
	ctx, cancel := c.observer.Deadline(c.job.ctx)
	defer cancel()
	return c.plans.Explain(ctx, key, bytes)
}

// Transports are the transports of this communicator, in order of preference.
func (c *Communicator) Transports() []*Loaded {
	list := make([]*Loaded, len(c.attached))
	for i, a := range c.attached {
		list[i] = a.loaded
	}
	return list
}
