package executor

/*
#include "proxy.h"
*/
import "C"

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/pinned"
	"github.com/shunt-ccl/shunt/plugin"
)

// commandImage is the image of command.cu, which kernels/compile makes.
//
//go:embed kernels/command.fatbin
var commandImage []byte

// CommandKernel is the name of the kernel that posts commands.
const CommandKernel = "shunt_command"

// ownImages is a base that no endpoint has, for the executor's own image.
const ownImages = MaxEntries

// proxy runs the engine steps of a Device's plans: started native steps, and commands for the rings of plugins. A
// kernel in the stream posts each, and waits until it is done; see kernels/command.h and proxy.h. It is made with the
// first plan that needs it.
type proxy struct {
	c        *C.sx_proxy
	ring     cuda.HostMemory
	counters cuda.Ptr
	kernel   cuda.Function
}

// stopWait is the time that a request has to end once it was told to stop.
const stopWait = time.Second

// engines reports whether a plan has engine steps, and refuses those that a stream cannot order.
func (d *Device) engines(p *plugin.Plan) (bool, error) {
	has := false
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind != plugin.StepRemote && (s.Kind != plugin.StepNative || p.Natives[s.A].Start == 0) {
			continue
		}
		has = true
		// Streams may share a queue of the GPU, where a kernel that waits holds up those behind it: were a command of
		// another track among them, two ranks could wait for each other.
		if len(p.Tracks) > 1 {
			return true, d.refuse(plugin.Unsupported, "plan %s: step %d (%s) is an engine step in a plan of %d tracks, want one track on a stream",
				p.Algorithm, i, s.Kind, len(p.Tracks))
		}
	}
	return has, nil
}

// startProxy makes the proxy. d.mu is held.
func (d *Device) startProxy() (err error) {
	if d.proxy != nil {
		return nil
	}
	p := &proxy{}
	defer func() {
		if err != nil {
			_ = p.free(d) // what failed is the error
			err = d.wrap("starting the proxy of engine steps", err)
		}
	}()
	d.images[imageName{ownImages, "command"}] = plugin.Image{Name: "command", Data: commandImage}
	module, err := d.module(ownImages, "command")
	if err != nil {
		return err
	}
	if p.kernel, err = d.driver.Function(d.ctx, module, CommandKernel, 0); err != nil {
		return err
	}
	if p.ring, err = pinned.Alloc(d.driver, d.ctx, C.SHUNT_COMMANDS*C.sizeof_shunt_command_slot); err != nil {
		return err
	}
	if p.counters, err = d.driver.Alloc(d.ctx, C.sizeof_shunt_command_counters); err != nil {
		return err
	}
	if err = cuda.Clear(d.driver, d.ctx, p.counters, C.sizeof_shunt_command_counters); err != nil {
		return err
	}
	p.c = C.sx_proxy_new(C.uintptr_t(p.ring.Address), C.uintptr_t(d.word.Address), C.int32_t(d.world), C.int64_t(stopWait))
	if p.c == nil {
		return plugin.Errorf(plugin.OutOfMemory, "cannot create the thread")
	}
	d.abortMu.Lock()
	defer d.abortMu.Unlock()
	d.proxy = p
	return nil
}

// free ends the proxy. Where native code has not returned, its memory stays.
func (p *proxy) free(d *Device) error {
	if p == nil {
		return nil
	}
	if p.c != nil && C.sx_proxy_free(p.c) != 0 {
		return plugin.Errorf(plugin.Timeout, "native code of a transport has not returned; its thread is lost")
	}
	var first error
	if p.counters != 0 {
		first = d.driver.Free(d.ctx, p.counters)
	}
	if p.ring.Address != 0 {
		if err := pinned.Free(d.driver, d.ctx, p.ring); first == nil {
			first = err
		}
	}
	return first
}

// command puts the kernel of an engine step into the stream.
func (r *deviceRun) command(s *plugin.Step) *Failure {
	frame, d := r.p.frame, r.d
	order := C.shunt_order{base: C.shunt_word(r.p.base), count: C.shunt_word(s.N)}
	if s.Kind == plugin.StepNative {
		n := &r.p.plan.Natives[s.A]
		order.start, order.poll, order.context = C.shunt_word(n.Start), C.shunt_word(n.Poll), C.shunt_word(n.Context)
		order.send, order.recv = C.shunt_word(uintptr(r.a.Send)), C.shunt_word(uintptr(r.a.Recv))
	} else {
		ring, slots, f := r.ring(s)
		if f != nil {
			return f
		}
		order.poll, order.context, order.operation = C.shunt_word(ring), C.shunt_word(slots), C.shunt_word(frame[s.A])
	}
	for i := range s.N {
		order.args[i] = C.shunt_word(frame[r.p.plan.Args[s.B+i].Value])
	}
	if !r.started {
		r.start()
	}
	at, params := d.room(C.sizeof_shunt_command_args)
	for i, word := range []uint64{uint64(d.proxy.ring.Device), uint64(d.proxy.counters), uint64(d.word.Device)} {
		binary.NativeEndian.PutUint64(params[8*i:], word)
	}
	copy(params[C.sizeof_shunt_command_args-C.sizeof_shunt_order:],
		unsafe.Slice((*byte)(unsafe.Pointer(&order)), C.sizeof_shunt_order))
	d.put(cuda.Work{
		Kind: cuda.WorkLaunch, Stream: r.stream, Handle: uint64(d.proxy.kernel), Grid: [3]uint32{1, 1, 1},
		Block: [3]uint32{1, 1, 1}, Params: at, ParamBytes: C.sizeof_shunt_command_args,
	})
	d.posting = true
	return nil
}

// ring returns the ring of a remote step, where this process has mapped it, and how many commands it holds.
func (r *deviceRun) ring(s *plugin.Step) (address uintptr, slots int64, f *Failure) {
	slots = r.p.frame[s.C]
	if slots < 1 || slots > plugin.MaxRingSlots {
		return 0, 0, r.failure(plugin.Internal, -1, "a ring of %d commands, want 1 to %d", slots, plugin.MaxRingSlots)
	}
	at, f := r.address(s.Dst, C.sizeof_shunt_ring+slots*(C.sizeof_shunt_ring_command+4))
	if f != nil {
		return 0, 0, f
	}
	m, f := r.region(&r.p.plan.Refs[s.Dst])
	if f != nil {
		return 0, 0, f
	}
	if m.local == 0 {
		return 0, 0, r.failure(plugin.Protocol, -1, "%s has no role local, which a ring of commands must have",
			r.what(&r.p.plan.Refs[s.Dst]))
	}
	address = m.local + uintptr(at-uint64(m.address))
	if address%8 != 0 {
		return 0, 0, r.failure(plugin.Internal, -1, "the ring in %s is not aligned to 8 bytes", r.what(&r.p.plan.Refs[s.Dst]))
	}
	return address, slots, nil
}

// SetLocal is like SetRegion, for memory of this rank's process at an address of its own: a region of role local.
func (d *Device) SetLocal(base, id uint32, address cuda.Ptr, local unsafe.Pointer, bytes int64) error {
	return d.setRegion(base, id, d.rank, deviceRegion{address: address, local: uintptr(local), bytes: bytes, set: true})
}

// wake tells the proxy that an operation with engine steps was put into a stream. d.mu is held.
func (d *Device) wake() {
	if d.posting && d.proxy != nil {
		C.sx_proxy_wake(d.proxy.c)
	}
}

// EngineFailure returns why an engine step has failed, and the base of the endpoint whose plan it was of; nil if none
// has. After FaultEngine without one the proxy has not responded to a kernel.
func (d *Device) EngineFailure() (f *Failure, base uint32) {
	d.abortMu.Lock()
	defer d.abortMu.Unlock()
	if d.proxy == nil {
		return nil, 0
	}
	c := C.sx_proxy_failed(d.proxy.c)
	if c == nil {
		return nil, 0
	}
	f = &Failure{Launch: -1, Track: -1, Step: -1, Rank: int(c.rank), Origin: -1}
	what := "command"
	if c.native != 0 {
		what = "native function"
	}
	f.own(what, plugin.Code(c.status), C.GoString(&c.message[0]))
	return f, uint32(c.base)
}

// AwaitEngines waits until no engine step is in progress. The kernels of all have ended: an aborted request has
// stopWait to end.
func (d *Device) AwaitEngines() {
	for end := time.Now().Add(2 * stopWait); d.engineBusy() && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
}

func (d *Device) engineBusy() bool {
	d.abortMu.Lock()
	defer d.abortMu.Unlock()
	return d.proxy != nil && C.sx_proxy_busy(d.proxy.c) != 0
}

// EngineStuck returns the base of an endpoint whose request was told to stop and has not ended: the endpoint cannot be
// closed.
func (d *Device) EngineStuck() (base uint32, stuck bool) {
	d.abortMu.Lock()
	defer d.abortMu.Unlock()
	if d.proxy == nil {
		return 0, false
	}
	n := uint64(C.sx_proxy_stuck(d.proxy.c))
	return uint32(n - 1), n != 0
}

// engineTitle names an engine step among the works of a plan.
func engineTitle(s *plugin.Step, i, track int) string {
	what := "a command"
	if s.Kind == plugin.StepNative {
		what = "an engine's operation"
	}
	return fmt.Sprintf("%s (step %d of track %d)", what, i, track)
}
