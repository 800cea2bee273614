package plans

import (
	"context"
	"log/slog"
	"strings"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// InformOfTuning logs on rank 0, whose tuning file counts, how much of it is for this communicator. For the first one
// of a job it is a warning if nothing is, or if an entry names an algorithm that its transport does not offer.
func (pl *Planner) InformOfTuning(ctx context.Context) {
	req := plugin.Request{World: pl.World, Hosts: len(pl.Topology.Hosts()), Memory: pl.Memory}
	entries, all := pl.Table.Tuned(req)
	if all == 0 || pl.Rank != 0 || pl.World == 1 {
		return
	}
	level := slog.LevelInfo
	if len(entries) == 0 && pl.Label == "world" {
		level = slog.LevelWarn
	}
	pl.Logger.Log(ctx, level, "tuning file", "communicator", pl.Label, "entries", all, "for_it", len(entries), "world",
		req.World, "hosts", req.Hosts, "memory", req.Memory.String(), "topology", pl.Topology.Class())
	if pl.Label != "world" {
		return
	}
	seen := map[[2]string]bool{}
	for i := range entries {
		key := [2]string{entries[i].Collective, entries[i].Algorithm}
		if seen[key] {
			continue
		}
		seen[key] = true
		if have := pl.without(ctx, req, &entries[i]); have != nil {
			pl.Logger.Warn("tuning file: an entry has no effect, as its transport offers no such algorithm here", "collective",
				key[0], "algorithm", key[1], "there_are", strings.Join(have, ", "))
		}
	}
}

// without returns what an entry's transport has for its collective, if that is not the entry's algorithm. It is nil for
// transports that this communicator does not use, or that serve no such call.
func (pl *Planner) without(ctx context.Context, req plugin.Request, e *selector.Entry) (have []string) {
	seen := map[string]bool{}
	req.Collective, _ = plugin.ParseCollective(e.Collective) // as whoever has read the file checked
	ops := plugin.Ops()
	if !req.Collective.Reduces() {
		ops = ops[:1]
	}
	req.PeerRead, req.NVLink = pl.PeerRead, pl.NVLink
	for _, a := range pl.Transports {
		if !strings.HasPrefix(e.Algorithm, a.Name+"/") {
			continue
		}
		for _, dtype := range plugin.DTypes() {
			for _, op := range ops {
				for _, symmetric := range []bool{false, pl.Device != nil} {
					req.DType, req.Op, req.Symmetric = dtype, op, symmetric
					support, err := a.Supports(ctx, req)
					if err != nil {
						return nil
					}
					for _, alg := range support.Algorithms {
						name := a.Name + "/" + alg.Name
						if name == e.Algorithm {
							return nil
						}
						if !seen[name] {
							seen[name], have = true, append(have, name)
						}
					}
				}
			}
		}
	}
	return have
}
