package cudaipctest

import (
	"context"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
)

// Transport is transports/cudaipc with images that hold no code: on the driver in
// memory a kernel is found by its name alone, in whatever image.
type Transport struct {
	cudaipc.Transport

	// Drivers are those that endpoints are opened on, by device, for jobs whose
	// ranks are goroutines with a driver each; nil: Transport.Driver for all.
	Drivers func(device int) cuda.Driver
}

// Open opens an endpoint.
func (t Transport) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	inner := t.Transport
	if t.Drivers != nil {
		inner.Driver = t.Drivers(c.Device)
	}
	e, err := inner.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return endpoint{e}, nil
}

type endpoint struct{ plugin.Endpoint }

// Images has an image of every name that a plan may give.
func (e endpoint) Images() []plugin.Image { return images }

var images = func() []plugin.Image {
	var list []plugin.Image
	add := func(name string) { list = append(list, plugin.Image{Name: name, Data: []byte("no code")}) }
	for _, name := range []string{"all_gather", "all_reduce", "all_to_all", "all_to_all_v", "barrier", "broadcast",
		"one_sided", "reduce", "reduce_scatter", "symmetric"} {
		add(name)
		for d := plugin.Int8; d.Valid(); d++ {
			add(name + "_" + d.String())
		}
	}
	return list
}()
