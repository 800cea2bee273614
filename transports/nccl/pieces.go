package nccl

import (
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
)

// kind says how a collective divides the staging memory. A piece is the most that one command moves: of the message, or
// of each rank's block.
//
//	wholes          | a piece |                                  in place
//	gathers         | of rank 0 | of rank 1 | …                  blocks of the length of this piece, in place
//	scatters        | for rank 0 | for rank 1 | …                likewise
//	gathersBlocks   | of rank 0 | of rank 1 | …                  blocks at multiples of the piece, in place
//	scattersBlocks  | for rank 0 | for rank 1 | …                likewise
//	exchanges       | for rank 0 | … | from rank 0 | …           likewise, but not in place
//	messages        | a piece |                                  as long as those of exchanges, which may be the other end
type kind int

const (
	wholes kind = iota
	gathers
	scatters
	gathersBlocks
	scattersBlocks
	exchanges
	messages
)

func kindOf(c plugin.Collective) kind {
	switch c {
	case plugin.AllReduce, plugin.Reduce, plugin.Broadcast, plugin.Barrier:
		return wholes
	case plugin.AllGather:
		return gathers
	case plugin.ReduceScatter:
		return scatters
	case plugin.AllGatherV:
		return gathersBlocks
	case plugin.ReduceScatterV:
		return scattersBlocks
	case plugin.Send, plugin.Recv:
		return messages
	}
	return exchanges
}

// alignment divides the size of every piece: it is a multiple of every element's size, and NCCL is fastest with it.
const alignment = 256

// pieceOf returns the length of a piece.
func pieceOf(c plugin.Collective, world int, staging int64) int64 {
	parts := int64(1)
	switch kindOf(c) {
	case wholes:
	case exchanges, messages:
		parts = 2 * int64(world)
	default:
		parts = int64(world)
	}
	return staging / parts / alignment * alignment
}

// mostWork limits the work that a plan puts into a stream: half of what the executor takes.
const mostWork = 4096

// longest returns the longest message in plugin.Request's bytes: a plan has a command for each of its pieces, and a
// copy for each block of it. It is 0, for no limit, where ranks see different sizes and so cannot choose by them; there
// the executor refuses what is longer.
func longest(c plugin.Collective, world int, staging int64) int64 {
	switch c {
	case plugin.AllToAllV, plugin.GatherV, plugin.ScatterV:
		return 0
	}
	copies := int64(2)
	switch kindOf(c) {
	case wholes:
	case messages:
		copies = 1
	case exchanges:
		copies = 2 * int64(world)
	default:
		copies = int64(world) + 1
	}
	return mostWork / (copies + 1) * pieceOf(c, world, staging)
}

// opCounts is the command that says what an operation moves in all, for those whose ranks' blocks differ: the place of
// the first count, and the counts. Plans are numbered from 1.
const opCounts = 0

// piece is the arguments of a plan's command.
type piece struct {
	bytes  int64 // of this piece, where it has one length
	number int64 // of the piece, from 0
	root   int64 // SlotRoot
	scalar int64 // SlotScalar
}

const pieceArgs = 4

// stagedWriter writes one plan.
type stagedWriter struct {
	*plugin.Builder
	ring        *ring.Ring
	r           plugin.Request
	plan, piece int64
}

// writeStaged writes a plan whose commands have the number plan.
func writeStaged(ring *ring.Ring, r plugin.Request, algorithm string, plan, staging int64) (*plugin.Plan, error) {
	w := &stagedWriter{plugin.NewBuilder(r, algorithm), ring, r, plan, pieceOf(r.Collective, r.World, staging)}
	w.Track(func() {
		switch kindOf(r.Collective) {
		case wholes:
			w.whole()
		case gathers, scatters:
			w.uniform()
		case messages:
			w.message()
		case gathersBlocks:
			w.gatherBlocks()
		case scattersBlocks:
			w.scatterBlocks()
		case exchanges:
			w.exchange()
		}
	})
	return w.Plan()
}

// staged returns a place in the staging memory.
func (w *stagedWriter) staged(offset plugin.Reg) plugin.RefID {
	return w.Region(w.Const(stagingRegion), w.Rank(), offset)
}

// block returns the place of a block behind others of the longest length.
func (w *stagedWriter) block(i int) plugin.RefID { return w.staged(w.Const(int64(i) * w.piece)) }

// post posts the command of a piece.
func (w *stagedWriter) post(bytes, number plugin.Reg) {
	w.ring.Post(w.Builder, w.plan, bytes, number, w.Slot(plugin.SlotRoot), w.Slot(plugin.SlotScalar))
}

// pieces repeats the body for each piece of so many bytes.
func (w *stagedWriter) pieces(bytes plugin.Reg, body func(number, offset plugin.Reg)) {
	w.Loop(w.CeilDiv(bytes, w.Const(w.piece)), func(i plugin.Reg) { body(i, w.Mul(i, w.Const(w.piece))) })
}

// now returns how many of the bytes of a block the piece at an offset has.
func (w *stagedWriter) now(bytes, offset plugin.Reg) plugin.Reg {
	return w.Max(w.Min(w.Sub(bytes, offset), w.Const(w.piece)), w.Const(0))
}

func (w *stagedWriter) whole() {
	zero, bytes := w.Const(0), w.Slot(plugin.SlotBytes)
	c := w.r.Collective
	if c == plugin.Barrier {
		w.post(zero, zero)
		return
	}
	isRoot := w.Eq(w.Slot(plugin.SlotRoot), w.Rank())
	w.pieces(bytes, func(i, offset plugin.Reg) {
		n := w.now(bytes, offset)
		in, out := n, n
		switch c {
		case plugin.Broadcast:
			in = w.Mul(n, isRoot)
		case plugin.Reduce:
			out = w.Mul(n, isRoot)
		}
		w.Copy(w.staged(zero), w.Send(offset), in)
		w.post(n, i)
		w.Copy(w.Recv(offset), w.staged(zero), out)
	})
}

func (w *stagedWriter) uniform() {
	bytes := w.Slot(plugin.SlotBytes)
	w.pieces(bytes, func(i, offset plugin.Reg) {
		n := w.now(bytes, offset)
		place := func(rank int) plugin.RefID { return w.staged(w.Mul(n, w.Const(int64(rank)))) }
		if w.r.Collective == plugin.AllGather {
			w.Copy(place(w.r.Rank), w.Send(offset), n)
			w.post(n, i)
			for rank := range w.r.World {
				w.Copy(w.Recv(w.Add(w.RecvDispl(rank), offset)), place(rank), n)
			}
			return
		}
		for rank := range w.r.World {
			w.Copy(place(rank), w.Send(w.Add(w.SendDispl(rank), offset)), n)
		}
		w.post(n, i)
		w.Copy(w.Recv(offset), place(w.r.Rank), n)
	})
}

func (w *stagedWriter) message() {
	zero, bytes := w.Const(0), w.Slot(plugin.SlotBytes)
	w.pieces(bytes, func(i, offset plugin.Reg) {
		n := w.now(bytes, offset)
		if w.r.Collective == plugin.Send {
			w.Copy(w.staged(zero), w.Send(offset), n)
		}
		w.post(n, i)
		if w.r.Collective == plugin.Recv {
			w.Copy(w.Recv(offset), w.staged(zero), n)
		}
	})
}

// announce says what each rank's block has in all, and returns the most.
func (w *stagedWriter) announce(counts []plugin.Reg) plugin.Reg {
	most := w.Const(0)
	for _, n := range counts {
		most = w.Max(most, n)
	}
	w.If(w.Lt(w.Const(0), most), func() {
		const each = plugin.MaxCommandArgs - 1
		for first := 0; first < len(counts); first += each {
			args := append([]plugin.Reg{w.Const(int64(first))}, counts[first:min(first+each, len(counts))]...)
			w.ring.Post(w.Builder, opCounts, args...)
		}
	})
	return most
}

// counts returns a register for each rank.
func (w *stagedWriter) counts(of func(rank int) plugin.Reg) []plugin.Reg {
	list := make([]plugin.Reg, w.r.World)
	for rank := range list {
		list[rank] = of(rank)
	}
	return list
}

func (w *stagedWriter) gatherBlocks() {
	counts, me := w.counts(w.RecvCount), w.r.Rank
	w.pieces(w.announce(counts), func(i, offset plugin.Reg) {
		w.Copy(w.block(me), w.Send(offset), w.now(counts[me], offset))
		w.post(w.Const(0), i)
		for rank, n := range counts {
			w.Copy(w.Recv(w.Add(w.RecvDispl(rank), offset)), w.block(rank), w.now(n, offset))
		}
	})
}

func (w *stagedWriter) scatterBlocks() {
	counts, me := w.counts(w.SendCount), w.r.Rank
	w.pieces(w.announce(counts), func(i, offset plugin.Reg) {
		for rank, n := range counts {
			w.Copy(w.block(rank), w.Send(w.Add(w.SendDispl(rank), offset)), w.now(n, offset))
		}
		w.post(w.Const(0), i)
		w.Copy(w.Recv(offset), w.block(me), w.now(counts[me], offset))
	})
}

// exchange is all_to_all, gather and scatter, with counts or without. A rank knows the messages of its own pairs only,
// so ranks may have different numbers of pieces; both ends of a message have the same.
func (w *stagedWriter) exchange() {
	out, in := w.counts(w.SendCount), w.counts(w.RecvCount)
	w.pieces(w.announce(append(out[:len(out):len(out)], in...)), func(i, offset plugin.Reg) {
		for rank, n := range out {
			w.Copy(w.block(rank), w.Send(w.Add(w.SendDispl(rank), offset)), w.now(n, offset))
		}
		w.post(w.Const(0), i)
		for rank, n := range in {
			w.Copy(w.Recv(w.Add(w.RecvDispl(rank), offset)), w.block(w.r.World+rank), w.now(n, offset))
		}
	})
}
