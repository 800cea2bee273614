package plantest

import (
	"bytes"
	"fmt"
	"math"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// Operation is one operation as all ranks see it.
type Operation struct {
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Scalar     float64
	Algorithm  string
	Count      int64     // elements of each rank, block or message
	Counts     []int64   // varying collectives but all_to_all_v: elements of each rank
	Matrix     [][]int64 // all_to_all_v: elements from each rank (first index) to each
	Gap        int64     // elements between the blocks of a varying collective
	Root, Peer int       // send: from Root to Peer
	InPlace    bool
	Group      []Operation // sends that run together; all other fields are unused
}

func (o *Operation) String() string {
	if o.Group != nil {
		return fmt.Sprintf("group of %d messages", len(o.Group))
	}
	return fmt.Sprintf("%s/%s of %s, op %s, count %d, counts %v %v, root %d, in place %t",
		o.Collective, o.Algorithm, o.DType, o.Op, o.Count, o.Counts, o.Matrix, o.Root, o.InPlace)
}

// count returns the number of elements that rank from contributes or sends to rank to.
func (o *Operation) count(from, to int) int64 {
	switch o.Collective {
	case plugin.AllToAllV:
		return o.Matrix[from][to]
	case plugin.AllGatherV, plugin.GatherV:
		return o.Counts[from]
	case plugin.ReduceScatterV, plugin.ScatterV:
		return o.Counts[to]
	}
	return o.Count
}

// blocks lays out one block for each rank and returns their counts and
// displacements in bytes, and the whole length.
func (o *Operation) blocks(world int, count func(r int) int64) (counts, displs []int64, total int64) {
	size := o.DType.Bytes()
	for r := range world {
		n := count(r) * size
		counts, displs = append(counts, n), append(displs, total)
		total += n
		if o.Collective.Varying() && r < world-1 {
			total += o.Gap * size
		}
	}
	return counts, displs, total
}

// guard is the number of bytes around a buffer that must not change.
const guard = 64

var gaps = bytes.Repeat([]byte{0x77}, 4096)

type buffer struct {
	all  []byte
	data []byte
}

//go:norace
func newBuffer(n int64) buffer {
	raw := make([]byte, n+2*guard+64)
	skip := (64 - int(uintptr(unsafe.Pointer(&raw[0]))%64)) % 64
	all := raw[skip : skip+int(n)+2*guard]
	for i := range all {
		all[i] = 0xA5
	}
	return buffer{all: all, data: all[guard : guard+n]}
}

func (b buffer) pointer() unsafe.Pointer {
	if len(b.data) == 0 {
		return nil
	}
	return unsafe.Pointer(&b.data[0])
}

// work is one rank's part of an operation: its memory, its arguments, and what
// the receive memory must hold in the end.
type work struct {
	send, recv buffer
	args       executor.Arguments
	want       []byte
}

// prepare lays out one rank's memory. index makes the data of one operation
// different from the next one's.
func (o *Operation) prepare(world, rank, index int) work {
	size := o.DType.Bytes()
	own := o.Count * size
	arrays := make([]int64, 4*world)
	sendCounts, sendDispls := arrays[:world], arrays[world:2*world]
	recvCounts, recvDispls := arrays[2*world:3*world], arrays[3*world:]
	sendLength, recvLength := own, own
	inPlaceAt := int64(0) // of the send in the receive memory, or of the receive in the send memory
	isRoot := rank == o.Root
	fill := func(counts, displs []int64, count func(int) int64) int64 {
		c, d, total := o.blocks(world, count)
		copy(counts, c)
		copy(displs, d)
		return total
	}
	from := func(r int) int64 { return o.count(r, rank) }
	to := func(r int) int64 { return o.count(rank, r) }
	switch o.Collective {
	case plugin.Reduce:
		if !isRoot {
			recvLength = 0
		}
	case plugin.Broadcast:
		if !isRoot {
			sendLength = 0
		}
	case plugin.AllGather, plugin.AllGatherV:
		own = to(rank) * size
		sendLength = own
		recvLength = fill(recvCounts, recvDispls, from)
		inPlaceAt = recvDispls[rank]
	case plugin.ReduceScatter, plugin.ReduceScatterV:
		own = from(rank) * size
		recvLength = own
		sendLength = fill(sendCounts, sendDispls, to)
		inPlaceAt = sendDispls[rank]
	case plugin.AllToAll, plugin.AllToAllV:
		sendLength = fill(sendCounts, sendDispls, to)
		recvLength = fill(recvCounts, recvDispls, from)
		if o.Collective == plugin.AllToAllV {
			own = 0
		}
	case plugin.Gather, plugin.GatherV:
		own = to(rank) * size
		sendLength, recvLength = own, 0
		sendCounts[o.Root] = own
		if isRoot {
			recvLength = fill(recvCounts, recvDispls, from)
			inPlaceAt = recvDispls[rank]
		}
	case plugin.Scatter, plugin.ScatterV:
		own = from(rank) * size
		sendLength, recvLength = 0, own
		recvCounts[o.Root] = own
		if isRoot {
			sendLength = fill(sendCounts, sendDispls, to)
			inPlaceAt = sendDispls[rank]
		}
	case plugin.Barrier:
		sendLength, recvLength, own = 0, 0, 0
	case plugin.Send:
		recvLength = 0
	case plugin.Recv:
		sendLength = 0
	}

	w := work{}
	switch {
	case !o.InPlace || sendLength == 0 || recvLength == 0:
		w.send, w.recv = newBuffer(sendLength), newBuffer(recvLength)
	case sendLength <= recvLength:
		w.recv = newBuffer(recvLength)
		w.send = buffer{all: w.recv.all, data: w.recv.data[inPlaceAt : inPlaceAt+sendLength]}
	default:
		w.send = newBuffer(sendLength)
		w.recv = buffer{all: w.send.all, data: w.send.data[inPlaceAt : inPlaceAt+recvLength]}
	}
	for at := range (len(w.send.data) + 4095) / 4096 {
		copy(w.send.data[at*4096:], gaps) // what input leaves alone
	}
	o.input(w.send.data, world, rank, index, sendDispls)
	w.want = bytes.Clone(w.recv.data)
	o.result(w.want, world, rank, index, recvDispls)

	root := o.Root
	switch o.Collective {
	case plugin.Send:
		root = o.Peer
	}
	w.args = executor.Arguments{Send: w.send.pointer(), Recv: w.recv.pointer(), Arrays: arrays}
	w.args.Slots[plugin.SlotCount] = own / size
	w.args.Slots[plugin.SlotBytes] = own
	w.args.Slots[plugin.SlotRoot] = int64(root)
	w.args.Slots[plugin.SlotScalar] = int64(math.Float64bits(o.Scalar))
	w.args.Slots[plugin.SlotSendBytes] = sendLength
	w.args.Slots[plugin.SlotRecvBytes] = recvLength
	return w
}

// check compares the receive memory with what it must hold, and the guards
// with what they were.
func (w *work) check() error {
	if i := firstDifference(w.recv.data, w.want); i >= 0 {
		return fmt.Errorf("byte %d of %d of the receive memory is %#x, want %#x", i, len(w.want), w.recv.data[i], w.want[i])
	}
	for _, b := range []buffer{w.send, w.recv} {
		for i := range guard {
			if b.all[i] != 0xA5 || b.all[len(b.all)-1-i] != 0xA5 {
				return fmt.Errorf("a guard byte beside a buffer of %d bytes was overwritten", len(b.all)-2*guard)
			}
		}
	}
	return nil
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// execute runs one rank's part of an operation and checks it.
func (w *World) execute(m *member, o *Operation, index int) error {
	if o.Group != nil {
		return w.executeGroup(m, o.Group, index)
	}
	mine, ok := o.roleOf(m.rank)
	if !ok {
		return nil
	}
	p, err := w.program(m, &mine, mine.Collective)
	if err != nil {
		return err
	}
	job := mine.prepare(w.Size, m.rank, index)
	if err := m.engine.Run(p, &job.args, w.deadline); err != nil {
		return err
	}
	return job.check()
}

// roleOf turns a send, as all see it, into this rank's send or recv.
func (o *Operation) roleOf(rank int) (Operation, bool) {
	if o.Collective != plugin.Send {
		return *o, true
	}
	mine := *o
	switch rank {
	case o.Root:
		return mine, true
	case o.Peer:
		mine.Collective = plugin.Recv
		return mine, true
	}
	return mine, false
}

func (w *World) executeGroup(m *member, messages []Operation, index int) error {
	var (
		launches []executor.Launch
		jobs     []work
	)
	add := func(o Operation, i, lane int) error {
		p, err := w.program(m, &o, o.Collective)
		if err != nil {
			return err
		}
		job := o.prepare(w.Size, m.rank, index+i)
		launches = append(launches, executor.Launch{Program: p, Arguments: job.args, Lane: lane})
		jobs = append(jobs, job)
		return nil
	}
	for i, o := range messages {
		if o.Root == m.rank {
			if err := add(o, i, 2*o.Peer); err != nil {
				return err
			}
		}
		if o.Peer == m.rank {
			o.Collective = plugin.Recv
			if err := add(o, i, 2*o.Root+1); err != nil {
				return err
			}
		}
	}
	if err := m.engine.RunGroup(launches, w.deadline); err != nil {
		return err
	}
	for i := range jobs {
		if err := jobs[i].check(); err != nil {
			return fmt.Errorf("operation %d of the group: %w", i, err)
		}
	}
	return nil
}
