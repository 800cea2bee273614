package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults revive", reviveHandler) }

// revived is the report of a rank that continues after its plugin, or a peer's, has died.
type revived struct {
	Failure reply
	World   int
	Plugin  int // process of the transport afterwards
	Took    time.Duration
	Leaks   []string
}

// reviveHandler runs collectives until they fail, shrinks, and runs them again.
func reviveHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	var v revived
	for number := 0; v.Failure.Message == ""; number++ {
		if err := j.operation(number, r.Bytes); errors.Is(err, errWrong) || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		} else if err != nil {
			v.Failure.fail(err)
		}
	}
	began := time.Now()
	next, err := j.Comm.Shrink(ctx)
	if err != nil {
		return nil, fmt.Errorf("after %q: shrink: %w", v.Failure.Message, err)
	}
	v.Took = time.Since(began)
	if err := j.Leave(); err != nil {
		return nil, fmt.Errorf("closing the old communicator: %w", err)
	}
	j.Comm = next
	v.World, v.Plugin = next.World(), next.Transports()[0].PID()
	for number := range 20 {
		if err := j.operation(number, r.Bytes); err != nil {
			return nil, fmt.Errorf("after the shrink: %w", err)
		}
	}
	if err := j.Leave(); err != nil {
		return nil, fmt.Errorf("close: %w", err)
	}
	v.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// A plugin that has died is started again for the communicator that follows: no rank is
// lost with it.
func TestShrinkStartsADeadPluginAgain(t *testing.T) {
	random := random(t)
	spec, binary := processTransport(t)
	for loop := range *loops {
		for i, signal := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGKILL} {
			size := 2 + random.IntN(3)
			w := newWorld(t, size)
			r := w.meet(spec, 20*time.Second)
			r.Bytes = 1 << 12
			plugins := w.mustAsk("faults open", r, 30*time.Second)
			dead := map[int]bool{random.IntN(size): true, random.IntN(size): true}
			for rank := range size {
				dead[rank] = dead[rank] || i == 2 // at the end all at once
			}
			result := w.raw("faults revive", r, 40*time.Second, func(ctx context.Context, _ []int) {
				moment(ctx, random)
				for owner, dies := range dead {
					if !dies {
						continue
					}
					if err := unix.Kill(plugins[owner].Plugin, signal); err != nil {
						t.Error(err)
					}
				}
			})
			for rank, o := range result.Outcomes {
				var v revived
				if o.Error != "" || json.Unmarshal(o.Payload, &v) != nil {
					t.Errorf("rank %d: %s\n%s", rank, o.Error, o.Stderr)
					continue
				}
				if v.Failure.Code != plugin.PluginDied || v.World != size || dead[rank] == (v.Plugin == plugins[rank].Plugin) ||
					len(v.Leaks) > 0 {
					t.Errorf("rank %d of %d, dead plugins %v: %+v", rank, size, dead, v)
				}
				t.Logf("rank %d: shrunk within %v after %s", rank, v.Took.Round(time.Millisecond), v.Failure.Message)
			}
			w.gone(binary)
			if t.Failed() {
				t.Fatalf("loop %d", loop)
			}
		}
	}
}

// A plugin that dies as soon as it is started again, or as soon as it is used, is given up: all survivors get its name,
// long before their time is up.
func TestShrinkGivesUpAPluginThatDiesAgainAndAgain(t *testing.T) {
	for _, phase := range []string{"start", "open"} {
		t.Run(phase, func(t *testing.T) {
			spec, _ := stuckIn(t, "process", "nowhere")
			binary := strings.TrimPrefix(spec, "process:")
			directory := filepath.Dir(binary)
			dying, script := filepath.Join(directory, "dies-"+phase), filepath.Join(directory, "plugin")
			text := fmt.Sprintf("#!/bin/sh\nif [ -e '%s' ]; then exec '%s'; fi\nexec '%s'\n", dying, dying, binary)
			if phase == "start" {
				text = fmt.Sprintf("#!/bin/sh\nif [ -e '%s' ]; then kill -KILL $$; fi\nexec '%s'\n", dying, binary)
			}
			if err := os.WriteFile(script, []byte(text), 0o700); err != nil { //nolint:gosec // it is to be run
				t.Fatal(err)
			}
			w := newWorld(t, 3)
			r := w.meet("process:"+script, 20*time.Second)
			r.Bytes = 1 << 12
			plugins := w.mustAsk("faults open", r, 30*time.Second)
			began := time.Now()
			result := w.raw("faults revive", r, 40*time.Second, func(context.Context, []int) {
				if err := errors.Join(os.Link(binary, dying), unix.Kill(plugins[1].Plugin, unix.SIGKILL)); err != nil {
					t.Error(err)
				}
			})
			took := time.Since(began)
			for rank, o := range result.Outcomes {
				if !strings.Contains(o.Error, "shrink on rank") || !strings.Contains(o.Error, "rank 1") || took > 10*time.Second {
					t.Errorf("rank %d after %v: %s, want that rank 1's plugin dies", rank, took, o.Error)
				}
			}
		})
	}
}
