package cudatest

// #include <stdint.h>
// static int call(uintptr_t f, uintptr_t context, const void *registers, uintptr_t send, uintptr_t recv, uintptr_t
// stream) {
//   return ((int (*)(void *, const int64_t *, void *, void *, void *))f)((void *)context, registers, (void *)send,
// (void *)recv, (void *)stream); }
import "C"

import (
	"unsafe"

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
	k := d.kernels[l.Function].kernel
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	if k == nil || l.Bytes > cuda.ParamBytes || threads == 0 || threads > 1024 || l.Grid[0]*l.Grid[1]*l.Grid[2] == 0 {
		return failed(cuda.InvalidValue, "cuLaunchKernelEx of launch %d of %d", i+1, n)
	}
	return d.enqueue(s, func(done <-chan struct{}) { k(Grid{l, done}) }, "cuLaunchKernelEx")
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
		code := C.call(C.uintptr_t(w.Handle), C.uintptr_t(w.Bytes), unsafe.Pointer(&b.Params[w.Params]), C.uintptr_t(w.From),
			C.uintptr_t(w.To), C.uintptr_t(w.Stream))
		d.mu.Lock()
		if code != 0 {
			return plugin.Errorf(plugin.Code(code), "native function: %w", plugin.Code(code))
		}
		return nil
	}
	return failed(cuda.InvalidValue, "%s, piece %d of %d", w.Kind, i+1, len(b.Work))
}
