package flawed

import "github.com/shunt-ccl/shunt/plugin"

// The layout of the region of the plan: a semaphore, a counter, and two slots.
const (
	region = 2

	semaphore = 0
	counter   = 64
	slotsAt   = 4096
	slotBytes = 16 << 10

	regionBytes = slotsAt + 2*slotBytes
)

// allGatherV writes the plan: all ranks publish a piece, wait for those of all ranks and read them, in two slots in
// turn.
func (e *endpoint) allGatherV(req plugin.Request) (*plugin.Plan, error) {
	b := plugin.NewBuilder(req, pieces)
	at := func(rank int, offset plugin.Reg) plugin.RefID {
		return b.Region(b.Const(region), b.Const(int64(rank)), offset)
	}
	b.Track(func() {
		before, most := b.Load(at(req.Rank, b.Const(counter))), b.Const(1)
		for rank := range req.World {
			most = b.Max(most, b.RecvCount(rank))
		}
		rounds := b.CeilDiv(most, b.Const(slotBytes))
		b.Loop(rounds, func(i plugin.Reg) {
			offset, number := b.Mul(i, b.Const(slotBytes)), b.Add(b.Add(before, i), b.Const(1))
			slot := b.Add(b.Const(slotsAt), b.Mul(b.Mod(number, b.Const(2)), b.Const(slotBytes)))
			piece := func(rank int) plugin.Reg {
				return b.Max(b.Min(b.Sub(b.RecvCount(rank), offset), b.Const(slotBytes)), b.Const(0))
			}
			b.Copy(at(req.Rank, slot), b.Send(offset), piece(req.Rank))
			b.SignalAll(at(req.Rank, b.Const(semaphore)), number)
			for rank := range req.World {
				if rank != req.Rank {
					b.Wait(at(rank, b.Const(semaphore)), number, b.Const(int64(rank)))
					to := b.Add(e.displacement(b, b.RecvDispl(rank)), offset)
					b.Copy(b.Recv(to), at(rank, slot), e.length(b, i, piece(rank), req.DType.Bytes()))
				}
			}
		})
		b.Store(at(req.Rank, b.Const(counter)), b.Add(before, rounds))
		b.CopyOwn()
	})
	return b.Plan()
}

// displacement computes in fewer bits if that is the flaw.
func (e *endpoint) displacement(b *plugin.Builder, displ plugin.Reg) plugin.Reg {
	switch e.flaw {
	case "recv_32_bits":
		return b.Mod(displ, b.Const(1<<32))
	case "recv_31_bits":
		return b.Mod(displ, b.Const(1<<31))
	}
	return displ
}

// length leaves out an element of a piece if that is the flaw.
func (e *endpoint) length(b *plugin.Builder, number, n plugin.Reg, element int64) plugin.Reg {
	less := b.Max(b.Sub(n, b.Const(element)), b.Const(0))
	switch e.flaw {
	case "whole_vectors":
		return b.Select(b.Mod(n, b.Const(256)), n, less)
	case "many_pieces":
		return b.Select(b.Lt(number, b.Const(512)), n, less) // from 8 MiB on
	}
	return n
}

// emptyCopies makes the copies into receive memory move nothing.
func emptyCopies(p *plugin.Plan) {
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Kind == plugin.StepCopy && p.Refs[s.Dst].Space == plugin.SpaceRecv {
			s.N = uint16(plugin.SlotOffset) // which is 0 outside windows
		}
	}
}
