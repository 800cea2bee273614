// Package nearest finds the known name that a mistyped one most likely means.
// It is pure and knows nothing of what the names stand for.
package nearest

// maxName bounds the work on names that come from outside: longer ones have no
// near neighbour in any of our tables.
const maxName = 128

// Of returns the known name with the smallest edit distance to name, the first of
// several, or "" when none is near enough to be a plausible typing error: more
// than a third of the longer name's bytes would have to change.
func Of(name string, known []string) string {
	best, bestDistance := "", -1
	for _, k := range known {
		longest := max(len(k), len(name))
		if longest > maxName {
			continue
		}
		d := Distance(name, k)
		if 3*d > longest+2 {
			continue
		}
		if bestDistance < 0 || d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// Distance returns the number of single-byte insertions, deletions, replacements
// and swaps of neighbours that turn a into b.
func Distance(a, b string) int {
	// Three rows of the dynamic programme: i-2 (for swaps), i-1 and i.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
