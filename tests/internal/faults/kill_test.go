package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestKilledRankIsNamedByEverySurvivor(t *testing.T) {
	random := random(t)
	for _, size := range []int{2, 4} {
		t.Run(fmt.Sprintf("world=%d", size), func(t *testing.T) {
			for loop := range *loops {
				w := newWorld(t, size)
				r := w.meet(builtin, 20*time.Second)
				w.mustAsk("faults open", r, 30*time.Second)
				dead := random.IntN(size)
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
				w.close()
				if t.Failed() {
					t.Fatalf("loop %d, rank %d killed", loop, dead)
				}
			}
		})
	}
}

func TestKilledPluginIsNamedByEveryRank(t *testing.T) {
	random := random(t)
	spec, binary := processTransport(t)
	const size = 3
	for loop := range *loops {
		w := newWorld(t, size)
		r := w.meet(spec, 20*time.Second)
		plugins := w.mustAsk("faults open", r, 30*time.Second)
		owner := random.IntN(size)
		var killed time.Time
		replies, result := w.ask("faults traffic", r, 15*time.Second, func(ctx context.Context, _ []int) {
			moment(ctx, random)
			killed = time.Now()
			if err := unix.Kill(plugins[owner].Plugin, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		})
		judge(t, replies, result, -1, plugin.PluginDied,
			[]string{fmt.Sprint(plugins[owner].Plugin), "shm", fmt.Sprintf("rank %d", owner)}, killed)
		w.gone(binary)
		if t.Failed() {
			t.Fatalf("loop %d, plugin of rank %d killed", loop, owner)
		}
	}
}

func TestKilledRankTakesItsPluginAlong(t *testing.T) {
	random := random(t)
	spec, binary := processTransport(t)
	for loop := range *loops {
		w := newWorld(t, 3)
		r := w.meet(spec, 20*time.Second)
		w.mustAsk("faults open", r, 30*time.Second)
		dead := random.IntN(3)
		var killed time.Time
		replies, result := w.ask("faults traffic", r, 15*time.Second, func(ctx context.Context, pids []int) {
			moment(ctx, random)
			killed = time.Now()
			// The process alone, not its group: its plugin must see to itself.
			if err := unix.Kill(pids[dead], unix.SIGKILL); err != nil {
				t.Error(err)
			}
		})
		judge(t, replies, result, dead, plugin.PeerDied, []string{fmt.Sprintf("rank %d", dead)}, killed)
		w.gone(binary)
		if t.Failed() {
			t.Fatalf("loop %d, rank %d killed", loop, dead)
		}
	}
}

func TestStoppedPluginIsReportedAndKilled(t *testing.T) {
	spec, binary := processTransport(t)
	w := newWorld(t, 2)
	r := w.meet(spec, 20*time.Second)
	plugins := w.mustAsk("faults open", r, 30*time.Second)
	var stopped time.Time
	replies, result := w.ask("faults traffic", r, 30*time.Second, func(context.Context, []int) {
		stopped = time.Now()
		if err := unix.Kill(plugins[1].Plugin, unix.SIGSTOP); err != nil {
			t.Error(err)
		}
	})
	for rank, a := range replies {
		if a == nil {
			t.Fatalf("rank %d: %v", rank, result.Err())
		}
		if a.Code != plugin.PluginDied || !strings.Contains(a.Message, fmt.Sprint(plugins[1].Plugin)) ||
			!strings.Contains(a.Message, "does not respond") {
			t.Errorf("rank %d: %s: %s", rank, a.Code, a.Message)
		}
		if took := a.At.Sub(stopped); took > 5*time.Second {
			t.Errorf("rank %d: the error came after %v", rank, took)
		}
	}
	w.gone(binary)
}
