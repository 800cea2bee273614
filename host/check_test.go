package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

// firstRecord is a log handler that says when there is a record.
type firstRecord struct {
	slog.Handler
	once *sync.Once
	at   chan struct{}
}

func (h firstRecord) Enabled(context.Context, slog.Level) bool { return true }
func (h firstRecord) Handle(context.Context, slog.Record) error {
	h.once.Do(func() { close(h.at) })
	return nil
}

// Calls are compared on all ranks where SHUNT_CHECK is on for one: a rank that compares waits for all others.
func TestCheckOnOneRankIsEveryRanks(t *testing.T) {
	drivers := gpus(t, 2)
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	all := &company{ranks: 2}
	all.here.L = &all.mu
	t.Setenv("SHUNT_CHECK", "on")
	t.Setenv("SHUNT_CHEKC", "on") // of which rank 0 warns once it has read its options
	read, errs := firstRecord{slog.DiscardHandler, &sync.Once{}, make(chan struct{})}, make([]error, 2)
	var ranks sync.WaitGroup
	start := func(i int) {
		ranks.Go(func() {
			defer all.leave()
			errs[i] = deviceRank(id, i, drivers, all, func(i int, o *host.Options) {
				if o.Timeout = 5 * time.Second; i == 0 {
					o.Logger = slog.New(read)
				}
			}, func(r *rank) error { return errors.Join(deviceSum(r, 100), deviceSum(r, 100)) })
		})
	}
	start(0)
	<-read.at
	require.NoError(t, errors.Join(os.Unsetenv("SHUNT_CHECK"), os.Unsetenv("SHUNT_CHEKC")))
	start(1)
	ranks.Wait()
	require.NoError(t, errors.Join(errs...))
}

// A group with an operation that is refused for its memory has sent and received nothing.
func TestGroupsThatAreRefusedHaveNotRun(t *testing.T) {
	t.Setenv("SHUNT_CHECK", "on")
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(10, 10)
		w, err := r.NewWindow(t.Context(), 64)
		if err != nil {
			return done(err)
		}
		if r.Rank() == 1 {
			err := r.Recv(pointer(b[1]), 10, plugin.Float32, 0, r)
			return done(errors.Join(err, r.expect(b[1], ramp(1, 10)), r.meet(), w.Close()))
		}
		var g host.Group
		send := host.Operation{Collective: plugin.Send, DType: plugin.Float32, Count: 10, Root: 1, Stream: r,
			Send: pointer(b[0])}
		g.Add(send)
		g.Add(host.Operation{Collective: plugin.Put, DType: plugin.Float32, Count: 10, Root: 1, Stream: r, Window: w,
			Send: at(make([]float32, 10))}) // which the GPU does not know
		if err := g.Run(r.Communicator); plugin.CodeOf(err) != plugin.InvalidArgument {
			return done(fmt.Errorf("the group gave %w", err))
		}
		err = errors.Join(r.sync(), r.driver.Write(r.ctx, b[0], bytesOf(ramp(1, 10))), r.Do(&send))
		return done(errors.Join(err, r.meet(), w.Close()))
	})
}

// The block limit holds for the comparison of a call that has come before, too.
func TestBlockLimitHoldsForCallsThatAreCompared(t *testing.T) {
	t.Setenv("SHUNT_CHECK", "on")
	come := make(chan struct{})
	errs := deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.Timeout = 5 * time.Second }, func(r *rank) error {
		b, done := r.buffers(10, 10)
		sum := &host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Count: 10, Send: pointer(b[0]),
			Recv: pointer(b[1]), Stream: r}
		if err := r.Do(sum); err != nil {
			return done(err)
		}
		if r.Rank() == 1 {
			<-come
			return done(errors.Join(r.Do(sum), r.sync()))
		}
		request, err := r.DoFor(sum, little)
		close(come)
		if request == nil || err != nil {
			return done(errors.Join(errWrong, err))
		}
		return done(errors.Join(request.Wait(t.Context()), r.sync()))
	})
	require.NoError(t, errors.Join(errs...))
}
