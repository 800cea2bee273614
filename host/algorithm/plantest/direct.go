package plantest

import (
	"math"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// AllReduce runs one rank's part of an all_reduce of the given bytes and
// returns the result. All ranks must call it, in World.Each.
func (w *World) AllReduce(rank int, algorithm string, dtype plugin.DType, op plugin.Op, scalar float64,
	send []byte) ([]byte, error) {
	o := Operation{Collective: plugin.AllReduce, DType: dtype, Op: op, Algorithm: algorithm}
	p, err := w.program(w.ranks[rank], &o, o.Collective)
	if err != nil {
		return nil, err
	}
	recv := make([]byte, len(send))
	n := int64(len(send))
	args := executor.Arguments{Send: unsafe.Pointer(unsafe.SliceData(send)), Recv: unsafe.Pointer(unsafe.SliceData(recv))}
	args.Slots[plugin.SlotCount] = n / dtype.Bytes()
	args.Slots[plugin.SlotBytes], args.Slots[plugin.SlotSendBytes], args.Slots[plugin.SlotRecvBytes] = n, n, n
	args.Slots[plugin.SlotScalar] = int64(math.Float64bits(scalar))
	return recv, w.ranks[rank].engine.Run(p, &args, w.deadline)
}

// OneSided runs one rank's part of an operation that has neither arrays nor a count
// of elements: put, get, signal and wait.
func (w *World) OneSided(rank int, o *Operation, window uint32, offset int64, send, recv []byte) error {
	p, err := w.program(w.ranks[rank], o, o.Collective)
	if err != nil {
		return err
	}
	args := executor.Arguments{Send: unsafe.Pointer(unsafe.SliceData(send)), Recv: unsafe.Pointer(unsafe.SliceData(recv))}
	args.Slots[plugin.SlotRoot] = int64(o.Peer)
	args.Slots[plugin.SlotWindow], args.Slots[plugin.SlotOffset] = int64(window), offset
	args.Slots[plugin.SlotBytes] = int64(len(send) + len(recv))
	args.Slots[plugin.SlotSendBytes], args.Slots[plugin.SlotRecvBytes] = int64(len(send)), int64(len(recv))
	return w.ranks[rank].engine.Run(p, &args, w.deadline)
}
