package executor

/*
#include "engine.h"
*/
import "C"

import (
	"maps"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor/internal/stamp"
	"github.com/shunt-ccl/shunt/plugin"
)

// Limits of a short form.
const (
	quickRegisters = 8
	quickSteps     = 48      // more would not be quick
	quickBytes     = 4096    // longer copies belong where they can be aborted
	maxCounter     = 1 << 62 // counters beyond that are going to wrap, and are left to C
)

// suits reports whether a plan may have short forms.
func suits(p *plugin.Plan) bool {
	return stamp.Available && len(p.Tracks) == 1 && p.Tracks[0].Count <= 1024
}

// Quick makes the short form of a program for the slots of a. It returns nil
// where there is none: for plans of several tracks or with loops, reductions or
// long copies, for those that do something before they wait, and while runs are delayed.
func (p *Program) Quick(a *Arguments) *Quick {
	if p == nil || p.c == nil || p.plan == nil || (len(a.Arrays) != 0 && len(a.Arrays) != 4*p.engine.world) {
		return nil
	}
	e := p.engine
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed || e.c.delayed != 0 {
		return nil
	}
	s := shortening{
		program: p, arguments: a, values: map[uint16]value{},
		quick: &Quick{engine: e, tables: e.tables.Load(), lines: 1, record: unsafe.Pointer(&e.c.own.record),
			calls: unsafe.Pointer(&e.c.own.calls), marked: p.c.marked != 0},
	}
	track := p.plan.Tracks[0]
	if !s.run(p.plan.Steps[track.First : int(track.First)+int(track.Count)]) {
		return nil
	}
	return s.quick
}

// shortening goes through a plan once, as a launch would, with registers that
// hold forms instead of numbers.
type shortening struct {
	program   *Program
	arguments *Arguments
	quick     *Quick
	values    map[uint16]value // of temporaries
	loaded    uint8            // registers of the short form that are taken
	affected  bool             // a step with an effect has come
}

// value is the content of a register of the plan: a form, or whether it is zero.
type value struct {
	form
	kind valueKind
}

type valueKind uint8

const (
	asIs     valueKind = iota
	isZero             // 1 if the form is zero, else 0
	isntZero           // the other way round
	unknown            // left by a step that may have been skipped
)

// of returns the content of a register.
func (s *shortening) of(r uint16) value {
	plan := s.program.plan
	slots := plugin.SlotCountOf(plan.World)
	switch i := int(r); {
	case i < int(plugin.SlotArrays):
		return value{form: constant(s.arguments.Slots[i])}
	case i < slots:
		if len(s.arguments.Arrays) == 0 {
			return value{}
		}
		return value{form: constant(s.arguments.Arrays[i-int(plugin.SlotArrays)])}
	case i < slots+len(plan.Consts):
		return value{form: constant(plan.Consts[i-slots])}
	}
	return s.values[r] // zero at launch
}

// form returns the content of a register, if that is a form.
func (s *shortening) form(r uint16) (form, bool) {
	v := s.of(r)
	return v.form, v.kind == asIs
}

// constant returns the content of a register, if that is known.
func (s *shortening) constant(r uint16) (int64, bool) {
	f, ok := s.form(r)
	return f.add, ok && f.mul == 0
}

// run goes through steps; false: there is no short form.
func (s *shortening) run(steps []plugin.Step) bool {
	for i := 0; i < len(steps); i++ {
		step := &steps[i]
		if step.Kind != plugin.StepIf {
			if !s.step(step) || len(s.quick.steps) > quickSteps {
				return false
			}
			continue
		}
		body := steps[i+1 : i+1+int(step.B)]
		i += int(step.B)
		condition := s.of(step.A)
		switch {
		case condition.kind == unknown:
			return false
		case condition.kind == asIs && condition.mul == 0:
			if condition.add != 0 && !s.run(body) {
				return false
			}
		case !s.branch(condition, body):
			return false
		}
	}
	return true
}

// branch goes through steps that only memory decides about.
func (s *shortening) branch(condition value, body []plugin.Step) bool {
	at := len(s.quick.steps)
	s.add(quickStep{code: quickSkip, ifZero: condition.kind != isZero, value: condition.form})
	before := maps.Clone(s.values)
	if !s.run(body) {
		return false
	}
	for r, v := range s.values {
		if old, ok := before[r]; !ok || old != v {
			before[r] = value{kind: unknown}
		}
	}
	s.values = before
	s.quick.steps[at].to = uint8(len(s.quick.steps))
	return true
}

func (s *shortening) add(step quickStep) bool {
	s.quick.steps = append(s.quick.steps, step)
	return true
}

// step adds what is left of a step.
func (s *shortening) step(step *plugin.Step) bool {
	switch step.Kind {
	case plugin.StepSet:
		v, ok := s.set(step)
		s.values[step.Dst] = v
		return ok
	case plugin.StepLoad:
		if s.loaded == quickRegisters || s.affected {
			return false
		}
		word, ok := s.word(step.A)
		s.values[step.Dst] = value{form: form{register: s.loaded, mask: -1, mul: 1}}
		s.loaded++
		return ok && s.add(quickStep{code: quickLoad, register: s.loaded - 1, word: word})
	case plugin.StepWait:
		word, ok := s.semaphore(step.A)
		until, known := s.form(step.B)
		return ok && known && !s.affected && s.add(quickStep{code: quickWait, word: word, value: until})
	case plugin.StepStore, plugin.StepSignal:
		s.affected = true
		place := s.word
		if step.Kind == plugin.StepSignal {
			place = s.semaphore
		}
		word, ok := place(step.Dst)
		to, known := s.form(step.A)
		if !ok || !known {
			return false
		}
		if step.Kind == plugin.StepStore {
			return s.add(quickStep{code: quickStore, word: word, value: to})
		}
		wake, ok := s.wake(step.B)
		ahead := word.at
		if ahead.mul > 0 {
			ahead.pre += max(2, 512/ahead.mul)
		}
		return ok && s.add(quickStep{code: quickSignal, word: word, value: to, wake: wake, ahead: ahead})
	case plugin.StepCopy:
		s.affected = true
		n, known := s.constant(step.N)
		if !known || n < 0 || n > quickBytes {
			return false
		}
		if n == 0 {
			return true
		}
		dst, ok := s.place(step.Dst, n)
		src, fine := s.place(step.A, n)
		if dst.space == plugin.SpaceRegion {
			s.quick.lines = min(max(s.quick.lines, uint64(n+8+63)/64), 8)
		}
		return ok && fine && s.add(quickStep{code: quickCopy, word: dst, from: src, n: uintptr(n)})
	}
	return false
}

// wake returns the control pages of the ranks that a signal names.
func (s *shortening) wake(named uint16) (pages []*C.sx_control, ok bool) {
	e := s.program.engine
	for rank, page := range e.controls {
		if rank != e.rank && page.Base != nil {
			pages = append(pages, (*C.sx_control)(page.Base))
		}
	}
	if named == plugin.None {
		return pages, true
	}
	rank, known := s.constant(named)
	if !known || rank < 0 || rank >= int64(e.world) {
		return nil, false
	}
	if page := e.controls[rank]; rank != int64(e.rank) && page.Base != nil {
		return []*C.sx_control{(*C.sx_control)(page.Base)}, true
	}
	return nil, true
}

// semaphore returns the place of a semaphore, and of the word behind it, which is for
// marks.
func (s *shortening) semaphore(ref uint16) (quickPlace, bool) {
	if s.quick.marked {
		return s.words(ref, 16)
	}
	return s.words(ref, 8)
}

// word returns the place of a counter, or of a semaphore that is read as one.
func (s *shortening) word(ref uint16) (quickPlace, bool) { return s.words(ref, 8) }

func (s *shortening) words(ref uint16, bytes int64) (quickPlace, bool) {
	p, ok := s.place(ref, bytes)
	// base is at the start of a mapping, so what follows decides
	aligned := (uintptr(p.base)+uintptr(p.at.add))%8 == 0 && (p.at.mul*p.at.mask)%8 == 0 && p.at.mul%8 == 0
	return p, ok && p.space == plugin.SpaceRegion && aligned
}

// place returns the address of a ref, if that is inside its memory whatever is loaded.
func (s *shortening) place(ref uint16, bytes int64) (quickPlace, bool) {
	r := &s.program.plan.Refs[ref]
	at, ok := s.form(r.Offset)
	if !ok || r.Scale != plugin.None {
		return quickPlace{}, false
	}
	p := quickPlace{space: r.Space, at: at}
	var length int64
	switch r.Space {
	case plugin.SpaceSend:
		length, s.quick.send = s.arguments.Slots[plugin.SlotSendBytes], true
	case plugin.SpaceRecv:
		length, s.quick.recv = s.arguments.Slots[plugin.SlotRecvBytes], true
	case plugin.SpaceRegion:
		region, known := s.constant(r.Region)
		rank, knownToo := s.constant(r.Rank)
		if !known || !knownToo {
			return quickPlace{}, false
		}
		var bytes C.int64_t
		e := s.program.engine
		p.base = C.sx_engine_region(e.c, C.uint64_t(s.program.c.base), C.int64_t(region), C.int64_t(rank), &bytes)
		if length = int64(bytes); p.base == nil {
			return quickPlace{}, false
		}
	default:
		return quickPlace{}, false
	}
	least, most, bounded := at.bounds()
	return p, bounded && least >= 0 && bytes <= length && most <= length-bytes
}
