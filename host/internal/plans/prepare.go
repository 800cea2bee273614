package plans

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/shunt-ccl/shunt/host/algorithm"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// choose asks every transport for algorithms.
func (pl *Planner) choose(ctx context.Context, key call.Signature) (*prepared, error) {
	ctx, cancel := TransportTime(ctx)
	defer cancel()
	choice, err := pl.Choose(ctx, key)
	if err != nil {
		return nil, err
	}
	return newPrepared(choice), nil
}

// missing lists the plans that a call of a size has prepared: its own, if it is not yet, and with a signature's first
// call those of all sizes that need no exchange. It is the same on all ranks that call the same.
func (pl *Planner) missing(p *prepared, size int64) []int {
	own := p.choice.Pick(size)
	var list []int
	for _, i := range p.choice.Chosen() {
		exchanges := pl.Transports[p.choice.Candidates()[i].Endpoint].exchanges()
		if !p.programs[i].loaded() && (i == own || !exchanges) {
			list = append(list, i)
		}
	}
	return list
}

// loadAll loads some of a signature's plans, or none.
func (pl *Planner) loadAll(ctx context.Context, key call.Signature, p *prepared, list []int) error {
	ctx, cancel := TransportTime(ctx)
	defer cancel()
	for _, i := range list {
		program, err := pl.load(ctx, key, p.choice.Candidates()[i])
		if err != nil {
			p.unload(list)
			return err
		}
		p.programs[i] = program
	}
	return nil
}

// Request returns the request about a signature for transports. Bytes is left 0:
// algorithms carry their limits, and the choice applies them per call.
func (pl *Planner) Request(key call.Signature) plugin.Request {
	return plugin.Request{
		Collective: key.Collective, DType: key.DType, Op: key.Op, World: pl.World,
		Hosts: len(pl.Topology.Hosts()), Memory: pl.Memory, Rank: pl.Rank, PeerRead: pl.PeerRead, NVLink: pl.NVLink,
		Symmetric: key.Symmetric, DeviceCounts: key.OnDevice,
	}
}

// Choose compiles the choice among every transport's algorithms.
func (pl *Planner) Choose(ctx context.Context, key call.Signature) (*selector.Choice, error) {
	req := pl.Request(key)
	var candidates []selector.Candidate
	rejections := map[string]string{}
	maps.Copy(rejections, pl.Absent)
	for i, a := range pl.Transports {
		name := a.Name
		support, err := a.Supports(ctx, WithoutRank(req))
		if err != nil {
			return nil, err
		}
		for _, alg := range support.Algorithms {
			candidates = append(candidates, selector.Candidate{Transport: name, Endpoint: i, Algorithm: alg, Qualified: name +
				"/" + alg.Name})
		}
		if len(support.Algorithms) == 0 {
			rejections[name] = support.Reason
		}
		if !req.Symmetric {
			if err := pl.missingSymmetric(ctx, req, a, support, rejections); err != nil {
				return nil, err
			}
		}
	}
	candidates, err := pl.asGroups(ctx, req, candidates, rejections)
	if err != nil {
		return nil, err
	}
	choice, err := pl.Table.Compile(req, candidates, rejections)
	if plugin.CodeOf(err) != plugin.InvalidArgument {
		return choice, err
	}
	if err := pl.otherCalls(ctx, req, candidates, rejections); err != nil {
		return nil, err
	}
	return pl.Table.Compile(req, candidates, rejections)
}

// otherCalls notes the algorithms that a collective has for other dtypes and ops alone: SHUNT_ALGO may name them.
func (pl *Planner) otherCalls(ctx context.Context, req plugin.Request, candidates []selector.Candidate,
	rejections map[string]string) error {
	ops := plugin.Ops()
	if !req.Collective.Reduces() {
		ops = []plugin.Op{req.Op}
	}
	for _, a := range pl.Transports {
		for _, req.DType = range plugin.DTypes() {
			for _, req.Op = range ops {
				support, err := a.Supports(ctx, WithoutRank(req))
				if err != nil {
					return err
				}
				for _, alg := range support.Algorithms {
					name := a.Name + "/" + alg.Name
					same := func(c selector.Candidate) bool { return c.Qualified == name }
					if rejections[name] == "" && !slices.ContainsFunc(candidates, same) {
						rejections[name] = "takes other dtypes or ops"
					}
				}
			}
		}
	}
	return nil
}

// missingSymmetric notes what a transport would offer besides, if receive memory
// were symmetric.
func (pl *Planner) missingSymmetric(ctx context.Context, req plugin.Request, a *Transport, offered plugin.Support,
	rejections map[string]string) error {
	if pl.Device == nil || !(&call.Signature{Collective: req.Collective}).CanBeSymmetric() {
		return nil
	}
	req.Symmetric = true
	support, err := a.Supports(ctx, WithoutRank(req))
	if err != nil {
		return err
	}
	for _, alg := range support.Algorithms {
		same := func(o plugin.Algorithm) bool { return o.Name == alg.Name }
		if !slices.ContainsFunc(offered.Algorithms, same) {
			rejections[a.Name+"/"+alg.Name] = "needs receive memory that is registered as symmetric"
		}
	}
	return nil
}

// Supports returns what a transport offers for a request, and the generic algorithms over its scratch. The generic
// ones serve what the transport leaves to them, but across hosts they reach no further than the transport states. An
// result that breaks the contract counts as no; a missing result is an error.
func (a *Transport) Supports(ctx context.Context, req plugin.Request) (plugin.Support, error) {
	if req.DeviceCounts && a.Features&plugin.FeatureDeviceCounts == 0 {
		return plugin.Support{Reason: "it takes no counts from device memory"}, nil
	}
	support, err := a.Ask(ctx, req)
	switch plugin.CodeOf(err) {
	case plugin.OK:
	case plugin.Timeout, plugin.Aborted, plugin.PluginDied, plugin.Closed:
		return plugin.Support{}, err
	default:
		support = plugin.Support{Reason: "its result is invalid: " + err.Error()}
	}
	if req.DeviceCounts { // the generic algorithms know the host's alone
		return support, nil
	}
	if a.Scratch == nil || (req.Hosts > 1 && len(support.Algorithms) == 0) {
		return support, nil
	}
	generic := algorithm.Supports(req, a.Scratch.Bytes)
	support.Algorithms = append(append([]plugin.Algorithm(nil), support.Algorithms...), generic.Algorithms...)
	switch {
	case support.Reason == "":
		support.Reason = generic.Reason
	case len(support.Algorithms) == 0: // the transport's reason is not the whole one
		support.Reason += "; over its scratch region: " + generic.Reason
	}
	return support, nil
}

// WithoutRank returns a request as every rank asks it.
func WithoutRank(req plugin.Request) plugin.Request {
	req.Rank = 0
	return req
}

// prepare has one candidate's plan written.
func (pl *Planner) prepare(ctx context.Context, key call.Signature, candidate selector.Candidate) (*plugin.Plan,
	error) {
	a := pl.Transports[candidate.Endpoint]
	req := pl.Request(key)
	var plan *plugin.Plan
	var err error
	if algorithm.IsGeneric(candidate.Algorithm.Name) && a.Scratch != nil {
		plan, err = algorithm.Plan(req, candidate.Algorithm.Name, a.Scratch.ID, a.Scratch.Bytes)
	} else {
		plan, err = a.Endpoint.Prepare(ctx, req, candidate.Algorithm.Name)
	}
	if err == nil {
		err = plan.ValidateFor(req)
	}
	if err == nil {
		err = fits(plan, candidate.Algorithm.Name, len(a.Endpoint.Regions()))
	}
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", candidate.Qualified, err)
	}
	return plan, nil
}

// fits checks a plan against what it was asked of: an algorithm, and an endpoint with so many regions.
func fits(plan *plugin.Plan, algorithm string, regions int) error {
	if plan.Algorithm != algorithm {
		return plugin.Errorf(plugin.Protocol, "plan %s is for another algorithm", plan.Algorithm)
	}
	for id := range named(plan) {
		if id < 0 || id >= int64(regions) {
			return plugin.Errorf(plugin.Protocol, "plan %s names region %d, the endpoint has %d", plan.Algorithm, id, regions)
		}
	}
	return nil
}

// load prepares one candidate's plan and gives it to the executor.
func (pl *Planner) load(ctx context.Context, key call.Signature, candidate selector.Candidate) (Program, error) {
	plan, err := pl.prepare(ctx, key, candidate)
	if err != nil {
		return Program{}, err
	}
	a := pl.Transports[candidate.Endpoint]
	var loaded Program
	loaded.ComparesLengths = algorithm.IsGeneric(candidate.Algorithm.Name) || a.Features&plugin.FeatureLengths != 0
	loaded.Marked = algorithm.IsGeneric(candidate.Algorithm.Name) || a.Features&plugin.FeatureMarks != 0
	if pl.Device != nil {
		loaded.Base, loaded.Deferred = a.Base, needed(plan, a.Endpoint.Regions())
		if loaded.Kernels, err = pl.Device.Load(plan, a.Base); err == nil {
			loaded.Kernels.Entitle(candidate.Qualified)
			if len(plan.Natives) > 0 {
				a.Enqueues.Store(true)
			}
		}
	} else {
		loaded.Host, err = pl.Engine.Load(plan, a.Base)
		if err == nil && loaded.Marked {
			loaded.Host.Marked()
		}
	}
	if err != nil {
		return Program{}, fmt.Errorf("preparing %s: %w", candidate.Qualified, err)
	}
	return loaded, nil
}

// named returns the regions that a plan names by constants in its refs.
func named(plan *plugin.Plan) map[int64]bool {
	ids := map[int64]bool{}
	first := plugin.SlotCountOf(plan.World)
	for _, r := range plan.Refs {
		if at := int(r.Region) - first; r.Space == plugin.SpaceRegion && at >= 0 && at < len(plan.Consts) {
			ids[plan.Consts[at]] = true
		}
	}
	return ids
}

// needed returns which of an endpoint's regions of role deferred a plan names, by constants, in its refs; it counts
// among the regions of that role.
func needed(plan *plugin.Plan, regions []plugin.Region) (list []int) {
	named, number := named(plan), 0
	for _, r := range regions {
		if r.Role != plugin.RegionRoleDeferred {
			continue
		}
		if named[int64(r.ID)] {
			list = append(list, number)
		}
		number++
	}
	return list
}
