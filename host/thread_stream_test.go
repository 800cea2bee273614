package host_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// A call in the calling thread's own stream comes behind what that thread has put
// there, whichever caller has the turn meanwhile and however short the caller's limit is.
func TestTheThreadsOwnStreamIsTheCallers(t *testing.T) {
	for name, call := range map[string]func(r *rank, op *host.Operation) error{
		"do": func(r *rank, op *host.Operation) error { return r.Do(op) },
		"with a block limit": func(r *rank, op *host.Operation) error {
			request, err := r.DoFor(op, time.Nanosecond)
			if request != nil {
				return errors.Join(errors.New("went on as a request"), request.Wait(context.Background()))
			}
			return err
		},
		"while another thread has the turn": func(r *rank, op *host.Operation) error {
			waited, release := host.TakeTurn(r.Communicator)
			go func() {
				for !waited() {
					runtime.Gosched()
				}
				release()
			}()
			return r.Do(op)
		},
		"a group, while another thread has the turn": func(r *rank, op *host.Operation) error {
			waited, release := host.TakeTurn(r.Communicator)
			go func() {
				for !waited() {
					runtime.Gosched()
				}
				release()
			}()
			var g host.Group
			g.Add(host.Operation{Collective: plugin.Send, Send: op.Send, Count: op.Count, DType: op.DType, Stream: op.Stream})
			g.Add(host.Operation{Collective: plugin.Recv, Recv: op.Recv, Count: op.Count, DType: op.DType, Stream: op.Stream})
			return g.Run(r.Communicator)
		},
	} {
		t.Run(name, func(t *testing.T) {
			deviceWorld(t, 1, func(r *rank) error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				b, done := r.buffers(8, 8)
				word, err := r.driver.AllocHost(r.ctx, 8)
				if err != nil {
					return err
				}
				own := cuda.PerThreadStream
				for round := range 5 {
					err = errors.Join(r.driver.WaitValue(r.ctx, own, word.Device, uint64(round+1)),
						r.driver.Set(r.ctx, b[0], byte(round), 32, own),
						call(r, &host.Operation{Collective: plugin.AllReduce, Send: pointer(b[0]), Recv: pointer(b[1]), Count: 8,
							DType: plugin.Float32, Stream: own}))
					// The thread's work begins now: what is not behind it would have seen other data.
					time.Sleep(time.Millisecond)
					err = errors.Join(err, r.driver.WriteValue(r.ctx, 0, word.Device, uint64(round+1)), r.Synchronize(own))
					if err != nil {
						return done(err)
					}
					want, err := r.read(b[0], 8)
					if err != nil {
						return done(err)
					}
					if err := r.expect(b[1], want); err != nil {
						return done(fmt.Errorf("round %d: %w", round, err))
					}
				}
				return done(r.driver.FreeHost(r.ctx, word))
			})
		})
	}
}

// What another thread would put into its own stream is refused.
func TestTheThreadsOwnStreamCannotBeStarted(t *testing.T) {
	deviceWorld(t, 1, func(r *rank) error {
		b, done := r.buffers(8, 8)
		op := host.Operation{Collective: plugin.AllReduce, Send: pointer(b[0]), Recv: pointer(b[1]), Count: 8,
			DType: plugin.Float32, Stream: cuda.PerThreadStream}
		var g host.Group
		g.Add(host.Operation{Collective: plugin.Send, Send: op.Send, Count: 8, DType: plugin.Float32, Stream: op.Stream})
		g.Add(host.Operation{Collective: plugin.Recv, Recv: op.Recv, Count: 8, DType: plugin.Float32, Stream: op.Stream})
		for name, start := range map[string]func() error{
			"start on":      func() error { _, err := r.Start(&op); return err },
			"start on rank": func() error { _, err := g.Start(r.Communicator); return err },
			"run together on": func() error {
				return host.RunTogether(host.Part{Comm: r.Communicator, Operations: []host.Operation{op}})
			},
		} {
			err := start()
			if plugin.CodeOf(err) != plugin.InvalidArgument || !strings.Contains(err.Error(), "CU_STREAM_PER_THREAD") ||
				!strings.HasPrefix(err.Error(), name) {
				return done(fmt.Errorf("%s gave %w", name, err))
			}
		}
		return done(errors.Join(r.Err(), r.Barrier(r), r.sync()))
	})
}
