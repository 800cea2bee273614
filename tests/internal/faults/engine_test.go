package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/sockets"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/ucx"
	"github.com/shunt-ccl/shunt/transports/ucx/ucxtest"
)

// An engine moves bytes by itself, in commands that the executor only waits for: what ends them must be reported as it
// is for steps that the executor runs.

func init() {
	host.Register(sockets.Transport{})
	host.Register(ucx.Transport{})
	pool.Handle("faults abort", abortHandler)
	pool.Handle("faults break", breakHandler)
}

var buildSockets = build("shunt-transport-sockets", "tests/internal/sockets/process")

// engines returns the specs of sockets in this process and in one of its own, and of ucx where there is a library.
func engines(t *testing.T) map[string]string {
	t.Helper()
	spec, _ := carried(t, buildSockets)
	specs := map[string]string{"builtin": "builtin:sockets", "process": spec}
	if reason := ucxtest.Missing(); reason != "" {
		t.Log("without ucx: " + reason)
	} else {
		specs["ucx"] = "builtin:ucx"
	}
	return specs
}

func TestRankKilledInARemoteStepIsNamedByEverySurvivor(t *testing.T) {
	random := random(t)
	for carrier, spec := range engines(t) {
		t.Run(carrier, func(t *testing.T) {
			w := newWorld(t, 3)
			r := w.meet(spec, 20*time.Second)
			w.mustAsk("faults open", r, 30*time.Second)
			dead := random.IntN(3)
			var killed time.Time
			var pid int
			replies, result := w.ask("faults traffic", r, 15*time.Second, func(ctx context.Context, pids []int) {
				moment(ctx, random)
				killed, pid = time.Now(), pids[dead]
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Error(err)
				}
			})
			judge(t, replies, result, dead, plugin.PeerDied, []string{fmt.Sprintf("rank %d", dead), fmt.Sprint(pid)}, killed)
		})
	}
}

func TestKilledEngineIsNamedByEveryRank(t *testing.T) {
	random := random(t)
	spec, binary := carried(t, buildSockets)
	w := newWorld(t, 3)
	r := w.meet(spec, 20*time.Second)
	plugins := w.mustAsk("faults open", r, 30*time.Second)
	owner := random.IntN(3)
	var killed time.Time
	replies, result := w.ask("faults traffic", r, 15*time.Second, func(ctx context.Context, _ []int) {
		moment(ctx, random)
		killed = time.Now()
		if err := unix.Kill(plugins[owner].Plugin, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	judge(t, replies, result, -1, plugin.PluginDied, []string{fmt.Sprint(plugins[owner].Plugin), "sockets",
		fmt.Sprintf("rank %d", owner)}, killed)
	w.gone(binary)
}

// breakHandler cuts one rank's connections after some operations, and continues.
func breakHandler(_ context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	var a reply
	for number := 0; a.Code == plugin.OK; number++ {
		if number == 20 && w.Rank == r.Late {
			sockets.Break()
		}
		if err := j.operation(number, 1<<16); errors.Is(err, errWrong) {
			return nil, err
		} else if err != nil {
			a.fail(err)
		}
	}
	a.closed(j.Leave())
	a.Leaks = j.leaks()
	return json.Marshal(a)
}

// A connection that breaks between ranks that live is known to the engine alone: its code,
// words and rank are every rank's error.
func TestBrokenConnectionIsToldAsTheEngineDid(t *testing.T) {
	w := newWorld(t, 3)
	r := w.meet("builtin:sockets", 20*time.Second)
	r.Late = 1
	w.mustAsk("faults open", r, 30*time.Second)
	start := time.Now()
	replies, result := w.ask("faults break", r, 15*time.Second, nil)
	judge(t, replies, result, -1, plugin.PeerDied, []string{"by sockets/direct", "the transport's command failed",
		"127.0.0.1:"}, start)
	for rank, a := range replies {
		if a != nil && !strings.Contains(a.Message, fmt.Sprintf("rank %d at 127.0.0.1:", a.Rank)) {
			t.Errorf("rank %d: the error is about rank %d: %s", rank, a.Rank, a.Message)
		}
	}
}

func TestRankThatStaysOutOfARemoteStepIsNamed(t *testing.T) {
	for carrier, spec := range engines(t) {
		t.Run(carrier, func(t *testing.T) {
			const timeout = 4 * time.Second // of joining too, in which no rank stays away
			w := newWorld(t, 3)
			r := w.meet(spec, timeout)
			w.mustAsk("faults open", r, 20*time.Second)
			r.Absent = 1
			start := time.Now()
			replies, result := w.ask("faults traffic", r, 15*time.Second, nil)
			if err := result.Err(); err != nil {
				t.Fatal(err)
			}
			for rank, a := range replies {
				if a.Code != plugin.Timeout || !strings.Contains(a.Message, "rank 1") {
					t.Errorf("rank %d: %s: %s", rank, a.Code, a.Message)
				}
				if took := a.At.Sub(start); took > timeout+soon {
					t.Errorf("rank %d: the error came after %v", rank, took)
				}
			}
		})
	}
}

// abortHandler lets one rank abort while the others wait for it in a call.
func abortHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	x := j.Pointer(0)
	var a reply
	for number := 0; a.Code == plugin.OK; number++ {
		if number == 10 && w.Rank == r.Late {
			j.Comm.Abort("enough")
		}
		if err := j.Comm.AllReduce(x, x, 1<<16, plugin.Float32, plugin.OpSum, nil); err != nil {
			a.fail(err)
		}
	}
	a.closed(j.Leave())
	a.Leaks = j.leaks()
	return json.Marshal(a)
}

func TestAbortEndsARemoteStep(t *testing.T) {
	for carrier, spec := range engines(t) {
		t.Run(carrier, func(t *testing.T) {
			w := newWorld(t, 3)
			r := w.meet(spec, 20*time.Second)
			r.Late = 1
			w.mustAsk("faults open", r, 30*time.Second)
			start := time.Now()
			replies, result := w.ask("faults abort", r, 15*time.Second, nil)
			judge(t, replies, result, -1, plugin.Aborted, []string{"rank 1", "enough"}, start)
		})
	}
}
