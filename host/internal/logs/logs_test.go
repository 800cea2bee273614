package logs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a program's log handler: it keeps the records, each after handle has returned.
type program struct {
	handle func(text string)
	kept   *kept
	with   string
}

type kept struct {
	sync.Mutex
	texts []string
}

func (p program) Enabled(context.Context, slog.Level) bool { return true }

func (p program) Handle(_ context.Context, r slog.Record) error {
	p.handle(r.Message)
	text := p.with + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	p.kept.Lock()
	defer p.kept.Unlock()
	p.kept.texts = append(p.kept.texts, text)
	return nil
}

func (p program) WithAttrs(attrs []slog.Attr) slog.Handler {
	return program{p.handle, p.kept, fmt.Sprintf("%s%v ", p.with, attrs)}
}

func (p program) WithGroup(name string) slog.Handler {
	return program{p.handle, p.kept, p.with + name + ": "}
}

func (k *kept) all() []string {
	k.Lock()
	defer k.Unlock()
	return slices.Clone(k.texts)
}

// A program that ends after a call has the records of that call, in their order.
func TestRecordIsHandledWhenLogReturns(t *testing.T) {
	var k kept
	logger := slog.New(New(program{func(string) {}, &k, ""}))
	logger.Info("one", "n", 1)
	require.Equal(t, []string{"one n=1"}, k.all())
	logger.With("a", 2).Info("two")
	logger.WithGroup("g").Info("three")
	require.Equal(t, []string{"one n=1", "[a=2] two", "g: three"}, k.all())
}

// A handler that blocks delays no call for long. Its records wait, in their order and up to a number; the others are
// counted where they are missing. Flush waits for all that are there.
func TestBlockedHandlerHoldsUpNobody(t *testing.T) {
	var k kept
	open := make(chan struct{})
	h := New(program{func(string) { <-open }, &k, ""})
	logger := slog.New(h)
	const dropped = 3
	for i := range 1 + longest + dropped { // one is in the handler's hands
		logger.Info(fmt.Sprint(i))
	}
	h.Flush() // gives up
	require.Empty(t, k.all())
	close(open)
	h.Flush()
	got := k.all()
	require.Len(t, got, 1+longest+1)
	for i, text := range got[:1+longest] {
		require.Equal(t, fmt.Sprint(i), text)
	}
	require.Equal(t, "log records are missing here: the program's handler took too long missing=3", got[1+longest])
	logger.Info("prompt again")
	require.Equal(t, "prompt again", k.all()[longest+2])
}

// A handler may log, and wait for the end of a job, as one does that closes a communicator.
func TestHandlerMayCallBack(t *testing.T) {
	var k kept
	var h *Handler
	h = New(program{func(text string) {
		if text == "outer" {
			slog.New(h).Info("inner")
			h.Flush()
		}
	}, &k, ""})
	slog.New(h).Info("outer")
	// Both calls of Flush wait for the same, each for as long as it may.
	require.Eventually(t, func() bool { h.Flush(); return len(k.all()) == 2 }, 30*time.Second, time.Millisecond)
	require.Equal(t, []string{"outer", "inner"}, k.all())
}

// A handler may end its goroutine, as t.Fatal does: its record counts as handled, and the later ones come.
func TestHandlerMayEndItsGoroutine(t *testing.T) {
	var k kept
	h := New(program{func(text string) {
		if text == "fatal" {
			runtime.Goexit()
		}
	}, &k, ""})
	logger := slog.New(h)
	for _, text := range []string{"fatal", "one", "fatal", "fatal", "two"} {
		logger.Info(text)
	}
	require.Eventually(t, func() bool {
		h.queue.Lock()
		defer h.queue.Unlock()
		return h.queue.idle == nil
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, []string{"one", "two"}, k.all())
}

// A handler's panic ends the program with the handler's text.
func TestPanicOfHandlerIsItsOwn(t *testing.T) {
	const text = "the handler is at its wits' end"
	if os.Getenv("PANIC_IN_HANDLER") != "" {
		slog.New(New(program{func(string) { panic(text) }, &kept{}, ""})).Info("one")
		select {} // the panic ends the program
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
	child.Env = append(os.Environ(), "PANIC_IN_HANDLER=1")
	out, err := child.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "panic: "+text)
	require.NotContains(t, string(out), "fatal error")
}
