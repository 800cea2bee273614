package cudatest

// #cgo CFLAGS: -I${SRCDIR}/../../plugin
// #include "shunt_transport.h"
// static int call(uintptr_t f, uintptr_t context, const void *registers, uintptr_t send, uintptr_t recv,
//                 uintptr_t stream, shunt_native_report *report) {
//   return ((shunt_native_fn)f)((void *)context, registers, (void *)send, (void *)recv, (void *)stream, report);
// }
import "C"

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// LaunchKernels puts kernels into a stream. The argument blocks are copied.
func (d *Driver) LaunchKernels(ctx cuda.Context, s cuda.Stream, launches []cuda.Launch) (int, error) {
	if err := d.in(ctx, "LaunchKernels", "cuLaunchKernelEx of launch 1 of %d", len(launches)); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	for i, l := range launches {
		if err := d.launch(s, l, i, len(launches)); err != nil {
			return i, err
		}
	}
	return len(launches), nil
}

func (d *Driver) launch(s cuda.Stream, l cuda.Launch, i, n int) error {
	k := d.kernels[l.Function]
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	if k.kernel == nil || l.Bytes > cuda.ParamBytes || threads == 0 || threads > 1024 ||
		l.Grid[0]*l.Grid[1]*l.Grid[2] == 0 || int(l.Shared) > k.shared {
		return failed(cuda.InvalidValue, "cuLaunchKernelEx of launch %d of %d", i+1, n)
	}
	return d.enqueue(s, func(done <-chan struct{}) {
		d.checkLoaded(k)
		k.kernel(Grid{l, done})
	}, "cuLaunchKernelEx")
}

// Submit puts work into streams. Each piece can be made to fail by the name of
// the method that does it alone: LaunchKernels, Copy, Record, WaitEvent; Call
// for a native function.
func (d *Driver) Submit(ctx cuda.Context, b *cuda.Batch) (int, cuda.Capture, error) {
	if err := d.in(ctx, "Submit", "cuStreamGetCaptureInfo"); err != nil {
		return 0, cuda.Capture{}, err
	}
	defer d.mu.Unlock()
	c, err := d.capture(b.Stream)
	if err != nil || c.ID != b.Capture || c.Status == cuda.CaptureInvalidated {
		return 0, c, err
	}
	if c.ID == 0 && !d.options.NoStreamIDs {
		c.Stream = d.get(b.Stream).id
	}
	if b.StreamID != 0 && c.Stream != 0 && c.Stream != b.StreamID {
		return 0, c, nil
	}
	for i := range b.Work {
		if err := d.put(b, i); err != nil {
			return i, c, err
		}
	}
	return len(b.Work), c, nil
}

// current has, by thread, the driver whose native function runs there.
var current sync.Map

// Current returns the driver whose context is current on this thread because it runs a native function there, or nil.
func Current() *Driver {
	if d, ok := current.Load(unix.Gettid()); ok {
		return d.(*Driver)
	}
	return nil
}

var methods = map[cuda.WorkKind]string{
	cuda.WorkLaunch: "LaunchKernels", cuda.WorkCopy: "Copy", cuda.WorkRecord: "Record", cuda.WorkWait: "WaitEvent",
	cuda.WorkCall: "Call",
}

func (d *Driver) put(b *cuda.Batch, i int) error {
	w := &b.Work[i]
	if r := d.injected(methods[w.Kind]); r != cuda.Success {
		return failed(r, "%s, piece %d of %d", w.Kind, i+1, len(b.Work))
	}
	switch w.Kind {
	case cuda.WorkLaunch:
		l := cuda.Launch{Function: cuda.Function(w.Handle), Grid: w.Grid, Block: w.Block, Shared: w.Shared, Flags: w.Flags,
			Bytes: w.ParamBytes}
		if copy(l.Params[:], b.Params[w.Params:w.Params+uint64(w.ParamBytes)]) < int(w.ParamBytes) {
			return failed(cuda.InvalidValue, "%s, piece %d of %d", w.Kind, i+1, len(b.Work))
		}
		return d.launch(w.Stream, l, i, len(b.Work))
	case cuda.WorkCopy:
		return d.copy(w.To, w.From, int64(w.Bytes), w.Stream)
	case cuda.WorkRecord:
		return d.record(cuda.Event(w.Handle), w.Stream)
	case cuda.WorkWait:
		return d.wait(w.Stream, cuda.Event(w.Handle))
	case cuda.WorkCall:
		d.mu.Unlock() // it may call the driver
		runtime.LockOSThread()
		thread := unix.Gettid()
		current.Store(thread, d)
		var report C.shunt_native_report
		code := C.call(C.uintptr_t(w.Handle), C.uintptr_t(w.Bytes), unsafe.Pointer(&b.Params[w.Params]), C.uintptr_t(w.From),
			C.uintptr_t(w.To), C.uintptr_t(w.Stream), &report)
		current.Delete(thread)
		runtime.UnlockOSThread()
		d.mu.Lock()
		if code != 0 {
			return plugin.NativeError("native function", plugin.Code(code), int(report.peer)-1, C.GoString(&report.message[0]))
		}
		return nil
	}
	return failed(cuda.InvalidValue, "%s, piece %d of %d", w.Kind, i+1, len(b.Work))
}
