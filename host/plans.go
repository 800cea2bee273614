package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/host/algorithm"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// prepared is one signature's choice and its loaded plans, candidate by
// candidate.
type prepared struct {
	choice   *selector.Choice
	programs []program
}

// program is a loaded plan: one of the two, as the communicator's memory is.
type program struct {
	host    *executor.Program
	kernels *executor.DeviceProgram
	lengths bool // of recv: it never ends with a message of another length
	marks   bool // its semaphores carry marks
}

func (p program) free() {
	p.host.Free()
	p.kernels.Free()
}

// signatures is the plan cache. It is bounded by the tables: at most two entries
// for each collective, dtype and op, as counts on the device are never symmetric.
type signatures struct {
	mu    sync.Mutex // for Explain, which may come from another goroutine
	known map[call.Signature]*prepared
	last  call.Signature // the latest, so that a repeated call skips the map
	cache *prepared
	count uint64 // of agreements, for their tags
}

func (s *signatures) lookup(key call.Signature) *prepared {
	if s.cache != nil && s.last == key {
		return s.cache
	}
	p := s.known[key]
	if p != nil {
		s.last, s.cache = key, p
	}
	return p
}

func (s *signatures) store(key call.Signature, p *prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[call.Signature]*prepared{}
	}
	s.known[key] = p
}

func (s *signatures) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.known {
		p.free()
	}
	s.known, s.cache = nil, nil
}

func (p *prepared) free() {
	for _, program := range p.programs {
		program.free()
	}
	p.programs = nil
}

// programs is the plan for a call, from the cache or prepared now, which is
// collective.
func (c *Communicator) programs(call *call.Call) (program, error) {
	key := call.Signature()
	p := c.signatures.lookup(key)
	if p == nil {
		var err error
		if p, err = c.prepare(key, call); err != nil {
			return program{}, err
		}
	}
	i := p.choice.Pick(call.Size)
	if i < 0 {
		return program{}, c.observer.WrapError(call.Collective.String(), p.choice.Unsupported(call.Size))
	}
	return p.programs[i], nil
}

// callInfo is what a rank asked for when a signature is first prepared. The
// ranks compare it before anyone goes on.
type callInfo struct {
	Seq        uint64
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Size       int64 // -1 where ranks may differ
	Root       int   // -1 where there is none
	Symmetric  bool
	OnDevice   bool // the counts
	Counts     call.Counts
	Choice     string            // of algorithms, by size
	Offers     map[string]string // what it was made of, by transport
	Code       plugin.Code
	Message    string
}

func (a callInfo) String() string {
	text := a.Collective.String() + " of " + a.DType.String()
	if a.Collective.Reduces() {
		text += " with op " + a.Op.String()
	}
	if a.Size >= 0 {
		text += fmt.Sprintf(", %d bytes", a.Size)
	}
	if a.Root >= 0 {
		text += fmt.Sprintf(", root %d", a.Root)
	}
	if a.Symmetric {
		text += ", symmetric"
	}
	if a.OnDevice {
		text += ", counts on the device"
	}
	return text
}

// prepare compiles and loads the plans of a signature, and agrees with all
// ranks that everyone asked for the same and that everyone can.
func (c *Communicator) prepare(key call.Signature, call *call.Call) (*prepared, error) {
	c.publish(call)
	c.engine.Announce()
	c.engine.NoteCall()
	ctx, cancel := c.deadline(c.job.ctx)
	defer cancel()
	mine := c.callInfo(call)
	if c.exchangesBytes() { // whoever has called something else is told of before its bytes are waited for
		if err := c.compare(mine); err != nil {
			return nil, err
		}
	}
	p, err := c.build(ctx, key, nil)
	if err != nil {
		mine.Code, mine.Message = plugin.CodeOf(err), err.Error()
	} else {
		mine.Choice, mine.Offers = p.choice.String(), p.choice.Offers()
	}
	if err := c.compare(mine); err != nil {
		if p != nil {
			p.free()
		}
		return nil, err
	}
	c.signatures.store(key, p)
	return p, nil
}

// callInfo is what this rank says about a collective.
func (c *Communicator) callInfo(call *call.Call) callInfo {
	mine := callInfo{Seq: c.sequence.Collectives, Collective: call.Collective, DType: call.DType, Op: call.Op, Size: call.Size, Root: -1, Symmetric: call.Symmetric, OnDevice: call.OnDevice, Counts: call.Counts(c.world)}
	switch call.Collective {
	case plugin.AllToAllV, plugin.GatherV, plugin.ScatterV:
		mine.Size = -1
	}
	if call.Collective.Rooted() {
		mine.Root = call.Root
	}
	return mine
}

// compare gathers what every rank asked for. All ranks come to the same
// verdict, as all see the same answers.
func (c *Communicator) compare(mine callInfo) error {
	what := mine.Collective.String()
	c.signatures.count++
	tag := fmt.Sprintf("ask %s %d", c.label, c.signatures.count)
	payload, err := json.Marshal(mine)
	if err != nil {
		return plugin.Errorf(plugin.Internal, "%s: %w", what, err)
	}
	ctx, cancel := c.deadline(c.job.ctx)
	defer cancel()
	absent := time.AfterFunc(c.job.options.Stall(), func() { c.observer.WarnAbsent(mine.Seq, mine.Collective, c.job.options.Stall()) })
	defer absent.Stop()
	answers, err := c.group.AllGather(ctx, tag, payload)
	if err != nil {
		err = c.observer.WrapError(what, err)
		var reason *plugin.Error
		if errors.As(err, &reason) {
			c.fail(reason, true)
			c.observer.Failure.Wait()
		}
		return err
	}
	var first callInfo
	all := make([]call.Counts, len(answers))
	for rank, answer := range answers {
		var a callInfo
		if err := json.Unmarshal(answer, &a); err != nil {
			return plugin.Errorf(plugin.Protocol, "%s: rank %d sent a malformed request: %w", what, rank, err)
		}
		if rank == 0 {
			first = a
		}
		if a.Collective != first.Collective || a.DType != first.DType || a.Op != first.Op || a.Size != first.Size || a.Root != first.Root || a.Symmetric != first.Symmetric || a.OnDevice != first.OnDevice || a.Seq != first.Seq {
			reason := c.observer.Mismatch(rank, fmt.Sprintf("ranks disagree: rank 0 called #%d %s, rank %d called #%d %s", first.Seq, first, rank, a.Seq, a))
			c.fail(reason, false)
			return c.observer.FailureError(what, reason)
		}
		all[rank] = a.Counts
	}
	if rank, text := call.DifferentCounts(mine.Collective, all); text != "" {
		reason := &plugin.Error{Code: plugin.Mismatch, Rank: rank, Message: fmt.Sprintf("ranks disagree about #%d %s: %s", first.Seq, first, text)}
		c.fail(reason, false)
		return c.observer.FailureError(what, reason)
	}
	choices := make([]choice, len(answers))
	for rank, answer := range answers {
		var a callInfo
		if err := json.Unmarshal(answer, &a); err == nil && a.Code != plugin.OK {
			reason := &plugin.Error{Code: a.Code, Rank: rank, Message: fmt.Sprintf("%s on rank %d: %s", what, rank, a.Message)}
			if a.Code == plugin.Timeout || a.Code == plugin.PluginDied { // a transport that does not answer will not do so later either
				c.fail(reason, false)
				return c.observer.FailureError(what, reason)
			}
			return reason
		}
		choices[rank] = choice{mine.String(), a.Choice, a.Offers}
	}
	if reason := unlikeChoices(choices); reason != nil {
		c.fail(reason, false)
		return c.observer.FailureError(what, reason)
	}
	return nil
}

// build asks every transport for algorithms and prepares the plan of each one
// that the choice may pick. A failure of before is told to the ranks that exchange
// bytes with this one.
func (c *Communicator) build(ctx context.Context, key call.Signature, before error) (*prepared, error) {
	var choice *selector.Choice
	err := before
	if err == nil {
		ctx, cancel := transportTime(ctx)
		choice, err = c.choose(ctx, key)
		cancel()
	}
	if c.exchangesBytes() {
		err = c.exchangeForPlans(ctx, key, choice, err)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := transportTime(ctx)
	defer cancel()
	p := &prepared{choice: choice}
	for _, candidate := range choice.Candidates() {
		program, err := c.load(ctx, key, candidate)
		if err != nil {
			p.free()
			return nil, err
		}
		p.programs = append(p.programs, program)
	}
	return p, nil
}

// request is what transports are callInfo about a signature. Bytes is left 0:
// algorithms carry their limits, and the choice applies them per call.
func (c *Communicator) request(key call.Signature) plugin.Request {
	return plugin.Request{
		Collective: key.Collective, DType: key.DType, Op: key.Op, World: c.world,
		Hosts: len(c.observer.Topology.Hosts()), Memory: c.job.memory, Rank: c.rank, PeerRead: c.peerRead, NVLink: c.nvlink,
		Symmetric: key.Symmetric, DeviceCounts: key.OnDevice,
	}
}

// choose compiles the choice among every transport's algorithms.
func (c *Communicator) choose(ctx context.Context, key call.Signature) (*selector.Choice, error) {
	req := c.request(key)
	var candidates []selector.Candidate
	rejections := map[string]string{}
	for i, a := range c.attached {
		name := a.loaded.Info.Name
		support, err := a.supports(ctx, withoutRank(req))
		if err != nil {
			return nil, err
		}
		for _, alg := range support.Algorithms {
			candidates = append(candidates, selector.Candidate{Transport: name, Endpoint: i, Algorithm: alg, Qualified: name + "/" + alg.Name})
		}
		if len(support.Algorithms) == 0 {
			rejections[name] = support.Reason
		}
		if !req.Symmetric {
			if err := c.missingSymmetric(ctx, req, a, support, rejections); err != nil {
				return nil, err
			}
		}
	}
	return c.job.table.Compile(req, candidates, rejections)
}

// missingSymmetric notes what a transport would offer besides, if receive memory
// were symmetric.
func (c *Communicator) missingSymmetric(ctx context.Context, req plugin.Request, a *attached, offered plugin.Support, rejections map[string]string) error {
	if c.device == nil || !buffers.Promised(req.Collective) {
		return nil
	}
	req.Symmetric = true
	support, err := a.supports(ctx, withoutRank(req))
	if err != nil {
		return err
	}
	for _, alg := range support.Algorithms {
		same := func(o plugin.Algorithm) bool { return o.Name == alg.Name }
		if !slices.ContainsFunc(offered.Algorithms, same) {
			rejections[a.loaded.Info.Name+"/"+alg.Name] = "needs receive memory that is registered as symmetric"
		}
	}
	return nil
}

// supports is what a transport offers for a request, and the generic algorithms
// over its scratch. Those serve what it leaves to them, but where ranks are on
// several hosts they reach no further than the transport says it does. An answer that
// breaks the contract counts as no; that there is none is an error.
func (a *attached) supports(ctx context.Context, req plugin.Request) (plugin.Support, error) {
	if req.DeviceCounts && a.loaded.Info.Features&plugin.FeatureDeviceCounts == 0 {
		return plugin.Support{Reason: "it takes no counts from device memory"}, nil
	}
	support, err := a.loaded.Ask(ctx, req)
	switch plugin.CodeOf(err) {
	case plugin.OK:
	case plugin.Timeout, plugin.Aborted, plugin.PluginDied, plugin.Closed:
		return plugin.Support{}, err
	default:
		support = plugin.Support{Reason: "its answer is unusable: " + err.Error()}
	}
	if req.DeviceCounts { // the generic algorithms know the host's alone
		return support, nil
	}
	if a.scratch == nil || (req.Hosts > 1 && len(support.Algorithms) == 0) {
		return support, nil
	}
	generic := algorithm.Supports(req, a.scratch.Bytes)
	support.Algorithms = append(append([]plugin.Algorithm(nil), support.Algorithms...), generic.Algorithms...)
	if support.Reason == "" {
		support.Reason = generic.Reason
	}
	return support, nil
}

func withoutRank(req plugin.Request) plugin.Request {
	req.Rank = 0
	return req
}

// load prepares one candidate's plan and gives it to the executor.
func (c *Communicator) load(ctx context.Context, key call.Signature, candidate selector.Candidate) (program, error) {
	a := c.attached[candidate.Endpoint]
	req := c.request(key)
	var plan *plugin.Plan
	var err error
	if algorithm.IsGeneric(candidate.Algorithm.Name) && a.scratch != nil {
		plan, err = algorithm.Plan(req, candidate.Algorithm.Name, a.scratch.ID, a.scratch.Bytes)
	} else {
		plan, err = a.endpoint.Prepare(ctx, req, candidate.Algorithm.Name)
	}
	if err != nil {
		return program{}, fmt.Errorf("preparing %s: %w", candidate.Qualified, err)
	}
	if err := plan.ValidateFor(req); err != nil {
		return program{}, fmt.Errorf("preparing %s: %w", candidate.Qualified, err)
	}
	var loaded program
	loaded.lengths = algorithm.IsGeneric(candidate.Algorithm.Name) || a.loaded.Info.Features&plugin.FeatureLengths != 0
	loaded.marks = algorithm.IsGeneric(candidate.Algorithm.Name) || a.loaded.Info.Features&plugin.FeatureMarks != 0
	if c.device != nil {
		loaded.kernels, err = c.device.exec.Load(plan, a.base)
	} else {
		loaded.host, err = c.engine.Load(plan, a.base)
		if err == nil && loaded.marks {
			loaded.host.Marked()
		}
	}
	if err != nil {
		return program{}, fmt.Errorf("preparing %s: %w", candidate.Qualified, err)
	}
	return loaded, nil
}
