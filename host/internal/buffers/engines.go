package buffers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/plugin"
)

// Engines registers the caller's memory with the transports that want it (plugin.Registrar). On CUDA memory it does so
// by itself: before an operation of such a transport is enqueued, what its buffers lie in is registered, on the call's
// own thread, as some engines retain the handles of what they register (see missed.go). What its owner has freed is
// deregistered by a goroutine within a second, or by the next operation at its address, before that is enqueued: an
// engine looks memory up by address, and would take new memory for the old. What a graph has captured stays until the
// graph is gone.
//
// On host memory malloc gives nothing an identity, so only what users register is registered.
//
// A registration is local. An engine that needs all ranks' memory registered alike can rely on the rule that the host
// registers whatever is passed, but not on more: one rank's Register may fail.
type Engines struct {
	*diagnosis.Observer
	gpu  GPU
	exec *executor.Device // nil for host memory

	// ending is held by calls of Registrar, of which there is one at a time, and while registrations are added or end. It
	// is taken before mu: operations whose memory is registered do not wait for an engine that ends something else.
	ending sync.Mutex

	mu      lockorder.Mutex
	list    []*engine
	begun   uint64 // operations of engines so far
	ended   uint64 // of which so many have been enqueued
	idle    uint64 // and so many have ended
	mark    cuda.Event
	marked  uint64            // operations that mark stands behind; 0: it is not recorded
	crowded bool              // registrations wait for the end of operations
	asked   map[cuda.Ptr]int  // CUDA memory that the user has registered; the first operation does it
	made    uint64            // generations of host memory
	held    map[cuda.Ptr]*own // host memory, by address
}

// Engine is a transport's endpoint that registers memory. Base names it, as in plans.Transport.
type Engine struct {
	Name      string
	Base      uint32
	Registrar plugin.Registrar
}

// engine is an Engine and its registrations.
type engine struct {
	Engine
	off    bool // it registers nothing
	known  []*registration
	failed map[allocation]bool // allocations that it could not register
	late   []late              // host memory whose end has timed out
	told   bool                // that a registration could not be ended
}

// registration is memory that an engine knows: an allocation, or pieces that were mapped by handle.
type registration struct {
	key     uint64
	memory  export  // of which only base, bytes, pieces and ids are used
	used    uint64  // the last operation that used it
	leaving bool    // operations to come do not use it, unless they have nothing else
	broken  bool    // some of its memory is gone
	ending  bool    // its end is tried, or was, and may come yet
	graphs  []inUse // that have captured operations which use it
}

// inUse is a graph, by the number of its capture.
type inUse struct {
	capture uint64
	graph   *executor.GraphUse
}

// own is host memory that the user has registered, so many times.
type own struct {
	bytes int64
	times int
	keys  map[*engine]uint64
}

// late is a registration of host memory that is to end, and has not yet.
type late struct {
	key    uint64
	memory span
}

// registerTime bounds a call of an engine.
const registerTime = 5 * time.Second

// registrationLimit is the number of registrations of one engine from where on those that were not used for longest
// give way.
var registrationLimit = 1024

// NewEngines returns nil where there is no engine. exec is nil for host memory, and gpu without meaning then.
func NewEngines(o *diagnosis.Observer, gpu GPU, exec *executor.Device, list []Engine) *Engines {
	if len(list) == 0 {
		return nil
	}
	t := &Engines{Observer: o, gpu: gpu, exec: exec, asked: map[cuda.Ptr]int{}, held: map[cuda.Ptr]*own{},
		mu: lockorder.Mutex{Level: lockorder.Buffers}}
	for _, e := range list {
		t.list = append(t.list, &engine{Engine: e, failed: map[allocation]bool{}})
	}
	return t
}

// of returns the engine of a plan's base, or nil.
func (t *Engines) of(base uint32) *engine {
	if t == nil {
		return nil
	}
	for _, e := range t.list {
		if e.Base == base {
			return e
		}
	}
	return nil
}

// Before registers the memory of an operation whose plan is of the endpoint at base. After follows, whether the
// operation was enqueued or not, but not after an error of Before: that an engine would take the memory for other
// memory, which is rare.
func (t *Engines) Before(base uint32, call *call.Call, stream cuda.Stream) error {
	if t.of(base) == nil {
		return nil
	}
	memory := wholeSpans(call)
	return t.before(base, stream, memory[:])
}

// BeforeRounds is Before for rounds of messages, whose displacements are addresses.
func (t *Engines) BeforeRounds(base uint32, rounds []executor.DeviceLaunch, stream cuda.Stream) error {
	if t.of(base) == nil {
		return nil
	}
	return t.before(base, stream, t.roundSpans(rounds))
}

// wholeSpans returns the memory of a call.
func wholeSpans(call *call.Call) [2]span {
	return [2]span{
		{cuda.Ptr(uintptr(call.Send)), call.Slots[plugin.SlotSendBytes]},
		{cuda.Ptr(uintptr(call.Recv)), call.Slots[plugin.SlotRecvBytes]},
	}
}

func (t *Engines) roundSpans(rounds []executor.DeviceLaunch) (list []span) {
	for i := range rounds {
		arrays := rounds[i].Arguments.Arrays
		for side := range 2 {
			bytes, at := arrays[2*side*t.World:], arrays[(2*side+1)*t.World:]
			for rank := range t.World {
				list = append(list, span{cuda.Ptr(at[rank]), bytes[rank]})
			}
		}
	}
	return list
}

func (t *Engines) before(base uint32, stream cuda.Stream, memory []span) error {
	t.mu.Lock()
	t.begun++
	e := t.of(base)
	known := true
	for i := range memory {
		known = known && t.use(e, memory, i)
	}
	t.mu.Unlock()
	if known {
		return nil
	}
	t.ending.Lock()
	defer t.ending.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, s := range memory {
		if t.use(e, memory, i) {
			continue
		}
		if err := t.register(e, s, stream); err != nil {
			t.ended = t.begun
			return err
		}
	}
	return nil
}

// use notes that the operation which begins uses the registration of its memory i; false: there may have to be one, and
// there is none. t.mu is held.
func (t *Engines) use(e *engine, memory []span, i int) bool {
	s := memory[i]
	if s.bytes <= 0 || s.base == 0 || e.off && len(e.known) == 0 || i > 0 && s == memory[i-1] { // in place
		return true
	}
	r := e.find(s)
	if r == nil || !t.still(r, s) {
		return false
	}
	r.used, r.leaving = t.begun, r.broken
	return true
}

// After ends what Before or BeforeRounds has begun. An operation that was captured keeps what it uses.
func (t *Engines) After(base uint32, call *call.Call, stream cuda.Stream) {
	if t.of(base) != nil {
		memory := wholeSpans(call)
		t.after(base, stream, memory[:])
	}
}

// AfterRounds is After for rounds of messages.
func (t *Engines) AfterRounds(base uint32, rounds []executor.DeviceLaunch, stream cuda.Stream) {
	if t.of(base) != nil {
		t.after(base, stream, t.roundSpans(rounds))
	}
}

func (t *Engines) after(base uint32, stream cuda.Stream, memory []span) {
	captured := t.exec.Capturing()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = t.begun
	switch {
	case captured:
		t.capture(t.of(base), stream, memory)
	case t.crowded && t.marked == 0:
		if t.mark == 0 {
			event, err := t.gpu.Driver.NewEvent(t.gpu.Context, false)
			if err != nil {
				return // it is looked at when the device is idle
			}
			t.mark = event
		}
		if t.gpu.Driver.Record(t.gpu.Context, t.mark, stream) == nil {
			t.marked = t.ended
		}
	}
}

// capture ties registrations to the graph that an operation was captured into. t.mu is held.
func (t *Engines) capture(e *engine, stream cuda.Stream, memory []span) {
	info, err := t.gpu.Driver.CaptureInfo(t.gpu.Context, stream)
	if err != nil || info.Status != cuda.CaptureActive {
		return // the capture has failed since
	}
	for _, s := range memory {
		r := e.find(s)
		if s.bytes <= 0 || r == nil || slices.ContainsFunc(r.graphs, func(u inUse) bool { return u.capture == info.ID }) {
			continue
		}
		use, err := executor.UseGraph(t.gpu.Driver, info.Graph)
		if err != nil {
			t.Logger.Warn("memory that a graph has captured stays registered", "communicator", t.Label, "rank", t.Rank,
				"transport", e.Name, "address", uint64(r.memory.base), "reason", err)
		}
		r.graphs = append(r.graphs, inUse{info.ID, use}) // nil: for good
	}
}

// find returns the registration that operations use for an address range, or nil. One on its way out stays for them.
func (e *engine) find(s span) (found *registration) {
	for _, r := range e.known {
		if r.ending || !r.memory.holds(s.base, s.bytes) {
			continue
		}
		if found = r; !r.leaving {
			return r
		}
	}
	return found
}

// still reports whether a registration stands for what an address range, part of it, is now.
func (t *Engines) still(r *registration, s span) bool {
	from, to := r.memory.spanned(s.base, s.bytes)
	return !t.gpu.freed(r.memory.pieces[from:to], r.memory.ids[from:to])
}

func (r *registration) whole() span { return span{r.memory.base, r.memory.bytes} }

// captured reports whether a graph may replay what uses a registration.
func (r *registration) captured() bool {
	r.graphs = slices.DeleteFunc(r.graphs, func(u inUse) bool { return u.graph != nil && u.graph.Gone() })
	return len(r.graphs) > 0
}

// register makes an engine know what an address range lies in. t.ending and t.mu are held.
func (t *Engines) register(e *engine, s span, stream cuda.Stream) error {
	if err := t.endStale(e, s); err != nil {
		return err
	}
	info, err := t.gpu.Driver.Pointer(t.gpu.Context, s.base)
	if err != nil || info.Kind != cuda.PointerDevice || info.Managed || info.Device != t.gpu.Ordinal {
		return nil // engines have their own ways with other memory
	}
	if e.off || e.failed[allocation{info.BufferID, info.Base}] {
		return nil
	}
	if c, err := t.gpu.Driver.CaptureInfo(t.gpu.Context, stream); err != nil || c.Status != cuda.CaptureNone {
		return nil
	}
	r := &registration{memory: t.extent(info, s), used: t.begun}
	if err := t.endStale(e, r.whole()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerTime)
	defer cancel()
	r.key, err = e.Registrar.Register(ctx, plugin.Memory{Address: uint64(r.memory.base), Bytes: r.memory.bytes,
		Kind: plugin.MemoryKindCuda, Generation: max(info.BufferID, 1)})
	if err != nil {
		t.notRegistered(e, uint64(r.memory.base), r.memory.bytes, err)
		if len(e.failed) >= maxFailures {
			clear(e.failed)
		}
		e.failed[allocation{info.BufferID, info.Base}] = true
		return nil
	}
	for _, old := range e.known { // a segment has grown
		if r.memory.holds(old.memory.base, old.memory.bytes) {
			old.leaving, t.crowded = true, true
		}
	}
	e.known = append(e.known, r)
	t.crowded = t.crowded || len(e.known) > registrationLimit
	return nil
}

// notRegistered notes that an engine has not registered memory.
func (t *Engines) notRegistered(e *engine, address uint64, bytes int64, err error) {
	switch plugin.CodeOf(err) {
	case plugin.Unsupported:
		e.off = true
		t.Logger.Info("a transport does not register the caller's memory", "communicator", t.Label, "rank", t.Rank,
			"transport", e.Name, "reason", err)
	default:
		e.off = plugin.CodeOf(err) == plugin.Timeout // it is stuck
		t.Logger.Warn("memory could not be registered with a transport, and is used without", "communicator", t.Label,
			"rank", t.Rank, "transport", e.Name, "address", address, "bytes", bytes, "reason", err)
	}
}

// longestRun bounds the memory by handle that is registered on either side of an operation's.
const longestRun = 512 * leastPiece

// extent returns the memory that an address range is part of: its allocation; of memory by handle, all that is mapped
// in one stretch around it, as far as it is of one reservation. Nothing is retained.
func (t *Engines) extent(info cuda.PointerInfo, s span) export {
	if !info.Shareable {
		return export{base: info.Base, bytes: info.Bytes, pieces: []cuda.Ptr{info.Base}, ids: []uint64{info.BufferID}}
	}
	at := func(p cuda.Ptr) (cuda.PointerInfo, bool) {
		i, err := t.gpu.Driver.Pointer(t.gpu.Context, p)
		return i, err == nil && i.Kind == cuda.PointerDevice && i.Shareable && i.Device == t.gpu.Ordinal
	}
	within := func(i cuda.PointerInfo) cuda.Ptr { return i.Base + cuda.Ptr(i.Bytes) } // its end
	begin, end := max(s.base&^(leastPiece-1), info.Base), s.base+cuda.Ptr(s.bytes)
	for least := max(begin, longestRun) - longestRun; begin > least; begin = max(begin-leastPiece, info.Base) {
		if i, is := at(begin - 1); !is || i.Base != info.Base {
			break
		}
	}
	if i, is := at(end - 1); is {
		end = min((end+leastPiece-1)&^(leastPiece-1), within(i))
	}
	for most := end + longestRun; end < min(most, within(info)); end += leastPiece {
		if i, is := at(end); !is || i.Base != info.Base {
			break
		}
	}
	m := export{base: begin, bytes: int64(end - begin)}
	for p := begin; p < end; {
		i, is := at(p)
		if n := len(m.ids); is && (n == 0 || m.ids[n-1] != i.BufferID) {
			m.pieces, m.ids = append(m.pieces, p), append(m.ids, i.BufferID)
		}
		if p += leastPiece; is {
			p = min(p, within(i))
		}
	}
	return m
}

// idleTime is the longest time that a call waits for operations before it on memory that was partly mapped anew.
const idleTime = time.Second

// endStale ends the registrations that overlap a range and some of whose memory is gone: an engine may find any of them
// by an address that new memory has by now. t.mu is held.
func (t *Engines) endStale(e *engine, s span) error {
	for _, r := range slices.Clone(e.known) {
		if r.whole().overlaps(s) && (r.broken || !t.still(r, r.whole())) {
			if err := t.end(e, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// end takes a registration back whose memory is gone, in the way of a call that is given other memory there. What still
// runs on another part of it is awaited. t.mu is held.
func (t *Engines) end(e *engine, r *registration) error {
	r.leaving, r.broken = true, true
	if len(r.memory.pieces) > 1 {
		for until := time.Now().Add(idleTime); !t.exec.Idle(); time.Sleep(20 * time.Microsecond) {
			if time.Now().After(until) {
				return plugin.Errorf(plugin.Device, "memory at %#x was mapped anew while operations run on other parts of its %d bytes, which transport %s has registered; wait for them before memory is unmapped",
					uint64(r.memory.base), r.memory.bytes, e.Name)
			}
		}
	}
	if err := t.drop(e, r); err != nil {
		return plugin.Errorf(plugin.CodeOf(err), "memory at %#x, which was freed, is still registered with transport %s: %w",
			uint64(r.memory.base), e.Name, err)
	}
	return nil
}

// drop ends a registration. It stays, for another try, if the engine had no time. t.ending and t.mu are held, but t.mu
// not while the engine is called.
func (t *Engines) drop(e *engine, r *registration) error {
	r.leaving, r.ending = true, true
	t.mu.Unlock()
	err := t.deregister(e, r.key)
	t.mu.Lock()
	if plugin.CodeOf(err) == plugin.Timeout {
		return err
	}
	e.known = slices.DeleteFunc(e.known, func(k *registration) bool { return k == r })
	return nil
}

// deregister calls an engine. t.ending is held.
func (t *Engines) deregister(e *engine, key uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), registerTime)
	defer cancel()
	err := e.Registrar.Deregister(ctx, key)
	if err != nil && !e.told {
		e.told = true
		t.Logger.Warn("a registration of memory with a transport could not be ended", "communicator", t.Label, "rank", t.Rank,
			"transport", e.Name, "reason", err)
	}
	return err
}
