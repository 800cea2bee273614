// Package stuck is the transport shm with one function that never returns, for tests
// of what a host does then. It responds to pings all the while.
package stuck

import (
	"context"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// Phases in which it can be stuck. Supports is stuck on every rank, as it knows none;
// the others on rank 1.
var Phases = []string{"supports", "open", "prepare", "close"}

// Later are more phases: when its process starts, when Supports is asked of anything, as in init, when a broadcast is
// prepared, as when a job has run for a while, and when an endpoint is opened beside another, as for a split.
// Close is stuck at the last endpoint.
var Later = []string{"start", "init", "traffic", "split"}

// Transport is stuck in what Phase returns; "" is nowhere.
type Transport struct {
	shm.Transport
	Phase  func() string
	Signal unix.Signal // that it sends to its own process there instead, if not 0

	opened *atomic.Int32
}

// New returns a Transport.
func New(phase func() string, signal unix.Signal) Transport {
	return Transport{Phase: phase, Signal: signal, opened: new(atomic.Int32)}
}

// Info returns the Info of shm under another name. A plugin's process is asked for it when it starts.
func (t Transport) Info() plugin.Info {
	t.at("start", 1)
	i := t.Transport.Info()
	i.Name = "stuck"
	return i
}

func (t Transport) at(phase string, rank int) {
	if t.Phase() != phase || rank != 1 {
		return
	}
	if t.Signal != 0 {
		_ = unix.Kill(os.Getpid(), t.Signal)
	}
	select {}
}

// Supports hangs for all_reduce alone, so that a communicator can be made; in the phase "init" for whatever is asked.
func (t Transport) Supports(req plugin.Request) plugin.Support {
	t.at("init", 1)
	if req.Collective == plugin.AllReduce {
		t.at("supports", 1)
	}
	return t.Transport.Supports(req)
}

// Open makes an endpoint.
func (t Transport) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	t.at("open", config.Rank)
	if t.opened.Add(1) > 1 {
		t.at("split", config.Rank)
	}
	e, err := t.Transport.Open(ctx, config)
	return endpoint{e, t, config.Rank}, err
}

type endpoint struct {
	plugin.Endpoint
	transport Transport
	rank      int
}

// Prepare hangs for all_reduce, and in the phase "traffic" for broadcast.
func (e endpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	if req.Collective == plugin.AllReduce {
		e.transport.at("prepare", e.rank)
	}
	if req.Collective == plugin.Broadcast {
		e.transport.at("traffic", e.rank)
	}
	return e.Endpoint.Prepare(ctx, req, algorithm)
}

func (e endpoint) Close() error {
	if e.transport.opened.Add(-1) == 0 {
		e.transport.at("close", e.rank)
	}
	return e.Endpoint.Close()
}
