package bench

import (
	"errors"
	"unsafe"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/nccl"
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// peer is NCCL: on the same memory, and on memory of its own that is registered
// as a symmetric window.
type peer struct {
	library *nccl.Library
	comm    *nccl.Communicator
	window  twin
}

// openPeer loads NCCL and joins its ranks over Shunt.
func openPeer(r *rank) (*peer, error) {
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
	p := &peer{library: library, window: twin{device: d}}
	if p.comm, err = library.Init(id, r.comm.Rank(), r.config.World); err != nil {
		return nil, err
	}
	for _, which := range []bufferName{sendBuffer, recvBuffer} {
		at, err := p.comm.Window(d.bytes[which])
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.window.at[which] = cuda.Ptr(at)
	}
	return p, nil
}

func (p *peer) close() error { return p.comm.Close() }

// candidates returns NCCL's ways to do a job, if it has any: no fewer on one rank
// than on another, because translate looks at the kind of operation alone.
//
// Both forms are NCCL's own choice. Before 2.29.2 it fails where a registered
// buffer has been used by sends, receives or AllToAll and is then used by a
// collective: measure those in a process of their own.
func (p *peer) candidates(r *rank, job *prepared) ([]candidate, error) {
	var list []candidate
	for _, form := range []struct {
		name  string
		slots []slot
	}{{NCCL, job.slots}, {NCCLWindow, p.window.moved(job.slots)}} {
		operations := make([][]nccl.Operation, len(form.slots))
		for i, k := range form.slots {
			translated, ok := translate(r.operations(job, k), r.comm.Rank(), r.config.World, p.library.HasAllToAll())
			if !ok {
				return nil, nil
			}
			operations[i] = translated
		}
		stream := uint64(p.window.device.own)
		list = append(list, candidate{
			name: form.name, slots: form.slots,
			call: func(slot int) error { return p.comm.Submit(operations[slot], stream) },
		})
	}
	return list, nil
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
