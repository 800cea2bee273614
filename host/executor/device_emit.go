package executor

import (
	"encoding/binary"
	"math"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// emit does the steps that put something into a stream.
func (r *deviceRun) emit(s *plugin.Step) *Failure {
	switch s.Kind {
	case plugin.StepAddress:
		at, f := r.address(s.A, 0)
		if f == nil {
			r.p.frame[s.Dst] = int64(at)
		}
		return f
	case plugin.StepCopy:
		return r.copy(s)
	case plugin.StepLaunch:
		return r.kernel(s)
	case plugin.StepNative:
		if r.p.plan.Natives[s.A].Start != 0 {
			return r.command(s)
		}
		r.native(s)
		return nil
	case plugin.StepRemote:
		return r.command(s)
	}
	return r.failure(plugin.Internal, -1, "step %s", s.Kind)
}

func (r *deviceRun) copy(s *plugin.Step) *Failure {
	n := r.p.frame[s.N]
	if n <= 0 {
		if n == 0 {
			return nil
		}
		return r.failure(plugin.Internal, -1, "a length of %d", n)
	}
	to, f := r.address(s.Dst, n)
	if f != nil {
		return f
	}
	from, f := r.address(s.A, n)
	if f != nil || to == from {
		return f
	}
	if !r.started {
		r.start()
	}
	r.d.put(cuda.Work{Kind: cuda.WorkCopy, Stream: r.stream, To: cuda.Ptr(to), From: cuda.Ptr(from), Bytes: uint64(n)})
	return nil
}

func (r *deviceRun) kernel(s *plugin.Step) *Failure {
	k, frame := &r.p.kernels[s.A], r.p.frame
	w := cuda.Work{Kind: cuda.WorkLaunch, Handle: uint64(k.function), ParamBytes: uint32(len(k.template)),
		Flags: r.d.remote}
	if s.B&plugin.LaunchDependent != 0 {
		w.Flags |= r.flags
	}
	threads := int64(1)
	for i := range 3 {
		grid, block := frame[k.grid[i]], frame[k.block[i]]
		if grid < 1 || grid > math.MaxInt32 || block < 1 || block > 1024 {
			return r.failure(plugin.Internal, -1, "a grid of %d blocks of %d threads in dimension %d", grid, block, i)
		}
		threads *= block
		w.Grid[i], w.Block[i] = uint32(grid), uint32(block)
	}
	if threads > 1024 {
		return r.failure(plugin.Internal, -1, "blocks of %d threads", threads)
	}
	if k.shared != plugin.None {
		n := frame[k.shared]
		if n < 0 || n > int64(r.d.maxShared) {
			return r.failure(plugin.Internal, -1, "%d bytes of shared memory, the device has %d", n, r.d.maxShared)
		}
		w.Shared = uint32(n)
	}
	var params []byte
	w.Params, params = r.d.room(len(k.template))
	copy(params, k.template)
	for i := range k.args {
		a := &k.args[i]
		if a.ref == plugin.None {
			store(params[a.offset:], frame[a.value], a.bytes)
			continue
		}
		at, f := r.address(a.ref, 0)
		if f != nil {
			return f
		}
		store(params[a.offset:], int64(at), a.bytes)
	}
	if !r.started {
		r.start()
	}
	w.Stream, r.kernelAt = r.stream, s.A
	r.d.put(w)
	return nil
}

func (r *deviceRun) native(s *plugin.Step) {
	n := &r.p.plan.Natives[s.A]
	if !r.started {
		r.start()
	}
	at, registers := r.d.room(8 * len(r.p.frame))
	for i, v := range r.p.frame {
		binary.NativeEndian.PutUint64(registers[8*i:], uint64(v))
	}
	r.d.put(cuda.Work{
		Kind: cuda.WorkCall, Stream: r.stream, Handle: uint64(n.Function), Bytes: uint64(n.Context), Params: at,
		From: cuda.Ptr(uintptr(r.a.Send)), To: cuda.Ptr(uintptr(r.a.Recv)),
	})
}

// room returns n more bytes of the batch's params, at a multiple of 16.
func (d *Device) room(n int) (at uint64, room []byte) {
	b := d.batch.Params
	begin := (len(b) + 15) &^ 15
	if begin+n > cap(b) {
		grown := make([]byte, begin, 2*(begin+n)+4096)
		copy(grown, b)
		b = grown
	}
	d.batch.Params = b[:begin+n]
	return uint64(begin), d.batch.Params[begin:]
}

// store writes the low bytes of a value, as C's assignment would.
func store(to []byte, value int64, bytes uint16) {
	switch bytes {
	case 1:
		to[0] = byte(value)
	case 2:
		binary.NativeEndian.PutUint16(to, uint16(value))
	case 4:
		binary.NativeEndian.PutUint32(to, uint32(value))
	default:
		binary.NativeEndian.PutUint64(to, uint64(value))
	}
}
