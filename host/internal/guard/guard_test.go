package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stuck is a transport whose call of one phase returns when it is released.
type stuck struct {
	phase   string
	release chan struct{}
	closed  chan string // what was closed, and freed
	ends    func()      // what it does there; nil: it waits for release
}

func (s *stuck) at(phase string) {
	if s.phase == phase {
		if s.ends != nil {
			s.ends()
		}
		<-s.release
	}
}

func (s *stuck) Info() plugin.Info { return plugin.Info{Name: "stuck"} }

func (s *stuck) Supports(plugin.Request) plugin.Support {
	s.at("supports")
	return plugin.Support{Reason: "it does nothing"}
}

func (s *stuck) Open(context.Context, plugin.OpenConfig) (plugin.Endpoint, error) {
	s.at("open")
	return stuckEndpoint{s}, nil
}

type stuckEndpoint struct{ *stuck }

func (e stuckEndpoint) Regions() []plugin.Region {
	e.at("regions")
	return nil
}

func (e stuckEndpoint) Images() []plugin.Image {
	e.at("images")
	return nil
}

func (e stuckEndpoint) Allocate(context.Context, uint32, int64) (plugin.Region, error) {
	e.at("allocate")
	return plugin.Region{}, nil
}

func (e stuckEndpoint) Free(context.Context, uint32) error {
	e.at("free")
	e.closed <- "buffer"
	return nil
}

func (e stuckEndpoint) Prepare(context.Context, plugin.Request, string) (*plugin.Plan, error) {
	e.at("prepare")
	return nil, nil
}

func (e stuckEndpoint) Register(context.Context, plugin.Memory) (uint64, error) {
	e.at("register")
	return 7, nil
}

func (e stuckEndpoint) Deregister(_ context.Context, key uint64) error {
	e.at("deregister")
	if key == 7 {
		e.closed <- "registration"
	}
	return nil
}

func (e stuckEndpoint) Close() error {
	e.at("close")
	e.closed <- "endpoint"
	return nil
}

func (e stuckEndpoint) Check() error {
	e.at("check")
	return errors.New("the rail broke")
}

// calls makes one call after the other on a guarded transport, until one fails.
func calls(ctx context.Context, t *Transport) (err error) {
	if _, err = t.Ask(ctx, plugin.Request{}); err != nil {
		return err
	}
	e, err := t.Open(ctx, plugin.OpenConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if _, err = e.Allocate(ctx, 1, 8); err != nil {
		return err
	}
	if err = e.Free(ctx, 1); err != nil {
		return err
	}
	if _, err = e.Prepare(ctx, plugin.Request{}, "ring"); err != nil {
		return err
	}
	r := e.(plugin.Registrar)
	key, err := r.Register(ctx, plugin.Memory{Bytes: 8})
	if err == nil {
		err = r.Deregister(ctx, key)
	}
	return err
}

var phases = []string{"supports", "open", "regions", "images", "allocate", "free", "prepare", "register", "deregister"}

func TestEveryCallReturnsInTime(t *testing.T) {
	for _, phase := range phases {
		t.Run(phase, func(t *testing.T) {
			s := &stuck{phase: phase, release: make(chan struct{}), closed: make(chan string, 8)}
			guarded := New(s, "builtin:stuck", nil)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begin := time.Now()
			err := calls(ctx, guarded)
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			if plugin.CodeOf(err) != plugin.Timeout || !strings.HasPrefix(err.Error(),
				"transport stuck (builtin:stuck) did not return from "+phase) {
				t.Errorf("%v: %v", plugin.CodeOf(err), err)
			}
			// Calls of another communicator fail at once where the transport's own functions are stuck.
			if phase == "supports" || phase == "open" {
				begin = time.Now()
				if err := calls(t.Context(), guarded); plugin.CodeOf(err) != plugin.Timeout ||
					!strings.Contains(err.Error(), phase+" ") {
					t.Errorf("again: %v", err)
				}
				if s := guarded.Supports(plugin.Request{}); !strings.Contains(s.Reason, "has not returned for") {
					t.Errorf("again: %v", s)
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("again took %v", took)
				}
			}
			// What comes late is given back, in order, and the transport serves again.
			close(s.release)
			want := map[string][]string{"open": {"endpoint"}, "regions": {"endpoint"}, "images": {"endpoint"},
				"allocate": {"buffer", "endpoint"}, "free": {"buffer", "endpoint"},
				"prepare": {"buffer", "endpoint"}, "register": {"buffer", "registration", "endpoint"},
				"deregister": {"buffer", "registration", "endpoint"}}
			for _, w := range want[phase] {
				if got := <-s.closed; got != w {
					t.Errorf("%s came late: closed %s, want %s", phase, got, w)
				}
			}
			for guarded.Supports(plugin.Request{}).Reason != "it does nothing" {
				time.Sleep(time.Millisecond) // until the late call has left
			}
			if err := calls(t.Context(), guarded); err != nil {
				t.Errorf("after its return: %v", err)
			}
		})
	}
}

// A check that is late delays no caller, and its reply is not lost: the machine may be busy. One that does not come at
// all is an error, once, and keeps the endpoint.
func TestLateChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{phase: "check", release: make(chan struct{}), closed: make(chan string, 8)}
		e, err := New(s, "builtin:stuck", nil).Open(t.Context(), plugin.OpenConfig{Rank: 1})
		if err != nil {
			t.Fatal(err)
		}
		check := e.(plugin.Checker).Check
		// late checks for so long, as the watch of a GPU does.
		late := func(most time.Duration) (err error) {
			for begin := time.Now(); err == nil && time.Since(begin) < most; time.Sleep(lag) {
				now := time.Now()
				if err = check(); time.Since(now) > lag {
					t.Errorf("a check took %v", time.Since(now))
				}
			}
			return err
		}
		if err := late(CheckTimeout - time.Second); err != nil {
			t.Errorf("within the time: %v", err)
		}
		s.release <- struct{}{}
		synctest.Wait()
		if err := check(); err == nil || err.Error() != "the rail broke" {
			t.Errorf("the late reply: %v", err)
		}
		err = late(2 * CheckTimeout)
		if want := "transport stuck (builtin:stuck) did not return from check on rank 1 within "; plugin.CodeOf(err) !=
			plugin.Timeout || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("never: %v", err)
		}
		if err := late(2 * CheckTimeout); err != nil {
			t.Errorf("asked again: %v", err)
		}
		if err := e.Close(); plugin.CodeOf(err) != plugin.Timeout {
			t.Errorf("closed while it is checked: %v", err)
		}
		close(s.release)
		if got := <-s.closed; got != "endpoint" {
			t.Errorf("closed %s late", got)
		}
	})
}

// An endpoint is not closed while it is checked.
func TestCloseWaitsForACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{phase: "check", release: make(chan struct{}), closed: make(chan string, 8)}
		e, err := New(s, "builtin:stuck", nil).Open(t.Context(), plugin.OpenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.(plugin.Checker).Check(); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() {
			if len(s.closed) > 0 {
				t.Error("closed while it is checked")
			}
			close(s.release)
		})
		if err := e.Close(); err != nil || len(s.closed) != 1 {
			t.Errorf("%d closed: %v", len(s.closed), err)
		}
	})
}

// A call that ends otherwise than by returning is an error that names it, and loses no time.
func TestPanicAndGoexitAreErrorsThatNameTheCall(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, phase := range append([]string{"close"}, phases...) {
		for _, how := range []struct {
			ends        func()
			begin, rest string
		}{
			{func() { panic("no such rail") }, "panicked in ", ": no such rail"},
			{runtime.Goexit, "ended its goroutine in ", " (runtime.Goexit, which t.FailNow calls)"},
		} {
			s := &stuck{phase: phase, ends: how.ends, release: make(chan struct{}), closed: make(chan string, 8)}
			close(s.release)
			var log bytes.Buffer
			guarded := New(s, "builtin:stuck", slog.New(slog.NewJSONHandler(&log, nil)))
			err := calls(ctx, guarded)
			if plugin.CodeOf(err) != plugin.Internal || !strings.HasPrefix(err.Error(),
				"transport stuck (builtin:stuck) "+how.begin+phase) || !strings.HasSuffix(err.Error(), how.rest) {
				t.Errorf("%s: %v", phase, err)
			}
			record := struct{ Msg, Transport, Call, Panic, Stack string }{}
			if how.rest != ": no such rail" { // nothing has panicked
				if log.Len() > 0 {
					t.Errorf("%s, in the log: %s", phase, log.Bytes())
				}
			} else if err := json.Unmarshal(log.Bytes(), &record); err != nil || record.Msg != "a transport panicked" ||
				record.Transport != "transport stuck (builtin:stuck)" || !strings.HasPrefix(record.Call, phase) ||
				record.Panic != "no such rail" || !strings.Contains(record.Stack, "(*stuck).at") {
				t.Errorf("%s, in the log: %v: %s", phase, err, log.Bytes())
			}
			s.ends = nil
			if err := calls(ctx, guarded); err != nil {
				t.Errorf("%s: nothing is lost: %v", phase, err)
			}
		}
	}
}

// A call that its caller has given up and that ends by runtime.Goexit then is lost no longer.
func TestLateGoexitFreesTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{phase: "supports", release: make(chan struct{}), closed: make(chan string, 8)}
		first := true
		s.ends = func() {
			if first {
				<-s.release
				first = false
				runtime.Goexit()
			}
		}
		guarded := New(s, "builtin:stuck", nil)
		if got := guarded.Supports(plugin.Request{}); !strings.Contains(got.Reason, "did not return from supports") {
			t.Error(got)
		}
		close(s.release)
		synctest.Wait()
		if got := guarded.Supports(plugin.Request{}); got.Reason != "it does nothing" {
			t.Error(got)
		}
	})
}

// says is a transport whose Open fails.
type says struct {
	stuck
	err error
}

func (s *says) Open(context.Context, plugin.OpenConfig) (plugin.Endpoint, error) { return nil, s.err }

// carried is one behind a carrier.
type carried struct{ says }

func (c *carried) Ask(context.Context, plugin.Request) (plugin.Support, error) {
	return plugin.Support{}, nil
}

// The host gets a text of every error, bounded and printable, once: a carrier has put its own words before it.
func TestTextsOfErrors(t *testing.T) {
	long := "transport stuck: open: " + strings.Repeat("x", plugin.MaxText)
	for _, c := range []struct {
		transport plugin.Transport
		want      string
	}{
		{&says{err: (*plugin.Error)(nil)}, "the transport returned a nil *plugin.Error as its error"},
		{&says{err: errors.New("first\n\x1b[31msecond\x00")}, "first; ?[31msecond?"},
		{&says{err: errors.New(strings.Repeat("x", 1<<20))}, strings.Repeat("x", plugin.MaxText)},
		{&carried{says{err: errors.New(long)}}, long},
	} {
		_, err := New(c.transport, "builtin:stuck", nil).Open(t.Context(), plugin.OpenConfig{})
		if plugin.CodeOf(err) != plugin.Internal || err.Error() != c.want {
			t.Error(err)
		}
	}
	s := &stuck{phase: "open", ends: func() { panic(strings.Repeat("\n", 1<<20)) }}
	_, err := New(s, "builtin:stuck", nil).Open(t.Context(), plugin.OpenConfig{})
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 2*plugin.MaxText {
		t.Errorf("a text of %d bytes", len(err.Error()))
	}
}

// absent is a transport that opens nothing.
type absent struct {
	stuck
	endpoint plugin.Endpoint
}

func (a *absent) Open(context.Context, plugin.OpenConfig) (plugin.Endpoint, error) {
	return a.endpoint, nil
}

func TestOpenWithoutAnEndpoint(t *testing.T) {
	for what, endpoint := range map[string]plugin.Endpoint{"neither an endpoint nor an error": nil,
		"a nil *guard.held and no error": (*held)(nil)} {
		_, err := New(&absent{endpoint: endpoint}, "builtin:stuck", nil).Open(t.Context(), plugin.OpenConfig{})
		if plugin.CodeOf(err) != plugin.Protocol || !strings.HasSuffix(err.Error(), " returned "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestCanceledCallReturns(t *testing.T) {
	s := &stuck{phase: "open", release: make(chan struct{}), closed: make(chan string, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(s, "builtin:stuck", nil).Open(ctx, plugin.OpenConfig{}); plugin.CodeOf(err) != plugin.Aborted ||
		!errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(s.release)
	<-s.closed
}
