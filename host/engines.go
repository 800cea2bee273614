package host

import (
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/plugin"
)

// newEngines makes what registers the caller's memory with the transports that want it; nil where none does.
func (c *Communicator) newEngines() *buffers.Engines {
	var list []buffers.Engine
	for _, a := range c.attached {
		if r, ok := a.Endpoint.(plugin.Registrar); ok && a.Features&plugin.FeatureRegistration != 0 {
			list = append(list, buffers.Engine{Name: a.Name, Base: a.Base, Registrar: r})
		}
	}
	if d := c.device; d != nil {
		return buffers.NewEngines(&c.observer, buffers.GPU{Driver: d.Driver, Context: d.Context, Ordinal: d.Info.Ordinal},
			d.exec, list)
	}
	return buffers.NewEngines(&c.observer, buffers.GPU{}, nil, list)
}
