package executor

/*
#include <stdlib.h>
#include "engine.h"
*/
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Program is a plan, validated and translated for one engine. It may be run
// any number of times, also several times within one group.
type Program struct {
	engine *Engine
	c      *C.sx_program
	plan   *plugin.Plan // of what may have short forms; else nil
}

// Load validates a plan and copies it into the engine's form. base is the
// place of its endpoint's regions in the table. Plans with launch steps need a
// stream and are refused with Unsupported.
func (e *Engine) Load(p *plugin.Plan, base uint32) (*Program, error) {
	if p == nil {
		return nil, e.refuse(plugin.InvalidArgument, "the plan is missing")
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.World != e.world || p.Rank != e.rank {
		return nil, e.refuse(plugin.Protocol, "plan %s is for rank %d of %d, this is rank %d of %d", p.Algorithm, p.Rank,
			p.World, e.rank, e.world)
	}
	if base%BaseMultiple != 0 || base >= MaxEntries {
		return nil, e.refuse(plugin.InvalidArgument, "plan %s: its base is %d, which no endpoint has", p.Algorithm, base)
	}
	t := translation{plan: p}
	if err := t.translate(); err != nil {
		return nil, err
	}
	c := t.program()
	if c == nil {
		return nil, e.refuse(plugin.OutOfMemory, "cannot allocate memory for plan %s", p.Algorithm)
	}
	c.base = C.uint32_t(base)
	loaded := &Program{engine: e, c: c}
	if suits(p) {
		loaded.plan = p
	}
	return loaded, nil
}

// Free releases the program. It must not be running.
func (p *Program) Free() {
	if p != nil && p.c != nil {
		C.sx_program_free(p.c)
		p.c = nil
	}
}

// program lays the translation out in one block of C memory.
func (t *translation) program() *C.sx_program {
	var total uintptr
	place := func(bytes uintptr) uintptr {
		at := total
		total += (bytes + 63) / 64 * 64
		return at
	}
	head := place(unsafe.Sizeof(C.sx_program{}))
	steps := place(uintptr(len(t.steps)) * unsafe.Sizeof(C.sx_step{}))
	refs := place(uintptr(len(t.refs)) * unsafe.Sizeof(C.sx_ref{}))
	fills := place(uintptr(len(t.fills)) * unsafe.Sizeof(C.sx_fill{}))
	tracks := place(uintptr(len(t.tracks)) * unsafe.Sizeof(C.sx_code{}))
	registers := place(uintptr(len(t.registers)) * 8)
	natives := place(uintptr(len(t.plan.Natives)) * unsafe.Sizeof(C.shunt_native{}))
	block := C.calloc(1, C.size_t(total))
	if block == nil {
		return nil
	}
	c := (*C.sx_program)(unsafe.Add(block, head))
	c.dtype, c.op, c.element = C.uint32_t(t.plan.DType), C.uint32_t(t.plan.Op), C.uint32_t(t.plan.DType.Bytes())
	c.count_tracks, c.count_registers, c.max_sources = C.uint32_t(len(t.tracks)), C.uint32_t(len(t.registers)),
		C.uint32_t(t.sources)
	c.steps = layOut(block, steps, t.steps)
	c.refs = layOut(block, refs, t.refs)
	c.fills = layOut(block, fills, t.fills)
	c.tracks = layOut(block, tracks, t.tracks)
	c.registers = layOut(block, registers, t.registers)
	type native struct{ function, context, start, poll uintptr } // as shunt_native, without cgo's pointer types
	all := make([]native, len(t.plan.Natives))
	for i, n := range t.plan.Natives {
		all[i] = native{n.Function, n.Context, n.Start, n.Poll}
	}
	c.natives = (*C.shunt_native)(unsafe.Pointer(layOut(block, natives, all)))
	return c
}

// layOut copies items to an offset of a block.
func layOut[T any](block unsafe.Pointer, offset uintptr, items []T) *T {
	at := (*T)(unsafe.Add(block, offset))
	copy(unsafe.Slice(at, len(items)), items)
	return at
}
