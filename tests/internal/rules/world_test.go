package rules

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/shm"
)

func TestMain(m *testing.M) {
	host.Register(shm.Transport{})
	host.Register(breakable)
	machine.Register()
	pool.Main()
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// breakable is the shm transport with failures that a test switches on. Ranks
// are goroutines of one process, so all see the same switches.
var breakable = &broken{Transport: shm.Transport{}}

type broken struct {
	plugin.Transport
	open, prepare, close, allocate atomic.Pointer[failure]
	endpoints                      atomic.Int64 // open now
}

// failure is at which rank, and at which of its calls, something fails.
type failure struct {
	rank  int
	calls atomic.Int64 // left until it fails
}

func failAt(rank, call int) *failure {
	f := &failure{rank: rank}
	f.calls.Store(int64(call))
	return f
}

var errBroken = errors.New("broken on purpose")

func (b *broken) hit(p *atomic.Pointer[failure], rank int) error {
	f := p.Load()
	if f == nil || f.rank != rank || f.calls.Add(-1) != -1 {
		return nil
	}
	return plugin.Errorf(plugin.System, "%w", errBroken)
}

func (b *broken) reset() {
	for _, p := range []*atomic.Pointer[failure]{&b.open, &b.prepare, &b.close, &b.allocate} {
		p.Store(nil)
	}
}

func (b *broken) Info() plugin.Info {
	info := b.Transport.Info()
	info.Name = "breakable"
	return info
}

func (b *broken) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	if err := b.hit(&b.open, c.Rank); err != nil {
		return nil, err
	}
	e, err := b.Transport.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	b.endpoints.Add(1)
	return &brokenEndpoint{Endpoint: e, of: b, rank: c.Rank}, nil
}

type brokenEndpoint struct {
	plugin.Endpoint
	of   *broken
	rank int
}

func (e *brokenEndpoint) Prepare(ctx context.Context, r plugin.Request, algorithm string) (*plugin.Plan, error) {
	if err := e.of.hit(&e.of.prepare, e.rank); err != nil {
		return nil, err
	}
	return e.Endpoint.Prepare(ctx, r, algorithm)
}

func (e *brokenEndpoint) Allocate(ctx context.Context, id uint32, bytes int64) (plugin.Region, error) {
	if err := e.of.hit(&e.of.allocate, e.rank); err != nil {
		return plugin.Region{}, err
	}
	return e.Endpoint.Allocate(ctx, id, bytes)
}

func (e *brokenEndpoint) Close() error {
	e.of.endpoints.Add(-1)
	return errors.Join(e.of.hit(&e.of.close, e.rank), e.Endpoint.Close())
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// ranks runs body on every rank of a new communicator of the breakable
// transport and returns each rank's error. A rank whose Init fails returns
// that error; body's communicator is closed by body.
func ranks(t *testing.T, world int, timeout time.Duration, body func(c *host.Communicator) error) []error {
	t.Helper()
	id := "file://" + filepath.Join(t.TempDir(), "meet")
	errs := make([]error, world)
	var all sync.WaitGroup
	for rank := range world {
		all.Go(func() {
			c, err := host.Init(t.Context(), host.Options{
				Rank: rank, World: world, ID: id, Transports: []string{"builtin:breakable"}, Timeout: timeout, Logger: silent,
			})
			if err != nil {
				errs[rank] = err
				return
			}
			errs[rank] = body(c)
		})
	}
	all.Wait()
	return errs
}

// sum makes an all_reduce of one element and checks it.
func sum(c *host.Communicator) error {
	in, out := new(int32), new(int32)
	*in = int32(c.Rank() + 1)
	if err := c.AllReduce(unsafe.Pointer(in), unsafe.Pointer(out), 1, plugin.Int32, plugin.OpSum, nil); err != nil {
		return err
	}
	if want := int32(c.World() * (c.World() + 1) / 2); *out != want {
		return fmt.Errorf("sum %d, want %d", *out, want)
	}
	return nil
}
