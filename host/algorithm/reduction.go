package algorithm

import "github.com/shunt-ccl/shunt/plugin"

// contributions reads one piece of every peer at once: it waits for piece
// index of each channel and returns all sources in rank order, own for this
// rank.
func (w *writer) contributions(in []incoming, index plugin.Reg, own plugin.RefID) []plugin.RefID {
	sources := make([]plugin.RefID, w.size)
	sources[w.me] = own
	for _, i := range in {
		sources[i.from.known] = w.await(i, index)
	}
	return sources
}

// allIncoming returns the reader's ends of the channels from all peers.
func (w *writer) allIncoming(c class) []incoming {
	var in []incoming
	for _, p := range w.peers() {
		in = append(in, w.incoming(c, p))
	}
	return in
}

// allOutgoing returns the writer's ends of the channels to all peers.
func (w *writer) allOutgoing(c class) []outgoing {
	var out []outgoing
	for _, p := range w.peers() {
		out = append(out, w.outgoing(c, p))
	}
	return out
}

// reduceFrom reduces a message of n bytes: the pieces of all ranks and what own
// names, into the receive memory.
func (w *writer) reduceFrom(n plugin.Reg, own func(offset plugin.Reg) plugin.RefID) {
	in := w.allIncoming(personal)
	pieces := w.rounds(n)
	w.Loop(pieces, func(i plugin.Reg) {
		capacity := w.Const(w.capacity)
		offset := w.Mul(i, capacity)
		sources := w.contributions(in, i, own(offset))
		w.Reduce(w.Recv(offset), w.elements(w.piece(n, offset, capacity)), sources...)
		for _, from := range in {
			w.consume(from, i)
		}
	})
	for _, from := range in {
		w.received(from, pieces)
	}
}

// reduceDirect: every rank sends its data to the root, which reduces it.
func reduceDirect(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.Track(func() {
		isRoot := w.isRoot()
		w.If(isRoot, func() { w.reduceFrom(bytes, w.SendScaled) })
		w.otherwise(isRoot, func() { w.send(personal, w.root(), bytes, w.SendScaled) })
	})
}

// allReduceOneShot: every rank sends its data to all others and reduces all. One
// track does both, a piece apart, so that in place no piece is overwritten by
// its result before it was sent.
func allReduceOneShot(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.Track(func() {
		out, in := w.allOutgoing(personal), w.allIncoming(personal)
		pieces := w.rounds(bytes)
		capacity, one := w.Const(w.capacity), w.Const(1)
		w.Loop(w.Add(pieces, one), func(i plugin.Reg) {
			w.If(w.Lt(i, pieces), func() {
				offset := w.Mul(i, capacity)
				for _, o := range out {
					w.put(o, i, w.SendScaled(offset), w.piece(bytes, offset, capacity))
				}
			})
			w.If(i, func() {
				previous := w.Sub(i, one)
				offset := w.Mul(previous, capacity)
				sources := w.contributions(in, previous, w.SendScaled(offset))
				w.Reduce(w.Recv(offset), w.elements(w.piece(bytes, offset, capacity)), sources...)
				for _, from := range in {
					w.consume(from, previous)
				}
			})
		})
		for k := range in {
			w.sent(out[k], pieces)
			w.received(in[k], pieces)
		}
	})
}

// sendToAll sends the same message to all peers, piece by piece.
func (w *writer) sendToAll(n plugin.Reg, from func(offset plugin.Reg) plugin.RefID) {
	w.Track(func() {
		out := w.allOutgoing(personal)
		pieces := w.rounds(n)
		w.Loop(pieces, func(i plugin.Reg) {
			capacity := w.Const(w.capacity)
			offset := w.Mul(i, capacity)
			for _, o := range out {
				w.put(o, i, from(offset), w.piece(n, offset, capacity))
			}
		})
		for _, o := range out {
			w.sent(o, pieces)
		}
	})
}

// reduceScatterDirect: every rank sends each rank's block to that rank, which
// reduces it. Block lengths are known on all ranks, so it serves
// reduce_scatter and reduce_scatter_v alike.
func reduceScatterDirect(w *writer) {
	for _, p := range w.peers() {
		w.Track(func() {
			displ := w.SendDispl(p.known)
			w.send(personal, p, w.SendCount(p.known), func(offset plugin.Reg) plugin.RefID {
				return w.SendScaled(w.Add(displ, offset))
			})
		})
	}
	w.Track(func() {
		displ := w.SendDispl(w.me)
		w.reduceFrom(w.SendCount(w.me), func(offset plugin.Reg) plugin.RefID {
			return w.SendScaled(w.Add(displ, offset))
		})
	})
}

// shard divides a block of the message, which is one slot for each rank, in
// pieces of whole lines.
type shard struct {
	offset plugin.Reg // of the block in the message
	n      plugin.Reg // bytes of the block
	each   plugin.Reg // bytes of a shard but the last ones
}

func (w *writer) shard(bytes, index plugin.Reg) shard {
	block := w.Const(w.capacity * int64(w.size))
	offset := w.Mul(index, block)
	n := w.piece(bytes, offset, block)
	return shard{offset, n, w.Mul(w.CeilDiv(n, w.Const(int64(w.size)*line)), w.Const(line))}
}

// shardOf returns the offset and length of rank r's shard in the message.
func (w *writer) shardOf(s shard, r int) (start, n plugin.Reg) {
	first := w.Min(w.Mul(s.each, w.Const(int64(r))), s.n)
	last := w.Min(w.Mul(s.each, w.Const(int64(r+1))), s.n)
	return w.Add(s.offset, first), w.Sub(last, first)
}

// allReduceTwoShot: block by block, every rank sends each rank its shard, which
// that rank reduces and sends to all others. Three tracks keep several blocks
// in flight. In place it is safe because a peer's shard of a block is written
// only after the peer has reduced it, so after it was sent from here.
func allReduceTwoShot(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	blocks := func() plugin.Reg {
		return w.Max(w.CeilDiv(bytes, w.Const(w.capacity*int64(w.size))), w.Const(1))
	}
	w.Track(func() { // contribute
		out, n := w.allOutgoing(personal), blocks()
		w.Loop(n, func(i plugin.Reg) {
			s := w.shard(bytes, i)
			for _, o := range out {
				start, length := w.shardOf(s, o.to.known)
				w.put(o, i, w.SendScaled(start), length)
			}
		})
		for _, o := range out {
			w.sent(o, n)
		}
	})
	w.Track(func() { // reduce
		in, out, n := w.allIncoming(personal), w.allOutgoing(results), blocks()
		w.Loop(n, func(i plugin.Reg) {
			start, length := w.shardOf(w.shard(bytes, i), w.me)
			sources := w.contributions(in, i, w.SendScaled(start))
			result := w.Recv(start)
			w.Reduce(result, w.elements(length), sources...)
			for _, from := range in {
				w.consume(from, i)
			}
			for _, o := range out {
				w.put(o, i, result, length)
			}
		})
		for k := range in {
			w.received(in[k], n)
			w.sent(out[k], n)
		}
	})
	w.Track(func() { // collect
		in, n := w.allIncoming(results), blocks()
		w.Loop(n, func(i plugin.Reg) {
			s := w.shard(bytes, i)
			for _, from := range in {
				start, length := w.shardOf(s, from.from.known)
				at := w.await(from, i)
				w.Copy(w.Recv(start), at, length)
				w.consume(from, i)
			}
		})
		for _, from := range in {
			w.received(from, n)
		}
	})
}
