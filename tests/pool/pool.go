package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Options describe a pool.
type Options struct {
	World int
	// Env is appended to the environment of every worker.
	Env []string
	// Setup, if not nil, is run as the first case of every fresh set of
	// workers. It returns the handler's name and one payload per rank. When the
	// case fails, so does the one that made the pool start.
	Setup func() (name string, payloads [][]byte, err error)
	// SetupTimeout bounds Setup's case; 0 means 60 s.
	SetupTimeout time.Duration
	// Grace is the time that the other ranks have once one has failed; 0 means
	// 5 s. It never extends the deadline.
	Grace time.Duration
	// Stderr is the number of bytes of each rank's output that are kept; 0 means 16 KiB.
	Stderr int
	// Binary is the program to run; "" is the current one.
	Binary string
	// KeepAfterDeath leaves survivors running when a rank dies, for tests that
	// kill ranks on purpose: survivors are waited for until the deadline, and
	// the pool starts anew for the next case.
	KeepAfterDeath bool
}

// Pool is the processes of one world. Its methods are safe for concurrent use;
// cases run one at a time.
type Pool struct {
	options Options

	mu       sync.Mutex
	closed   bool
	spawner  *spawner
	workers  []*process // nil when none run
	sequence uint64
	starts   int
	setup    []Outcome
}

// New makes a pool. It starts no process until the first case.
func New(o Options) (*Pool, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Pool{options: o}, nil
}

// complete checks the options and sets the defaults.
func (o *Options) complete() error {
	if o.World < 1 {
		return fmt.Errorf("pool: world %d", o.World)
	}
	if o.SetupTimeout <= 0 {
		o.SetupTimeout = time.Minute
	}
	if o.Grace <= 0 {
		o.Grace = 5 * time.Second
	}
	if o.Stderr <= 0 {
		o.Stderr = 16 << 10
	}
	return nil
}

// World returns the number of ranks.
func (p *Pool) World() int { return p.options.World }

// Starts says how often the pool's processes have been started.
func (p *Pool) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// PIDs returns the processes of the ranks, nil while none run.
func (p *Pool) PIDs() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pids []int
	for _, w := range p.workers {
		pids = append(pids, w.pid())
	}
	return pids
}

// Case is one request.
type Case struct {
	Handler string
	Seed    uint64
	// Payloads is one per rank, or a single one that every rank gets.
	Payloads [][]byte
	// Timeout is the case's deadline, counted from when its frames are written.
	Timeout time.Duration
	// During, if not nil, runs once the requests are written, beside the case,
	// with the processes of the ranks. Run waits for it. Its context ends with
	// the case.
	During func(ctx context.Context, pids []int)
}

// Outcome is one rank's part of a case.
type Outcome struct {
	Rank    int
	Payload []byte
	Error   string        // "" when the rank succeeded
	Silent  bool          // it did not reply, which Error says
	Time    time.Duration // as the rank measured it; 0 when it did not respond
	Stderr  string        // tail of what it wrote during the case; only when the case failed
}

// Result is the result of a case.
type Result struct {
	Outcomes []Outcome
	Time     time.Duration // from writing the requests until the last reply
	Respawn  bool          // the processes were killed; the next case starts them again
}

// Err returns nil when every rank succeeded. Otherwise it names every rank's error
// and shows what each rank printed.
func (r *Result) Err() error {
	failed := false
	var b strings.Builder
	for _, silent := range []bool{false, true} { // what others wait for says more than that they do
		for _, o := range r.Outcomes {
			if o.Error != "" && o.Silent == silent {
				failed = true
				fmt.Fprintf(&b, "rank %d: %s\n", o.Rank, o.Error)
			}
		}
	}
	if !failed {
		return nil
	}
	for _, o := range r.Outcomes {
		if text := strings.TrimSpace(o.Stderr); text != "" {
			fmt.Fprintf(&b, "--- rank %d printed:\n%s\n", o.Rank, text)
		}
	}
	return errors.New(strings.TrimRight(b.String(), "\n"))
}

// ErrClosed is returned by Run after Close.
var ErrClosed = errors.New("pool is closed")

// Run runs one case, starting the processes if none run. The error is about
// the pool itself: a case that failed is a Result whose Err is not nil.
func (p *Pool) Run(ctx context.Context, c Case) (*Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if n := len(c.Payloads); n != 1 && n != p.options.World {
		return nil, fmt.Errorf("pool: %d payloads for a world of %d", n, p.options.World)
	}
	if c.Timeout <= 0 {
		return nil, fmt.Errorf("pool: case %q has no timeout", c.Handler)
	}
	if p.workers == nil {
		if err := p.start(ctx); err != nil {
			return nil, err
		}
	}
	return p.runCase(ctx, c)
}

// SetupPayloads returns the replies that the ranks gave to the latest Setup.
func (p *Pool) SetupPayloads() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var responses [][]byte
	for _, o := range p.setup {
		responses = append(responses, o.Payload)
	}
	return responses
}

// Start starts the processes if none run, so that the time it takes is not
// part of the first case.
func (p *Pool) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if p.workers != nil {
		return nil
	}
	return p.start(ctx)
}

func (p *Pool) start(ctx context.Context) error {
	if p.spawner == nil {
		p.spawner = newSpawner()
	}
	p.starts++
	for rank := range p.options.World {
		w, err := p.spawner.spawn(&p.options, rank)
		if err != nil {
			p.kill()
			return fmt.Errorf("pool: starting rank %d of %d: %w", rank, p.options.World, err)
		}
		p.workers = append(p.workers, w)
	}
	if p.options.Setup == nil {
		return nil
	}
	name, payloads, err := p.options.Setup()
	if err != nil {
		p.kill()
		return fmt.Errorf("pool: preparing the setup of %d ranks: %w", p.options.World, err)
	}
	result, err := p.runCase(ctx, Case{Handler: name, Payloads: payloads, Timeout: p.options.SetupTimeout})
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		p.kill()
		return fmt.Errorf("pool: setting up %d ranks: %w", p.options.World, err)
	}
	p.setup = result.Outcomes
	return nil
}

type response struct {
	rank int
	f    *frame
	err  error
}

func (p *Pool) runCase(ctx context.Context, c Case) (*Result, error) {
	p.sequence++
	world := p.options.World
	result := &Result{Outcomes: make([]Outcome, world)}
	responses := make(chan response, world)
	for rank, w := range p.workers {
		result.Outcomes[rank].Rank = rank
		w.output.reset()
		payload := c.Payloads[0]
		if len(c.Payloads) > 1 {
			payload = c.Payloads[rank]
		}
		request := &frame{Kind: frameRequest, Sequence: p.sequence, Seed: c.Seed, Time: c.Timeout, Name: c.Handler,
			Payload: payload}
		if _, err := request.encode(); err != nil {
			p.kill()
			return nil, fmt.Errorf("pool: %w", err)
		}
		go w.exchange(request, responses)
	}
	start := time.Now()
	caseCtx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var during sync.WaitGroup
	if c.During != nil {
		pids := make([]int, 0, world)
		for _, w := range p.workers {
			pids = append(pids, w.pid())
		}
		during.Go(func() { c.During(caseCtx, pids) })
	}
	pending, broken := p.collect(caseCtx, result, responses)
	result.Time = time.Since(start)
	if len(pending) > 0 {
		broken = true
		cause := fmt.Sprintf("no reply within %v", c.Timeout)
		if ctx.Err() != nil {
			cause = fmt.Sprintf("no reply when the run was cancelled: %v", context.Cause(ctx))
		} else if result.Time < c.Timeout {
			cause = fmt.Sprintf("no reply within %v of another rank's failure", p.options.Grace)
		}
		for rank := range pending {
			p.workers[rank].dump() // its goroutines' stacks go to the tail
			result.Outcomes[rank].Error, result.Outcomes[rank].Silent = cause, true
		}
	}
	cancel()
	during.Wait()
	if broken {
		workers := p.workers
		p.kill()
		result.Respawn = true
		for rank, w := range workers {
			if result.Outcomes[rank].Error == "" {
				continue
			}
			if _, waited := pending[rank]; !waited && w.lost.Load() {
				result.Outcomes[rank].Error = "process " + w.status()
			}
		}
		for rank, w := range workers {
			result.Outcomes[rank].Stderr = w.output.String()
		}
	} else if result.Err() != nil {
		for rank, w := range p.workers {
			result.Outcomes[rank].Stderr = w.output.String()
		}
	}
	return result, ctx.Err()
}

// collect waits for every rank's reply, for the deadline, or for the grace
// period after a first failure. It returns the ranks that stayed silent and
// whether the processes must be replaced.
func (p *Pool) collect(ctx context.Context, result *Result, responses <-chan response) (pending map[int]struct{},
	broken bool) {
	pending = map[int]struct{}{}
	for rank := range p.workers {
		pending[rank] = struct{}{}
	}
	var grace <-chan time.Time
	for len(pending) > 0 {
		select {
		case a := <-responses:
			delete(pending, a.rank)
			o := &result.Outcomes[a.rank]
			switch {
			case a.err != nil:
				p.workers[a.rank].lost.Store(true)
				o.Error, broken = a.err.Error(), true
			case a.f.Kind != frameResponse || a.f.Sequence != p.sequence:
				o.Error, broken = fmt.Sprintf("reply %d to request %d", a.f.Sequence, p.sequence), true
			default:
				o.Payload, o.Time = a.f.Payload, a.f.Time
				if a.f.Flags&flagError != 0 {
					o.Error = a.f.Error
					if o.Error == "" {
						o.Error = "failed without a message"
					}
				}
				broken = broken || a.f.Flags&flagFatal != 0
			}
			if o.Error != "" && grace == nil && !p.options.KeepAfterDeath {
				timer := time.NewTimer(p.options.Grace)
				defer timer.Stop()
				grace = timer.C
			}
		case <-grace:
			return pending, broken
		case <-ctx.Done():
			return pending, broken
		}
	}
	return pending, broken
}

// kill ends every process and waits until it is gone.
func (p *Pool) kill() {
	for _, w := range p.workers {
		w.kill()
	}
	for _, w := range p.workers {
		w.reap()
	}
	p.workers = nil
}

// Close asks the processes to end, by closing their pipes, kills those that
// have not within five seconds, and waits for all of them. The error names the
// ranks that did not end by themselves with status 0.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var failed []error
	for _, w := range p.workers {
		w.hangUp()
	}
	deadline := time.Now().Add(5 * time.Second)
	for rank, w := range p.workers {
		if !w.ended(time.Until(deadline)) {
			w.kill()
			failed = append(failed, fmt.Errorf("pool: rank %d had to be killed\n%s", rank, w.output.String()))
		}
		w.reap()
		if s := w.status(); s != "exited with status 0" && s != "was killed by signal killed" {
			failed = append(failed, fmt.Errorf("pool: rank %d %s\n%s", rank, s, w.output.String()))
		}
	}
	p.workers = nil
	if p.spawner != nil {
		p.spawner.close()
	}
	return errors.Join(failed...)
}
