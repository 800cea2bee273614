package conformance

import (
	"fmt"
	"testing"
)

func TestPairwiseCoversEveryAllowedPair(t *testing.T) {
	levels := []int{12, 6, 14, 2, 3, 4, 6, 5}
	allowed := func(row []int) bool { return !(row[2] > 10 && row[7] > 2) && !(row[0] == 3 && row[1] == 2) }
	rows := pairwise(levels, 1, allowed)
	again := pairwise(levels, 1, allowed)
	if fmt.Sprint(rows) != fmt.Sprint(again) {
		t.Error("the same arguments gave other rows")
	}
	have := newPairs(levels)
	for _, row := range rows {
		if !allowed(row) {
			t.Errorf("row %v is not allowed", row)
		}
		have.add(row)
	}
	for a := range levels {
		for b := a + 1; b < len(levels); b++ {
			for x := range levels[a] {
				for y := range levels[b] {
					row := []int{unset, unset, unset, unset, unset, unset, unset, unset}
					row[a], row[b] = x, y
					if allowed(row) && !have.has(a, x, b, y) {
						t.Errorf("no row has axis %d at %d and axis %d at %d", a, x, b, y)
					}
				}
			}
		}
	}
	if len(rows) > 3*12*14 {
		t.Errorf("%d rows are many", len(rows))
	}
	t.Logf("%d rows", len(rows))
}
