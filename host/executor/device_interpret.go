package executor

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Limits of one call, so that no plan holds a thread or fills a memory.
const (
	maxDeviceSteps = 1 << 20
	maxDeviceWork  = 1 << 13
)

// run is a launch while its work is put together.
type deviceRun struct {
	d      *Device
	p      *DeviceProgram
	a      *Arguments
	main   cuda.Stream
	sides  *forks
	flags  uint32 // of kernels that say they wait for what is before them
	budget int

	stream  cuda.Stream // of the track
	first   int         // of the batch's work, where this launch begins
	forked  int         // sides in use
	taken   bool        // a track uses main
	started bool        // the track has its stream
	track   int
	step    int
}

// put appends a piece of work. d.mu is held.
func (d *Device) put(w cuda.Work) { d.batch.Work = append(d.batch.Work, w) }

// launch puts a program's work into the batch. Nothing reaches a stream before
// the whole batch has been checked.
func (r *deviceRun) launch() *Failure {
	p, a := r.p, r.a
	r.track, r.step = -1, -1
	if a.Slots[plugin.SlotSendBytes] < 0 || a.Slots[plugin.SlotRecvBytes] < 0 {
		return r.failure(plugin.InvalidArgument, -1, "negative length of send (%d) or receive memory (%d)", a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes])
	}
	copy(p.frame, a.Slots[:])
	if slots := p.frame[plugin.SlotArrays:plugin.SlotCountOf(p.plan.World)]; len(a.Arrays) > 0 {
		copy(slots, a.Arrays)
	} else {
		clear(slots)
	}
	if r.sides != nil {
		r.d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: r.main, Handle: uint64(r.sides.begin)})
	}
	for t := range p.plan.Tracks {
		r.track, r.started = t, false
		clear(p.frame[p.firstTemp:])
		if f := r.interpret(p.plan.Tracks[t]); f != nil {
			return f
		}
	}
	r.join()
	return nil
}

// start gives the track its stream: the caller's if no track has it, else one of
// the sides.
func (r *deviceRun) start() {
	r.started = true
	if !r.taken || r.sides == nil || len(r.sides.streams) == 0 {
		r.taken, r.stream = true, r.main
		return
	}
	n := min(r.p.tracks()-1, len(r.sides.streams))
	at := r.forked % n
	r.stream = r.sides.streams[at]
	if r.forked < n {
		r.d.put(cuda.Work{Kind: cuda.WorkWait, Stream: r.stream, Handle: uint64(r.sides.begin)})
	}
	r.forked++
}

func (p *DeviceProgram) tracks() int { return len(p.plan.Tracks) }

// join makes the caller's stream wait for the sides.
func (r *deviceRun) join() {
	if r.sides == nil {
		return
	}
	work := r.d.batch.Work
	if r.forked == 0 { // nobody waits for the event that was recorded
		copy(work[r.first:], work[r.first+1:])
		r.d.batch.Work = work[:len(work)-1]
		return
	}
	for i := range min(r.forked, r.p.tracks()-1, len(r.sides.streams)) {
		r.d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: r.sides.streams[i], Handle: uint64(r.sides.ends[i])})
		r.d.put(cuda.Work{Kind: cuda.WorkWait, Stream: r.main, Handle: uint64(r.sides.ends[i])})
	}
}

func (r *deviceRun) failure(code plugin.Code, rank int, format string, args ...any) *Failure {
	return &Failure{Code: code, Launch: -1, Track: r.track, Step: r.step, Rank: rank, Origin: -1, Reason: fmt.Sprintf(format, args...)}
}

// loop is an open loop.
type loop struct {
	begin, end   int
	index, count int64
	register     uint16
}

func (r *deviceRun) interpret(track plugin.Track) *Failure {
	frame := r.p.frame
	steps := r.p.plan.Steps
	end := int(track.First) + int(track.Count)
	var loops [plugin.MaxLoopDepth]loop
	depth := 0
	for i := int(track.First); ; i++ {
		for depth > 0 && i == loops[depth-1].end {
			l := &loops[depth-1]
			if l.index++; l.index < l.count {
				frame[l.register] = l.index
				i = l.begin
				break
			}
			depth--
		}
		if i >= end {
			return nil
		}
		s := &steps[i]
		if r.budget--; r.budget < 0 {
			r.step = i
			return r.failure(plugin.Protocol, -1, "the plan takes more than %d steps", maxDeviceSteps)
		}
		var f *Failure
		switch s.Kind {
		case plugin.StepSet:
			set(frame, s)
		case plugin.StepIf:
			if frame[s.A] == 0 {
				i += int(s.B)
			}
		case plugin.StepLoop:
			if frame[s.N] <= 0 {
				i += int(s.B)
				break
			}
			loops[depth] = loop{i + 1, i + 1 + int(s.B), 0, frame[s.N], s.Dst}
			depth++
			frame[s.Dst] = 0
		default:
			r.step = i
			if len(r.d.batch.Work) >= maxDeviceWork {
				return r.failure(plugin.Protocol, -1, "more than %d launches and copies in one call", maxDeviceWork)
			}
			f = r.emit(s)
		}
		if f != nil {
			return f
		}
	}
}

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
		r.native(s)
		return nil
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
	w := cuda.Work{Kind: cuda.WorkLaunch, Handle: uint64(k.function), ParamBytes: uint32(len(k.template))}
	if s.B&plugin.LaunchDependent != 0 {
		w.Flags = r.flags
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
		value := int64(0)
		if a.ref == plugin.None {
			value = frame[a.value]
		} else {
			at, f := r.address(a.ref, 0)
			if f != nil {
				return f
			}
			value = int64(at)
		}
		store(params[a.offset:], value, a.bytes)
	}
	if !r.started {
		r.start()
	}
	w.Stream = r.stream
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

// room is n more bytes of the batch's params, at a multiple of 16.
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

// address is where n bytes of a ref are, checked against the memory that it is
// in; for n = 0 it may be that memory's end, and 0 where there is none.
func (r *deviceRun) address(number uint16, n int64) (uint64, *Failure) {
	ref, frame := &r.p.plan.Refs[number], r.p.frame
	var base uint64
	var length int64
	rank := -1
	switch ref.Space {
	case plugin.SpaceSend:
		base, length = uint64(uintptr(r.a.Send)), r.a.Slots[plugin.SlotSendBytes]
	case plugin.SpaceRecv:
		base, length = uint64(uintptr(r.a.Recv)), r.a.Slots[plugin.SlotRecvBytes]
	case plugin.SpaceAbort:
		return uint64(r.d.word.Device), nil
	default:
		m, f := r.region(ref)
		if f != nil {
			return 0, f
		}
		base, length, rank = uint64(m.address), m.bytes, int(frame[ref.Rank])
	}
	offset := frame[ref.Offset]
	if offset < 0 || n > length || offset > length-n {
		code := plugin.InvalidArgument // who called gave the length and the counts
		if rank >= 0 {
			code = plugin.Internal
		}
		return 0, r.failure(code, rank, "%d bytes at offset %d exceed %s of %d bytes", n, offset, r.what(ref), length)
	}
	if base == 0 {
		if length > 0 {
			return 0, r.failure(plugin.InvalidArgument, rank, "%s is null but has %d bytes", r.what(ref), length)
		}
		return 0, nil
	}
	return base + uint64(offset), nil
}

func (r *deviceRun) region(ref *plugin.Ref) (deviceRegion, *Failure) {
	frame, d := r.p.frame, r.d
	rank, id := frame[ref.Rank], frame[ref.Region]
	if rank < 0 || rank >= int64(d.world) {
		return deviceRegion{}, r.failure(plugin.Internal, -1, "there is no rank %d in a world of %d", rank, d.world)
	}
	if id < 0 || id >= MaxEntries {
		return deviceRegion{}, r.failure(plugin.Internal, int(rank), "there is no region %d", id)
	}
	entry := uint64(r.p.base) + uint64(id)
	if chunk := entry / BaseMultiple; chunk < uint64(len(d.regions)) && d.regions[chunk] != nil {
		if m := d.regions[chunk][int(entry%BaseMultiple)*d.world+int(rank)]; m.set {
			return m, nil
		}
	}
	return deviceRegion{}, r.failure(plugin.Internal, int(rank), "there is no region %d of rank %d", id, rank)
}

func (r *deviceRun) what(ref *plugin.Ref) string {
	switch ref.Space {
	case plugin.SpaceSend:
		return "the send memory"
	case plugin.SpaceRecv:
		return "the receive memory"
	}
	return fmt.Sprintf("region %d of rank %d", r.p.frame[ref.Region], r.p.frame[ref.Rank])
}

// set does a set step. Arithmetic is the contract's: it wraps, and division by
// zero is zero.
func set(frame []int64, s *plugin.Step) {
	a := frame[s.A]
	if s.Alu == plugin.AluMov {
		frame[s.Dst] = a
		return
	}
	b := frame[s.B]
	var v int64
	truth := func(is bool) {
		if is {
			v = 1
		}
	}
	switch s.Alu {
	case plugin.AluAdd:
		v = a + b
	case plugin.AluSub:
		v = a - b
	case plugin.AluMul:
		v = a * b
	case plugin.AluDiv:
		if b != 0 {
			v = a / b // Go wraps the least number divided by -1
		}
	case plugin.AluMod:
		if b != 0 {
			v = a % b
		}
	case plugin.AluMin:
		v = min(a, b)
	case plugin.AluMax:
		v = max(a, b)
	case plugin.AluLt:
		truth(a < b)
	case plugin.AluLe:
		truth(a <= b)
	case plugin.AluEq:
		truth(a == b)
	case plugin.AluNe:
		truth(a != b)
	case plugin.AluSelect:
		v = frame[s.C]
		if a != 0 {
			v = b
		}
	}
	frame[s.Dst] = v
}
