package topology

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Topology is the places of all ranks of a communicator.
type Topology struct {
	Places []Place  `json:"places"`          // by rank
	Paths  [][]Path `json:"paths,omitempty"` // between the GPUs of each two ranks; nil: not examined
}

// New returns the topology of the given places; the place at index r is rank r's.
func New(places []Place) *Topology {
	t := &Topology{Places: slices.Clone(places)}
	for rank := range t.Places {
		t.Places[rank].Rank = rank
	}
	return t
}

// World returns the number of ranks.
func (t *Topology) World() int { return len(t.Places) }

// Hosts returns the ids of the hosts, in the order of their lowest ranks.
func (t *Topology) Hosts() []string {
	var hosts []string
	seen := map[string]bool{}
	for _, p := range t.Places {
		if !seen[p.HostID] {
			seen[p.HostID] = true
			hosts = append(hosts, p.HostID)
		}
	}
	return hosts
}

// SameHost reports whether two ranks share memory.
func (t *Topology) SameHost(a, b int) bool { return t.Places[a].HostID == t.Places[b].HostID }

// SameProcess reports whether two ranks run in one process.
func (t *Topology) SameProcess(a, b int) bool {
	return t.SameHost(a, b) && t.Places[a].PID == t.Places[b].PID
}

// LocalRanks returns the ranks on rank's host, itself included, ascending.
func (t *Topology) LocalRanks(rank int) []int {
	var ranks []int
	for r := range t.Places {
		if t.SameHost(rank, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Oversubscribed reports whether rank shares CPUs with so many ranks that they
// cannot all run at once: the ranks of its host whose CPU sets overlap its own
// outnumber the CPUs that those sets hold, or a quota allows.
func (t *Topology) Oversubscribed(rank int) bool { return t.oversubscribed(rank, cpuSets{}) }

// oversubscribed keeps the sets that it has read for other ranks.
func (t *Topology) oversubscribed(rank int, sets cpuSets) bool {
	own := t.Places[rank]
	mine := sets.of(own.CPUSet)
	if mine.count == 0 {
		return len(t.LocalRanks(rank)) > max(own.CPUs, 1)
	}
	var union [maxList / 64]uint64
	sharing := 0
	quota := own.CPUs
	limited := own.CPUs < mine.count
	for _, r := range t.LocalRanks(rank) {
		p := t.Places[r]
		s := sets.of(p.CPUSet)
		if !s.overlaps(mine) {
			continue
		}
		sharing++
		for i, word := range s.words {
			union[i] |= word
		}
		if p.CPUs < s.count {
			limited = true
			quota = min(quota, p.CPUs)
		}
	}
	available := 0
	for _, word := range union {
		available += bits.OnesCount64(word)
	}
	if limited {
		available = min(available, quota)
	}
	return sharing > available
}

// cpuSets are sets of CPUs by their texts: many ranks have the same.
type cpuSets map[string]*cpuSet

// cpuSet is a set of CPUs, a bit each.
type cpuSet struct {
	words []uint64
	count int
}

// of returns a set, which is empty where the text is malformed.
func (c cpuSets) of(text string) *cpuSet {
	s, known := c[text]
	if !known {
		s = &cpuSet{}
		c[text] = s
		cpus, _ := parseList(text)
		if len(cpus) > 0 {
			s.words = make([]uint64, slices.Max(cpus)/64+1)
		}
		for _, cpu := range cpus {
			s.words[cpu/64] |= 1 << (cpu % 64)
		}
		for _, word := range s.words {
			s.count += bits.OnesCount64(word)
		}
	}
	return s
}

func (s *cpuSet) overlaps(other *cpuSet) bool {
	for i := range min(len(s.words), len(other.words)) {
		if s.words[i]&other.words[i] != 0 {
			return true
		}
	}
	return false
}

// SharedGPU finds two ranks of one host that use the same GPU: the lowest such
// pair, or ok is false.
func (t *Topology) SharedGPU() (a, b int, g GPU, ok bool) {
	type key struct{ host, uuid string }
	users := map[key]int{}
	for rank, p := range t.Places {
		for _, g := range p.GPUs {
			k := key{p.HostID, g.UUID}
			if other, taken := users[k]; taken {
				return other, rank, g, true
			}
			users[k] = rank
		}
	}
	return 0, 0, GPU{}, false
}

// SetPaths sets how the ranks' GPUs are connected: rows[r] has the paths from rank r's GPU, as that rank found them.
func (t *Topology) SetPaths(rows [][]Path) {
	t.Paths = make([][]Path, len(rows))
	for a := range rows {
		t.Paths[a] = make([]Path, len(rows))
		for b := range rows {
			if t.Paths[a][b] = Both(rows[a][b], rows[b][a]); b < a {
				t.Paths[a][b] = t.Paths[b][a] // also the reason
			}
		}
	}
}

// worst finds two ranks of which something does not hold, the lowest such pair. Ranks that share a GPU have all that
// one GPU has.
func (t *Topology) worst(holds func(Path) bool) (a, b int, found bool) {
	for a := range t.Paths {
		for b := range a { // the lower rank
			if !t.sameGPU(a, b) && !holds(t.Paths[b][a]) {
				return b, a, true
			}
		}
	}
	return 0, 0, false
}

func (t *Topology) sameGPU(a, b int) bool {
	x, y := t.Places[a].GPUs, t.Places[b].GPUs
	return t.SameHost(a, b) && len(x) == 1 && len(y) == 1 && x[0].UUID == y[0].UUID
}

// NVLink reports whether NVLink is known to join the GPUs of every two ranks. What a rank stores at a peer then arrives
// in whole lines of 128 bytes.
func (t *Topology) NVLink() bool {
	if t.Paths == nil {
		return false
	}
	_, _, lacks := t.worst(func(p Path) bool { return p.NVLinks > 0 })
	return !lacks
}

// NoPeerAccess says which two ranks' GPUs are known not to reach each other's memory, and why, if there are such.
func (t *Topology) NoPeerAccess() (reason string, found bool) {
	a, b, found := t.worst(func(p Path) bool { return p.Access != AccessNo })
	if !found {
		return "", false
	}
	return fmt.Sprintf("GPU %s of rank %d and GPU %s of rank %d do not reach each other's memory: %s", t.pci(a), a,
		t.pci(b), b, t.Paths[a][b].Why), true
}

func (t *Topology) pci(rank int) string {
	for _, g := range t.Places[rank].GPUs {
		return g.PCI
	}
	return "unknown"
}

// String returns a table for people: one line a host and one a rank.
func (t *Topology) String() string {
	var b strings.Builder
	sets := cpuSets{}
	for i, id := range t.Hosts() {
		var ranks []int
		for r, p := range t.Places {
			if p.HostID == id {
				ranks = append(ranks, r)
			}
		}
		first := t.Places[ranks[0]]
		fmt.Fprintf(&b, "host %d: %s, ranks %s", i, first.Host, formatList(ranks))
		if first.Cores > 0 {
			fmt.Fprintf(&b, ", %d cores", first.Cores)
		}
		b.WriteByte('\n')
		for _, r := range ranks {
			p := t.Places[r]
			fmt.Fprintf(&b, "  rank %d: pid %d, %d CPUs", r, p.PID, p.CPUs)
			if p.CPUSet != "" {
				fmt.Fprintf(&b, " of set %s", p.CPUSet)
			}
			if len(p.NUMA) > 0 {
				fmt.Fprintf(&b, ", NUMA %s", formatList(p.NUMA))
			}
			if t.oversubscribed(r, sets) {
				b.WriteString(", more ranks than CPUs")
			}
			b.WriteByte('\n')
			for _, g := range p.GPUs {
				fmt.Fprintf(&b, "    GPU %d: %s %s at %s", g.Ordinal, g.Name, g.UUID, g.PCI)
				if g.NUMA >= 0 {
					fmt.Fprintf(&b, ", NUMA %d", g.NUMA)
				}
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}
