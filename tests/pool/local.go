package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"sync"
	"time"
)

// Local is a world whose ranks are goroutines of this process. It returns the
// same requests as a Pool, for what processes cannot have: a device that exists
// in this process's memory alone, or all ranks under one race detector.
//
// Goroutines cannot be killed. A case that passes its deadline fails, with every
// goroutine's stack; if its handlers do not end soon after, the world is lost.
type Local struct {
	options Options

	mu       sync.Mutex
	closed   bool
	stuck    error
	workers  []*Worker // nil when none run
	sequence uint64
	setup    []Outcome
}

// NewLocal makes a world of goroutines. Of the options it takes World, Setup,
// SetupTimeout and Grace.
func NewLocal(o Options) (*Local, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Local{options: o}, nil
}

// PIDs returns this process once for each rank, nil while the ranks are not set up.
func (l *Local) PIDs() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pids []int
	for range l.workers {
		pids = append(pids, os.Getpid())
	}
	return pids
}

// SetupPayloads returns the replies that the ranks gave to the latest Setup.
func (l *Local) SetupPayloads() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var responses [][]byte
	for _, o := range l.setup {
		responses = append(responses, o.Payload)
	}
	return responses
}

// Start sets the ranks up if they are not.
func (l *Local) Start(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start(ctx)
}

func (l *Local) start(ctx context.Context) error {
	switch {
	case l.closed:
		return ErrClosed
	case l.stuck != nil:
		return l.stuck
	case l.workers != nil:
		return nil
	}
	for rank := range l.options.World {
		l.workers = append(l.workers, &Worker{Rank: rank, World: l.options.World})
	}
	if l.options.Setup == nil {
		return nil
	}
	name, payloads, err := l.options.Setup()
	if err == nil {
		var result *Result
		if result, err = l.runCase(ctx, Case{Handler: name, Payloads: payloads,
			Timeout: l.options.SetupTimeout}); err == nil {
			l.setup, err = result.Outcomes, result.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("pool: setting up %d ranks: %w", l.options.World, errors.Join(err, l.discard()))
	}
	return nil
}

// Run runs one case, setting the ranks up if they are not. The error is about
// the world itself: a case that failed is a Result whose Err is not nil.
func (l *Local) Run(ctx context.Context, c Case) (*Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(c.Payloads); n != 1 && n != l.options.World {
		return nil, fmt.Errorf("pool: %d payloads for a world of %d", n, l.options.World)
	}
	if c.Timeout <= 0 {
		return nil, fmt.Errorf("pool: case %q has no timeout", c.Handler)
	}
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	result, err := l.runCase(ctx, c)
	if err != nil {
		return nil, err
	}
	if result.Respawn && l.stuck == nil {
		if err := l.discard(); err != nil {
			result.Outcomes[0].Stderr += "letting go of the ranks: " + err.Error() + "\n"
		}
	}
	return result, ctx.Err()
}

func (l *Local) runCase(ctx context.Context, c Case) (*Result, error) {
	l.sequence++
	world := l.options.World
	result := &Result{Outcomes: make([]Outcome, world)}
	type reply struct {
		rank int
		f    *frame
	}
	replies := make(chan reply, world)
	for rank, w := range l.workers {
		result.Outcomes[rank].Rank = rank
		payload := c.Payloads[0]
		if len(c.Payloads) > 1 {
			payload = c.Payloads[rank]
		}
		request := &frame{Kind: frameRequest, Sequence: l.sequence, Seed: c.Seed, Time: c.Timeout, Name: c.Handler,
			Payload: payload}
		go func() { replies <- reply{rank, w.run(request)} }()
	}
	start := time.Now()
	deadline := time.NewTimer(c.Timeout)
	defer deadline.Stop()
	late := time.NewTimer(c.Timeout + l.options.Grace)
	defer late.Stop()
	for left := world; left > 0; {
		select {
		case r := <-replies:
			left--
			o := &result.Outcomes[r.rank]
			o.Payload, o.Time = r.f.Payload, r.f.Time
			if r.f.Flags&flagError != 0 && o.Error == "" {
				o.Error = r.f.Error
			}
			result.Respawn = result.Respawn || r.f.Flags&flagFatal != 0
		case <-deadline.C:
			stacks := goroutines()
			for rank := range result.Outcomes {
				if o := &result.Outcomes[rank]; o.Time == 0 {
					o.Error, result.Respawn = fmt.Sprintf("no reply within %v", c.Timeout), true
					o.Stderr, stacks = stacks, "" // once
				}
			}
		case <-late.C:
			l.stuck = fmt.Errorf("pool: a rank of a world of %d goroutines never ended case %q", world, c.Handler)
			left = 0
		}
	}
	result.Time = time.Since(start)
	return result, nil
}

// goroutines prints what every goroutine does.
func goroutines() string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return err.Error()
	}
	return b.String()
}

// discard ends the ranks: what a worker's State holds is closed, if it can be.
func (l *Local) discard() error {
	errs := make([]error, len(l.workers))
	var all sync.WaitGroup
	for i, w := range l.workers {
		if c, ok := w.State.(io.Closer); ok {
			all.Go(func() { errs[i] = c.Close() })
		}
	}
	all.Wait()
	l.workers = nil
	return errors.Join(errs...)
}

// Close ends the ranks.
func (l *Local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.stuck != nil {
		return l.stuck
	}
	return l.discard()
}
