package faults

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A job that is stopped as a whole, as by Ctrl-Z, a suspended allocation or a paused container, continues: the time in
// which no rank ran counts neither as silence nor as time of a call.
func TestPausedJobGoesOn(t *testing.T) {
	random := random(t)
	const heartbeat = "SHUNT_HEARTBEAT=100ms" // a rank is dead that is silent for a second
	onPlugin, _ := processTransport(t)
	for name, c := range map[string]struct {
		place
		limit  time.Duration // of calls
		pauses int
	}{
		"host memory": {onHost, 2 * time.Second, 3},
		"a plugin":    {place{transport: onPlugin}, 20 * time.Second, 1},
		"devices":     {onDevice, 20 * time.Second, 1}, // kernels still run meanwhile, and so do their clocks
	} {
		t.Run(name, func(t *testing.T) {
			for range c.pauses {
				w := newWorldIn(t, 3, heartbeat)
				r := c.meet(w, c.limit)
				r.Rounds, r.Bytes = 2000, 16<<10
				opened := w.mustAsk("faults open", r, 30*time.Second)
				result := w.raw("faults paused", r, time.Minute, func(ctx context.Context, pids []int) {
					for _, a := range opened {
						if a.Plugin != 0 {
							pids = append(pids, a.Plugin)
						}
					}
					moment(ctx, random)
					signal(t, pids, unix.SIGSTOP)
					time.Sleep(c.limit%(10*time.Second) + 1500*time.Millisecond) // longer than the silence, and than a call
					signal(t, pids, unix.SIGCONT)
				})
				if err := result.Err(); err != nil {
					t.Error(err)
				}
				w.close()
			}
		})
	}
}

func signal(t *testing.T, pids []int, s unix.Signal) {
	for _, pid := range pids {
		if err := unix.Kill(pid, s); err != nil {
			t.Error(err)
		}
	}
}
