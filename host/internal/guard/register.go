package guard

import (
	"context"
	"fmt"
	"sync"

	"github.com/shunt-ccl/shunt/plugin"
)

// registrations are what an endpoint knows of memory, by keys of the guard's own: the endpoint may hand a key of its
// own out again as soon as Deregister has returned, also where that comes too late and the caller ends the same
// registration once more.
type registrations struct {
	mu   sync.Mutex
	last uint64
	list map[uint64]registration
}

type registration struct {
	key   uint64 // the endpoint's
	ended bool   // by a Deregister that came too late,
	err   error  // with this result
}

// Register tells the endpoint of memory. A registration that comes too late is ended again.
func (e *Endpoint) Register(ctx context.Context, m plugin.Memory) (uint64, error) {
	what := fmt.Sprintf("register %d bytes at %#x%s", m.Bytes, m.Address, e.where)
	key, err := call(ctx, &e.registering, what, func() (uint64, error) {
		r, err := e.registrar()
		if err != nil {
			return 0, err
		}
		return r.Register(ctx, m)
	}, func(key uint64, err error) {
		if r, none := e.registrar(); err == nil && none == nil {
			_ = r.Deregister(context.Background(), key)
		}
	})
	if err != nil {
		return 0, err
	}
	return e.known.add(key), nil
}

// Deregister ends a registration. After one that came too late the next returns its result, and does not call the
// endpoint.
func (e *Endpoint) Deregister(ctx context.Context, key uint64) error {
	have, is := e.known.of(key)
	if !is {
		return plugin.Errorf(plugin.InvalidArgument, "%s: key %d is of no registration", e.gate.who, key)
	}
	if have.ended {
		e.known.remove(key)
		return have.err
	}
	_, err := call(ctx, &e.registering, fmt.Sprintf("deregister memory%s", e.where), func() (none, error) {
		r, err := e.registrar()
		if err != nil {
			return none{}, err
		}
		return none{}, r.Deregister(ctx, have.key)
	}, func(_ none, err error) { e.known.ended(key, err) })
	if plugin.CodeOf(err) != plugin.Timeout { // after which it is called again
		e.known.remove(key)
	}
	return err
}

func (e *Endpoint) registrar() (plugin.Registrar, error) {
	r, ok := e.inner.(plugin.Registrar)
	if !ok {
		return nil, plugin.Errorf(plugin.Unsupported, "%s has feature %s and its endpoint no methods Register and Deregister",
			e.gate.who, plugin.FeatureRegistration)
	}
	return r, nil
}

func (r *registrations) add(key uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		r.list = map[uint64]registration{}
	}
	r.last++
	r.list[r.last] = registration{key: key}
	return r.last
}

func (r *registrations) of(key uint64) (have registration, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, is = r.list[key]
	return have, is
}

func (r *registrations) remove(key uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.list, key)
}

// ended notes what came too late.
func (r *registrations) ended(key uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, is := r.list[key]; is && plugin.CodeOf(err) != plugin.Timeout {
		r.list[key] = registration{ended: true, err: err}
	}
}
