package host

import (
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// Explain says which transport and algorithm an operation of the given size would use, what it would fall back to, and
// why each other was not chosen. bytes is one rank's message: count times element size. It is local and prepares
// nothing.
func (c *Communicator) Explain(collective plugin.Collective, dtype plugin.DType, op plugin.Op,
	bytes int64) (selector.Explanation, error) {
	key, err := call.Explainable(collective, dtype, op, bytes)
	if err != nil {
		return selector.Explanation{}, err
	}
	return c.explain(key, dtype, bytes)
}

// ExplainSymmetric is like Explain, for receive memory that is registered as symmetric.
func (c *Communicator) ExplainSymmetric(collective plugin.Collective, dtype plugin.DType, op plugin.Op,
	bytes int64) (selector.Explanation, error) {
	key, err := call.Explainable(collective, dtype, op, bytes)
	if err != nil {
		return selector.Explanation{}, err
	}
	key.Symmetric = c.device != nil && c.World() > 1 && key.CanBeSymmetric()
	return c.explain(key, dtype, bytes)
}

func (c *Communicator) explain(key call.Signature, dtype plugin.DType, bytes int64) (selector.Explanation, error) {
	if err := c.closed("explain"); err != nil {
		return selector.Explanation{}, err
	}
	ctx, cancel := c.observer.Deadline(c.job.Context)
	defer cancel()
	e, err := c.plans.Explain(ctx, key, bytes)
	if dtype.Bytes() == key.DType.Bytes() { // the key of a collective that only moves has one type for each size
		e.DType = dtype.String()
	}
	return e, err
}

// PlanTexts returns the plan of each rank, by rank, that Explain says an operation would run, as text: a line for each
// step (plugin.Plan.Text). It is collective: all ranks call it with the same arguments and return the same, also if one
// of them cannot prepare its plan. It prepares nothing for later operations.
func (c *Communicator) PlanTexts(collective plugin.Collective, dtype plugin.DType, op plugin.Op, bytes int64) ([]string,
	error) {
	key, err := call.Explainable(collective, dtype, op, bytes)
	if err != nil {
		return nil, err
	}
	release, err := c.enter("plan of " + collective.String())
	if err != nil {
		return nil, err
	}
	defer release()
	return c.plans.Texts(c.job.Context, key, bytes)
}

// Transports returns the transports of this communicator, in order of preference.
func (c *Communicator) Transports() []*carrier.Loaded {
	list := make([]*carrier.Loaded, len(c.endpoints.List))
	for i, e := range c.endpoints.List {
		list[i] = e.Loaded
	}
	return list
}
