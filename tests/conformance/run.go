package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// Config says what to prove.
type Config struct {
	// Transport is a spec as in SHUNT_TRANSPORTS: builtin:NAME, shared:PATH or
	// process:PATH.
	Transport string
	// Worlds are the numbers of ranks; nil means 1, 2, 3, 4, 5 and 8. With
	// memory cuda every rank has a GPU of its own; worlds of more ranks than
	// there are GPUs are skipped, unless SHUNT_SHARE_GPU lets ranks share them.
	Worlds []int
	// Hosts are the numbers of hosts that the ranks of each world pretend to run on, in
	// turn; nil means 1. A world of fewer ranks than hosts is left out.
	Hosts []int
	// Memory is the kind of memory of buffers; the zero value is host memory.
	Memory plugin.MemoryKind
	// Modes are the ways in which operations on device memory are run; nil means all.
	Modes []Mode
	// Symmetric registers receive memory as symmetric, with memory cuda, and runs
	// the cases of collectives that have algorithms of their own for it.
	Symmetric bool
	// Local makes ranks goroutines of this process instead of processes.
	Local bool
	// Rounds is the number of times that every scenario repeats its calls; 0 leaves
	// it to the scenario.
	Rounds int
	// MaxRounds limits what the scenarios choose; 0 does not.
	MaxRounds int
	// Filter keeps the cases whose name it matches; nil keeps all.
	Filter *regexp.Regexp
	// DTypes are the types of the elements of single operations, and of scenarios that have
	// one of them; nil means all. Scenarios whose types change choose among all.
	DTypes []plugin.DType
	// Short runs a smaller covering design, for every change of a transport.
	Short bool
	// MaxBytes leaves out cases of larger messages; 0 leaves out none.
	MaxBytes int64
	// Seed changes what buffers hold, roots, splits and delays; equal seeds give equal
	// runs. 0 is a seed like any other.
	Seed uint64
	// Timeout is the deadline of one case, and four of them where ranks are
	// delayed; 0 means 30 s.
	Timeout time.Duration
	// MaxFailures ends the run early; 0 means never.
	MaxFailures int
	// Env is appended to the environment of the ranks.
	Env []string
	// Progress, if not nil, is called after every case, with how many cases of
	// the world have run and how many it has.
	Progress func(r *CaseResult, done, total int)
}

// DefaultWorlds returns the worlds that a run has unless Config names others.
func DefaultWorlds() []int { return []int{1, 2, 3, 4, 5, 8} }

// CarriedWorlds returns the sizes of worlds that are enough for a transport that has run
// all of DefaultWorlds on one carrier and runs on another. What it computes is the same
// there; each call, with each value of its arguments, must pass the carrier.
func CarriedWorlds() []int { return []int{1, 2, 3} }

const defaultTimeout = 30 * time.Second // of a case

// poolTrouble is the number of times in a row that the ranks may fail to start before a
// run gives up.
const poolTrouble = 3

// Run runs the matrix. The error is about the run itself; what the transport
// did wrong is in the report, whose Err says whether it passed.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Transport == "" {
		return nil, plugin.Errorf(plugin.InvalidArgument, "conformance: no transport is named")
	}
	if cfg.Worlds == nil {
		cfg.Worlds = DefaultWorlds()
	}
	if err := validModes(cfg.Modes); err != nil {
		return nil, err
	}
	if cfg.Local && len(cfg.Hosts) > 0 {
		return nil, plugin.Errorf(plugin.InvalidArgument, "conformance: ranks that are goroutines of one process are on one host")
	}
	if cfg.Symmetric && cfg.Memory != plugin.MemoryKindCuda {
		return nil, plugin.Errorf(plugin.InvalidArgument, "conformance: symmetric memory is memory cuda")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	dir, err := os.MkdirTemp("", "shunt-conformance-")
	if err != nil {
		return nil, fmt.Errorf("no directory for the ranks' data: %w; set TMPDIR to one that can be written", err)
	}
	defer os.RemoveAll(dir)
	report := &Report{Transport: cfg.Transport, Memory: cfg.Memory.String(), Short: cfg.Short, Seed: cfg.Seed,
		Worlds: cfg.Worlds, Started: time.Now()}
	defer func() { report.Duration = time.Since(report.Started) }()
	if info, ok := debug.ReadBuildInfo(); ok {
		report.Go = info.GoVersion
	}
	r := &runner{cfg: cfg, dir: dir, report: report}
	devices, reason := 0, error(nil)
	if cfg.Memory == plugin.MemoryKindCuda {
		if devices, reason = device.Count(); reason != nil && plugin.CodeOf(reason) != plugin.Unsupported {
			return nil, reason
		}
	}
	if cfg.Hosts == nil {
		cfg.Hosts = []int{1}
	}
	for _, hosts := range cfg.Hosts {
		if hosts < 1 || hosts > plugin.MaxWorld || hosts > slices.Max(cfg.Worlds) {
			return nil, plugin.Errorf(plugin.InvalidArgument, "conformance: %d hosts for worlds of %v ranks", hosts, cfg.Worlds)
		}
	}
	report.Hosts = cfg.Hosts
	for _, world := range cfg.Worlds {
		if world < 1 || world > plugin.MaxWorld {
			return nil, plugin.Errorf(plugin.InvalidArgument, "conformance: world %d", world)
		}
		if cfg.Memory == plugin.MemoryKindCuda && world > devices && (devices == 0 || !device.Shared()) {
			report.lack(world, devices, reason)
			continue
		}
		for _, r.hosts = range cfg.Hosts {
			if r.hosts > world || r.enough() {
				continue
			}
			if err := r.world(ctx, world); err != nil {
				return report, err
			}
		}
		if r.enough() {
			break
		}
	}
	if r.listed > 0 && r.matched == 0 {
		report.unmatched = cfg.Filter.String()
	}
	return report, nil
}

// ranks are the processes of a world, or its goroutines.
type ranks interface {
	Start(context.Context) error
	Run(context.Context, pool.Case) (*pool.Result, error)
	SetupPayloads() [][]byte
	PIDs() []int
	Close() error
}

type runner struct {
	cfg    Config
	dir    string
	report *Report

	pool   ranks
	count  int // world
	hosts  int // that it pretends to run on
	set    int
	offers []offer

	listed, matched int // cases, before the filter and behind it
}

// on returns the prefix of the names of cases: the number of hosts, if more than one.
func (r *runner) on() string {
	if r.hosts == 1 {
		return ""
	}
	return fmt.Sprintf("hosts%d/", r.hosts)
}

func (r *runner) enough() bool {
	return r.cfg.MaxFailures > 0 && r.report.Count(Failed) >= r.cfg.MaxFailures
}

// world runs the cases of one world, all of one set of forced algorithms
// together, because forcing is a property of a communicator.
func (r *runner) world(ctx context.Context, world int) (err error) {
	r.count, r.offers, r.set = world, nil, 0
	options := pool.Options{World: world, Env: r.cfg.Env, Setup: r.setup, SetupTimeout: r.cfg.Timeout}
	if r.cfg.Local {
		r.pool, err = pool.NewLocal(options)
	} else {
		r.pool, err = pool.New(options)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.pool.Close()) }()
	if err := r.pool.Start(ctx); err != nil {
		return r.trouble(ctx, "open", err)
	}
	var reply openReply
	if err := json.Unmarshal(r.pool.SetupPayloads()[0], &reply); err != nil {
		return fmt.Errorf("conformance: what rank 0 offers: %w", err)
	}
	r.offers, r.report.Info = reply.Offers, reply.Info
	for _, b := range reply.Broken {
		r.report.Results = append(r.report.Results, CaseResult{Name: fmt.Sprintf("%s/w%d/%s", b.Method, world, b.Request),
			Outcome: Failed, Detail: b.Detail})
		if r.enough() {
			return nil
		}
	}
	list := cases(world, r.cfg.Short, Axes(r.cfg.Memory, r.cfg.Modes...), r.offers, r.cfg.DTypes)
	if r.cfg.Symmetric {
		list = symmetricCases(list)
	}
	for i := range list {
		switch c := &list[i]; {
		case c.Scenario == "":
		case r.cfg.Rounds > 0:
			c.Repeat = r.cfg.Rounds
		case r.cfg.MaxRounds > 0:
			c.Repeat = min(c.Repeat, r.cfg.MaxRounds)
		}
		if r.cfg.Seed != 0 {
			list[i].Seed = hash(list[i].Seed, r.cfg.Seed)
		}
	}
	r.listed += len(list)
	if r.cfg.Filter != nil {
		list = slices.DeleteFunc(list, func(c Case) bool { return !r.cfg.Filter.MatchString(c.Name()) })
	}
	r.matched += len(list)
	if r.cfg.MaxBytes > 0 {
		list = slices.DeleteFunc(list, func(c Case) bool { return c.bytes() > r.cfg.MaxBytes })
	}
	slices.SortStableFunc(list, func(a, b Case) int { return a.Set - b.Set })
	failures := 0
	for i := range list {
		c := &list[i]
		if c.Set != r.set {
			r.set = c.Set
			if err := r.reopen(ctx); err != nil {
				if err := r.trouble(ctx, "open", err); err != nil {
					return err
				}
				failures++
			}
		}
		result, poolErr := r.runCase(ctx, c)
		if poolErr && ctx.Err() != nil {
			return context.Cause(ctx) // the case was running, and has shown nothing
		}
		r.report.Results = append(r.report.Results, result)
		if r.cfg.Progress != nil {
			r.cfg.Progress(&r.report.Results[len(r.report.Results)-1], i+1, len(list))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !poolErr {
			failures = 0
		} else if failures++; failures >= poolTrouble {
			return fmt.Errorf("conformance: a world of %d failed to start %d times in a row: %s", world, failures, result.Detail)
		}
		if r.enough() {
			return nil
		}
	}
	return r.goodbye(ctx)
}

// trouble records that communicators could not be made, as a failed case.
func (r *runner) trouble(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.report.Results = append(r.report.Results, CaseResult{
		Name: r.on() + fmt.Sprintf("%s/w%d/set%d", what, r.count, r.set), Outcome: Failed, Detail: err.Error(),
	})
	return nil
}

// setup makes the request that opens communicators in fresh processes.
func (r *runner) setup() (string, [][]byte, error) {
	request := openRequest{
		Transport: r.cfg.Transport, Memory: r.cfg.Memory, Dir: r.dir, Algorithm: override(r.offers, r.set),
		Timeout:   r.cfg.Timeout * 2 / 3,
		Symmetric: r.cfg.Symmetric, Hosts: r.hosts,
		ID: bootstrap.NewLocalURL(), // needs no network
	}
	if r.offers == nil {
		request.Probes, request.DTypes = probes(), r.cfg.DTypes
	}
	payload, err := json.Marshal(request)
	return handlerOpen, [][]byte{payload}, err
}

// reopen makes running processes exchange their communicators for new ones.
func (r *runner) reopen(ctx context.Context) error {
	name, payloads, err := r.setup()
	if err != nil {
		return err
	}
	if r.pool.PIDs() == nil {
		return r.pool.Start(ctx)
	}
	result, err := r.pool.Run(ctx, pool.Case{Handler: name, Payloads: payloads, Timeout: r.cfg.Timeout})
	if err != nil {
		return err
	}
	return result.Err()
}

// goodbye closes the communicators; an error of that is a failed case.
func (r *runner) goodbye(ctx context.Context) error {
	if r.pool.PIDs() == nil {
		return nil
	}
	result, err := r.pool.Run(ctx, pool.Case{Handler: handlerClose, Payloads: [][]byte{nil}, Timeout: r.cfg.Timeout})
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		return r.trouble(ctx, "close", err)
	}
	return nil
}

// runCase runs one case; poolErr says that not even the ranks could run.
func (r *runner) runCase(ctx context.Context, c *Case) (_ CaseResult, poolErr bool) {
	out := CaseResult{Name: r.on() + c.Name(), Case: c}
	payload, err := json.Marshal(c)
	if err != nil {
		out.Outcome, out.Detail = Failed, err.Error()
		return out, false
	}
	timeout := r.cfg.Timeout
	if s := scenarioNamed(c.Scenario); s != nil && s.where == onHost {
		timeout *= 4 // ranks that are late take longer; each operation still has its own deadline
	}
	result, err := r.pool.Run(ctx, pool.Case{Handler: handlerCase, Seed: c.Seed, Payloads: [][]byte{payload},
		Timeout: timeout})
	if err != nil {
		out.Outcome, out.Detail = Failed, err.Error()
		return out, true
	}
	out.Time = result.Time
	if err := result.Err(); err != nil {
		out.Outcome, out.Detail = Failed, err.Error()+"\nagain: "+r.cfg.Again(c, r.hosts)
		if s := scenarioNamed(c.Scenario); s != nil {
			out.Detail = fmt.Sprintf("%s: %s\n", s.name, s.doc) + out.Detail
		}
		return out, false
	}
	out.judge(result.Outcomes)
	return out, false
}

// Again returns the command that runs a case, which ran on so many hosts, again as it was. Options without a flag are
// not in it.
func (cfg *Config) Again(c *Case, hosts int) string {
	words := []string{"shunt conformance"}
	if cfg.Short {
		words = append(words, "--short")
	}
	words = append(words, fmt.Sprintf("--transport %s -n %d --seed %d --filter '^%s$'", cfg.Transport, c.World, cfg.Seed,
		regexp.QuoteMeta(c.Name())))
	if hosts > 1 {
		words = append(words, fmt.Sprintf("--hosts %d", hosts))
	}
	if cfg.Memory != plugin.MemoryKindHost {
		words = append(words, "--memory", cfg.Memory.String())
	}
	if cfg.Symmetric {
		words = append(words, "--symmetric")
	}
	for _, mode := range cfg.Modes {
		words = append(words, "--mode", string(mode))
	}
	if cfg.Timeout > 0 && cfg.Timeout != defaultTimeout {
		words = append(words, "--timeout", cfg.Timeout.String())
	}
	return strings.Join(words, " ")
}

// judge compares what the ranks say: they must have skipped alike and run the
// same algorithm.
func (r *CaseResult) judge(outcomes []pool.Outcome) {
	var first caseReply
	for rank, o := range outcomes {
		var a caseReply
		if err := json.Unmarshal(o.Payload, &a); err != nil {
			r.Outcome, r.Detail = Failed, fmt.Sprintf("rank %d's reply: %v", rank, err)
			return
		}
		if rank == 0 {
			first = a
		}
		if (a.Skip == "") != (first.Skip == "") || a.Ran != first.Ran {
			r.Outcome = Failed
			r.Detail = fmt.Sprintf("ranks disagree: rank 0 ran %q (skip %q), rank %d ran %q (skip %q)", first.Ran, first.Skip,
				rank, a.Ran, a.Skip)
			return
		}
	}
	r.Outcome, r.Algorithm = Passed, first.Ran
	if first.Skip != "" {
		r.Outcome, r.Detail = Skipped, first.Skip
	}
}
