package faults

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/stuck"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// stuckEnv says in which phase the builtin transport stuck is stuck.
const stuckEnv = "SHUNT_TEST_STUCK"

// changedEnv is a timeout that the first call does not have yet: it is set while that runs.
const changedEnv = "SHUNT_TEST_CHANGED_TIMEOUT"

func init() {
	host.Register(stuck.New(func() string { return os.Getenv(stuckEnv) }, 0))
	pool.Handle("faults stuck", stuckHandler)
}

// stuckHandler joins, calls all_reduce twice and broadcast, splits where the transport is a process, and leaves: the
// error is the first of these that fails, and Operations says how far the rank came.
func stuckHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	var a reply
	process := strings.HasPrefix(r.Transport, "process:")
	begun := time.Now()
	j, err := openRank(ctx, w, r)
	switch {
	case err != nil:
		a.fail(err)
	default:
		if changed, err := time.ParseDuration(os.Getenv(changedEnv)); err == nil {
			defer time.AfterFunc(500*time.Millisecond, func() { _ = j.Comm.SetTimeout(changed) }).Stop()
		}
		x := j.Pointer(0)
		sum := func() error { return j.Comm.AllReduce(x, x, 1, plugin.Float32, plugin.OpSum, nil) }
		operations := []func() error{sum, sum, func() error { return j.Comm.Broadcast(x, x, 1, plugin.Float32, 0, nil) }}
		if process {
			operations = append(operations, func() error { return j.split(ctx) })
		}
		for _, operation := range operations {
			if err := operation(); err != nil {
				a.fail(err)
				// The communicator is aborted: nothing waits for the transport again.
				again := time.Now()
				if err := sum(); err == nil || time.Since(again) > time.Second {
					return nil, errors.New("the communicator goes on after " + a.Message)
				}
				break
			}
			a.Operations++
		}
		a.closed(j.Leave())
	}
	a.Took = time.Since(begun)
	if j != nil {
		if process { // a stuck function of another carrier keeps its thread, and what it uses
			a.Leaks = j.leaks()
		}
		if err := j.Close(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(a)
}

// stuckIn returns the spec of a transport that is stuck in a phase, and what its ranks
// need in their environment.
func stuckIn(t *testing.T, carrier, phase string) (spec string, env []string) {
	t.Helper()
	switch carrier {
	case "builtin":
		return "builtin:stuck", []string{stuckEnv + "=" + phase}
	case "shared":
		path, err := ctransport.BuildStuck(t.TempDir(), phase)
		if err != nil {
			t.Fatal(err)
		}
		return "shared:" + path, nil
	}
	_, path := carried(t, buildStuck)
	named := filepath.Join(t.TempDir(), "stuck-"+phase)
	if out, err := exec.Command("cp", path, named).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return "process:" + named, nil
}

var buildStuck = build("stuck", "tests/internal/stuck/process")

// A transport that never returns costs the caller two thirds of the timeout, in whatever
// it is stuck; every rank learns which transport it is and what it was asked.
func TestStuckTransportIsNamedByEveryRank(t *testing.T) {
	const timeout = 3 * time.Second
	for _, carrier := range []string{"builtin", "shared", "process"} {
		for _, phase := range stuck.Phases {
			t.Run(carrier+" "+phase, func(t *testing.T) {
				spec, env := stuckIn(t, carrier, phase)
				w := newWorldIn(t, 2, env...)
				replies, result := w.ask("faults stuck", w.meet(spec, timeout), 30*time.Second, nil)
				judgeStuck(t, replies, result, carrier, phase, timeout)
			})
		}
	}
}

// Making a communicator asks about many collectives. A plugin that is stuck in whatever it is asked costs the timeout
// once, and every rank names it.
func TestPluginStuckInInitCostsTheTimeoutOnce(t *testing.T) {
	const timeout = 2 * time.Second
	spec, _ := stuckIn(t, "process", "init")
	w := newWorld(t, 2)
	replies, result := w.ask("faults stuck", w.meet(spec, timeout), 30*time.Second, nil)
	judgeStuck(t, replies, result, "process", "supports", timeout)
	for rank, a := range replies {
		if a.Operations > 0 || !strings.HasPrefix(a.Message, "init ") || a.Took > timeout+time.Second {
			t.Errorf("rank %d after %v and %d operations: %s", rank, a.Took, a.Operations, a.Message)
		}
	}
}

// The communicator whose split has failed for a plugin's end has failed with it, however late the watch for such ends
// comes: nothing is called in between.
func TestSplitThatLosesAPluginFailsTheParent(t *testing.T) {
	spec, _ := stuckIn(t, "process", "split")
	path := strings.TrimPrefix(spec, "process:")
	named := filepath.Join(filepath.Dir(path), "dies-split")
	if err := os.Rename(path, named); err != nil {
		t.Fatal(err)
	}
	w := newWorldIn(t, 2, failpoint.Variable+"=plugin.lost=delay(1s)")
	replies, result := w.ask("faults stuck", w.meet("process:"+named, 5*time.Second), 30*time.Second, nil)
	for rank, a := range replies {
		if a == nil {
			t.Errorf("rank %d: %v", rank, result.Outcomes[rank])
		} else if a.Code != plugin.PluginDied || a.Operations != 3 {
			t.Errorf("rank %d after %d operations: %s: %s", rank, a.Operations, a.Code, a.Message)
		}
	}
}

// judgeStuck checks what ranks say of a transport that is stuck in a phase on rank 1.
func judgeStuck(t *testing.T, replies []*reply, result *pool.Result, carrier, phase string, timeout time.Duration) {
	t.Helper()
	for rank, a := range replies {
		if a == nil {
			t.Fatalf("rank %d: %v", rank, result.Outcomes[rank])
		}
		message, code := a.Message, a.Code
		if phase == "close" {
			if message, code = a.Close, a.CloseCode; rank != 1 {
				continue // it has closed long before
			}
		}
		want := plugin.Timeout
		if carrier == "process" {
			want = plugin.PluginDied
		}
		if code != want || !strings.Contains(message, "stuck") || !strings.Contains(message, phase) ||
			!strings.Contains(message, " within ") {
			t.Errorf("rank %d: %s: %s", rank, code, message)
		}
		if limit := timeout + 5*time.Second; a.Took > limit {
			t.Errorf("rank %d: it took %v", rank, a.Took)
		}
		for _, opaque := range []string{"context deadline exceeded", "RST_STREAM", "rpc error", "waited 0s"} {
			if strings.Contains(message, opaque) {
				t.Errorf("rank %d: %s", rank, message)
			}
		}
		if len(a.Leaks) > 0 {
			t.Errorf("rank %d still holds %v", rank, a.Leaks)
		}
		t.Logf("rank %d after %v: %s", rank, a.Took.Round(time.Millisecond), message)
	}
}

// A native function runs in the rank's process: the call ends without it.
func TestStuckNativeFunctionIsNamedByEveryRank(t *testing.T) {
	spec, env := stuckIn(t, "shared", "native")
	w := newWorldIn(t, 2, env...)
	replies, result := w.ask("faults stuck", w.meet(spec, 2*time.Second), 30*time.Second, nil)
	for rank, a := range replies {
		if a == nil {
			t.Fatalf("rank %d: %v", rank, result.Outcomes[rank])
		}
		t.Logf("rank %d after %v: %s; closing: %s", rank, a.Took.Round(time.Millisecond), a.Message, a.Close)
		if a.Code != plugin.Timeout || rank == 1 && (!strings.Contains(a.Message, "all_reduce by stuck/one_shot") ||
			!strings.Contains(a.Message, "native function has not returned") ||
			!strings.Contains(a.Close, "its endpoint was not closed")) {
			t.Errorf("rank %d: %s: %s; closing: %s", rank, a.Code, a.Message, a.Close)
		}
	}
}

// Nothing ends a call whose native code blocks where it may not: the other ranks learn of it, in the time of that call.
func TestStartThatBlocksIsToldToTheOtherRanks(t *testing.T) {
	spec, env := stuckIn(t, "shared", "start")
	w := newWorldIn(t, 2, append(env, changedEnv+"=1m")...)
	replies, result := w.ask("faults stuck", w.meet(spec, 4*time.Second), 12*time.Second, nil)
	if a := replies[0]; a == nil {
		t.Fatalf("rank 0: %v", result.Outcomes[0])
	} else if a.Code != plugin.Timeout || !strings.Contains(a.Message, "rank 1 called #1 all_reduce") ||
		!strings.Contains(a.Message, "native code of transport stuck has not returned from start or poll for 2.666") {
		t.Errorf("rank 0: %s: %s", a.Code, a.Message)
	}
	if replies[1] != nil {
		t.Errorf("rank 1: %s: %s", replies[1].Code, replies[1].Message)
	}
}

// A status that is in no table is reported to every rank as what it is, with the sentence that the transport left.
func TestUnknownStatusIsToldToEveryRank(t *testing.T) {
	spec, env := stuckIn(t, "shared", "fails")
	w := newWorldIn(t, 2, env...)
	replies, result := w.ask("faults stuck", w.meet(spec, 5*time.Second), 30*time.Second, nil)
	for rank, a := range replies {
		if a == nil {
			t.Fatalf("rank %d: %v", rank, result.Outcomes[rank])
		}
		if a.Code != plugin.Internal || !strings.Contains(a.Message, "12345") ||
			!strings.Contains(a.Message, "rail 3 is down") || !strings.Contains(a.Message, "stuck/one_shot") || a.Close != "" {
			t.Errorf("rank %d: %s: %s; closing: %s", rank, a.Code, a.Message, a.Close)
		}
	}
}
