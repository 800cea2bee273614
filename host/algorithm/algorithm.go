package algorithm

import (
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Prefix begins every name of this package.
const Prefix = "generic"

// IsGeneric reports whether a name is one that Supports of this package gives.
func IsGeneric(name string) bool { return strings.HasPrefix(name, Prefix+"/") }

// row is one algorithm. Every one serves every size. Its cost is a guess about memory that a processor can write: a
// transport with faster ways offers plans of its own, which are tried first at equal cost.
type row struct {
	name      string
	write     func(*writer)
	latency   float64 // microseconds, for each peer
	bandwidth float64 // bytes per microsecond of Request.Bytes
	shared    bool    // the bandwidth is divided among the peers
}

var (
	direct = func(write func(*writer)) []row {
		return []row{{Prefix + "/put_direct", write, 0.6, 2500, true}}
	}
	pointToPoint = func(write func(*writer)) []row {
		return []row{{Prefix + "/put_direct", write, 0.6, 2500, false}}
	}
	gather, reduceScatter = direct(gatherDirect), direct(reduceScatterDirect)
	allGather, allToAll   = direct(allGatherDirect), direct(allToAllDirect)
	scatter               = direct(scatterDirect)
)

var rows = map[plugin.Collective][]row{
	plugin.AllReduce: {
		{Prefix + "/put_one_shot", allReduceOneShot, 0.6, 1500, true},
		{Prefix + "/put_two_shot", allReduceTwoShot, 1.5, 1200, false},
	},
	plugin.Reduce:         direct(reduceDirect),
	plugin.Broadcast:      direct(broadcastDirect),
	plugin.AllGather:      allGather,
	plugin.AllGatherV:     allGather,
	plugin.ReduceScatter:  reduceScatter,
	plugin.ReduceScatterV: reduceScatter,
	plugin.AllToAll:       allToAll,
	plugin.AllToAllV:      allToAll,
	plugin.Gather:         gather,
	plugin.GatherV:        gather,
	plugin.Scatter:        scatter,
	plugin.ScatterV:       scatter,
	plugin.Send:           pointToPoint(sendDirect),
	plugin.Recv:           pointToPoint(recvDirect),
	plugin.Barrier:        pointToPoint(barrierDirect),
	plugin.Put:            pointToPoint(putDirect),
	plugin.Get:            pointToPoint(getDirect),
	plugin.Signal:         pointToPoint(signalDirect),
	plugin.Wait:           pointToPoint(waitDirect),
}

// inWorld returns the rows for a world: a world of one needs no message but to
// itself.
func inWorld(c plugin.Collective, world int) []row {
	if world == 1 && !c.PointToPoint() && c != plugin.Barrier && rows[c] != nil {
		return []row{{Prefix + "/local", (*writer).Alone, 0.2, 8000, false}}
	}
	return rows[c]
}

// Supports lists the generic algorithms that can serve a request over a scratch
// region of scratchBytes on every rank, or gives the reason why there is none. It
// depends on its arguments only, so every rank returns the same. One-sided
// operations need a window (see WindowBytes) instead of scratch.
func Supports(req plugin.Request, scratchBytes int64) plugin.Support {
	if reason := unsupported(req, scratchBytes); reason != "" {
		return plugin.Support{Reason: reason}
	}
	var s plugin.Support
	for _, r := range inWorld(req.Collective, req.World) {
		peers := float64(max(1, req.World-1))
		a := plugin.Algorithm{Name: r.name, Latency: r.latency * peers, Bandwidth: r.bandwidth}
		if r.shared {
			a.Bandwidth /= peers
		}
		s.Algorithms = append(s.Algorithms, a)
	}
	return s
}

func unsupported(req plugin.Request, scratchBytes int64) string {
	if !req.Collective.Valid() || !req.DType.Valid() || !req.Op.Valid() {
		return "there is no such collective, dtype or op"
	}
	if req.Memory != plugin.MemoryKindHost {
		return "the generic algorithms move host memory only"
	}
	if req.World < 1 || req.World > maxWorld {
		return "the generic algorithms serve worlds of 1 to " + strconv.Itoa(maxWorld) + " ranks, not " +
			strconv.Itoa(req.World)
	}
	if _, ok := newLayout(req.World, scratchBytes); !ok {
		return strconv.FormatInt(scratchBytes, 10) + " bytes of scratch are too few for " + strconv.Itoa(req.World) + " ranks"
	}
	return ""
}

// Plan writes this rank's plan of an algorithm that Supports named, over region
// scratchRegion, which must be zero-filled and scratchBytes long on every rank
// and used by plans of this package alone. It fails with Unsupported for a
// name or request that Supports would not offer.
func Plan(req plugin.Request, name string, scratchRegion uint32, scratchBytes int64) (*plugin.Plan, error) {
	if reason := unsupported(req, scratchBytes); reason != "" {
		return nil, plugin.Errorf(plugin.Unsupported, "%s of %s on rank %d: %s", name, req.Collective, req.Rank, reason)
	}
	if req.Rank < 0 || req.Rank >= req.World {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%s of %s: rank %d is not in a world of %d ranks", name,
			req.Collective, req.Rank, req.World)
	}
	for _, r := range inWorld(req.Collective, req.World) {
		if r.name != name {
			continue
		}
		l, _ := newLayout(req.World, scratchBytes)
		w := &writer{
			Builder: plugin.NewBuilder(req, name), layout: l,
			me: req.Rank, size: req.World, element: req.DType.Bytes(), pairwise: req.Collective.Pairwise(),
		}
		w.scratch = w.Const(int64(scratchRegion))
		r.write(w)
		return w.Plan()
	}
	return nil, plugin.Errorf(plugin.Unsupported, "there is no algorithm %q for %s in a world of %d",
		name, req.Collective, req.World)
}
