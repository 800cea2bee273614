package conformance_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
)

// An engine that is too slow for all replays passes with fewer of them, the same number on all ranks.
func TestGraphOfAHundredEndsInTime(t *testing.T) {
	if machine.Real() {
		t.Skip("GPUs are fast; those in memory are slow")
	}
	conformance.Test(t, conformance.Config{
		Transport: machine.Builtin, Worlds: []int{2}, Memory: plugin.MemoryKindCuda,
		Modes: []conformance.Mode{conformance.Eager}, Local: true, Rounds: 1 << 20, Timeout: 10 * time.Second,
		MaxFailures: 1, Filter: regexp.MustCompile(`^graph_hundred/w2/uint8/n4097/cuda\.eager\.own/x\d+$`),
	})
	machine.Close()
}
