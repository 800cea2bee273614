package fragile

import (
	"context"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// Transport is the transport, broken as Mutant says; "" is not broken.
type Transport struct{ Mutant string }

var _ plugin.Transport = Transport{}

// Info describes the transport. Each mutant is a transport of its own.
func (t Transport) Info() plugin.Info {
	name := "fragile"
	if t.Mutant != "" {
		name += "_" + t.Mutant
	}
	return plugin.Info{
		Name: name, Version: "1.0.0", Doc: "breaks rules on purpose",
		Features: plugin.FeatureMemory | plugin.FeaturePlans, Memory: []plugin.MemoryKind{plugin.MemoryKindHost},
	}
}

// MaxWorld is the largest world that the layout has room for.
const MaxWorld = 8

type algorithm struct {
	name  string
	write func(*writer)
	peers bool // it reads the memory of peers
}

var algorithms = map[plugin.Collective][]algorithm{
	plugin.AllReduce:     {{"exchange", allReduce, false}},
	plugin.AllGather:     {{"offer", allGatherOffers, true}, {"exchange", allGather, false}},
	plugin.AllGatherV:    {{"exchange", allGather, false}, {"offer", allGatherOffers, true}},
	plugin.ReduceScatter: {{"exchange", reduceScatter, false}},
	plugin.Broadcast:     {{"channel", broadcast, false}},
	plugin.AllToAllV:     {{"channel", allToAllV, false}},
	plugin.Gather:        {{"channel", gather, false}},
	plugin.GatherV:       {{"channel", gather, false}},
	plugin.Scatter:       {{"channel", scatter, false}},
	plugin.ScatterV:      {{"channel", scatter, false}},
}

// Supports depends on the request alone.
func (Transport) Supports(req plugin.Request) plugin.Support {
	if req.Memory != plugin.MemoryKindHost || req.Hosts > 1 || req.World > MaxWorld {
		return plugin.Support{Reason: "fragile serves up to 8 ranks on the memory of one host"}
	}
	var s plugin.Support
	for i, a := range algorithms[req.Collective] {
		if !a.peers || req.PeerRead {
			s.Algorithms = append(s.Algorithms, plugin.Algorithm{Name: a.name, Latency: 0.01 * float64(1+i), Bandwidth: 1e6})
		}
	}
	if len(s.Algorithms) == 0 {
		s.Reason = "fragile leaves " + req.Collective.String() + " to the host's generic algorithms"
	}
	return s
}

// Open makes this rank's endpoint on memory of shm.
func (t Transport) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := shm.Transport{}.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	return &endpoint{e, t.Mutant}, nil
}

type endpoint struct {
	plugin.Endpoint
	mutant string
}

// Prepare writes the plan of an algorithm.
func (e *endpoint) Prepare(_ context.Context, req plugin.Request, name string) (*plugin.Plan, error) {
	for _, a := range algorithms[req.Collective] {
		if a.name == name {
			w := &writer{Builder: plugin.NewBuilder(req, name), mutant: e.mutant, me: req.Rank, world: req.World,
				varying: req.Collective.Varying(), element: req.DType.Bytes()}
			if req.World == 1 {
				w.Alone()
			} else {
				a.write(w)
			}
			return w.Plan()
		}
	}
	return nil, plugin.Errorf(plugin.Unsupported, "fragile: no algorithm %q for %s", name, req.Collective)
}
