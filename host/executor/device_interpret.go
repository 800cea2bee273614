package executor

import (
	"fmt"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Limits of one launch, so that no plan holds a thread or fills a memory.
const (
	maxDeviceSteps = 1 << 16
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

	kernelAt uint16 // the kernel that was launched last
}

// put appends a piece of work. d.mu is held.
func (d *Device) put(w cuda.Work) { d.batch.Work = append(d.batch.Work, w) }

// launch puts a program's work into the batch. Nothing reaches a stream before
// the whole batch has been checked.
func (r *deviceRun) launch() *Failure {
	p, a := r.p, r.a
	if p.last.able && r.repeated() {
		return nil
	}
	r.track, r.step = -1, -1
	if a.Slots[plugin.SlotSendBytes] < 0 || a.Slots[plugin.SlotRecvBytes] < 0 {
		return r.failure(plugin.InvalidArgument, -1, "negative length of send (%d) or receive memory (%d)",
			a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes])
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
	if p.last.able {
		r.remember()
	}
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
	if r.forked == 0 { // nothing waits for the event that was recorded
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
	return &Failure{Code: code, Launch: -1, Track: r.track, Step: r.step, Rank: rank, Origin: -1,
		Reason: fmt.Sprintf(format, args...)}
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
			if len(r.d.batch.Work)-r.first >= maxDeviceWork {
				return r.failure(plugin.Protocol, -1, "more than %d launches and copies in one call", maxDeviceWork)
			}
			f = r.emit(s)
		}
		if f != nil {
			return f
		}
	}
}

// set does a set step.
func set(frame []int64, s *plugin.Step) {
	switch s.Alu {
	case plugin.AluMov:
		frame[s.Dst] = frame[s.A]
	case plugin.AluSelect:
		if frame[s.A] != 0 {
			frame[s.Dst] = frame[s.B]
		} else {
			frame[s.Dst] = frame[s.C]
		}
	default:
		frame[s.Dst] = compute(s.Alu, frame[s.A], frame[s.B])
	}
}

// compute applies an operation of the contract to two operands: it wraps, and division by zero is zero.
func compute(alu plugin.Alu, a, b int64) int64 {
	is := false
	switch alu {
	case plugin.AluAdd:
		return a + b
	case plugin.AluSub:
		return a - b
	case plugin.AluMul:
		return a * b
	case plugin.AluDiv:
		if b != 0 {
			return a / b // Go wraps the least number divided by -1
		}
	case plugin.AluMod:
		if b != 0 {
			return a % b
		}
	case plugin.AluMin:
		return min(a, b)
	case plugin.AluMax:
		return max(a, b)
	case plugin.AluLt:
		is = a < b
	case plugin.AluLe:
		is = a <= b
	case plugin.AluEq:
		is = a == b
	case plugin.AluNe:
		is = a != b
	}
	if is {
		return 1
	}
	return 0
}
