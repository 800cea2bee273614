package algorithm

import (
	"testing"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

const testScratch = 1 << 20

func subject(t testing.TB) plantest.Subject {
	return plantest.Subject{
		Open:  func(t testing.TB, world int) *plantest.World { return openWorld(t, world, testScratch) },
		Names: func(c plugin.Collective, world int) []string { return names(t, c, world, testScratch) },
	}
}

// Fails, for one, when await returns at once for a message without bytes.
func TestRule01AlwaysSignalAlwaysWait(t *testing.T) { plantest.Rule01(t, subject(t)) }

// Fails, for one, when a channel counts from a constant instead of the word in
// the scratch, or does not store the word.
func TestRule02CountersOnlyGrow(t *testing.T) {
	plantest.Rule02(t, subject(t), 0, func(world int) []int64 {
		l, _ := newLayout(world, testScratch)
		var list []int64
		for c := range class(countClasses) {
			for r := range world {
				list = append(list, l.producedWord(c)+int64(r)*word, l.consumedWord(c)+int64(r)*word, l.creditLine(c)+int64(r)*line)
				for i := range int64(slotsEach) {
					list = append(list, l.slotsFrom(c, r)+i*l.stride)
				}
			}
		}
		return list
	})
}

// Fails when put does not wait for credit.
func TestRule13CreditsBoundScratchReuse(t *testing.T) { plantest.Rule13(t, subject(t)) }
