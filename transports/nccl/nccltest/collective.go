package nccltest

// #include "fake.h"
import "C"

import (
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// collective does one; false: it was given up.
func (c *communicator) collective(op C.fake_op, known bool, closed <-chan struct{}) bool {
	if c.apart != nil {
		return c.collectiveApart(op, closed)
	}
	w := c.world
	scalar := 0.0
	if op.op >= 100 {
		machine.Lock() // before a world's, as elsewhere
		scalar = c.scalars[op.op-100]
		machine.Unlock()
	}
	w.mu.Lock()
	r := w.rounds[c.number]
	if r == nil {
		r = &round{ops: make([]C.fake_op, w.size), known: make([]bool, w.size), scalars: make([]float64, w.size),
			full: make(chan struct{}), over: make(chan struct{})}
		w.rounds[c.number] = r
	}
	r.ops[c.rank], r.known[c.rank] = op, known
	if op.op >= 100 {
		r.scalars[c.rank] = scalar
	}
	if r.arrived++; r.arrived == w.size {
		delete(w.rounds, c.number)
		close(r.full)
	}
	c.number++
	w.mu.Unlock()
	stopped := false
	select {
	case <-r.full:
	case <-c.stopped:
		stopped = true
	case <-closed:
		stopped = true
	}
	if stopped && w.leave(r) {
		return false
	}
	if c.rank == 0 {
		r.compare()
	}
	to, result := c.result(r)
	w.mu.Lock()
	if r.read++; r.read == w.size {
		close(r.over)
	}
	w.mu.Unlock()
	<-r.over // all ranks have read before any writes, or lets go of what the others read
	if stopped {
		return false
	}
	copy(to, result)
	return true
}

// leave takes a rank that was stopped out of a round, which never gets full then; false: it is full, and all read.
func (w *world) leave(r *round) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.arrived == w.size {
		return false
	}
	r.arrived -= w.size
	return true
}

// result returns the part of the result that this rank gets, and its place.
func (c *communicator) result(r *round) (to, result []byte) {
	op := r.ops[c.rank]
	dtype := plugin.DType(op.dtype)
	bytes := int64(op.count) * dtype.Bytes()
	switch op.kind {
	case C.FAKE_BROADCAST:
		return memory(op.recv, bytes), append([]byte(nil), r.input(int(op.root), bytes)...)
	case C.FAKE_ALL_GATHER:
		for rank := range r.ops {
			result = append(result, r.input(rank, bytes)...)
		}
		return memory(op.recv, bytes*int64(len(r.ops))), result
	case C.FAKE_REDUCE:
		if int(op.root) != c.rank {
			return nil, nil
		}
	}
	offset := int64(0)
	if op.kind == C.FAKE_REDUCE_SCATTER {
		offset = bytes * int64(c.rank)
	}
	inputs := make([][]byte, len(r.ops))
	for rank := range r.ops {
		inputs[rank] = r.input(rank, offset+bytes)[offset:]
	}
	reduction := plugin.Op(op.op)
	if op.op >= 100 {
		reduction = plugin.OpPremulSum
	}
	return memory(op.recv, bytes), cudaipctest.Combine(dtype, reduction, inputs, r.scalars)
}
