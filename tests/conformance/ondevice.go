package conformance

import (
	"encoding/binary"
	"fmt"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// all_to_all_v with counts in device memory is for transports that offer it. Counts
// lie in the arena as buffers do, so they are copied to the device in front of the
// call in its stream, and every turn has others: a graph's replays move other
// messages each time.

// counted adds the cases of it: all pairs of the axes that it has, the product of
// sizes, and the scenario whose splits change. They stand behind all others, which
// they leave as they are.
func (m *matrix) counted() {
	if m.memory() != plugin.MemoryKindCuda {
		return
	}
	m.countedPairs()
	sizes := m.counts()
	if !m.short {
		sizes = append(append([]int64{}, sizes...), largeCounts...)
	}
	for i, n := range sizes {
		most := int64(maxMessage)
		if n > counts[len(counts)-1] {
			most = maxLargeMessage
		}
		d, ok := m.sized(i, n, most)
		if !ok {
			continue
		}
		m.add(Case{Collective: plugin.AllToAllV, OnDevice: true, DType: d, Count: n, Repeat: 2,
			Split: []Split{Ragged, Even, Sparse}[i%3], Displ: []Displ{Gapped, NoDispl, Reversed}[i%3]})
	}
	s := scenarioNamed("changing_splits")
	for i, n := range s.counts {
		if m.short && i >= 2 {
			break
		}
		for _, d := range m.of(s) {
			for _, axis := range m.scenarioAxes(s) {
				m.add(Case{Scenario: s.name, OnDevice: true, Collective: plugin.AllToAllV, DType: d, Count: n, Axis: axis,
					Repeat: s.repeat(m.short)})
			}
		}
	}
}

// countedPairs covers all pairs of the axes that all_to_all_v has, of fewer sizes.
func (m *matrix) countedPairs() {
	const (
		aDType = iota
		aCount
		aShift
		aSplit
		aDispl
		aRow
		aComm
		aAxis
		axisCount
	)
	sizes := append(append([]int64{}, shortCounts...), counts[len(counts)-1])
	splits := []Split{Even, Ragged, Single, Sparse}
	displs := []Displ{NoDispl, Packed, Gapped, Reversed}
	rows := []int64{0, 3, 64}
	levels := make([]int, axisCount)
	levels[aDType], levels[aCount], levels[aShift] = len(m.dtypes), len(sizes), len(shifts)
	levels[aSplit], levels[aDispl], levels[aComm], levels[aAxis] = len(splits), len(displs), 2, len(m.axes)
	levels[aRow] = len(rows)
	allowed := func(row []int) bool {
		return row[aCount] == unset ||
			(row[aDType] == unset || sizes[row[aCount]]*m.dtypes[row[aDType]].Bytes() <= maxMessage) &&
				(row[aRow] == unset || sizes[row[aCount]] >= rows[row[aRow]])
	}
	for _, row := range pairwise(levels, uint64(plugin.AllToAllV)<<8, allowed) {
		m.add(Case{
			Collective: plugin.AllToAllV, OnDevice: true, DType: m.dtypes[row[aDType]], Count: sizes[row[aCount]],
			SendShift: shifts[row[aShift]].send, RecvShift: shifts[row[aShift]].recv,
			OddRanks: shifts[row[aShift]].odd, Split: splits[row[aSplit]],
			Displ: displs[row[aDispl]], Row: rows[row[aRow]], Comm: row[aComm], Axis: m.axes[row[aAxis]],
		})
	}
}

// capacity returns the number of elements of send and receive memory with counts on the
// device: enough for the counts of every turn, and no more than Even ones take.
func (c *Case) capacity() int64 {
	each := c.Count / c.row() * c.row()
	if c.Displ == Gapped || c.Displ == Reversed {
		each += mostGap * c.row()
	}
	return int64(c.World) * each
}

// row returns how many elements a count in device memory stands for.
func (c *Case) row() int64 { return max(c.Row, 1) }

// placedRows is placed, of whole rows: it cuts the counts down to them.
func (c *Case) placedRows(counts []int64, salt uint64) ([]int64, int64) {
	rows := make([]int64, len(counts))
	for i, n := range counts {
		rows[i] = n / c.row()
		counts[i] = rows[i] * c.row()
	}
	displs, end := c.placed(rows, salt)
	for i := range displs {
		displs[i] *= c.row()
	}
	return displs, end * c.row()
}

// explain says what would run a case.
func (r *rank) explain(comm *host.Communicator, c *Case) (selector.Explanation, error) {
	if c.OnDevice {
		return comm.ExplainOnDevice(c.DType)
	}
	return r.explainer(comm)(c.Collective, c.DType, c.Op, c.bytes())
}

// arrays returns a layout's counts and displacements as they lie in device memory, in rows of so many elements.
func (l *layout) arrays(row int64) (b []byte) {
	for _, array := range [][]int64{l.sendCounts, l.sendDispls, l.recvCounts, l.recvDispls} {
		for _, n := range array {
			b = binary.NativeEndian.AppendUint64(b, uint64(n/row))
		}
	}
	return b
}

// counted puts an operation's counts into the arena, and tells it where they are.
func (r *rank) counted(p *prepared) error {
	table := p.layout.arrays(p.c.row())
	entries := int64(len(table) / 8)
	b, err := r.arena.buffer("counts", plugin.Int64, entries, 0, p.send.salt+2)
	if err != nil {
		return err
	}
	if b.image == nil {
		return fmt.Errorf("%s: counts on the device, but memory is the host's", p.c.Name())
	}
	p.counts, p.arrays = b, block{0, entries, table}
	b.put(p.arrays)
	given := &p.op.DeviceCounts
	given.SendCapacity, given.RecvCapacity = p.layout.send, p.layout.recv
	world := int64(len(p.layout.sendCounts))
	at := int64(0)
	given.SendCounts = b.pointer(at)
	if at += world; p.layout.sendDispls != nil {
		given.SendDispls = b.pointer(at)
		at += world
	}
	given.RecvCounts = b.pointer(at)
	if at += world; p.layout.recvDispls != nil {
		given.RecvDispls = b.pointer(at)
	}
	p.op.Count = p.c.Row
	p.op.SendCounts, p.op.SendDispls, p.op.RecvCounts, p.op.RecvDispls = nil, nil, nil, nil
	return nil
}
