package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
)

// Ranks of these tests are processes on GPUs, real ones or some in memory that
// processes share.
var onDevice = place{machine.Builtin, plugin.MemoryKindCuda}

// devices returns the number of ranks of a test: as many as there are GPUs, up to most.
func devices(t *testing.T, least, most int) int {
	t.Helper()
	if lacks := device.Lacks(least); lacks != "" {
		t.Skipf("no %d GPUs: %s", least, lacks)
	}
	if !machine.Real() {
		return min(3, most) // each is a process that computes
	}
	n, err := device.Count()
	if err != nil {
		t.Fatal(err)
	}
	return min(n, most)
}

// Kernels of the survivors wait for, read and write memory of the one that is gone. They end, the error names it, and
// the same processes continue in the same contexts, with results checked, on a smaller communicator.
func TestKilledRankOnDevices(t *testing.T) {
	size := devices(t, 2, 4)
	random := random(t)
	for loop := range *loops {
		dead := random.IntN(size)
		shrink(t, random, onDevice, size, dead)
		if t.Failed() {
			t.Fatalf("loop %d, rank %d killed", loop, dead)
		}
	}
}

// The plugin's process has made the memory and the kernels' images, but the host launches the kernels: what runs, and
// what a graph replays, continues and gives the right results. Then the loss is reported, and closing frees everything.
func TestKilledPluginOnDevices(t *testing.T) {
	size := devices(t, 2, 4)
	random := random(t)
	spec, binary := "process:"+*cudaPlugin, *cudaPlugin
	if binary == "" {
		spec, binary = carried(t, buildCudaipc)
	}
	for loop := range *loops {
		w := newWorld(t, size)
		r := place{spec, plugin.MemoryKindCuda}.meet(w, 20*time.Second)
		r.Rounds = 2000
		if !machine.Real() {
			r.Rounds, r.Bytes = 20, 4<<10
		}
		plugins := w.mustAsk("faults open", r, time.Minute)
		for _, one := range w.mustAsk("faults capture", r, time.Minute) {
			// All end well before the host's time of grace does, however slow the machine.
			r.Rounds = max(1, min(r.Rounds, int(soon/4/one.Took)))
		}
		owner := random.IntN(size)
		var killed time.Time
		result := w.raw("faults replay", r, 30*time.Second, func(ctx context.Context, _ []int) {
			moment(ctx, random)
			killed = time.Now()
			if err := unix.Kill(plugins[owner].Plugin, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		})
		for rank, o := range result.Outcomes {
			var a replayed
			if o.Error != "" || json.Unmarshal(o.Payload, &a) != nil {
				t.Errorf("rank %d: the plugin was killed %s: %s\n%s", rank, killed.Format(time.StampMicro), o.Error, o.Stderr)
				continue
			}
			for _, text := range []string{fmt.Sprint(plugins[owner].Plugin), "cudaipc", fmt.Sprintf("rank %d", owner)} {
				if !strings.Contains(a.Message, text) {
					t.Errorf("rank %d: no %q in %q", rank, text, a.Message)
				}
			}
			if a.Code != plugin.PluginDied || len(a.Leaks) > 0 {
				t.Errorf("rank %d: %s: %s; still holds %v", rank, a.Code, a.Message, a.Leaks)
			}
			if took := a.At.Sub(killed); took > soon {
				t.Errorf("rank %d: the error came after %v", rank, took)
			}
			closing(t, rank, &a.reply)
			t.Logf("rank %d: %d replays, the last %v after the plugin's death", rank, a.Operations, a.Ended.Sub(killed))
		}
		w.gone(binary)
		if t.Failed() {
			t.Fatalf("loop %d, plugin of rank %d killed", loop, owner)
		}
	}
}

func TestSoakChangingSplitsOnDevices(t *testing.T) { soakSplits(t, false) }

func TestSoakCountsOnDevices(t *testing.T) { soakSplits(t, true) }

func soakSplits(t *testing.T, counted bool) {
	size := devices(t, 2, 4)
	w := newWorld(t, size)
	r := onDevice.meet(w, 30*time.Second)
	r.Rounds, r.Bytes, r.Counted = *calls, 64<<10, counted
	if !machine.Real() {
		r.Rounds, r.Bytes = min(*calls, 200), 8<<10
	}
	flat(t, w.mustAsk("faults soak calls", r, time.Duration(*calls)*20*time.Millisecond+2*time.Minute), 1<<20)
}

func TestSoakCommunicatorsOnDevices(t *testing.T) {
	size := devices(t, 2, 4)
	w := newWorld(t, size)
	r := onDevice.meet(w, 30*time.Second)
	r.Rounds, r.Bytes = *comms, 64<<10
	if !machine.Real() && *comms == defaultComms {
		r.Rounds = 10
	}
	flat(t, w.mustAsk("faults soak communicators", r, time.Duration(*comms)*3*time.Second+2*time.Minute), deviceHeap)
}
