package ucx

// #include <stdlib.h>
// #include "ucx.h"
// static uintptr_t starter(void) { return (uintptr_t)ux_start; }
// static uintptr_t poller(void) { return (uintptr_t)ux_poll; }
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// form is one way to do a collective.
type form struct {
	name      string
	exchanges float64                     // how often each rank waits for all others
	volume    func(peers float64) float64 // bytes that leave the busiest rank, by those of the message
	write     func(*writer)
}

const (
	direct        = "direct"
	oneShot       = "one_shot"
	twoShot       = "two_shot"
	scatterGather = "scatter_gather"
)

// bandwidth is a guess at what one rank sends, in bytes per microsecond: 100 Gb/s between hosts. Ranks of one host
// reach each other by TCP, unless a variable of UCX's gives them shared memory.
func bandwidth(hosts int) float64 {
	if hosts <= 1 {
		return 1000
	}
	return 10000
}

func toEach(peers float64) float64   { return peers }
func once(float64) float64           { return 1 }
func shares(peers float64) float64   { return peers / (peers + 1) }
func twoParts(peers float64) float64 { return 2 * peers / (peers + 1) }

var moves = []form{{direct, 1, once, (*writer).direct}}

// forms are the ways to do each collective, the one for short messages first.
var forms = map[plugin.Collective][]form{
	plugin.AllReduce: {
		{oneShot, 1, toEach, (*writer).allReduceOneShot},
		{twoShot, 2, twoParts, (*writer).allReduceTwoShot},
	},
	plugin.Reduce:    {{direct, 1, toEach, (*writer).reduceDirect}, {twoShot, 2, twoParts, (*writer).reduceTwoShot}},
	plugin.Broadcast: {{direct, 1, toEach, (*writer).direct}, {scatterGather, 2, twoParts, (*writer).broadcastInParts}},

	plugin.AllGather: {{direct, 1, toEach, (*writer).direct}}, plugin.AllGatherV: {{direct, 1, toEach, (*writer).direct}},
	plugin.ReduceScatter:  {{direct, 1, shares, (*writer).reduceScatter}},
	plugin.ReduceScatterV: {{direct, 1, shares, (*writer).reduceScatter}},
	plugin.AllToAll:       moves, plugin.AllToAllV: moves, plugin.Gather: moves, plugin.GatherV: moves,
	plugin.Scatter: moves, plugin.ScatterV: moves, plugin.Barrier: moves,
	plugin.Send: {{direct, 1, once, (*writer).message}}, plugin.Recv: {{direct, 1, once, (*writer).message}},
}

// writer writes one plan.
type writer struct {
	*plugin.Builder
	e      *endpoint
	req    plugin.Request
	form   int
	stages int // exchanges that the plan has
}

// Prepare writes plans. Counts and displacements are slots, so one serves every call.
func (e *endpoint) Prepare(_ context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	for i, f := range forms[req.Collective] {
		if f.name != algorithm {
			continue
		}
		w := &writer{Builder: plugin.NewBuilder(req, algorithm), e: e, req: req, form: i}
		switch {
		case req.World == 1:
			w.Alone()
		case e.worker == nil:
			return nil, plugin.Errorf(plugin.Internal, "ucx: %s was prepared before its exchange", req.Collective)
		default:
			w.Track(func() { f.write(w) })
		}
		return w.Plan()
	}
	return nil, plugin.Errorf(plugin.Unsupported, "ucx has no algorithm %q for %s", algorithm, req.Collective)
}

// post writes the step of an order.
func (w *writer) post(kind, out, in C.int32_t, args ...plugin.Reg) {
	o := (*C.ux_order)(C.calloc(1, C.sizeof_ux_order))
	w.e.orders = append(w.e.orders, o)
	o.worker, o.kind, o.out, o.in = w.e.worker, kind, out, in
	o.call = C.uint64_t(uint64(w.req.Collective)<<22 | uint64(w.req.DType)<<16 | uint64(w.req.Op)<<8 | uint64(w.form)<<4 |
		uint64(w.stages))
	name := w.req.Collective.String()
	if w.req.Collective.Reduces() {
		name += fmt.Sprintf(" of %s by %s", w.req.DType, w.req.Op)
	}
	for i := range min(len(name), len(o.name)-1) {
		o.name[i] = C.char(name[i])
	}
	w.Native(plugin.Native{Start: uintptr(C.starter()), Poll: uintptr(C.poller()), Context: uintptr(unsafe.Pointer(o))},
		args...)
}

// message writes send and recv.
func (w *writer) message() {
	kind := C.int32_t(C.UX_MESSAGE_IN)
	if w.req.Collective == plugin.Send {
		kind = C.UX_MESSAGE_OUT
	}
	w.post(kind, C.UX_SEND, C.UX_RECV, w.Slot(plugin.SlotRoot), w.Slot(plugin.SlotBytes))
}

// part is a part of a buffer or of the endpoint's region.
type part struct{ at, bytes plugin.Reg }

// exchange writes a step in which this rank sends a part to every other and receives one from it. later is not zero
// where pairs without bytes have no message: in all rounds of a loop but the first.
func (w *writer) exchange(from, to C.int32_t, later plugin.Reg, out, in func(rank int) part) {
	region, zero := w.Const(int64(w.e.region.ID)), w.Const(0)
	for rank := range w.req.World {
		if rank == w.req.Rank {
			continue
		}
		for half, p := range []part{out(rank), in(rank)} {
			none := w.Mul(w.Eq(p.bytes, zero), later)
			for word, v := range []plugin.Reg{p.at, w.Sub(p.bytes, none)} {
				at := int64(rank*entryBytes + half*16 + word*8)
				w.Store(w.Region(region, w.Rank(), w.Const(at)), v)
			}
		}
	}
	root := zero
	if w.req.Collective.Rooted() {
		root = w.Slot(plugin.SlotRoot)
	}
	w.post(C.UX_EXCHANGE, from, to, zero, root)
	w.stages++
}

// when returns n where the rank is the root, and 0 elsewhere.
func (w *writer) when(rank int, n plugin.Reg) plugin.Reg {
	return w.Mul(w.Eq(w.Slot(plugin.SlotRoot), w.Const(int64(rank))), n)
}

// direct writes a collective that moves whole blocks at once, and the barrier.
func (w *writer) direct() {
	w.own()
	w.exchange(C.UX_SEND, C.UX_RECV, w.Const(0),
		func(rank int) part { out, _ := w.pair(rank); return out },
		func(rank int) part { _, in := w.pair(rank); return in })
}

// pair returns what goes to a rank and what comes from it, in send and receive memory.
func (w *writer) pair(rank int) (out, in part) {
	me, bytes, zero := w.req.Rank, w.Slot(plugin.SlotBytes), w.Const(0)
	switch w.req.Collective {
	case plugin.Broadcast:
		return part{zero, w.when(me, bytes)}, part{zero, w.when(rank, bytes)}
	case plugin.AllGather, plugin.AllGatherV:
		return part{zero, bytes}, part{w.RecvDispl(rank), w.RecvCount(rank)}
	case plugin.AllToAll, plugin.AllToAllV:
		return part{w.SendDispl(rank), w.SendCount(rank)}, part{w.RecvDispl(rank), w.RecvCount(rank)}
	case plugin.Gather, plugin.GatherV:
		return part{zero, w.when(rank, bytes)}, part{w.RecvDispl(rank), w.when(me, w.RecvCount(rank))}
	case plugin.Scatter, plugin.ScatterV:
		return part{w.SendDispl(rank), w.when(me, w.SendCount(rank))}, part{zero, w.when(rank, bytes)}
	}
	return part{zero, zero}, part{zero, zero} // barrier
}

// own copies what this rank sends to itself.
func (w *writer) own() {
	switch w.req.Collective {
	case plugin.Broadcast:
		zero := w.Const(0)
		w.Copy(w.Recv(zero), w.Send(zero), w.when(w.req.Rank, w.Slot(plugin.SlotBytes)))
	case plugin.Barrier:
	default:
		w.CopyOwn()
	}
}
