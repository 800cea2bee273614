package guard

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// held is an endpoint whose calls return when their channel is closed.
type held struct {
	stuckEndpoint
	hold   map[string]chan struct{} // by call; others return at once
	inside sync.Map                 // the calls that have not returned
	closed chan string              // of each Close: which calls were inside
}

func (h *held) call(name string) {
	if c := h.hold[name]; c != nil {
		h.inside.Store(name, true)
		<-c
		h.inside.Delete(name)
	}
}

func (h *held) Prepare(context.Context, plugin.Request, string) (*plugin.Plan, error) {
	h.call("prepare")
	return nil, nil
}

func (h *held) Register(context.Context, plugin.Memory) (uint64, error) {
	h.call("register")
	return 0, plugin.Errorf(plugin.Unsupported, "no")
}

func (h *held) Abort(string) { h.call("abort") }

func (h *held) Close() error {
	var inside []string
	for name := range h.inside.Range {
		inside = append(inside, name.(string))
	}
	h.closed <- strings.Join(inside, " ")
	h.call("close")
	return plugin.Errorf(plugin.Device, "the rail is left open")
}

func hold(names ...string) (*held, *Endpoint) {
	h := &held{hold: map[string]chan struct{}{}, closed: make(chan string, 2)}
	for _, name := range names {
		h.hold[name] = make(chan struct{})
	}
	return h, &Endpoint{inner: h}
}

// Several calls may not have returned: the endpoint is closed when the last one has, whichever that is.
func TestCloseComesAfterAllThatHasNotReturned(t *testing.T) {
	for _, order := range []string{"prepare register abort", "abort register prepare", "register abort prepare",
		"prepare abort register", "abort prepare register", "register prepare abort"} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, e := hold("prepare", "register", "abort")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := e.Prepare(ctx, plugin.Request{}, "ring"); plugin.CodeOf(err) != plugin.Timeout {
					t.Error(err)
				}
				if _, err := e.Register(ctx, plugin.Memory{}); plugin.CodeOf(err) != plugin.Timeout {
					t.Error(err)
				}
				e.Abort("a rank is dead")
				err := e.Close()
				if plugin.CodeOf(err) != plugin.Timeout || !strings.Contains(err.Error(), "has not returned for") {
					t.Error(err)
				}
				for _, name := range strings.Fields(order) {
					if synctest.Wait(); len(h.closed) > 0 {
						t.Errorf("it was closed before %s had returned", name)
					}
					close(h.hold[name])
				}
				if inside := <-h.closed; inside != "" {
					t.Errorf("it was closed inside %s", inside)
				}
				if synctest.Wait(); len(h.closed) > 0 {
					t.Error("it was closed twice")
				}
			})
		})
	}
}

// An Abort that took its time and returned leaves nothing behind: closing is bounded, and its error is returned.
func TestCloseAfterASlowAbort(t *testing.T) {
	for _, what := range []string{"returns", "hangs"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names := map[string][]string{"returns": {"abort"}, "hangs": {"abort", "close"}}[what]
				h, e := hold(names...)
				e.Abort("a rank is dead")
				close(h.hold["abort"])
				synctest.Wait()
				begin := time.Now()
				err := e.Close()
				want := map[string]plugin.Code{"returns": plugin.Device, "hangs": plugin.Timeout}[what]
				if took := time.Since(begin); plugin.CodeOf(err) != want || took > CloseTimeout+time.Second {
					t.Errorf("after %v: %v", took, err)
				}
				if c := h.hold["close"]; c != nil {
					close(c)
				}
			})
		})
	}
}
