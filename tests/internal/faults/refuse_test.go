package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// A rank whose program ends over an error of its own arguments: the survivors'
// error names the death and what the rank had refused before.
func TestARankThatDiesOfItsArgumentsIsExplained(t *testing.T) {
	for name, rounds := range map[string]int{"killed": 0, "exited": 1} {
		t.Run(name, func(t *testing.T) { diesOfItsArguments(t, onHost, 4, rounds) })
		t.Run(name+" on devices", func(t *testing.T) { diesOfItsArguments(t, onDevice, devices(t, 2, 4), rounds) })
	}
}

func diesOfItsArguments(t *testing.T, on place, size, rounds int) {
	dead := size - 1
	w := newWorld(t, size)
	r := on.meet(w, 20*time.Second)
	w.mustAsk("faults open", r, 30*time.Second)
	w.mustAsk("faults operation", r, 30*time.Second)
	r.Absent, r.Rounds = dead, rounds
	began := time.Now()
	replies, result := w.ask("faults refuse", r, 15*time.Second, nil)
	judge(t, replies, result, dead, plugin.PeerDied, []string{fmt.Sprintf("rank %d refused its all_reduce: count -1 is negative", dead)}, began.Add(soon))
	w.close()
}
