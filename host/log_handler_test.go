package host_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

// handler is a log handler of the program's that calls a function with each message.
type handler func(message string)

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	h(r.Message)
	return nil
}

func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h handler) WithGroup(string) slog.Handler { return h }

// done fails the test if f takes as long as a deadlock.
func done(t *testing.T, what string, f func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not end", what)
	}
}

// withHandlers makes a world of ranks that log to these handlers.
func withHandlers(t *testing.T, handlers ...handler) []*host.Communicator {
	t.Helper()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	comms, errs := make([]*host.Communicator, len(handlers)), make([]error, len(handlers))
	var all sync.WaitGroup
	for rank, h := range handlers {
		all.Go(func() {
			o := options(id, rank, len(handlers))
			o.Logger = slog.New(h)
			comms[rank], errs[rank] = host.Init(context.Background(), o)
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return comms
}

// A log handler may close the communicator whose failure it is given, whichever goroutine logs it: the rank that fails,
// or what watches the others.
func TestLogHandlerCloses(t *testing.T) {
	var comms []*host.Communicator
	var ended sync.WaitGroup
	handlers := make([]handler, 3)
	for rank := range handlers {
		ended.Add(1)
		handlers[rank] = func(message string) {
			if message == "communicator failed" {
				defer ended.Done()
				_ = comms[rank].Close()
			}
		}
	}
	comms = withHandlers(t, handlers...)
	done(t, "Abort", func() { comms[1].Abort("test") })
	done(t, "Close in a log handler", ended.Wait)
}

// Log handlers that block, on every rank, hold up neither the news of a failure, for all communicators of the job, nor
// its end.
func TestBlockedLogHandlersHoldUpNoFailure(t *testing.T) {
	var blocked atomic.Bool
	release := make(chan struct{})
	block := handler(func(string) {
		if blocked.Load() {
			<-release
		}
	})
	comms := withHandlers(t, block, block, block)
	var all sync.WaitGroup
	errs := make([]error, len(comms))
	blocked.Store(true)
	for rank, c := range comms {
		all.Go(func() {
			x := []float32{1}
			if rank == 1 {
				c.Abort("test")
			}
			errs[rank] = c.AllReduce(at(x), at(x), 1, plugin.Float32, plugin.OpSum, nil)
			_ = c.Close()
		})
	}
	done(t, "the job", all.Wait)
	for rank, err := range errs {
		require.Equal(t, plugin.Aborted, plugin.CodeOf(err), "rank %d: %v", rank, err)
		require.ErrorContains(t, err, "rank 1 aborted: test")
	}
	close(release)
}
