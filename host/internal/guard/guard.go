// Package guard bounds the calls of transports that run in this process. A C function or a goroutine cannot be
// interrupted, so each call has a goroutine of its own: when it does not return in time the caller gets an error that
// names the transport and the call, and the thread is lost until the call returns.
//
// A process plugin needs none of this: its carrier bounds every call and kills a
// plugin that does not respond.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Deadlines of calls that have no context of the caller's.
const (
	SupportsTimeout = 5 * time.Second
	CloseTimeout    = 5 * time.Second
	CheckTimeout    = 5 * time.Second
)

// lag is the time that a call which watches its context has to return by itself.
const lag = 250 * time.Millisecond

// Transport is a transport whose functions and whose endpoints' functions all return
// in time.
type Transport struct {
	inner plugin.Transport
	gate  gate
}

// New guards a transport. where names it for users, such as shared:/lib/spin.so. The logger, which has slog.Default in
// place of nil, gets the stack of a call that panics.
func New(inner plugin.Transport, where string, logger *slog.Logger) *Transport {
	_, worded := inner.(asker)
	return &Transport{inner: inner, gate: gate{
		who: fmt.Sprintf("transport %s (%s)", inner.Info().Name, where), logger: logger, worded: worded}}
}

// Info returns the transport's Info.
func (t *Transport) Info() plugin.Info { return t.inner.Info() }

// Supports is like Ask, within SupportsTimeout; an error becomes the reason why it is not supported.
func (t *Transport) Supports(req plugin.Request) plugin.Support {
	ctx, cancel := context.WithTimeout(context.Background(), SupportsTimeout)
	defer cancel()
	s, err := t.Ask(ctx, req)
	if err != nil {
		return plugin.Support{Reason: err.Error()}
	}
	return s
}

// asker is a carrier whose Supports can fail.
type asker interface {
	Ask(context.Context, plugin.Request) (plugin.Support, error)
}

// Ask calls Supports with a deadline. It is an error if it does not return in time or its
// result breaks the contract.
func (t *Transport) Ask(ctx context.Context, req plugin.Request) (plugin.Support, error) {
	return call(ctx, &t.gate, "supports "+req.Collective.String(), func() (plugin.Support, error) {
		if a, ok := t.inner.(asker); ok {
			return a.Ask(ctx, req)
		}
		s := t.inner.Supports(req)
		return s, s.Validate()
	}, nil)
}

// Open opens an endpoint. One that comes too late is closed again.
func (t *Transport) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	where := fmt.Sprintf(" on rank %d", config.Rank)
	open := func() (plugin.Endpoint, error) { return plugin.Opened(t.inner.Open(ctx, config)) }
	opened, err := call(ctx, &t.gate, "open"+where, open, func(e plugin.Endpoint, err error) {
		if err == nil {
			_ = e.Close()
		}
	})
	if err != nil {
		return nil, err
	}
	e := &Endpoint{inner: opened, where: where, gate: t.gate.another(), aborting: t.gate.another(),
		checking: t.gate.another(), registering: t.gate.another()}
	regions := func() ([]plugin.Region, error) { return opened.Regions(), nil }
	if e.regions, err = call(ctx, &e.gate, "regions"+where, regions, nil); err == nil {
		images := func() ([]plugin.Image, error) { return opened.Images(), nil }
		e.images, err = call(ctx, &e.gate, "images"+where, images, nil)
	}
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// checked holds the result of a Check.
type checked struct{ err error }

// Endpoint is an endpoint of a guarded transport.
type Endpoint struct {
	inner   plugin.Endpoint
	where   string
	gate    gate
	regions []plugin.Region
	images  []plugin.Image

	aborting    gate
	checking    gate
	registering gate
	known       registrations
	answer      chan checked          // of a Check that is under way
	abortErr    atomic.Pointer[error] // how Abort failed, which Close returns
}

// Regions returns the endpoint's regions, which Open has asked for.
func (e *Endpoint) Regions() []plugin.Region { return e.regions }

// Images returns the endpoint's images, which Open has asked for.
func (e *Endpoint) Images() []plugin.Image { return e.images }

// Allocate makes a buffer. One that comes too late is freed again.
func (e *Endpoint) Allocate(ctx context.Context, id uint32, bytes int64) (plugin.Region, error) {
	what := fmt.Sprintf("allocate buffer %d of %d bytes%s", id, bytes, e.where)
	return call(ctx, &e.gate, what, func() (plugin.Region, error) { return e.inner.Allocate(ctx, id, bytes) },
		func(_ plugin.Region, err error) {
			if err == nil {
				_ = e.inner.Free(context.Background(), id)
			}
		})
}

// Free frees a buffer.
func (e *Endpoint) Free(ctx context.Context, id uint32) error {
	_, err := call(ctx, &e.gate, fmt.Sprintf("free buffer %d%s", id, e.where),
		func() (none, error) { return none{}, e.inner.Free(ctx, id) }, nil)
	return err
}

// Prepare makes a plan.
func (e *Endpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	what := fmt.Sprintf("prepare %s/%s%s", req.Collective, algorithm, e.where)
	return call(ctx, &e.gate, what, func() (*plugin.Plan, error) { return e.inner.Prepare(ctx, req, algorithm) }, nil)
}

// Publish asks for the bytes that every rank is to get of this one.
func (e *Endpoint) Publish(ctx context.Context, x plugin.Exchange) ([]byte, error) {
	return call(ctx, &e.gate, "publish"+e.where, func() ([]byte, error) {
		exchanger, err := e.exchanger()
		if err != nil {
			return nil, err
		}
		return exchanger.Publish(ctx, x)
	}, nil)
}

// Connect hands over what all ranks have published.
func (e *Endpoint) Connect(ctx context.Context, x plugin.Exchange, published [][]byte) error {
	_, err := call(ctx, &e.gate, "connect"+e.where, func() (none, error) {
		exchanger, err := e.exchanger()
		if err != nil {
			return none{}, err
		}
		return none{}, exchanger.Connect(ctx, x, published)
	}, nil)
	return err
}

// Abort tells the endpoint that its communicator has failed, whatever else it does.
func (e *Endpoint) Abort(reason string) {
	aborter, ok := e.inner.(plugin.Aborter)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lag)
	defer cancel()
	_, err := call(ctx, &e.aborting, "abort"+e.where, func() (none, error) {
		aborter.Abort(reason)
		return none{}, nil
	}, nil)
	// One that does not return keeps the endpoint: Close says so.
	if err != nil && plugin.CodeOf(err) != plugin.Timeout {
		e.abortErr.Store(&err)
	}
}

// Check asks the endpoint what has failed between calls. It waits for the reply for a moment only, as its caller has
// other things to look at: what comes later is the result of a later Check. An endpoint that has not responded within
// CheckTimeout has failed, and is asked no more. Check is called by one goroutine at a time.
func (e *Endpoint) Check() error {
	checker, ok := e.inner.(plugin.Checker)
	if !ok {
		return nil
	}
	if e.answer == nil {
		if e.checking.busy("") != nil {
			return nil
		}
		answer := make(chan checked, 1)
		e.answer = answer
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), CheckTimeout)
			defer cancel()
			_, err := call(ctx, &e.checking, "check"+e.where, func() (none, error) { return none{}, checker.Check() }, nil)
			answer <- checked{err}
		}()
	}
	timer := time.NewTimer(lag)
	defer timer.Stop()
	select {
	case found := <-e.answer:
		e.answer = nil
		return found.err
	case <-timer.C:
		return nil
	}
}

func (e *Endpoint) exchanger() (plugin.Exchanger, error) {
	exchanger, ok := e.inner.(plugin.Exchanger)
	if !ok {
		return nil, plugin.Errorf(plugin.Protocol, "%s has feature %s and its endpoint no methods Publish and Connect",
			e.gate.who, plugin.FeatureExchange)
	}
	return exchanger, nil
}

// Close closes the endpoint within CloseTimeout, after a Check that is under way. Where other calls have not returned
// it does so when the last of them returns, if it ever does.
func (e *Endpoint) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()
	if e.answer != nil {
		<-e.answer // which comes within CheckTimeout
		e.answer = nil
	}
	what := "close" + e.where
	for _, g := range e.others() {
		if err := g.busy(what); err != nil {
			go e.closeLate()
			return err
		}
	}
	_, err := call(ctx, &e.gate, what, func() (none, error) { return none{}, e.inner.Close() }, nil)
	if errors.Is(err, errBusy) {
		go e.closeLate()
	}
	if failed := e.abortErr.Load(); failed != nil {
		err = errors.Join(*failed, err)
	}
	return err
}

// others are the gates of what may run beside the calls of gate.
func (e *Endpoint) others() []*gate { return []*gate{&e.aborting, &e.registering, &e.checking} }

// closeLate closes the endpoint once no call on it is lost any more. Nothing new is called meanwhile.
func (e *Endpoint) closeLate() {
	for _, g := range append(e.others(), &e.gate) {
		if g.whenFree(e.closeLate) {
			return
		}
	}
	protect(&e.gate, "close"+e.where, func() (none, error) { return none{}, e.inner.Close() }, func(none, error) {})
}

// Call bounds a call that belongs to no transport yet, such as loading one.
func Call[T any](ctx context.Context, logger *slog.Logger, who, what string, f func() (T, error)) (T, error) {
	return call(ctx, &gate{who: who, logger: logger, worded: true}, what, f, nil)
}

type none struct{}

// errBusy is the cause of what is refused because an earlier call has not returned.
var errBusy = errors.New("an earlier call has not returned")

// gate remembers the calls that have not returned in time: nothing else is called
// until they have.
type gate struct {
	who    string
	logger *slog.Logger // nil: slog.Default
	worded bool         // errors come from a carrier, which has checked and bounded what the transport said
	mu     sync.Mutex
	lost   []*pending
	after  func()
}

// another returns a gate of its own for other calls of the same transport.
func (g *gate) another() gate { return gate{who: g.who, logger: g.logger, worded: g.worded} }

// pending is a call in progress.
type pending struct {
	what     string
	begun    time.Time
	returned bool
	lost     bool // its caller has stopped waiting
}

// whenFree has f called once no call is lost any more; false: none is lost now, and f is not called.
func (g *gate) whenFree(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lost) == 0 {
		return false
	}
	g.after = f
	return true
}

// busy returns the error of a call while an earlier one is lost.
func (g *gate) busy(what string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lost) == 0 {
		return nil
	}
	l := g.lost[0]
	return &plugin.Error{Code: plugin.Timeout, Rank: -1, Cause: errBusy, Message: fmt.Sprintf(
		"%s: %s is impossible: %s has not returned for %s", g.who, what, l.what, seconds(time.Since(l.begun)))}
}

// call calls f and waits for it until ctx ends and a little longer. late gets the result of a call whose caller has
// stopped waiting.
func call[T any](ctx context.Context, g *gate, what string, f func() (T, error), late func(T, error)) (T, error) {
	var zero T
	if err := g.busy(what); err != nil {
		return zero, err
	}
	type result struct {
		value T
		err   error
	}
	p := &pending{what: what, begun: time.Now()}
	ended := make(chan result, 1)
	go protect(g, what, f, func(value T, err error) {
		if g.end(p) {
			ended <- result{value, err}
			return
		}
		if late != nil {
			late(value, err)
		}
		g.free(p)
	})
	select {
	case r := <-ended:
		return r.value, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lag)
	defer timer.Stop()
	select {
	case r := <-ended:
		return r.value, r.err
	case <-timer.C:
	}
	if !g.lose(p) {
		r := <-ended // it has returned just now
		return r.value, r.err
	}
	return zero, &plugin.Error{Code: plugin.CodeOf(ctx.Err()), Rank: -1, Cause: ctx.Err(), Message: fmt.Sprintf(
		"%s did not return from %s within %s; the thread that called it is lost until it does", g.who, what,
		seconds(time.Since(p.begun)))}
}

// protect calls f, and done with its results, also where f does not return: a panic of a builtin transport becomes an
// error, and so does a call of runtime.Goexit. It bounds the texts of the transport's errors.
func protect[T any](g *gate, what string, f func() (T, error), done func(T, error)) {
	var value T
	var err error
	returned := false
	defer func() {
		if p := recover(); p != nil {
			cmp.Or(g.logger, slog.Default()).Error("a transport panicked", "transport", g.who, "call", what, "panic",
				fmt.Sprint(p), "stack", string(debug.Stack()))
			err = plugin.Errorf(plugin.Internal, "%s panicked in %s: %s", g.who, what, plugin.Clip(fmt.Sprint(p)))
		} else if !returned {
			err = plugin.Errorf(plugin.Internal, "%s ended its goroutine in %s (runtime.Goexit, which t.FailNow calls)", g.who,
				what)
		}
		done(value, err)
	}()
	value, err = f()
	if !g.worded {
		err = plugin.ErrorOf(err)
	}
	returned = true
}

// lose gives a call up; false: it has returned.
func (g *gate) lose(p *pending) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.returned {
		return false
	}
	p.lost = true
	g.lost = append(g.lost, p)
	return true
}

// end notes that a call has returned; false: it was given up before.
func (g *gate) end(p *pending) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.returned = !p.lost
	return p.returned
}

// free lets others call again after a call that was given up.
func (g *gate) free(p *pending) {
	g.mu.Lock()
	g.lost = slices.DeleteFunc(g.lost, func(l *pending) bool { return l == p })
	var after func()
	if len(g.lost) == 0 {
		after, g.after = g.after, nil
	}
	g.mu.Unlock()
	if after != nil {
		after()
	}
}

// seconds words a time for people.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
