package buffers

import (
	"cmp"
	"context"
	"slices"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// lookPeriod is the time between two looks of Keep; within lookTicks of them it asks the driver about all
// registrations.
const (
	lookPeriod = 50 * time.Millisecond
	lookTicks  = 10
	lookLeast  = 64
)

// Keep runs until the context ends. It ends the registrations of freed memory, and those over the limit.
func (t *Engines) Keep(ctx context.Context) {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if t.Failure.Reason() == nil {
			next = t.look(next)
		}
	}
}

// look checks the registrations from number next on, over all engines, and returns the number at which it has stopped.
func (t *Engines) look(next int) int {
	t.ending.Lock()
	defer t.ending.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*registration
	for _, e := range t.list {
		all = append(all, e.known...)
	}
	if len(all) == 0 {
		return 0
	}
	t.settle()
	pieces := 0
	for _, r := range all {
		pieces += len(r.memory.pieces)
	}
	for budget := min(pieces, max(lookLeast, (pieces+lookTicks-1)/lookTicks)); budget > 0; next++ {
		next %= len(all)
		r := all[next]
		budget -= len(r.memory.pieces)
		if !t.still(r, r.whole()) {
			r.leaving, r.broken = true, true
		}
	}
	t.crowded = false
	for _, e := range t.list {
		t.thin(e)
	}
	return next
}

// settle finds out which operations have ended. t.mu is held.
func (t *Engines) settle() {
	ended := t.ended
	if t.begun == ended && t.exec.Idle() {
		t.idle = ended
	}
	if t.marked == 0 {
		return
	}
	if done, err := t.gpu.Driver.EventDone(t.gpu.Context, t.mark); done || err != nil {
		if err == nil {
			t.idle = max(t.idle, t.marked)
		}
		t.marked = 0
	}
}

// thin marks the least recently used registrations of an engine over the limit, and ends the marked ones that no
// operation uses. t.ending and t.mu are held, but t.mu not all the time.
func (t *Engines) thin(e *engine) {
	staying := slices.DeleteFunc(slices.Clone(e.known), func(r *registration) bool { return r.leaving })
	free := slices.DeleteFunc(slices.Clone(staying), func(r *registration) bool { return r.captured() })
	slices.SortFunc(free, func(a, b *registration) int { return cmp.Compare(a.used, b.used) })
	for _, r := range free[:max(0, min(len(free), len(staying)-registrationLimit))] {
		r.leaving = true
	}
	for _, r := range slices.Clone(e.known) {
		switch {
		case !r.leaving || r.captured():
		case r.used > t.idle || t.drop(e, r) != nil:
			t.crowded = true
		}
	}
}

// Ask notes that the user has registered CUDA memory: the first operation registers it.
func (t *Engines) Ask(p cuda.Ptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[p]++
}

// Forget ends the registrations that contain an address, once the operations so far have ended. found says whether the
// user had registered it, or an engine.
func (t *Engines) Forget(p cuda.Ptr) (found bool) {
	if t == nil {
		return false
	}
	t.ending.Lock()
	defer t.ending.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if found = t.asked[p] > 0; found {
		if t.asked[p]--; t.asked[p] == 0 {
			delete(t.asked, p)
		}
	}
	for _, e := range t.list {
		for _, r := range e.known {
			if !r.leaving && r.memory.holds(p, 1) {
				r.leaving, found = true, true
			}
		}
		if found {
			t.settle()
			t.thin(e)
		}
	}
	return found
}

// atHost calls do, with t.ending and t.mu held, with an address of the user's and the host memory that is registered
// there, or nil. Without engines it does nothing.
func (t *Engines) atHost(p unsafe.Pointer, do func(at cuda.Ptr, have *own)) {
	if t == nil {
		return
	}
	t.ending.Lock()
	defer t.ending.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	at := cuda.Ptr(uintptr(p))
	do(at, t.held[at])
}

// RegisterHost registers host memory of the user's with all engines. No operation runs.
func (t *Engines) RegisterHost(p unsafe.Pointer, bytes int64) {
	t.atHost(p, func(at cuda.Ptr, have *own) {
		if have == nil {
			have = &own{keys: map[*engine]uint64{}}
			t.held[at] = have
		}
		have.times++
		if bytes <= have.bytes {
			return
		}
		t.endHost(at, have)
		have.bytes = bytes
		t.made++
		for _, e := range t.list {
			if !e.off {
				t.registerHost(e, at, have)
			}
		}
	})
}

// registerHost registers host memory with an engine. t.mu is held.
func (t *Engines) registerHost(e *engine, at cuda.Ptr, have *own) {
	if slices.ContainsFunc(e.late, func(l late) bool { return l.memory.overlaps(span{at, have.bytes}) }) {
		t.notRegistered(e, uint64(at), have.bytes, plugin.Errorf(plugin.System,
			"an earlier registration of memory there has not ended yet"))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerTime)
	defer cancel()
	key, err := e.Registrar.Register(ctx, plugin.Memory{Address: uint64(at), Bytes: have.bytes,
		Kind: plugin.MemoryKindHost, Generation: t.made})
	if err != nil {
		t.notRegistered(e, uint64(at), have.bytes, err)
		return
	}
	have.keys[e] = key
}

// endHost ends the registrations of host memory at an address, and those whose end has timed out. t.mu is held.
func (t *Engines) endHost(at cuda.Ptr, o *own) {
	for _, e := range t.list {
		if key, registered := o.keys[e]; registered {
			e.late = append(e.late, late{key, span{at, o.bytes}})
		}
		e.late = slices.DeleteFunc(e.late, func(l late) bool {
			return plugin.CodeOf(t.deregister(e, l.key)) != plugin.Timeout // it logs its error
		})
	}
	clear(o.keys)
}

// DeregisterHost undoes one RegisterHost at an address.
func (t *Engines) DeregisterHost(p unsafe.Pointer) {
	t.atHost(p, func(at cuda.Ptr, have *own) {
		if have == nil {
			return
		}
		if have.times--; have.times == 0 {
			t.endHost(at, have)
			delete(t.held, at)
		}
	})
}

// End takes all registrations back of the endpoint at base, which is about to be closed: nothing uses it any more.
func (t *Engines) End(base uint32) {
	e := t.of(base)
	if e == nil {
		return
	}
	t.ending.Lock()
	defer t.ending.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range e.known {
		_ = t.deregister(e, r.key) // closing the endpoint ends the rest
	}
	e.known, e.off = nil, true
	for _, o := range t.held {
		if key, registered := o.keys[e]; registered {
			e.late = append(e.late, late{key: key})
			delete(o.keys, e)
		}
	}
	for _, l := range e.late {
		_ = t.deregister(e, l.key) // likewise
	}
	e.late = nil
}

// Close releases what belongs to the device. Keep has ended, and no operation follows.
func (t *Engines) Close() error {
	if t == nil || t.mark == 0 {
		return nil
	}
	mark := t.mark
	t.mark = 0
	return t.gpu.Driver.DestroyEvent(t.gpu.Context, mark)
}
