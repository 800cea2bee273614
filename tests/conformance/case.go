package conformance

import (
	"fmt"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Case is one entry of the matrix. It says everything: two runs of the same
// case move the same bytes between the same places.
type Case struct {
	Scenario   string            `json:"scenario,omitempty"` // "" for a single collective; else a name of scenarioList
	Collective plugin.Collective `json:"collective"`
	DType      plugin.DType      `json:"dtype"`
	Op         plugin.Op         `json:"op"`
	Family     Family            `json:"family"`
	Count      int64             `json:"count"` // elements; of the largest block where blocks differ
	World      int               `json:"world"`
	Root       int               `json:"root"`
	InPlace    bool              `json:"in_place,omitempty"`
	SendShift  int64             `json:"send_shift,omitempty"` // elements that the address is off a multiple of 64 bytes
	RecvShift  int64             `json:"recv_shift,omitempty"`
	OddRanks   bool              `json:"odd_ranks,omitempty"` // those of ranks with odd numbers alone
	Split      Split             `json:"split,omitempty"`
	Displ      Displ             `json:"displ,omitempty"`
	// all_to_all_v: counts and displacements are in device memory
	OnDevice  bool   `json:"counts_on_device,omitempty"`
	Row       int64  `json:"row,omitempty"` // elements that one of them stands for; 0: one
	Axis      Axis   `json:"axis"`
	Comm      int    `json:"comm,omitempty"`      // which of two communicators
	Algorithm string `json:"algorithm,omitempty"` // as in SHUNT_ALGO; "" lets the selector choose
	// 0: nothing is forced; k: every collective's k-th algorithm, where it fits
	Set    int    `json:"set,omitempty"`
	Repeat int    `json:"repeat,omitempty"` // times in a row; 0 means once
	Seed   uint64 `json:"seed"`
	// of a graph's replays: other input, the same roots and scalars, and the same counts unless they are on the device
	Turn uint64 `json:"turn,omitempty"`
}

// Split says how the counts of a varying collective differ between ranks.
type Split string

// The splits.
const (
	Even   Split = "even"   // every block has Count elements
	Ragged Split = "ragged" // between 0 and Count
	Single Split = "single" // one rank's block has Count, the others nothing
	Sparse Split = "sparse" // about half of the blocks are empty
	Absent Split = "absent" // one rank's blocks are empty, the others have Count
)

// Displ says how displacements are given.
type Displ string

// The displacements.
const (
	NoDispl  Displ = "none"    // nil: packed in rank order
	Packed   Displ = "packed"  // the same, given explicitly
	Gapped   Displ = "gapped"  // odd gaps between blocks, which must stay untouched
	Reversed Displ = "reverse" // last rank first, with gaps
)

// Name returns the case's place in the matrix, readable and unique.
func (c *Case) Name() string {
	var parts []string
	if c.Scenario != "" {
		parts = append(parts, c.Scenario)
	}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if c.Scenario != "" {
		add("w%d", c.World)
		add("%s", c.DType)
		add("n%d", c.Count)
		add("%s", c.Axis)
		if c.OnDevice {
			add("ondevice")
		}
		if c.Repeat > 1 {
			add("x%d", c.Repeat)
		}
		if c.Set > 0 {
			add("set%d", c.Set)
		}
		return strings.Join(parts, "/")
	}
	add("%s", c.Collective)
	add("w%d", c.World)
	if c.Collective != plugin.Barrier {
		add("%s", c.DType)
		add("n%d", c.Count)
	}
	if c.Collective.Reduces() {
		add("%s", c.Op)
		add("%s", c.Family)
	}
	if c.Collective.Rooted() {
		add("root%d", c.Root)
	}
	if c.InPlace {
		add("inplace")
	}
	if c.SendShift != 0 || c.RecvShift != 0 {
		add("shift%d.%d", c.SendShift, c.RecvShift)
	}
	if c.OddRanks {
		add("odd")
	}
	if c.Collective.Varying() {
		add("%s.%s", c.Split, c.Displ)
	}
	if c.OnDevice {
		add("ondevice")
	}
	if c.Row > 0 {
		add("rows%d", c.Row)
	}
	add("%s", c.Axis)
	if c.Comm != 0 {
		add("comm%d", c.Comm)
	}
	if c.Repeat > 1 {
		add("x%d", c.Repeat)
	}
	if c.Algorithm != "" {
		add("%s", strings.ReplaceAll(c.Algorithm, "/", ":"))
	}
	return strings.Join(parts, "/")
}

// shifts returns the elements that a rank's addresses are off. Where a peer's memory lies is not a rank's to know, so
// they may differ.
func (c *Case) shifts(rank int) (send, recv int64) {
	if c.OddRanks && rank%2 == 0 {
		return 0, 0
	}
	return c.SendShift, c.RecvShift
}

// data returns the seed of what buffers hold.
func (c *Case) data() uint64 {
	if c.Turn == 0 {
		return c.Seed
	}
	return hash(c.Seed, c.Turn)
}

// splits returns the seed of counts and displacements. What the host passes stays what it
// was when a graph was captured.
func (c *Case) splits() uint64 {
	if c.OnDevice {
		return c.data()
	}
	return c.Seed
}

// at returns the case at another turn.
func (c *Case) at(turn uint64) *Case {
	other := *c
	other.Turn = turn
	return &other
}

// bytes returns the size that algorithms are limited by: one rank's message.
func (c *Case) bytes() int64 { return c.Count * c.DType.Bytes() }

// blockCount returns the number of elements of one block of a varying collective:
// the block of rank, or for all_to_all_v the block that rank sends to peer.
// Every rank computes the same.
func (c *Case) blockCount(rank, peer int) int64 {
	seed := c.splits()
	h := hash(seed, uint64(rank), uint64(peer), 0xc0)
	switch c.Split {
	case Ragged:
		return int64(h % uint64(c.Count+1))
	case Single:
		if rank == int(seed%uint64(c.World)) && (peer == 0 || peer == int(seed/7%uint64(c.World))) {
			return c.Count
		}
		return 0
	case Absent:
		if rank == int(seed%uint64(c.World)) {
			return 0
		}
	case Sparse:
		if h&1 == 0 {
			return 0
		}
		return int64(h >> 1 % uint64(c.Count+1))
	}
	return c.Count
}

// mostGap is the largest number of elements before a block.
const mostGap = 5

// displacements places blocks of the given counts, in elements, and says how
// far they reach.
func (c *Case) displacements(counts []int64, salt uint64) (displs []int64, extent int64) {
	displs = make([]int64, len(counts))
	at := int64(0)
	for i := range counts {
		r := i
		if c.Displ == Reversed {
			r = len(counts) - 1 - i
		}
		if c.Displ == Gapped || c.Displ == Reversed {
			at += 1 + int64(hash(c.splits(), salt, uint64(r))%mostGap)
		}
		displs[r] = at
		at += counts[r]
	}
	return displs, at
}
