// Package sockets is an engine for tests, as an author outside of this repository would write one: a transport
// that moves bytes over TCP connections between its endpoints and shares no memory with
// its peers, so that its ranks may be on any number of hosts. It serves every collective
// but one-sided ones, on host memory, and on CUDA memory those that reduce nothing, in
// every carrier.
//
// An endpoint listens, publishes its address, and connects to all others when it has
// theirs. Plans copy the caller's data into the staging memory of a command ring and
// post commands that send and receive it. Every message has a header that says which
// plan it is for and how long it is: ranks that disagree get an error.
package sockets

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
)

// Transport is the engine.
type Transport struct{}

const (
	direct   = "direct"
	maxWorld = 32

	// whose totals fit the arguments of a command, as a stream stores no words
	maxDeviceWorld = (plugin.MaxCommandArgs - 1) / 3

	chunk = 32 << 10 // bytes of one message, a multiple of every element size
)

// Info describes the transport.
func (Transport) Info() plugin.Info {
	return plugin.Info{
		Name: "sockets", Version: "1.0.0", Doc: "an engine for tests: TCP connections, no shared memory",
		Features: plugin.FeaturePlans | plugin.FeatureMultiHost | plugin.FeatureExchange | plugin.FeatureLengths,
		Memory:   []plugin.MemoryKind{plugin.MemoryKindHost, plugin.MemoryKindCuda},
	}
}

// Supports offers an algorithm for everything but one-sided operations.
func (Transport) Supports(req plugin.Request) plugin.Support {
	switch {
	case req.Memory == plugin.MemoryKindCuda && req.Collective.Reduces():
		return plugin.Support{Reason: "sockets reduces host memory only"}
	case req.Memory == plugin.MemoryKindCuda && req.World > maxDeviceWorld:
		return plugin.Support{Reason: "sockets serves up to " + strconv.Itoa(maxDeviceWorld) + " ranks on CUDA memory"}
	case req.World > maxWorld:
		return plugin.Support{Reason: "sockets serves up to " + strconv.Itoa(maxWorld) + " ranks"}
	case req.Collective.OneSided():
		return plugin.Support{Reason: "sockets has no plan for " + req.Collective.String()}
	}
	return plugin.Support{Algorithms: []plugin.Algorithm{{Name: direct, Latency: 30, Bandwidth: 500}}}
}

// card is the message that an endpoint publishes.
type card struct {
	Address string
	Key     []byte // a process that connects must have it
}

type endpoint struct {
	config   plugin.OpenConfig
	ring     *ring.Ring
	native   *native // nil: commands are posted by remote steps
	listener net.Listener
	key      []byte
	peers    []*peer // nil for this rank

	mu   sync.Mutex
	tags map[plan][]int64 // what each rank calls a plan in the headers of messages to it
	next int64            // this rank's own
}

// plan is the plan of a tag.
type plan struct {
	collective plugin.Collective
	dtype      plugin.DType
	op         plugin.Op
}

func planOf(req plugin.Request) plan { return plan{req.Collective, req.DType, req.Op} }

// options are the keys that Open takes.
var options = []string{"steps", "abort", "flaw"}

// Open makes the ring and listens. It exchanges nothing with peers.
func (Transport) Open(_ context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	if config.World > maxWorld {
		return nil, plugin.Errorf(plugin.Unsupported, "sockets serves up to %d ranks, the world has %d", maxWorld,
			config.World)
	}
	for name := range config.Options {
		if !slices.Contains(options, name) {
			return nil, plugin.Errorf(plugin.InvalidArgument, "sockets: unknown option %q; it has %v", name, options)
		}
	}
	e := &endpoint{config: config, key: make([]byte, 16), peers: make([]*peer, config.World), tags: map[plan][]int64{}}
	rand.Read(e.key)
	var err error
	if e.ring, err = ring.New(0, config.World, int64(stagingBytes(config.World))); err != nil {
		return nil, err
	}
	switch steps := config.Options["steps"]; steps {
	case "", "remote":
	case "native", "hasty":
		e.native = newNative(e.ring.Memory(), e.ring.Slots(), steps == "hasty")
	default:
		return nil, errors.Join(plugin.Errorf(plugin.InvalidArgument,
			"sockets: SHUNT_SOCKETS_STEPS=%s, want remote or native", steps), e.Close())
	}
	if e.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(plugin.Errorf(plugin.System, "sockets: %w", err), e.Close())
	}
	e.ring.Serve(e.do)
	open.Store(e, true)
	return e, nil
}

var open sync.Map // endpoints of this process

// Break cuts the connections of this process's endpoints, as a network may.
func Break() {
	open.Range(func(e, _ any) bool {
		for _, p := range e.(*endpoint).peers {
			if p != nil {
				_ = p.conn.(*net.TCPConn).CloseWrite()
				_ = p.conn.(*net.TCPConn).CloseRead()
			}
		}
		return true
	})
}

func (e *endpoint) Regions() []plugin.Region { return []plugin.Region{e.ring.Region()} }

func (e *endpoint) Images() []plugin.Image { return nil }

func (e *endpoint) Allocate(context.Context, uint32, int64) (plugin.Region, error) {
	return plugin.Region{}, plugin.Errorf(plugin.Unsupported, "sockets has no buffers")
}

func (e *endpoint) Free(context.Context, uint32) error {
	return plugin.Errorf(plugin.Unsupported, "sockets has no buffers")
}

// Publish gives the address at first, and for each plan this rank's tag for it.
func (e *endpoint) Publish(_ context.Context, x plugin.Exchange) ([]byte, error) {
	if x.Algorithm == "" {
		return json.Marshal(card{e.listener.Addr().String(), e.key})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	return json.Marshal(e.next)
}

// Connect connects to all peers at first, and keeps their tags for each plan.
func (e *endpoint) Connect(ctx context.Context, x plugin.Exchange, published [][]byte) error {
	if x.Algorithm == "" {
		cards := make([]card, len(published))
		for rank, b := range published {
			if err := json.Unmarshal(b, &cards[rank]); err != nil {
				return plugin.Errorf(plugin.Protocol, "sockets: rank %d published %q: %w", rank, b, err)
			}
		}
		return e.dial(ctx, cards)
	}
	tags := make([]int64, len(published))
	for rank, b := range published {
		if err := json.Unmarshal(b, &tags[rank]); err != nil {
			return plugin.Errorf(plugin.Protocol, "sockets: rank %d published %q: %w", rank, b, err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tags[planOf(x.Request)] = tags
	return nil
}

// Abort ends what waits for peers, unless SHUNT_SOCKETS_ABORT wants it to be wrong.
func (e *endpoint) Abort(reason string) {
	switch e.config.Options["abort"] {
	case "panic":
		panic("sockets: abort")
	case "ignore":
	case "hang":
		select {}
	default:
		e.ring.Abort(reason)
	}
}

// Close ends the commands, then the connections.
func (e *endpoint) Close() error {
	open.Delete(e)
	e.keep()
	var errs []error
	if e.ring != nil {
		errs = append(errs, e.ring.Close())
	}
	if e.native != nil {
		e.native.free()
	}
	if e.listener != nil {
		errs = append(errs, e.listener.Close())
	}
	for _, p := range e.peers {
		if p != nil {
			errs = append(errs, p.conn.Close())
		}
	}
	return errors.Join(errs...)
}
