// Package stuck is the transport shm with one function that never returns, for tests
// of what a host does then. It responds to pings all the while.
package stuck

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// Phases in which it can be stuck. Supports is stuck on every rank, as it knows none;
// the others on rank 1.
var Phases = []string{"supports", "open", "prepare", "close"}

// Transport is stuck in what Phase returns; "" is nowhere.
type Transport struct {
	shm.Transport
	Phase func() string
	Dies  bool // there, instead, with its process
}

// Info returns the Info of shm under another name.
func (t Transport) Info() plugin.Info {
	i := t.Transport.Info()
	i.Name = "stuck"
	return i
}

func (t Transport) at(phase string, rank int) {
	if t.Phase() != phase || rank != 1 {
		return
	}
	if t.Dies {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
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
	e, err := t.Transport.Open(ctx, config)
	return endpoint{e, t, config.Rank}, err
}

type endpoint struct {
	plugin.Endpoint
	transport Transport
	rank      int
}

// Prepare hangs for all_reduce alone.
func (e endpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	if req.Collective == plugin.AllReduce {
		e.transport.at("prepare", e.rank)
	}
	return e.Endpoint.Prepare(ctx, req, algorithm)
}

func (e endpoint) Close() error {
	e.transport.at("close", e.rank)
	return e.Endpoint.Close()
}
