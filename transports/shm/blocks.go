package shm

import "github.com/shunt-ccl/shunt/plugin"

// blocksInFlight is the number of block slots of each rank; see pipeline.
const blocksInFlight = 4

// block is one block of a message on its way through the block slots.
type block struct {
	index  plugin.Reg // from 0 within the operation
	epoch  plugin.Reg // value that the slot's semaphores reach with this block
	staged plugin.Reg // offset of the slot and its semaphore: the data is staged
	result plugin.Reg // offset of the second semaphore: the result is there
	data   plugin.Reg // offset of the data
}

func (w *writer) block(before, index plugin.Reg) block {
	s := w.layout.blocks
	number := w.Add(before, index)
	slot := w.slotOf(s, w.Const(s.base), number)
	return block{
		index: index, epoch: w.next(number), staged: slot,
		result: w.Add(slot, w.Const(line)), data: w.Add(slot, w.Const(s.head)),
	}
}

// pipeline sends n blocks through the slots; n must be the same on all ranks. stage writes a block into this rank's
// slot; finish reads the slots of all ranks and must wait for them. reduce, if there is one, comes in between: it waits
// for the staged data of all ranks, and writes a result into this rank's slot that finish then waits for.
//
// Four slots suffice without credits, whatever mix of operations uses them:
//
//	(a) before a rank writes slot n it has heard "n-2 staged" from every peer:
//	    finish(n-2) or reduce(n-2) came earlier in the order below, or in the
//	    operation before;
//	(b) before a rank signals "n staged" it has finished all blocks up to n-2,
//	    as the order below shows.
//
// So when a rank writes slot n, all peers have finished block n-4, which was
// there before. A plan without reduce keeps a peer's finish of block n-1 and
// this rank's stage of block n running side by side, one with reduce three.
func (w *writer) pipeline(n plugin.Reg, stage, reduce, finish func(block)) {
	counter := w.counter(w.layout.blocksCounter)
	before := w.Load(counter)
	lag := int64(1)
	if reduce != nil {
		lag = 2
	}
	w.Loop(w.Add(n, w.Const(lag)), func(i plugin.Reg) {
		one := w.Const(1)
		finishOne := func() {
			w.If(w.Le(w.Const(lag), i), func() {
				b := w.block(before, w.Sub(i, w.Const(lag)))
				finish(b)
			})
		}
		if reduce != nil {
			finishOne()
		}
		w.If(w.Lt(i, n), func() {
			b := w.block(before, i)
			stage(b)
			// Releases what stage wrote to finish or reduce of all ranks.
			w.SignalAll(w.own(b.staged), b.epoch)
		})
		if reduce == nil {
			finishOne()
			return
		}
		w.If(w.Mul(w.Le(one, i), w.Le(i, n)), func() {
			b := w.block(before, w.Sub(i, one))
			for _, p := range w.peers() {
				w.Wait(w.of(p, b.staged), b.epoch, p.reg)
			}
			reduce(b)
			// Releases the result to finish of all ranks.
			w.SignalAll(w.own(b.result), b.epoch)
		})
	})
	w.Store(counter, w.Add(before, n))
}
