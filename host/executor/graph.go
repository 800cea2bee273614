package executor

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// registry knows which graphs use which Device. The thread that destroys a graph only
// makes the driver queue the graph's token; Shunt looks at that queue when it
// makes or closes a Device, so nothing runs in the driver's callback.
//
// Tokens are the executor's: nothing else in a process may call RetainOnGraph
// or Released of a driver that Devices use.
//
// Order of locks: Device.mu, then registry.mu. Neither is held while something
// is freed.
var registry = struct {
	mu      sync.Mutex
	next    uint64
	owners  map[uint64]*Device   // by token
	uses    map[uint64]*GraphUse // by token
	devices map[*Device]bool     // that have resources; whether closed
	failed  []error              // of what was freed where no caller gets the error
}{owners: map[uint64]*Device{}, uses: map[uint64]*GraphUse{}, devices: map[*Device]bool{}}

// held is something to free once the graphs captured before it are gone and
// what was in streams has ended.
type held struct {
	until  uint64 // tokens up to this one
	number uint64 // of what the Device has held, from 1; see Device.ended
	free   func() error
}

const (
	closeWait = 2 * time.Second
	pollWait  = 20 * time.Microsecond
	lockWait  = 100 * time.Millisecond // what keeps a Device longer puts an operation into a stream, or loads kernels
)

func register(d *Device) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	registry.devices[d] = false
}

func markClosed(d *Device) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	registry.devices[d] = true
}

func unregister(d *Device) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	delete(registry.devices, d)
}

// Detached returns the number of closed Devices whose resources graphs, or work that
// has not ended, still hold.
func Detached() int {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	n := 0
	for _, closed := range registry.devices {
		if closed {
			n++
		}
	}
	return n
}

// Collect frees what closed Devices had to keep and graphs have released since.
// NewDevice and Close do it too, for their own GPU. It must not be called
// between launches that wait for each other on several GPUs: freeing can wait
// for a GPU.
func Collect() error { return takeErrors(collect(func(*Device) bool { return true })) }

// Later calls free once no operation or graph that this Device has been given so
// far can still be running or run again: at once where that is so, else from a
// later call of Tend, NewDevice, Later or Close for the same GPU, or of Collect, before
// the Device's own resources go; some of the operations that follow may have to end
// too. It is for memory that regions lie in. The error is free's if it was called.
func (d *Device) Later(free func() error) error {
	if d.hold(free) {
		return takeErrors(d.collect())
	}
	return free() // the Device's resources are gone, so nothing can run
}

// Tend frees what Later has queued and nothing uses any more. It must be called every now and then: a program that
// frees memory and then makes no call would keep it.
func (d *Device) Tend() error {
	registry.mu.Lock()
	queued := len(d.held) > 0
	registry.mu.Unlock()
	if !queued {
		return nil
	}
	return takeErrors(d.collect())
}

// hold queues free; it reports false where nothing can be running any more.
func (d *Device) hold(free func() error) bool {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if _, ok := registry.devices[d]; !ok {
		return false
	}
	d.held = append(d.held, held{registry.next, d.queued.Add(1), free})
	return true
}

// retain ties this Device to a graph and returns the token. d.mu is held.
func (d *Device) retain(g cuda.Graph) (uint64, error) {
	registry.mu.Lock()
	registry.next++
	token := registry.next
	registry.owners[token], d.live[token] = d, true
	registry.mu.Unlock()
	err := d.driver.RetainOnGraph(g, token)
	if err != nil {
		registry.mu.Lock()
		delete(registry.owners, token)
		delete(d.live, token)
		registry.mu.Unlock()
	}
	return token, err
}

// forget drops what is known about captures whose graphs are gone. d.mu is held.
func (d *Device) forget() {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for id, c := range d.order.captures {
		if !d.live[c.token] {
			if c.tail != 0 {
				d.order.spare = append(d.order.spare, c.tail)
			}
			delete(d.order.captures, id)
		}
	}
}

// collect frees what the Devices of one GPU have left and nothing uses. What other ranks of this process have left is
// theirs to free: freeing can wait for their GPU, which may be waiting for a launch that the caller makes next.
func (d *Device) collect() []error {
	return collect(func(other *Device) bool { return other.driver == d.driver && other.ordinal == d.ordinal })
}

// collect takes the tokens of graphs that are gone, and frees what nothing uses
// of some of the Devices.
func collect(of func(*Device) bool) []error {
	registry.mu.Lock()
	drivers := map[cuda.Driver]bool{}
	var candidates []*Device
	for d := range registry.devices {
		drivers[d.driver] = true
		if len(d.held) == 0 || !of(d) {
			continue
		}
		if d.freeing {
			d.again = true // the goroutine that is freeing looks again before it returns
			continue
		}
		d.freeing = true
		candidates = append(candidates, d)
	}
	for driver := range drivers {
		takeTokens(driver)
	}
	registry.mu.Unlock()

	var failed []error
	for _, d := range candidates {
		for {
			h, ok := d.nextFree()
			if !ok {
				break
			}
			if err := h.free(); err != nil {
				failed = append(failed, err)
			}
		}
	}
	return failed
}

// nextFree takes the first thing off the queue that nothing uses; if there is none, another goroutine may look from
// then on. A goroutine that came by meanwhile relies on this one to look once more: it may know of a graph that has
// gone since.
func (d *Device) nextFree() (held, bool) {
	for {
		h, ok, again := d.tryFree()
		if ok || !again {
			return h, ok
		}
	}
}

func (d *Device) tryFree() (h held, ok, again bool) {
	ready := func() bool { // the registry's lock is held
		if len(d.held) == 0 {
			return false
		}
		for token := range d.live {
			if token <= d.held[0].until {
				return false
			}
		}
		return true
	}
	registry.mu.Lock()
	d.again = false
	is := ready()
	if is {
		h = d.held[0]
	}
	registry.mu.Unlock()
	busy := false
	if is {
		is, busy = d.ended(h.number)
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if !is || !ready() {
		d.freeing = d.again && !busy // else whoever keeps the Device may be waiting for this goroutine
		return held{}, false, d.freeing
	}
	d.held = slices.Delete(d.held, 0, 1)
	return h, true, false
}

// Idle reports whether everything that was put into streams, other than by graphs, has ended. An operation that has
// not returned from Run has not. It waits for none.
func (d *Device) Idle() bool { return d.idle() }

func (d *Device) idle() bool {
	over, _ := d.ended(math.MaxUint64)
	return over
}

// ended reports whether the operations that the Device was given before it held something of this number have ended:
// the event behind them is over, or nothing is left in streams. busy: it is not known, as something keeps the Device.
func (d *Device) ended(number uint64) (over, busy bool) {
	if !d.lockSoon() {
		return false, true // native code, or a full stream, may keep it for ever: whoever ends that looks here first
	}
	defer d.mu.Unlock()
	return d.endedLocked(number), false
}

func (d *Device) endedLocked(number uint64) bool {
	if d.order.marking {
		done, err := d.driver.EventDone(d.ctx, d.order.mark)
		d.order.marking = !done || err != nil
	}
	if !d.order.used || number <= d.order.marked && !d.order.marking {
		return true
	}
	if !d.order.recorded { // the driver has failed
		if err := d.driver.RecordContext(d.ctx, d.order.tail); err != nil {
			return cuda.ResultOf(err).Sticky() // nothing runs in a broken context
		}
		d.order.recorded = true
	}
	done, err := d.driver.EventDone(d.ctx, d.order.tail)
	if err != nil {
		return cuda.ResultOf(err).Sticky()
	}
	if done {
		d.order.used, d.order.marking = false, false
	}
	return done
}

// lockSoon takes d.mu; false: something has kept it for lockWait.
func (d *Device) lockSoon() bool {
	deadline := time.Now().Add(lockWait)
	for !d.mu.TryLock() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pollWait)
	}
	return true
}

// await gives what is in streams a while to end.
func (d *Device) await() {
	deadline := time.Now().Add(closeWait)
	for wait := pollWait; !d.idle() && time.Now().Before(deadline); wait = min(2*wait, time.Millisecond) {
		time.Sleep(wait)
	}
}

func noteErrors(errs []error) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, err := range errs {
		if len(registry.failed) < 16 { // the first tell enough
			registry.failed = append(registry.failed, err)
		}
	}
}

// takeErrors joins errors with those that were noted.
func takeErrors(errs []error) error {
	registry.mu.Lock()
	errs = append(registry.failed, errs...)
	registry.failed = nil
	registry.mu.Unlock()
	if len(errs) < 2 {
		if len(errs) == 1 {
			return errs[0]
		}
		return nil
	}
	return &plugin.Error{Code: plugin.CodeOf(errs[0]), Rank: -1, Message: errors.Join(errs...).Error(),
		Cause: errors.Join(errs...)}
}
