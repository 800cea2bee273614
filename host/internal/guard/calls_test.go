package guard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// exchanging is an endpoint that exchanges bytes and panics when it is aborted.
type exchanging struct {
	stuckEndpoint
	connected [][]byte
}

func (x *exchanging) Publish(_ context.Context, e plugin.Exchange) ([]byte, error) {
	return []byte("of " + e.Algorithm), nil
}

func (x *exchanging) Connect(_ context.Context, _ plugin.Exchange, published [][]byte) error {
	x.connected = published
	return plugin.Errorf(plugin.PeerDied, "rank 1 is gone")
}

func (x *exchanging) Abort(string) { panic("no such rail") }

// What goes in and comes out is the transport's, and an endpoint without the methods is an error, not a panic.
func TestExchangesGoThrough(t *testing.T) {
	x := &exchanging{}
	e := &Endpoint{inner: x}
	b, err := e.Publish(t.Context(), plugin.Exchange{Algorithm: "ring"})
	if string(b) != "of ring" || err != nil {
		t.Errorf("published %q, %v", b, err)
	}
	if err := e.Connect(t.Context(), plugin.Exchange{}, [][]byte{{1}, {2}}); plugin.CodeOf(err) != plugin.PeerDied ||
		len(x.connected) != 2 || x.connected[1][0] != 2 {
		t.Errorf("connected %v, %v", x.connected, err)
	}
	e = &Endpoint{inner: stuckEndpoint{&stuck{}}}
	_, err = e.Publish(t.Context(), plugin.Exchange{})
	for _, err := range []error{err, e.Connect(t.Context(), plugin.Exchange{}, nil)} {
		if plugin.CodeOf(err) != plugin.Protocol {
			t.Error(err)
		}
	}
}

// An Abort that panicked has nobody to tell: Close says so, beside its own error.
func TestCloseTellsHowAbortFailed(t *testing.T) {
	s := &stuck{closed: make(chan string, 1)}
	e := &Endpoint{inner: &exchanging{stuckEndpoint: stuckEndpoint{s}}}
	e.Abort("a rank is dead")
	if err := e.Close(); plugin.CodeOf(err) != plugin.Internal {
		t.Error(err)
	}
	if got := <-s.closed; got != "endpoint" {
		t.Errorf("closed %s", got)
	}
}

// supporting is a transport whose carrier may fail to ask it.
type supporting struct {
	stuck
	support plugin.Support
}

func (s *supporting) Supports(plugin.Request) plugin.Support { return s.support }

type asking struct {
	supporting
	err error
}

func (a *asking) Ask(context.Context, plugin.Request) (plugin.Support, error) {
	return a.support, a.err
}

// What a transport in this process offers is checked, and what a carrier says of the asking is passed on.
func TestWhatSupportsReturnsIsChecked(t *testing.T) {
	s := &supporting{support: plugin.Support{Algorithms: []plugin.Algorithm{{Name: "a", Latency: -1, Bandwidth: 1}}}}
	guarded := New(s, "builtin:s", nil)
	if _, err := guarded.Ask(t.Context(), plugin.Request{}); err == nil {
		t.Error("a negative latency is accepted")
	}
	if got := guarded.Supports(plugin.Request{}); len(got.Algorithms) != 0 || got.Reason == "" {
		t.Errorf("offered %+v", got)
	}
	gone := errors.New("it is gone")
	if _, err := New(&asking{err: gone}, "shared:a", nil).Ask(t.Context(), plugin.Request{}); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// Of two calls that have not returned, the return of one does not let others in.
func TestEveryLostCallKeepsTheGateShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		releases := []chan struct{}{make(chan struct{}), make(chan struct{})}
		errs := make(chan error, 2)
		for _, release := range releases {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := call(ctx, &g, "wait", func() (none, error) { <-release; return none{}, nil }, nil)
				errs <- err
			}()
		}
		for range releases {
			if err := <-errs; plugin.CodeOf(err) != plugin.Timeout {
				t.Error(err)
			}
		}
		for i, release := range releases {
			if g.busy("again") == nil {
				t.Errorf("it is free before call %d has returned", i)
			}
			close(release)
			synctest.Wait()
		}
		if err := g.busy("again"); err != nil {
			t.Error(err)
		}
	})
}
