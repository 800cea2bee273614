package conformance

import "slices"

// unset marks an axis that a row under construction has no level for yet.
const unset = -1

// pairwise returns rows that together hold every allowed pair of levels of every two
// axes. levels[i] is the number of levels of axis i; allowed reports whether a row, in
// which some axes may be unset, can still become a case. The same arguments give the
// same rows.
//
// The construction is greedy: a row starts from the first pair that no row
// has, and each further axis takes the level that adds the most new pairs.
func pairwise(levels []int, seed uint64, allowed func(row []int) bool) [][]int {
	covered := newPairs(levels)
	row := make([]int, len(levels))
	fresh := func() {
		for i := range row {
			row[i] = unset
		}
	}
	// Pairs that no case can have are not waited for.
	for a := range levels {
		for b := a + 1; b < len(levels); b++ {
			for x := range levels[a] {
				for y := range levels[b] {
					fresh()
					row[a], row[b] = x, y
					if !allowed(row) {
						covered.set(a, x, b, y)
					}
				}
			}
		}
	}
	var rows [][]int
	for a := range levels {
		for b := a + 1; b < len(levels); b++ {
			for x := range levels[a] {
				for y := range levels[b] {
					if covered.has(a, x, b, y) {
						continue
					}
					fresh()
					row[a], row[b] = x, y
					if complete(row, levels, covered, hash(seed, uint64(len(rows))), allowed) {
						covered.add(row)
						rows = append(rows, slices.Clone(row))
					}
					covered.set(a, x, b, y)
				}
			}
		}
	}
	return rows
}

// complete gives every unset axis a level. It goes back on its choices where
// no level is allowed, so it fails only if no case exists.
func complete(row, levels []int, covered *pairs, salt uint64, allowed func([]int) bool) bool {
	axis := slices.Index(row, unset)
	if axis < 0 {
		return true
	}
	type option struct{ level, gain int }
	options := make([]option, 0, levels[axis])
	start := int(hash(salt, uint64(axis)) % uint64(levels[axis]))
	for i := range levels[axis] {
		level := (start + i) % levels[axis]
		row[axis] = level
		if !allowed(row) {
			continue
		}
		gain := 0
		for other, y := range row {
			if other != axis && y != unset && !covered.has(min(axis, other), row[min(axis, other)], max(axis, other),
				row[max(axis, other)]) {
				gain++
			}
		}
		options = append(options, option{level, gain})
	}
	slices.SortStableFunc(options, func(a, b option) int { return b.gain - a.gain })
	for _, o := range options {
		row[axis] = o.level
		if complete(row, levels, covered, salt, allowed) {
			return true
		}
	}
	row[axis] = unset
	return false
}

// pairs remembers which pairs of levels some row has.
type pairs struct {
	first []int // offset of an axis' levels in the numbering of all levels
	total int
	bits  []bool
}

func newPairs(levels []int) *pairs {
	p := &pairs{first: make([]int, len(levels))}
	for i, n := range levels {
		p.first[i] = p.total
		p.total += n
	}
	p.bits = make([]bool, p.total*p.total)
	return p
}

func (p *pairs) at(a, x, b, y int) int { return (p.first[a]+x)*p.total + p.first[b] + y }

// has and set take a < b.
func (p *pairs) has(a, x, b, y int) bool { return p.bits[p.at(a, x, b, y)] }

func (p *pairs) set(a, x, b, y int) { p.bits[p.at(a, x, b, y)] = true }

func (p *pairs) add(row []int) {
	for a, x := range row {
		for b := a + 1; b < len(row); b++ {
			p.set(a, x, b, row[b])
		}
	}
}
