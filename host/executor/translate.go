package executor

/*
#include "engine.h"
*/
import "C"

import "github.com/shunt-ccl/shunt/plugin"

// Limits of a translated plan. Tracks may share steps, so a small hostile plan
// could otherwise translate into gigabytes.
const (
	maxCode      = 1 << 19 // steps
	maxPlaces    = 1 << 20 // refs
	maxRegisters = 1 << 22
)

// translation turns a plan into what C interprets. Every track gets its own
// frame with only the registers it uses: temporaries first (cleared at
// launch), then slots (filled at launch), then constants (never written). So a
// launch costs what its tracks use, not the size of the register file.
type translation struct {
	plan      *plugin.Plan
	steps     []C.sx_step
	refs      []C.sx_ref
	fills     []C.sx_fill
	tracks    []C.sx_code
	registers []C.int64_t
	sources   int // most sources of a reduce
}

var setCodes = map[plugin.Alu]C.uint32_t{
	plugin.AluMov: C.SX_MOV, plugin.AluAdd: C.SX_ADD, plugin.AluSub: C.SX_SUB, plugin.AluMul: C.SX_MUL,
	plugin.AluDiv: C.SX_DIV, plugin.AluMod: C.SX_MOD, plugin.AluMin: C.SX_MIN, plugin.AluMax: C.SX_MAX,
	plugin.AluLt: C.SX_LT, plugin.AluLe: C.SX_LE, plugin.AluEq: C.SX_EQ, plugin.AluNe: C.SX_NE,
	plugin.AluSelect: C.SX_SELECT,
}

func (t *translation) translate() error {
	if t.tooLarge() {
		return plugin.Errorf(plugin.Protocol, "plan %s: its tracks and reductions share so many steps and refs that it is too large", t.plan.Algorithm)
	}
	for i := range t.plan.Tracks {
		if err := t.track(t.plan.Tracks[i]); err != nil {
			return err
		}
		if len(t.registers) > maxRegisters {
			return plugin.Errorf(plugin.Protocol, "plan %s: its tracks use too many registers", t.plan.Algorithm)
		}
	}
	return nil
}

// tooLarge counts what translating would make, before anything is made.
func (t *translation) tooLarge() bool {
	steps, refs := 0, 0
	for _, track := range t.plan.Tracks {
		for _, s := range t.plan.Steps[track.First : int(track.First)+int(track.Count)] {
			steps += 2
			refs += 2
			if s.Kind == plugin.StepRemote {
				steps += int(s.N)
			}
			if s.Kind == plugin.StepReduce {
				refs += int(s.B)
			}
			if steps > maxCode || refs > maxPlaces {
				return true
			}
		}
		steps++
	}
	return steps > maxCode
}

// frame numbers the registers of one track. With whole set the frame is the
// plan's register file as it is, for native functions to read.
type frame struct {
	plan   *plugin.Plan
	whole  bool
	hidden int // registers that only the executor knows
	temps  []uint16
	slots  []uint16
	consts []uint16
	at     map[uint16]int // where each of the above stands in its list
}

// use notes that the track uses a register.
func (f *frame) use(r uint16) {
	if _, ok := f.at[r]; ok {
		return
	}
	list := &f.temps
	switch slots := plugin.SlotCountOf(f.plan.World); {
	case int(r) < slots:
		list = &f.slots
	case int(r) < slots+len(f.plan.Consts):
		list = &f.consts
	}
	f.at[r] = len(*list)
	*list = append(*list, r)
}

// place returns a register's index in the frame, once all uses are noted.
func (f *frame) place(r uint16) C.uint32_t {
	if f.whole {
		return C.uint32_t(r)
	}
	slots := plugin.SlotCountOf(f.plan.World)
	at := f.at[r]
	switch {
	case int(r) < slots:
		at += f.hidden + len(f.temps)
	case int(r) < slots+len(f.plan.Consts):
		at += f.hidden + len(f.temps) + len(f.slots)
	default:
		at += f.hidden
	}
	return C.uint32_t(at)
}

// secret returns the index of the executor's own register number i.
func (f *frame) secret(i int) C.uint32_t {
	if f.whole {
		return C.uint32_t(f.plan.Registers() + i)
	}
	return C.uint32_t(i)
}

func (t *translation) track(track plugin.Track) error {
	steps := t.plan.Steps[track.First : int(track.First)+int(track.Count)]
	f := &frame{plan: t.plan, at: map[uint16]int{}}
	for i := range steps {
		s := &steps[i]
		registers, refs := operands(s)
		for _, r := range registers {
			f.use(r)
		}
		for _, number := range refs {
			r := &t.plan.Refs[number]
			if r.Space == plugin.SpacePeerRecv {
				return plugin.Errorf(plugin.Unsupported, "plan %s: step %d reaches the receive memory of a peer, which needs a GPU",
					t.plan.Algorithm, int(track.First)+i)
			}
			f.use(r.Offset)
			if r.Space == plugin.SpaceRegion || r.Space == plugin.SpacePeer {
				f.use(r.Region)
				f.use(r.Rank)
			}
			if r.Scale != plugin.None {
				f.use(r.Scale)
			}
		}
		switch s.Kind {
		case plugin.StepLoop, plugin.StepBarrier:
			f.hidden += 2
		case plugin.StepNative, plugin.StepRemote:
			f.whole = f.whole || s.Kind == plugin.StepNative && t.plan.Natives[s.A].Function != 0
			for _, a := range t.plan.Args[s.B : s.B+s.N] {
				f.use(a.Value)
			}
		case plugin.StepLaunch:
			return plugin.Errorf(plugin.Unsupported, "plan %s: step %d launches a kernel, which needs a stream",
				t.plan.Algorithm, int(track.First)+i)
		}
	}
	first := len(t.steps)
	t.code(steps, int(track.First), f)
	t.frame(f, first)
	return nil
}

// operands returns the registers and refs that a step names.
func operands(s *plugin.Step) (registers, refs []uint16) {
	present := func(rs ...uint16) []uint16 {
		kept := rs[:0]
		for _, r := range rs {
			if r != plugin.None {
				kept = append(kept, r)
			}
		}
		return kept
	}
	switch s.Kind {
	case plugin.StepSet:
		switch s.Alu {
		case plugin.AluMov:
			return []uint16{s.Dst, s.A}, nil
		case plugin.AluSelect:
			return []uint16{s.Dst, s.A, s.B, s.C}, nil
		}
		return []uint16{s.Dst, s.A, s.B}, nil
	case plugin.StepLoad, plugin.StepAddress:
		return []uint16{s.Dst}, []uint16{s.A}
	case plugin.StepStore:
		return []uint16{s.A}, []uint16{s.Dst}
	case plugin.StepCopy:
		return []uint16{s.N}, []uint16{s.Dst, s.A}
	case plugin.StepReduce:
		refs = []uint16{s.Dst}
		for i := range s.B {
			refs = append(refs, s.A+i)
		}
		return []uint16{s.N}, refs
	case plugin.StepSignal:
		return present(s.A, s.B), []uint16{s.Dst}
	case plugin.StepWait:
		return present(s.B, s.C), []uint16{s.A}
	case plugin.StepBarrier:
		return nil, []uint16{s.Dst, s.A}
	case plugin.StepLoop:
		return []uint16{s.Dst, s.N}, nil
	case plugin.StepIf:
		return []uint16{s.A}, nil
	case plugin.StepRemote: // and its arguments, see track
		return []uint16{s.A, s.C}, []uint16{s.Dst}
	}
	return nil, nil
}

// ref appends a ref with its registers placed and returns its number.
func (t *translation) ref(f *frame, number uint16) C.uint32_t {
	r := &t.plan.Refs[number]
	c := C.sx_ref{space: C.uint32_t(r.Space), offset: f.place(r.Offset), scale: C.SX_ABSENT}
	if r.Space == plugin.SpaceRegion || r.Space == plugin.SpacePeer {
		c.region, c.rank = f.place(r.Region), f.place(r.Rank)
	}
	if r.Scale != plugin.None {
		c.scale = f.place(r.Scale)
	}
	t.refs = append(t.refs, c)
	return C.uint32_t(len(t.refs) - 1)
}

// block is an open loop or if while code is made.
type block struct {
	end   int // of the plan's steps
	at    int // of the translated step that opened it
	loop  bool
	count int // secret register of a loop
}

func (t *translation) code(steps []plugin.Step, number int, f *frame) {
	first, secrets := len(t.steps), 0
	var open []block
	emit := func(i int, c C.sx_step) {
		c.number = C.uint32_t(number + i)
		t.steps = append(t.steps, c)
	}
	here := func() C.uint32_t { return C.uint32_t(len(t.steps) - first) } // within the track
	shut := func(i int) {
		for len(open) > 0 && open[len(open)-1].end == i {
			b := open[len(open)-1]
			open = open[:len(open)-1]
			if b.loop {
				o := t.steps[b.at]
				emit(b.end-1, C.sx_step{code: C.SX_REPEAT, dst: o.dst, a: o.a, b: o.b, c: C.uint32_t(b.at - first + 1)})
			}
			t.steps[b.at].c = here()
		}
	}
	arguments := func(i int) {
		for n, a := range t.plan.Args[steps[i].B : steps[i].B+steps[i].N] {
			emit(i, C.sx_step{code: C.SX_ARGUMENT_OF, a: f.place(a.Value), n: C.uint32_t(n)})
		}
	}
	optional := func(r uint16) C.uint32_t {
		if r == plugin.None {
			return C.SX_ABSENT
		}
		return f.place(r)
	}
	for i := range steps {
		shut(i)
		s := &steps[i]
		switch s.Kind {
		case plugin.StepSet:
			c := C.sx_step{code: setCodes[s.Alu], dst: f.place(s.Dst), a: f.place(s.A)}
			if s.Alu != plugin.AluMov {
				c.b = f.place(s.B)
			}
			if s.Alu == plugin.AluSelect {
				c.c = f.place(s.C)
			}
			emit(i, c)
		case plugin.StepLoad:
			emit(i, C.sx_step{code: C.SX_LOAD, dst: f.place(s.Dst), a: t.ref(f, s.A)})
		case plugin.StepAddress:
			emit(i, C.sx_step{code: C.SX_ADDRESS, dst: f.place(s.Dst), a: t.ref(f, s.A)})
		case plugin.StepStore:
			emit(i, C.sx_step{code: C.SX_STORE, dst: t.ref(f, s.Dst), a: f.place(s.A)})
		case plugin.StepCopy:
			emit(i, C.sx_step{code: C.SX_COPY, dst: t.ref(f, s.Dst), a: t.ref(f, s.A), n: f.place(s.N)})
		case plugin.StepReduce:
			c := C.sx_step{code: C.SX_REDUCE, dst: t.ref(f, s.Dst), b: C.uint32_t(s.B), n: f.place(s.N)}
			c.a = C.uint32_t(len(t.refs))
			for k := range s.B {
				t.ref(f, s.A+k)
			}
			t.sources = max(t.sources, int(s.B))
			emit(i, c)
		case plugin.StepSignal:
			emit(i, C.sx_step{code: C.SX_SIGNAL, dst: t.ref(f, s.Dst), a: f.place(s.A), b: optional(s.B)})
		case plugin.StepWait:
			emit(i, C.sx_step{code: C.SX_WAIT, a: t.ref(f, s.A), b: f.place(s.B), c: optional(s.C)})
		case plugin.StepBarrier:
			value, peer := f.secret(secrets), f.secret(secrets+1)
			secrets += 2
			semaphore := t.ref(f, s.Dst)
			emit(i, C.sx_step{code: C.SX_ARRIVE, dst: semaphore, a: t.ref(f, s.A), b: value, c: peer})
			emit(i, C.sx_step{code: C.SX_GATHER, dst: semaphore, b: value, c: peer})
		case plugin.StepLoop:
			open = append(open, block{end: i + 1 + int(s.B), at: len(t.steps), loop: true})
			emit(i, C.sx_step{code: C.SX_LOOP, dst: f.place(s.Dst), a: f.secret(secrets), b: f.secret(secrets + 1),
				n: f.place(s.N)})
			secrets += 2
		case plugin.StepIf:
			open = append(open, block{end: i + 1 + int(s.B), at: len(t.steps)})
			emit(i, C.sx_step{code: C.SX_IF, a: f.place(s.A)})
		case plugin.StepNative:
			arguments(i)
			emit(i, C.sx_step{code: C.SX_NATIVE, a: C.uint32_t(s.A), b: C.uint32_t(s.N)})
			emit(i, C.sx_step{code: C.SX_NATIVE_END})
		case plugin.StepRemote:
			arguments(i)
			emit(i, C.sx_step{code: C.SX_REMOTE, dst: t.ref(f, s.Dst), a: f.place(s.A), b: C.uint32_t(s.N), c: f.place(s.C)})
			emit(i, C.sx_step{code: C.SX_WAIT_REMOTE})
		}
	}
	shut(len(steps))
	emit(len(steps), C.sx_step{code: C.SX_END})
}

// frame appends a track's registers and how to fill them.
func (t *translation) frame(f *frame, firstStep int) {
	code := C.sx_code{first_step: C.uint32_t(firstStep), first_fill: C.uint32_t(len(t.fills)),
		frame: C.uint32_t(len(t.registers))}
	slots := plugin.SlotCountOf(t.plan.World)
	if f.whole {
		// Slots, constants, temporaries, then the executor's own. Slots and
		// temporaries are filled anew at every launch: the latter from slot
		// SX_ABSENT, because clear reaches only a prefix.
		size := t.plan.Registers() + f.hidden
		t.registers = append(t.registers, make([]C.int64_t, size)...)
		for r := range slots {
			t.fills = append(t.fills, C.sx_fill{to: C.uint32_t(r), slot: C.uint32_t(r)})
		}
		for i, v := range t.plan.Consts {
			t.registers[int(code.frame)+slots+i] = C.int64_t(v)
		}
		for r := slots + len(t.plan.Consts); r < size; r++ {
			t.fills = append(t.fills, C.sx_fill{to: C.uint32_t(r), slot: C.SX_ABSENT})
		}
	} else {
		code.clear = C.uint32_t(f.hidden + len(f.temps))
		t.registers = append(t.registers, make([]C.int64_t, int(code.clear)+len(f.slots)+len(f.consts))...)
		for _, r := range f.slots {
			t.fills = append(t.fills, C.sx_fill{to: f.place(r), slot: C.uint32_t(r)})
		}
		for _, r := range f.consts {
			t.registers[code.frame+f.place(r)] = C.int64_t(t.plan.Consts[int(r)-slots])
		}
	}
	code.count_fills = C.uint32_t(len(t.fills)) - code.first_fill
	code.frame_size = C.uint32_t(len(t.registers)) - code.frame
	t.tracks = append(t.tracks, code)
}
