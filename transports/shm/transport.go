package shm

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/shunt-ccl/shunt/plugin"
)

// Transport is the shm transport. The zero value is ready to be registered.
type Transport struct{}

var _ plugin.Transport = Transport{}

// Info describes the transport.
func (Transport) Info() plugin.Info {
	return plugin.Info{
		Name:    "shm",
		Version: plugin.Release,
		Features: plugin.FeatureMemory | plugin.FeaturePlans | plugin.FeatureBuffers | plugin.FeatureLengths |
			plugin.FeatureMarks,
		Memory:   []plugin.MemoryKind{plugin.MemoryKindHost},
		Doc:      "host memory shared by the ranks of one host",
		MaxWorld: maxWorld,
	}
}

// Supports lists the algorithms for a request, cheapest first.
func (Transport) Supports(req plugin.Request) plugin.Support {
	if reason := unsupported(req); reason != "" {
		return plugin.Support{Reason: reason}
	}
	var s plugin.Support
	for _, a := range table(req) {
		c := a.cost(req.World)
		s.Algorithms = append(s.Algorithms, plugin.Algorithm{Name: a.name, Latency: c.latency, Bandwidth: c.bandwidth})
	}
	estimate := func(a plugin.Algorithm) float64 { return a.Latency + float64(req.Bytes)/a.Bandwidth }
	slices.SortStableFunc(s.Algorithms, func(a, b plugin.Algorithm) int { return cmp.Compare(estimate(a), estimate(b)) })
	return s
}

// unsupported returns the reason why a request cannot be served, or "".
func unsupported(req plugin.Request) string {
	switch {
	case !req.Collective.Valid() || !req.DType.Valid() || !req.Op.Valid():
		return "shm does not know this collective, dtype or op"
	case req.Memory != plugin.MemoryKindHost:
		return "shm moves host memory only"
	case req.Hosts > 1:
		return "shm reaches one host, and the ranks are on " + strconv.Itoa(req.Hosts)
	case req.World < 1 || req.World > maxWorld:
		return "shm serves worlds of 1 to " + strconv.Itoa(maxWorld) + " ranks, not " + strconv.Itoa(req.World)
	case req.Bytes < 0:
		return "a message cannot have fewer than 0 bytes"
	case table(req) == nil:
		return "shm leaves " + req.Collective.String() + " to the host's generic algorithms over its buffers"
	}
	return ""
}

// Open makes this rank's endpoint. It fails with InvalidArgument when the
// configuration is not one of a rank of a world it can serve, and with
// OutOfMemory or System when the memory cannot be had.
func (Transport) Open(_ context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	if config.World < 1 || config.World > maxWorld || config.Rank < 0 || config.Rank >= config.World {
		return nil, plugin.Errorf(plugin.InvalidArgument, "rank %d of a world of %d; worlds have 1 to %d ranks",
			config.Rank, config.World, maxWorld)
	}
	if config.Memory != plugin.MemoryKindHost {
		return nil, plugin.Errorf(plugin.InvalidArgument, "it moves host memory, not %s memory", config.Memory)
	}
	for name := range config.Options {
		return nil, plugin.Errorf(plugin.InvalidArgument, "unknown option %q; it has none", name)
	}
	return open(config)
}
