package pool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// closable is a State that says when it was closed.
type closable struct{ closed chan int }

func (c *closable) Close() error {
	c.closed <- 1
	return nil
}

func init() {
	Handle("local state", func(_ context.Context, w *Worker, payload []byte) ([]byte, error) {
		fresh := w.State == nil
		if fresh {
			w.State = &closable{localClosed}
		}
		if string(payload) == "break" && w.Rank == 0 {
			return nil, Fatal(context.Canceled)
		}
		return json.Marshal(fresh)
	})
	Handle("local wait", func(_ context.Context, w *Worker, _ []byte) ([]byte, error) {
		if w.Rank == 1 {
			<-localGate
		}
		return nil, nil
	})
}

var (
	localClosed chan int
	localGate   chan struct{}
)

func newLocal(t *testing.T, o Options) *Local {
	t.Helper()
	l, err := NewLocal(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *Local) mustRun(t *testing.T, c Case) *Result {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Payloads == nil {
		c.Payloads = [][]byte{nil}
	}
	result, err := l.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestLocalRanksKeepTheirStateUntilOneBreaks(t *testing.T) {
	localClosed = make(chan int, 16)
	l := newLocal(t, Options{World: 2, Setup: func() (string, [][]byte, error) {
		return "echo",
			[][]byte{[]byte("a"), []byte("b")}, nil
	}})
	fresh := func(payload string) (all string) {
		for _, o := range l.mustRun(t, Case{Handler: "local state", Payloads: [][]byte{[]byte(payload)}}).Outcomes {
			all += string(o.Payload) + o.Error + " "
		}
		return all
	}
	if got := fresh("") + fresh(""); got != "true true false false " {
		t.Errorf("fresh: %s", got)
	}
	if got := string(l.SetupPayloads()[1]); got != "1/2 b" {
		t.Errorf("setup returned %q", got)
	}
	if got := fresh("break"); !strings.Contains(got, "canceled") {
		t.Errorf("broken: %s", got)
	}
	if l.PIDs() != nil || len(localClosed) != 2 {
		t.Errorf("ranks %v, %d closed, after a fatal error", l.PIDs(), len(localClosed))
	}
	if got := fresh(""); got != "true true " {
		t.Errorf("after the break: %s", got)
	}
	if err := l.Close(); err != nil || len(localClosed) != 4 {
		t.Errorf("close: %v, %d closed", err, len(localClosed))
	}
	if _, err := l.Run(t.Context(), Case{Handler: "echo", Payloads: [][]byte{nil},
		Timeout: time.Second}); err != ErrClosed {
		t.Errorf("after close: %v", err)
	}
}

func TestLocalDeadlineShowsStacks(t *testing.T) {
	localGate = make(chan struct{})
	l := newLocal(t, Options{World: 2, Grace: 20 * time.Second})
	done := make(chan *Result)
	go func() { done <- l.mustRun(t, Case{Handler: "local wait", Timeout: 50 * time.Millisecond}) }()
	// Well after the deadline, well before the grace period is over.
	timer := time.AfterFunc(500*time.Millisecond, func() { close(localGate) })
	defer timer.Stop()
	result := <-done
	if o := result.Outcomes[1]; !strings.Contains(o.Error, "no reply within 50ms") ||
		!strings.Contains(o.Stderr, "pool.init") {
		t.Errorf("%q, stacks %q", o.Error, o.Stderr)
	}
	if result.Outcomes[0].Error != "" || !result.Respawn {
		t.Errorf("%+v", result)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLocalIsLostWhenARankNeverEnds(t *testing.T) {
	localGate = make(chan struct{})
	defer close(localGate)
	l := newLocal(t, Options{World: 2, Grace: 50 * time.Millisecond})
	if result := l.mustRun(t, Case{Handler: "local wait", Timeout: 50 * time.Millisecond}); result.Err() == nil {
		t.Error("no error")
	}
	if _, err := l.Run(t.Context(), Case{Handler: "echo", Payloads: [][]byte{nil}, Timeout: time.Second}); err == nil ||
		!strings.Contains(err.Error(), "never ended") {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err == nil {
		t.Error("closed as if nothing were wrong")
	}
}
