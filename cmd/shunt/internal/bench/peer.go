package bench

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/nccl"
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// peer is NCCL, which does the same operations on the same stream in turn with
// Shunt: on the same memory, and on memory of its own that is registered as a
// symmetric window.
type peer struct {
	device     *deviceSpace
	library    *nccl.Library
	comm       *nccl.Communicator
	send, recv window
}

// window is registered memory.
type window struct {
	memory uintptr
	bytes  int64
}

// openPeer loads NCCL and joins its ranks over Shunt. The answer is nil when
// nothing is compared.
func openPeer(r *rank) (*peer, error) {
	if r.config.Against == "" {
		return nil, nil
	}
	d := r.space.(*deviceSpace)
	library, err := nccl.Load(r.config.Library)
	if err != nil {
		return nil, err
	}
	if err := library.Enter(uint64(d.ctx)); err != nil {
		return nil, err
	}
	var id nccl.UniqueID
	if r.comm.Rank() == 0 {
		if id, err = library.UniqueID(); err != nil {
			return nil, err
		}
	}
	if err := r.share(id[:]); err != nil {
		return nil, err
	}
	p := &peer{device: d, library: library}
	if p.comm, err = library.Init(id, r.comm.Rank(), r.config.World); err != nil {
		return nil, err
	}
	for _, w := range []struct {
		window *window
		bytes  int64
	}{{&p.send, d.bytes[sendBuffer]}, {&p.recv, d.bytes[recvBuffer]}} {
		if w.window.memory, err = p.comm.Window(w.bytes); err != nil {
			return nil, errors.Join(err, p.close())
		}
		w.window.bytes = w.bytes
	}
	return p, nil
}

// share gives every rank rank 0's bytes.
func (r *rank) share(data []byte) error {
	a, err := r.space.buffer(recvBuffer, int64(len(data)))
	if err != nil {
		return err
	}
	d := r.space.(*deviceSpace)
	if err := d.driver.Write(d.ctx, a.pointer(), data); err != nil {
		return err
	}
	if err := r.comm.Broadcast(a.at, a.at, a.bytes, plugin.Uint8, 0, r.space.stream()); err != nil {
		return err
	}
	if err := d.finish(); err != nil {
		return err
	}
	return d.driver.Read(d.ctx, data, a.pointer())
}

func (p *peer) close() error {
	if p.comm == nil {
		return nil
	}
	return p.comm.Close()
}

// add puts NCCL's ways of a job into its list, if NCCL has them.
func (p *peer) add(r *rank, job *prepared) error {
	for _, form := range []struct {
		name   string
		window bool
	}{{"nccl", false}, {"nccl window", true}} {
		slots := make([][]nccl.Operation, len(job.slots))
		moved := make([]slot, len(job.slots))
		for i, k := range job.slots {
			if form.window {
				k = p.move(k)
			}
			moved[i] = k
			operations := r.operations(job, k)
			if form.window && !slices.ContainsFunc(operations, windowed) {
				return nil
			}
			list, ok := translate(operations, r.comm.Rank(), r.config.World, p.library.HasAllToAll())
			if !ok {
				return nil
			}
			slots[i] = list
		}
		call := func(slot int) error { return p.comm.Submit(slots[slot], uint64(p.device.own)) }
		c := candidate{name: form.name, call: call}
		if form.window {
			c.slots = moved
		}
		job.list = append(job.list, c)
	}
	return nil
}

// windowed reports whether NCCL has kernels for symmetric windows. In the other
// collectives a window gains nothing.
func windowed(op host.Operation) bool {
	return op.Collective == plugin.AllReduce || op.Collective == plugin.AllGather || op.Collective == plugin.ReduceScatter
}

// move is the same place in the registered memory.
func (p *peer) move(k slot) slot {
	d := p.device
	shift := func(a area) area {
		at := a.pointer()
		for _, b := range []struct {
			from  cuda.Ptr
			bytes int64
			to    uintptr
		}{{d.memory[sendBuffer], d.bytes[sendBuffer], p.send.memory}, {d.memory[recvBuffer], d.bytes[recvBuffer], p.recv.memory}} {
			if a.bytes > 0 && at >= b.from && at < b.from+cuda.Ptr(b.bytes) {
				return area{address(uint64(b.to) + uint64(at-b.from)), a.bytes}
			}
		}
		return a
	}
	return slot{send: shift(k.send), recv: shift(k.recv), before: shift(k.before), after: shift(k.after)}
}

// translate writes operations as NCCL's, with sends and receives for what it
// has no call for. Not everything can be.
func translate(operations []host.Operation, rank, world int, allToAll bool) ([]nccl.Operation, bool) {
	var list []nccl.Operation
	for _, op := range operations {
		dtype, ok := nccl.DTypeOf(op.DType)
		reduction, known := nccl.OpOf(op.Op)
		if !ok || (op.Collective.Reduces() && !known) {
			return nil, false
		}
		o := nccl.Operation{Send: op.Send, Recv: op.Recv, Count: op.Count, DType: dtype, Op: reduction, Peer: int32(op.Root)}
		exchange := func(kind nccl.Kind, base unsafe.Pointer, peer int, begin, count int64) {
			e := o
			e.Kind, e.Peer, e.Count = kind, int32(peer), count
			e.Send, e.Recv = nil, nil
			at := address(uint64(uintptr(base)) + uint64(begin*op.DType.Bytes())) // device memory
			if kind == nccl.Send {
				e.Send = at
			} else {
				e.Recv = at
			}
			list = append(list, e)
		}
		switch op.Collective {
		case plugin.AllReduce:
			o.Kind = nccl.AllReduce
		case plugin.Reduce:
			o.Kind = nccl.Reduce
		case plugin.Broadcast:
			o.Kind = nccl.Broadcast
		case plugin.AllGather:
			o.Kind = nccl.AllGather
		case plugin.ReduceScatter:
			o.Kind = nccl.ReduceScatter
		case plugin.AllToAll:
			if !allToAll {
				for peer := range world {
					exchange(nccl.Send, op.Send, peer, int64(peer)*op.Count, op.Count)
					exchange(nccl.Recv, op.Recv, peer, int64(peer)*op.Count, op.Count)
				}
				continue
			}
			o.Kind = nccl.AllToAll
		case plugin.Send:
			o.Kind = nccl.Send
		case plugin.Recv:
			o.Kind = nccl.Recv
		case plugin.AllToAllV:
			for peer := range world {
				begin, _ := packed(op.SendCounts, peer)
				exchange(nccl.Send, op.Send, peer, begin, op.SendCounts[peer])
				begin, _ = packed(op.RecvCounts, peer)
				exchange(nccl.Recv, op.Recv, peer, begin, op.RecvCounts[peer])
			}
			continue
		case plugin.Gather:
			exchange(nccl.Send, op.Send, op.Root, 0, op.Count)
			for peer := range world {
				if rank == op.Root {
					exchange(nccl.Recv, op.Recv, peer, int64(peer)*op.Count, op.Count)
				}
			}
			continue
		case plugin.Scatter:
			for peer := range world {
				if rank == op.Root {
					exchange(nccl.Send, op.Send, peer, int64(peer)*op.Count, op.Count)
				}
			}
			exchange(nccl.Recv, op.Recv, op.Root, 0, op.Count)
			continue
		default:
			return nil, false
		}
		list = append(list, o)
	}
	return list, true
}
