package host_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// pinning is shm as an engine that has the caller's memory registered.
type pinning struct {
	shm.Transport
	*pins
}

// pins are the calls that the endpoints of pinning received.
type pins struct {
	sync.Mutex
	refuse error
	calls  int
	known  map[uint64]plugin.Memory
	wrong  []string
}

var pinned = pinning{pins: &pins{}}

func init() { host.Register(pinned) }

func (p pinning) Info() plugin.Info {
	i := p.Transport.Info()
	i.Name, i.Features = "pinning", i.Features|plugin.FeatureRegistration
	return i
}

func (p pinning) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := p.Transport.Open(ctx, c)
	return pinningEndpoint{e, p.pins}, err
}

type pinningEndpoint struct {
	plugin.Endpoint
	*pins
}

func (p *pins) Register(_ context.Context, m plugin.Memory) (uint64, error) {
	p.Lock()
	defer p.Unlock()
	if p.calls++; p.refuse != nil {
		return 0, p.refuse
	}
	for _, k := range p.known {
		if k.Address == m.Address || k.Generation == m.Generation {
			p.wrong = append(p.wrong, fmt.Sprintf("registered %+v beside %+v", m, k))
		}
	}
	p.known[uint64(p.calls)] = m
	return uint64(p.calls), nil
}

func (p *pins) Deregister(_ context.Context, key uint64) error {
	p.Lock()
	defer p.Unlock()
	if _, is := p.known[key]; !is {
		return plugin.Errorf(plugin.InvalidArgument, "key %d is of no registration", key)
	}
	delete(p.known, key)
	return nil
}

// lengths returns the lengths of the registrations.
func (p *pins) lengths() []int64 {
	p.Lock()
	defer p.Unlock()
	var list []int64
	for m := range maps.Values(p.known) {
		list = append(list, m.Bytes)
	}
	return slices.Sorted(slices.Values(list))
}

// pinnedWorld runs body on one rank over the transport, and returns what was logged.
func pinnedWorld(t *testing.T, refuse error, body func(c *host.Communicator) error) *logs {
	t.Helper()
	pinned.refuse, pinned.calls, pinned.known, pinned.wrong = refuse, 0, map[uint64]plugin.Memory{}, nil
	var l logs
	require.NoError(t, errors.Join(worldErrors(t, 1, func(rank int, o *host.Options) {
		l.of("")(rank, o)
		o.Transports, o.Algo = []string{"builtin:pinning"}, ""
	}, body)...))
	assert.Empty(t, pinned.wrong)
	assert.Empty(t, pinned.lengths(), "left when the endpoint was closed")
	return &l
}

// Host memory is registered when the user asks for it, as long as the longest of what is registered at its address, and
// until it was deregistered as often; the rest ends with the communicator.
func TestHostMemoryIsRegisteredByItsUser(t *testing.T) {
	x, y := make([]float32, 100), make([]float32, 100)
	l := pinnedWorld(t, nil, func(c *host.Communicator) error {
		for i, step := range []struct {
			do   func() error
			want []int64
		}{
			{func() error { return c.AllReduce(at(x), at(y), 100, plugin.Float32, plugin.OpSum, nil) }, nil},
			{func() error { return c.Register(at(x), 200) }, []int64{200}},
			{func() error { return c.Register(at(x), 100) }, []int64{200}},
			{func() error { return c.Register(at(x), 400) }, []int64{400}},
			{func() error { return c.Deregister(at(x)) }, []int64{400}},
			{func() error { return c.Deregister(at(x)) }, []int64{400}},
			{func() error { return c.Deregister(at(x)) }, nil},
			{func() error { return c.Deregister(at(x)) }, nil},
			{func() error { return c.Register(at(x), 300) }, []int64{300}},
			{func() error { return c.Register(at(y), 400) }, []int64{300, 400}},
		} {
			if err := step.do(); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			if got := pinned.lengths(); !slices.Equal(got, step.want) {
				return fmt.Errorf("step %d: registered are %v bytes, want %v", i, got, step.want)
			}
		}
		return nil
	})
	assert.Empty(t, l.lines("level=WARN"))
}

// A failure is a warning; an endpoint that never registers is asked once.
func TestHostMemoryThatIsNotRegistered(t *testing.T) {
	for code, c := range map[plugin.Code]struct{ calls, warnings int }{
		plugin.OutOfMemory: {2, 2}, plugin.Unsupported: {1, 0}, plugin.Timeout: {1, 1}} {
		x, y := make([]float32, 100), make([]float32, 100)
		l := pinnedWorld(t, plugin.Errorf(code, "no pages are left"), func(c *host.Communicator) error {
			return errors.Join(c.Register(at(x), 400), c.Register(at(y), 400), c.Deregister(at(x)), c.Deregister(at(y)))
		})
		assert.Equal(t, c.calls, pinned.calls, "%v", code)
		assert.Len(t, l.lines("level=WARN"), c.warnings, "%v", code)
		assert.NotEmpty(t, l.lines("no pages are left"))
	}
}
