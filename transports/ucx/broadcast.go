package ucx

// #include "ucx.h"
import "C"

import "github.com/shunt-ccl/shunt/plugin"

// broadcastInParts has the root give each rank a share, and the ranks hand the shares round: the root sends little more
// than the message once.
func (w *writer) broadcastInParts() {
	w.own()
	mine, zero := w.share(w.req.Rank), w.Const(0)
	w.exchange(C.UX_SEND, C.UX_RECV, zero,
		func(rank int) part { p := w.share(rank); return part{p.at, w.when(w.req.Rank, p.bytes)} },
		func(rank int) part { return part{mine.at, w.when(rank, mine.bytes)} })
	atRoot := w.Eq(w.Slot(plugin.SlotRoot), w.Rank())
	w.exchange(C.UX_RECV, C.UX_RECV, zero,
		func(rank int) part {
			return part{mine.at, w.Mul(w.Ne(w.Slot(plugin.SlotRoot), w.Const(int64(rank))), mine.bytes)}
		},
		func(rank int) part { p := w.share(rank); return part{p.at, w.Mul(w.Sub(w.Const(1), atRoot), p.bytes)} })
}
