package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// counts are the sizes of a matrix, in elements: nothing, one, odd, powers of
// two and their neighbours, around every boundary of slots and chunks, and
// large ones. Large ones are cut so that a rank's message stays below
// maxMessage.
var counts = []int64{0, 1, 3, 7, 31, 32, 33, 127, 129, 511, 513, 1023, 1024, 1025, 4095, 4097, 16383, 16384, 16385,
	65535, 65537, 131071, 262144, 262145, 524287, 1048577}

// shortCounts is the subset of a short run: some are whole vectors, as most messages of programs are.
var shortCounts = []int64{0, 1, 7, 32, 513, 1024, 4097, 16384, 65537, 262144}

const maxMessage = 4<<20 + 64

// largeCounts are further sizes of a full run, for algorithms that serve nothing smaller:
// on devices, which are fast enough, and on host memory in a world of two. They count in
// the product of sizes alone.
var largeCounts = []int64{2097153, 9437191}

const maxLargeMessage = 40 << 20

// shifts are the distances of send and receive addresses from a multiple of 64 bytes, in
// elements, of all ranks or of those with odd numbers alone.
var shifts = []struct {
	send, recv int64
	odd        bool
}{{0, 0, false}, {1, 1, false}, {3, 0, false}, {0, 5, false}, {1, 1, true}}

// offer is a transport's offer for one collective: an algorithm, and those of the
// requested message sizes that it serves.
type offer struct {
	Collective plugin.Collective
	Algorithm  string
	Bytes      []int64 // sorted
	set        int     // its place among the collective's offers, from 1
}

func (o *offer) serves(bytes int64) bool {
	_, ok := slices.BinarySearch(o.Bytes, bytes)
	return ok
}

// probes returns the message sizes that a matrix can have.
func probes() []int64 {
	var list []int64
	add := func(counts []int64, most int64) {
		for _, n := range counts {
			for _, size := range []int64{1, 2, 4, 8} {
				if n*size <= most {
					list = append(list, n*size)
				}
			}
		}
	}
	add(counts, maxMessage)
	add(largeCounts, maxLargeMessage)
	slices.Sort(list)
	return slices.Compact(list)
}

// matrix writes down the cases of one world, for everything that is offered.
type matrix struct {
	world  int
	short  bool
	offers []offer
	axes   []Axis
	dtypes []plugin.DType
	cases  []Case
	count  uint64 // of cases offered
	names  map[string]bool
	kinds  map[string]bool // short: what some case is of already

	reducing bool   // the product of reductions is being added
	wanted   Family // while it is: the one that a short run has of this collective, dtype and op
}

// cases returns the cases of a world: for every collective all pairs of all
// axes, and full products where mistakes hide in combinations. nil dtypes are all.
func cases(world int, short bool, axes []Axis, offers []offer, dtypes []plugin.DType) []Case {
	if dtypes == nil {
		dtypes = plugin.DTypes()
	}
	m := &matrix{world: world, short: short, offers: offers, axes: axes, dtypes: dtypes, names: map[string]bool{},
		kinds: map[string]bool{}}
	for _, collective := range plugin.Collectives() {
		if collective.PointToPoint() {
			continue // scenarios
		}
		m.pairs(collective)
		m.reductions(collective)
		m.sizes(collective)
	}
	m.scenarios()
	m.counted()
	return m.cases
}

// algorithms returns the choices for a collective: the selector's own first.
func (m *matrix) algorithms(collective plugin.Collective) []offer {
	list := []offer{{Collective: collective, Bytes: probes()}}
	for _, o := range m.offers {
		if o.Collective == collective {
			o.set = len(list)
			list = append(list, o)
		}
	}
	return list
}

// memory returns the kind of all axes of a run.
func (m *matrix) memory() plugin.MemoryKind {
	if len(m.axes) > 0 && m.axes[0].onDevice() {
		return plugin.MemoryKindCuda
	}
	return plugin.MemoryKindHost
}

func (m *matrix) counts() []int64 {
	if m.short {
		return shortCounts
	}
	return counts
}

func (m *matrix) add(c Case) {
	c.World = m.world
	if c.Axis == "" { // products take the axes by turns
		c.Axis = m.axes[m.count%uint64(len(m.axes))]
	}
	m.count++
	c.Seed = hash(m.count, uint64(m.world), 0xca5e)
	if c.Collective.Varying() {
		if c.Split == "" {
			c.Split = Ragged
		}
		if c.Displ == "" {
			c.Displ = NoDispl
		}
	}
	if c.Family == "" {
		c.Family = Exact
	}
	name := c.Name()
	if m.names[name] || m.short && !m.shortHas(&c) {
		return
	}
	m.names[name] = true
	m.cases = append(m.cases, c)
}

// shortHas chooses the cases of a short run: a share of all that is smaller in
// larger worlds, which take longer, and other cases in every world, so that
// together the worlds still cover every collective and size. Every world has every
// collective with every dtype and op.
func (m *matrix) shortHas(c *Case) bool {
	share := uint64(16)
	switch {
	case c.Scenario != "" && c.Set == 0:
		return true
	case m.world <= 2:
		share = 4
	case m.world <= 4:
		share = 6
	}
	if m.reducing { // there are most of these, and an element is reduced alike in whatever world
		share *= 3
		if pair := fmt.Sprint(c.Collective, c.DType, c.Op); c.Family == m.wanted && !m.kinds[pair] {
			m.kinds[pair] = true
			return true
		}
	}
	// Every size in some world, of two and three in turn, which all runs have.
	if size := fmt.Sprint("size", c.Collective, c.Count); c.Algorithm == "" && m.world == 2+int(c.Count)%2 && !m.kinds[size] {
		m.kinds[size] = true
		return true
	}
	kind := fmt.Sprint(c.Scenario, c.Collective, c.Algorithm, c.Op, c.InPlace)
	if c.OnDevice {
		kind += " counts on the device " + string(c.Axis)
	}
	if c.Collective == plugin.Barrier {
		kind += string(c.Axis) // it has little else
	}
	if s := scenarioNamed(c.Scenario); s != nil && m.world <= smallWorld && (isLate(s.name) || s.briefly()) {
		kind += fmt.Sprint(" set ", c.Set) // what they find may be wrong in one algorithm alone
	}
	if m.kinds[kind] && hash(c.Seed)%share != 0 {
		return false
	}
	m.kinds[kind] = true
	return true
}

// pairs covers all pairs of all axes of a collective.
func (m *matrix) pairs(collective plugin.Collective) {
	const (
		aDType = iota
		aOp
		aFamily
		aCount
		aPlace
		aShift
		aRoot
		aSplit
		aDispl
		aComm
		aAxis
		aAlgorithm
		axisCount
	)
	algorithms, sizes := m.algorithms(collective), m.counts()
	splits := []Split{Even, Ragged, Single, Sparse}
	displs := []Displ{NoDispl, Packed, Gapped, Reversed}
	levels := make([]int, axisCount)
	for i := range levels {
		levels[i] = 1
	}
	levels[aComm], levels[aAxis], levels[aAlgorithm] = 2, len(m.axes), len(algorithms)
	if collective != plugin.Barrier {
		levels[aDType], levels[aCount], levels[aShift] = len(m.dtypes), len(sizes), len(shifts)
	}
	if collective.Reduces() {
		levels[aOp], levels[aFamily] = len(plugin.Ops()), len(Families())
	}
	if canBeInPlace(collective) {
		levels[aPlace] = 2
	}
	if collective.Rooted() {
		levels[aRoot] = m.world
	}
	if collective.Varying() {
		levels[aSplit], levels[aDispl] = len(splits), len(displs)
	}
	allowed := func(row []int) bool {
		if row[aDType] == unset || row[aCount] == unset {
			return true
		}
		bytes := sizes[row[aCount]] * m.dtypes[row[aDType]].Bytes()
		if bytes > maxMessage {
			return false
		}
		return row[aAlgorithm] == unset || algorithms[row[aAlgorithm]].serves(bytes)
	}
	for _, row := range pairwise(levels, uint64(collective), allowed) {
		c := Case{
			Collective: collective, DType: m.dtypes[row[aDType]], Op: plugin.Ops()[row[aOp]],
			Family: Families()[row[aFamily]],
			Count:  sizes[row[aCount]], InPlace: row[aPlace] == 1, SendShift: shifts[row[aShift]].send,
			RecvShift: shifts[row[aShift]].recv, OddRanks: shifts[row[aShift]].odd,
			Root: row[aRoot], Comm: row[aComm], Axis: m.axes[row[aAxis]], Algorithm: algorithms[row[aAlgorithm]].Algorithm,
			Set: algorithms[row[aAlgorithm]].set,
		}
		if collective.Varying() {
			c.Split, c.Displ = splits[row[aSplit]], displs[row[aDispl]]
		}
		if collective == plugin.Barrier {
			c.Count, c.DType = 0, plugin.Uint8
		}
		m.add(c)
	}
}

// reductions adds the product of dtype, op and algorithm for the collectives that reduce,
// at a small and at a middling odd count.
func (m *matrix) reductions(collective plugin.Collective) {
	if !collective.Reduces() {
		return
	}
	m.reducing = true
	defer func() { m.reducing = false }()
	for _, algorithm := range m.algorithms(collective) {
		for i, d := range m.dtypes {
			for j, op := range plugin.Ops() {
				// Others in other worlds and of other collectives, so that a short run has all of dtype and op.
				m.wanted = Families()[(i+j+m.world+int(collective))%len(Families())]
				for k, family := range Families() {
					for _, n := range m.fitting(algorithm, d, 37, 4099) {
						if n*d.Bytes() > maxMessage && (i+j+k)%3 != 0 {
							continue // large; each dtype, op and family is had, not all of their triples
						}
						m.add(Case{Collective: collective, DType: d, Op: op, Family: family, Count: n, Algorithm: algorithm.Algorithm,
							Set:  algorithm.set,
							Root: (i + j) % m.world, Split: []Split{Even, Ragged}[(i+j+k)%2], Displ: []Displ{NoDispl, Gapped}[(i+j)%2],
							InPlace: j%2 == 1})
					}
				}
			}
		}
	}
}

// fitting returns the counts of the given ones that an algorithm serves, or the
// served probe next to the last of them.
func (m *matrix) fitting(algorithm offer, d plugin.DType, wanted ...int64) []int64 {
	size := d.Bytes()
	var list []int64
	for _, n := range wanted {
		if len(algorithm.Bytes) > 0 && n*size >= algorithm.Bytes[0] && n*size <= algorithm.Bytes[len(algorithm.Bytes)-1] {
			list = append(list, n)
		}
	}
	if len(list) > 0 || len(algorithm.Bytes) == 0 {
		return list
	}
	// The smallest served size that holds whole elements.
	for _, bytes := range algorithm.Bytes {
		if bytes > 0 && bytes%size == 0 {
			return []int64{bytes / size}
		}
	}
	return nil
}

// sizes adds the product of count, algorithm and place for every collective, twice in a
// row, so that what one operation leaves behind meets the next.
func (m *matrix) sizes(collective plugin.Collective) {
	if collective == plugin.Barrier {
		return
	}
	sizes, most := m.counts(), int64(maxMessage)
	if (m.memory() == plugin.MemoryKindCuda || m.world == 2) && !m.short {
		sizes, most = slices.Concat(sizes, largeCounts), maxLargeMessage
	}
	for a, algorithm := range m.algorithms(collective) {
		for i, n := range sizes {
			d, ok := m.sized(i+a, n, most)
			if !ok {
				continue
			}
			if !algorithm.serves(n * d.Bytes()) {
				continue
			}
			for _, inPlace := range []bool{false, true} {
				if inPlace && !canBeInPlace(collective) {
					continue
				}
				repeat := 2
				if inPlace {
					repeat = 0
				}
				m.add(Case{Collective: collective, DType: d, Count: n, InPlace: inPlace, Algorithm: algorithm.Algorithm,
					Set: algorithm.set, Repeat: repeat,
					Root: i % m.world, Split: []Split{Ragged, Even, Sparse}[i%3], Displ: []Displ{Gapped, NoDispl, Reversed}[(i+a)%3]})
			}
		}
	}
}

// sized returns a dtype for a count of a product of sizes: of each size by turns, and the smallest where
// others make too large a message. None may fit of those that a run has.
func (m *matrix) sized(turn int, n, most int64) (_ plugin.DType, ok bool) {
	wanted := []plugin.DType{plugin.Float32, plugin.Bfloat16, plugin.Uint8, plugin.Float64}
	wanted = slices.DeleteFunc(wanted, func(d plugin.DType) bool { return !slices.Contains(m.dtypes, d) })
	if len(wanted) == 0 {
		wanted = m.dtypes
	}
	d := wanted[turn%len(wanted)]
	if n > counts[len(counts)-1] {
		d = wanted[0]
	}
	if n*d.Bytes() > most {
		d = slices.MinFunc(wanted, func(a, b plugin.DType) int { return int(a.Bytes() - b.Bytes()) })
	}
	return d, n*d.Bytes() <= most
}

// of returns those dtypes of a scenario that a run has, or the first of them: a run without it has the scenario all
// the same.
func (m *matrix) of(s *scenario) []plugin.DType {
	list := slices.DeleteFunc(slices.Clone(s.dtypes), func(d plugin.DType) bool { return !slices.Contains(m.dtypes, d) })
	if len(list) == 0 {
		return s.dtypes[:1]
	}
	return list
}

// override returns the text of SHUNT_ALGO that makes every collective use its k-th
// algorithm wherever that one serves the size, and "" for k = 0.
func override(offers []offer, set int) string {
	if set == 0 {
		return ""
	}
	var clauses []string
	seen := map[plugin.Collective]int{}
	for _, o := range offers {
		seen[o.Collective]++
		if seen[o.Collective] == set {
			clauses = append(clauses, o.Collective.String()+"="+o.Algorithm+",*")
		}
	}
	return strings.Join(clauses, ";")
}

// sets returns the largest number of algorithms that a collective has.
func sets(offers []offer) int {
	most := 0
	seen := map[plugin.Collective]int{}
	for _, o := range offers {
		seen[o.Collective]++
		most = max(most, seen[o.Collective])
	}
	return most
}

// scenarios adds every scenario, small and large, with the selector's choice
// and with every set of algorithms.
func (m *matrix) scenarios() {
	for _, s := range scenarioList {
		for set := range sets(m.offers) + 1 {
			if set > 0 && !s.everySet {
				continue
			}
			for i, n := range s.counts {
				if m.short && (i >= 2 || s.briefly() && m.world > smallWorld) {
					break
				}
				for _, d := range m.of(&s) {
					for _, axis := range m.scenarioAxes(&s) {
						m.add(Case{Scenario: s.name, Collective: plugin.AllToAllV, DType: d, Count: n, Set: set, Axis: axis,
							Repeat: s.repeat(m.short)})
					}
				}
			}
		}
	}
}

// scenarioAxes returns the axes that one case of a scenario is made for: in a full
// run one of each mode, in a short one a single one, by turns.
func (m *matrix) scenarioAxes(s *scenario) []Axis {
	var list []Axis
	for _, axis := range m.axes {
		if s.on(axis) {
			list = append(list, axis)
		}
	}
	if len(list) < 2 {
		return list
	}
	if m.short {
		return list[m.count%uint64(len(list)):][:1]
	}
	if s.where == onDevices {
		return list[:1] // it chooses its streams itself
	}
	half := len(list) / 2 // the streams of a mode are half a list apart
	var chosen []Axis
	for i := range half {
		chosen = append(chosen, list[i+half*int((m.count+uint64(i))%2)])
	}
	return chosen
}
