package host

import (
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// SetDelays makes this rank late between the steps of plans, as SHUNT_DELAYS does
// from the start: for tests of programs and of transports. text is as in that
// variable, equal on all ranks; "" ends it. It holds for this communicator on host
// memory, from the next call on.
func (c *Communicator) SetDelays(text string) error {
	d, err := executor.ParseDelays(text)
	if err != nil {
		return err
	}
	if c.device != nil {
		return plugin.Errorf(plugin.Unsupported, "set delays on rank %d: communicator %s is on device memory, where kernels take the steps", c.Rank(), c.Label())
	}
	release, err := c.enter("set delays")
	if err != nil {
		return err
	}
	defer release()
	clear(c.repeats[:]) // shapes find short forms anew
	return c.engine.SetDelays(d)
}
