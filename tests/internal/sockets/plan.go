package sockets

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/shunt-ccl/shunt/plugin"
)

// Staging memory holds, for each rank, four slots of a chunk each: what goes to it and
// comes from it in collectives, and the same of send and recv, which may run beside each
// other. Behind them stands the table of the exchange command: for each rank, the bytes
// of this round's message and of all of them, out and in; -1: no message.
const (
	slotOut = iota
	slotIn
	slotSend
	slotRecv
	slots
)

const entryBytes = 32

func slotOf(_, rank, which int) int { return (rank*slots + which) * chunk }

func tableOf(world int) int { return world * slots * chunk }

func stagingBytes(world int) int { return tableOf(world) + world*entryBytes }

// entry is a message's entry in the table.
type entry struct{ bytes, total int64 }

func (e *endpoint) entry(rank int, in bool) entry {
	at := tableOf(e.config.World) + rank*entryBytes
	if in {
		at += 16
	}
	b := e.ring.Staging()[at:]
	return entry{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
}

// fill writes the table of a round from the arguments of its command.
func (e *endpoint) fill(args []int64) {
	world := e.config.World
	round := args[3*world]
	for rank := range world {
		for k := range 2 {
			total := args[world+2*rank+k]
			bytes := max(min(total-round*chunk, chunk), 0)
			if total < 0 || bytes == 0 && round > 0 {
				bytes = -1
			}
			b := e.ring.Staging()[tableOf(world)+rank*entryBytes+16*k:]
			binary.LittleEndian.PutUint64(b, uint64(bytes))
			binary.LittleEndian.PutUint64(b[8:], uint64(total))
		}
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Prepare writes plans. Counts and displacements are slots, so one serves every call.
func (e *endpoint) Prepare(_ context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	if algorithm != direct {
		return nil, plugin.Errorf(plugin.Unsupported, "sockets has no algorithm %q", algorithm)
	}
	w := &writer{Builder: plugin.NewBuilder(req, algorithm), e: e, req: req}
	e.mu.Lock()
	w.tags = e.tags[planOf(req)]
	e.mu.Unlock()
	if e.is("overread") && e.native != nil {
		w.Track(func() { e.native.overread(w.Builder, w.Slot(plugin.SlotBytes)) })
	}
	switch {
	case req.World == 1:
		w.Alone()
	case len(w.tags) != req.World:
		return nil, plugin.Errorf(plugin.Internal, "sockets: prepare of %s before its exchange", req.Collective)
	case req.Collective == plugin.Send:
		w.message(opSend, slotSend)
	case req.Collective == plugin.Recv:
		w.message(opRecv, slotRecv)
	default:
		w.rounds()
	}
	return w.Plan()
}

type writer struct {
	*plugin.Builder
	e    *endpoint
	req  plugin.Request
	tags []int64
}

// post writes the step of a command, in either way.
func (w *writer) post(operation int64, args ...plugin.Reg) {
	if w.e.native != nil {
		w.e.native.post(w.Builder, operation, args...)
		return
	}
	w.e.ring.Post(w.Builder, operation, args...)
}

// message writes send and recv: chunk by chunk, at least one.
func (w *writer) message(operation int64, slot int) {
	w.Track(func() {
		root, bytes := w.Slot(plugin.SlotRoot), w.Slot(plugin.SlotBytes)
		at := w.Add(w.Mul(root, w.Const(slots*chunk)), w.Const(int64(slot*chunk)))
		place := w.e.ring.Place(w.Builder, at)
		chunks := w.CeilDiv(bytes, w.Const(chunk))
		if !w.inGroups() { // there a message of no bytes does not exist
			chunks = w.Max(chunks, w.Const(1))
		}
		w.Loop(chunks, func(i plugin.Reg) {
			offset := w.Mul(i, w.Const(chunk))
			n := w.Min(w.Sub(bytes, offset), w.Const(chunk))
			if operation == opSend {
				w.Copy(place, w.Send(offset), n)
			}
			// The two ends of a message are different plans: its length is all they share.
			w.post(operation, root, at, n, bytes, w.Const(0))
			if operation == opRecv {
				w.Copy(w.Recv(offset), place, n)
			}
		})
	})
}

// half is one direction of a pair: how many bytes, and where they are.
type half struct {
	total plugin.Reg
	at    func(offset plugin.Reg) plugin.RefID
}

// rounds writes every collective: in each round a chunk goes to each peer and one comes
// from it. A pair whose bytes are over has no message in the rounds that follow; in the
// first there is always one.
func (w *writer) rounds() {
	me := w.req.Rank
	zero, size := w.Const(0), w.Const(chunk)
	args := make([]plugin.Reg, w.req.World)
	for rank, tag := range w.tags {
		if w.inGroups() {
			tag = 0 // that of send and recv, which may be the other end
		}
		args[rank] = w.Const(tag)
	}
	w.Track(func() {
		out, in := make([]half, w.req.World), make([]half, w.req.World)
		most := zero
		for rank := range w.req.World {
			if rank == me {
				continue
			}
			out[rank], in[rank] = w.pair(rank)
			most = w.Max(most, w.Max(out[rank].total, in[rank].total))
		}
		reduced := w.reduced()
		if reduced.at == nil {
			w.own()
		} else {
			most = w.Max(most, reduced.total)
		}
		onGPU := w.req.Memory == plugin.MemoryKindCuda
		if onGPU {
			for rank := range w.req.World {
				args = append(args, w.announced(out[rank].total, rank), w.announced(in[rank].total, rank))
			}
		}
		w.Loop(w.Max(w.CeilDiv(most, size), w.Const(1)), func(i plugin.Reg) {
			offset := w.Mul(i, size)
			now := func(total plugin.Reg) plugin.Reg { return w.Max(w.Min(w.Sub(total, offset), size), zero) }
			table := func(rank, word int, v plugin.Reg) {
				w.Store(w.e.ring.Place(w.Builder, w.Const(int64(tableOf(w.req.World)+rank*entryBytes+word*8))), v)
			}
			staged := func(rank, slot int) plugin.RefID {
				return w.e.ring.Place(w.Builder, w.Const(int64(slotOf(w.req.World, rank, slot))))
			}
			for rank := range w.req.World {
				if rank == me {
					continue
				}
				if onGPU {
					w.Copy(staged(rank, slotOut), out[rank].at(offset), now(out[rank].total))
					continue
				}
				for k, h := range []half{out[rank], in[rank]} {
					n := now(h.total)
					none := w.Sub(w.Max(w.Lt(zero, n), w.Eq(i, zero)), w.Const(1)) // -1 without a message
					table(rank, 2*k, w.Add(n, none))
					table(rank, 2*k+1, h.total)
					if k == 0 {
						w.Copy(staged(rank, slotOut), h.at(offset), n)
					}
				}
			}
			if onGPU {
				w.post(opRound, append(args, i)...)
			} else {
				w.post(opExchange, args...)
			}
			if reduced.at == nil {
				for rank := range w.req.World {
					if rank != me {
						w.Copy(in[rank].at(offset), staged(rank, slotIn), now(in[rank].total))
					}
				}
				return
			}
			sources := make([]plugin.RefID, w.req.World)
			for rank := range sources {
				if sources[rank] = staged(rank, slotIn); rank == me {
					sources[rank] = reduced.at(offset)
				}
			}
			w.Reduce(w.Recv(offset), w.Div(now(reduced.total), w.Const(w.req.DType.Bytes())), sources...)
		})
	})
}

// inGroups reports whether the plan serves messages of groups: on CUDA memory they come as all_to_all_v, in which only
// ranks take part that have bytes for each other, and the other end of a message may be a send or recv by itself.
func (w *writer) inGroups() bool {
	c := w.req.Collective
	return w.req.Memory == plugin.MemoryKindCuda && (c == plugin.AllToAllV || c == plugin.Send || c == plugin.Recv)
}

// announced returns what a round's arguments say of the bytes to or from a rank: -1 where there is no message.
func (w *writer) announced(total plugin.Reg, rank int) plugin.Reg {
	switch {
	case rank == w.req.Rank:
		return w.Const(-1)
	case w.inGroups():
		return w.Sub(total, w.Eq(total, w.Const(0)))
	}
	return total
}

// when returns n where the rank is the root, and 0 elsewhere.
func (w *writer) when(rank int, n plugin.Reg) plugin.Reg {
	return w.Mul(w.Eq(w.Slot(plugin.SlotRoot), w.Const(int64(rank))), n)
}

// pair returns the message to a peer and the one from it.
func (w *writer) pair(rank int) (out, in half) {
	me, bytes := w.req.Rank, w.Slot(plugin.SlotBytes)
	from := func(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
		return func(offset plugin.Reg) plugin.RefID { return w.SendScaled(w.Add(displ, offset)) }
	}
	to := func(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
		return func(offset plugin.Reg) plugin.RefID { return w.Recv(w.Add(displ, offset)) }
	}
	zero := w.Const(0)
	switch w.req.Collective {
	case plugin.AllReduce:
		return half{bytes, from(zero)}, half{bytes, to(zero)}
	case plugin.Reduce:
		return half{w.when(rank, bytes), from(zero)}, half{w.when(me, bytes), to(zero)}
	case plugin.Broadcast:
		return half{w.when(me, bytes), from(zero)}, half{w.when(rank, bytes), to(zero)}
	case plugin.AllGather, plugin.AllGatherV:
		return half{bytes, from(zero)}, half{w.RecvCount(rank), to(w.RecvDispl(rank))}
	case plugin.ReduceScatter, plugin.ReduceScatterV:
		return half{w.SendCount(rank), from(w.SendDispl(rank))}, half{bytes, to(zero)}
	case plugin.AllToAll, plugin.AllToAllV:
		return half{w.SendCount(rank), from(w.SendDispl(rank))}, half{w.RecvCount(rank), to(w.RecvDispl(rank))}
	case plugin.Gather, plugin.GatherV:
		return half{w.when(rank, bytes), from(zero)}, half{w.when(me, w.RecvCount(rank)), to(w.RecvDispl(rank))}
	case plugin.Scatter, plugin.ScatterV:
		return half{w.when(me, w.SendCount(rank)), from(w.SendDispl(rank))}, half{w.when(rank, bytes), to(zero)}
	}
	return half{zero, from(zero)}, half{zero, to(zero)} // barrier
}

// reduced returns the bytes that this rank reduces, and its own contribution; at is nil
// if the collective reduces nothing.
func (w *writer) reduced() half {
	bytes := w.Slot(plugin.SlotBytes)
	switch w.req.Collective {
	case plugin.AllReduce:
		return half{bytes, w.SendScaled}
	case plugin.Reduce:
		return half{w.when(w.req.Rank, bytes), w.SendScaled}
	case plugin.ReduceScatter, plugin.ReduceScatterV:
		return half{bytes, func(offset plugin.Reg) plugin.RefID {
			return w.SendScaled(w.Add(w.SendDispl(w.req.Rank),
				offset))
		}}
	}
	return half{}
}

// own copies what this rank sends to itself.
func (w *writer) own() {
	switch w.req.Collective {
	case plugin.Broadcast:
		zero := w.Const(0)
		w.Copy(w.Recv(zero), w.Send(zero), w.when(w.req.Rank, w.Slot(plugin.SlotBytes)))
	case plugin.AllGather, plugin.AllGatherV, plugin.AllToAll, plugin.AllToAllV, plugin.Gather, plugin.GatherV,
		plugin.Scatter, plugin.ScatterV:
		w.CopyOwn()
	}
}
