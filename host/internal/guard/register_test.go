package guard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// slowRegistrar is an endpoint with one registration at a time, whose key is always 7. Its next Deregister returns when
// it is released, with an error of its own.
type slowRegistrar struct {
	stuckEndpoint
	known   int
	calls   int
	release chan struct{} // nil: it returns at once
	err     error
}

func (s *slowRegistrar) Open(context.Context, plugin.OpenConfig) (plugin.Endpoint, error) {
	return s, nil
}

func (s *slowRegistrar) Register(context.Context, plugin.Memory) (uint64, error) {
	s.known++
	return 7, nil
}

func (s *slowRegistrar) Deregister(_ context.Context, key uint64) error {
	s.calls++
	if s.release != nil {
		<-s.release
		s.release = nil
	}
	if key != 7 || s.known != 1 {
		return plugin.Errorf(plugin.Protocol, "key %d, %d registrations", key, s.known)
	}
	if s.err == nil || plugin.CodeOf(s.err) != plugin.Timeout {
		s.known--
	}
	return s.err
}

// A Deregister that returns too late is not called again, as the endpoint may have handed the key out to other memory
// by then; its result is that of the next call. One that says itself that it had no time is called again.
func TestLateDeregisterIsNotCalledAgain(t *testing.T) {
	broken := plugin.Errorf(plugin.System, "the card is gone")
	for _, late := range []error{nil, broken, plugin.Errorf(plugin.Timeout, "no time")} {
		synctest.Test(t, func(t *testing.T) {
			s := &slowRegistrar{stuckEndpoint: stuckEndpoint{&stuck{closed: make(chan string, 1)}},
				release: make(chan struct{}), err: late}
			e, err := New(s, "builtin:slow", nil).Open(t.Context(), plugin.OpenConfig{})
			if err != nil {
				t.Fatal(err)
			}
			r := e.(plugin.Registrar)
			first, err := r.Register(t.Context(), plugin.Memory{Bytes: 8})
			if err != nil {
				t.Fatal(err)
			}
			release := s.release
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 2 { // the second while the first has not returned
				if err := r.Deregister(ctx, first); plugin.CodeOf(err) != plugin.Timeout {
					t.Errorf("a deregister that does not return gave %v", err)
				}
			}
			close(release)
			synctest.Wait()
			if plugin.CodeOf(late) == plugin.Timeout {
				if s.err = nil; r.Deregister(t.Context(), first) != nil || s.calls != 2 || s.known != 0 {
					t.Errorf("%d calls, %d registrations", s.calls, s.known)
				}
				return
			}
			second, err := r.Register(t.Context(), plugin.Memory{Bytes: 8})
			if got := r.Deregister(t.Context(), first); err != nil || !errors.Is(got, late) || s.calls != 1 || s.known != 1 {
				t.Errorf("%v, then %v after %d calls; %d registrations", err, got, s.calls, s.known)
			}
			s.err = nil
			if err := r.Deregister(t.Context(), second); err != nil || s.calls != 2 || s.known != 0 {
				t.Errorf("%v after %d calls; %d registrations", err, s.calls, s.known)
			}
			if err := r.Deregister(t.Context(), first); plugin.CodeOf(err) != plugin.InvalidArgument || s.calls != 2 {
				t.Errorf("%v after %d calls", err, s.calls)
			}
		})
	}
}
