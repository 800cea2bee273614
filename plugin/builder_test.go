package plugin

import (
	"errors"
	"strings"
	"testing"
)

// The register of a rank or slot that there is not would be another's.
func TestBuilderRefusesWhatIsOutOfRange(t *testing.T) {
	arrays := map[string]func(*Builder, int) Reg{"SendCount": (*Builder).SendCount, "SendDispl": (*Builder).SendDispl,
		"RecvCount": (*Builder).RecvCount, "RecvDispl": (*Builder).RecvDispl}
	for name, of := range arrays {
		taken := map[Reg]bool{}
		for rank := -1; rank <= 2; rank++ {
			b := NewBuilder(Request{Collective: AllToAllV, World: 2}, "test")
			taken[of(b, rank)] = true
			p, err := b.Plan()
			if inside := rank == 0 || rank == 1; inside != (p != nil) || inside != (err == nil) {
				t.Errorf("%s(%d) in a world of 2: %v", name, rank, err)
			}
			if err != nil && !strings.Contains(err.Error(), "is out of range: the world has 2 ranks") {
				t.Error(err)
			}
		}
		if len(taken) != 3 { // those of both ranks, and 0 beside an error
			t.Errorf("%s: registers %v", name, taken)
		}
	}
	for slot, valid := range map[Slot]bool{0: true, SlotArrays - 1: true, SlotArrays: false, 999: false} {
		b := NewBuilder(Request{World: 2}, "test")
		b.Slot(slot)
		if _, err := b.Plan(); (err == nil) != valid || (err != nil && !errors.Is(err, Internal)) {
			t.Errorf("slot %d: %v", slot, err)
		}
	}
}
