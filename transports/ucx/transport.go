package ucx

import (
	"context"
	"strconv"

	"github.com/shunt-ccl/shunt/plugin"
)

// Transport opens endpoints over the library that is found; see Variable.
type Transport struct{}

var _ plugin.Transport = Transport{}

// maxWorld keeps plans short, which hold a few steps for each peer.
const maxWorld = 256

// Info describes the transport.
func (Transport) Info() plugin.Info {
	return plugin.Info{
		Name: "ucx", Version: plugin.Release,
		Features: plugin.FeaturePlans | plugin.FeatureExchange | plugin.FeatureMultiHost | plugin.FeatureLengths,
		Memory:   []plugin.MemoryKind{plugin.MemoryKindHost}, Doc: "host memory of ranks on several hosts, through UCX",
		MaxWorld: maxWorld,
	}
}

// Supports offers every collective, and send and recv.
func (Transport) Supports(r plugin.Request) plugin.Support {
	if reason := unsupported(r); reason != "" {
		return plugin.Support{Reason: reason}
	}
	if _, err := open(); err != nil {
		return plugin.Support{Reason: err.Error()}
	}
	var s plugin.Support
	for _, f := range forms[r.Collective] {
		peers := float64(max(r.World-1, 1))
		a := plugin.Algorithm{Name: f.name, Latency: f.exchanges * (8 + 2*peers),
			Bandwidth: bandwidth(r.Hosts) / f.volume(peers)}
		if f.name == oneShot {
			a.MaxBytes = pieceBytes(r.World)
		}
		s.Algorithms = append(s.Algorithms, a)
	}
	return s
}

// unsupported says why a request is not served, or "".
func unsupported(r plugin.Request) string {
	switch {
	case r.Memory != plugin.MemoryKindHost:
		return "it serves host memory only"
	case r.World > maxWorld:
		return "it serves worlds of up to " + strconv.Itoa(maxWorld) + " ranks"
	case len(forms[r.Collective]) == 0:
		return "it has no one-sided operations"
	}
	return ""
}

// Open makes an endpoint. It uses UCX no sooner than the first plan does.
func (Transport) Open(_ context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	switch {
	case c.World < 1 || c.World > maxWorld || c.Rank < 0 || c.Rank >= c.World:
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"ucx: rank %d is not in a world of %d ranks, want a world of 1 to %d", c.Rank, c.World, maxWorld)
	case c.Memory != plugin.MemoryKindHost:
		return nil, plugin.Errorf(plugin.InvalidArgument, "ucx: %s memory cannot be served, want host memory", c.Memory)
	}
	for name := range c.Options {
		if name != "library" { // Variable, which Supports needs too
			return nil, plugin.Errorf(plugin.InvalidArgument, "ucx: unknown option %q; it has library", name)
		}
	}
	l, err := open()
	if err != nil {
		return nil, err
	}
	return newEndpoint(l, c)
}
