package faults

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// allTold checks that every rank got the error in time, by each of its checks, and that
// nothing is left. limit holds on real GPUs.
func allTold(t *testing.T, name string, outcomes []pool.Outcome, limit time.Duration,
	check func(rank int, a *toldReply)) {
	t.Helper()
	if !machine.Real() {
		limit = soon
	}
	for rank, o := range outcomes {
		var a toldReply
		if o.Error != "" || json.Unmarshal(o.Payload, &a) != nil {
			t.Fatalf("%s: rank %d: %s\n%s", name, rank, o.Error, o.Stderr)
		}
		check(rank, &a)
		if took := a.At.Sub(a.Began); took > limit {
			t.Errorf("%s: rank %d: the error came after %v", name, rank, took)
		}
		if len(a.Leaks) > 0 {
			t.Errorf("%s: rank %d still holds %v", name, rank, a.Leaks)
		}
		closing(t, rank, &a.reply)
	}
	if t.Failed() {
		t.FailNow()
	}
}
