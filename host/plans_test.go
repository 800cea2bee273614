package host_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// lines is a log that says when it first held a text.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	want  string
	found chan struct{}
	once  sync.Once
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.text.Write(p)
	if strings.Contains(l.text.String(), l.want) {
		l.once.Do(func() { close(l.found) })
	}
	return n, err
}

// The first call of a kind begins with an agreement: a rank that stays away from it is reported as soon as in later
// calls.
func TestWhoStaysAwayFromAFirstCallIsReported(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "50ms")
	log := &lines{want: `collective=all_reduce for="peer rank 1 (pid`, found: make(chan struct{})}
	errs := worldErrors(t, 2, func(rank int, o *host.Options) {
		if rank == 0 {
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
		}
	}, func(c *host.Communicator) error {
		if c.Rank() == 1 {
			select {
			case <-log.found:
			case <-time.After(10 * time.Second):
				return errors.New("rank 0 has not reported this rank")
			}
		}
		x := []float32{1}
		return c.AllReduce(at(x), at(x), 1, plugin.Float32, plugin.OpSum, nil)
	})
	require.NoError(t, errors.Join(errs...))
	require.Contains(t, log.text.String(), `peer_state="has called nothing yet"`)
}

// A plan that leaves the memory of its call is its transport's fault, which the error of every rank names: no argument
// of the caller's could make it so.
func TestPlansThatLeaveTheirMemory(t *testing.T) {
	for where, to := range map[string]func(b *plugin.Builder) plugin.RefID{
		"the receive memory of 4": func(b *plugin.Builder) plugin.RefID { return b.Recv(b.Const(1 << 40)) },
		"region 1 of rank 0 of":   func(b *plugin.Builder) plugin.RefID { return b.Region(b.Const(1), b.Const(0), b.Const(1<<40)) },
	} {
		errs := exchanged(t, manner{prepare: func(_ plugin.Endpoint, req plugin.Request) (*plugin.Plan, error) {
			b := plugin.NewBuilder(req, "one_shot")
			b.Track(func() {
				if req.Rank == 1 {
					b.Copy(to(b), b.Send(b.Const(0)), b.Const(2))
				}
			})
			return b.Plan()
		}}, func(c *host.Communicator) error {
			x := []float32{1}
			if err := c.Broadcast(at(x), at(x), 1, plugin.Float32, 1, nil); c.Rank() == 1 {
				return err
			}
			return c.Barrier(nil) // which hears of it
		})
		for rank, err := range errs {
			require.ErrorIs(t, err, plugin.Internal, "rank %d", rank)
			require.ErrorContains(t, err, "rank 1: broadcast by exchanging/one_shot, step 0 of track 0: "+
				"2 bytes at offset 1099511627776 exceed "+where, "rank %d", rank)
		}
	}
}
