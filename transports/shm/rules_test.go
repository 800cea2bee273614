package shm

import (
	"testing"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

func subject(t testing.TB) plantest.Subject {
	return plantest.Subject{
		Open:  openWorld,
		Names: func(c plugin.Collective, world int) []string { return names(t, c, world) },
	}
}

// Fails, for one, when exchange or a finish of pipeline waits only for peers
// whose count is not zero.
func TestRule01AlwaysSignalAlwaysWait(t *testing.T) { plantest.Rule01(t, subject(t)) }

// Fails, for one, when exchange counts from a constant instead of the word in
// the region, or does not store the word.
func TestRule02CountersOnlyGrow(t *testing.T) {
	plantest.Rule02(t, subject(t), regionPrivate, func(world int) []int64 { return newLayout(world).words() })
}

// Fails when room does not wait.
func TestRule13CreditsBoundScratchReuse(t *testing.T) { plantest.Rule13(t, subject(t)) }

// words returns the offsets of all counters and semaphores.
func (l layout) words() []int64 {
	list := []int64{l.barrierCounter, l.barrierSemaphore, l.exchangeCounter, l.blocksCounter}
	add := func(s slots, base int64) {
		for i := range s.count {
			list = append(list, base+i*s.stride)
		}
	}
	add(l.exchange, l.exchange.base)
	add(l.blocks, l.blocks.base)
	add(l.blocks, l.blocks.base+line)
	for _, p := range []pair{l.messages, l.personal, l.broadcast, {small: l.tiny[0], large: l.tiny[1]}} {
		for _, r := range []ring{p.small, p.large} {
			for other := int64(0); r.credits+other*line < l.exchange.base && other < 3; other++ {
				list = append(list, r.produced+other*word, r.consumed+other*word, r.credits+other*line)
				add(r.slots, r.base+other*r.span)
			}
		}
		for other := range int64(3) {
			list = append(list, p.offers.offered+other*line, p.offers.taken+other*line)
		}
	}
	list = append(list, l.mutual.offered, l.mutual.taken)
	return list
}
