package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/stuck"
	"github.com/shunt-ccl/shunt/tests/pool"
)

var storms = flag.Int("faults.storm", 16, "random faults of the storm; from 100 on with the default heartbeat")

// stormHeartbeat is shorter than the default in the short form, so that ranks are stopped for less time too.
func stormHeartbeat() time.Duration {
	if *storms < 100 {
		return 300 * time.Millisecond
	}
	return time.Second
}

func stormSilence() time.Duration { return 10 * stormHeartbeat() }

// stormJoin is the time that ranks wait for one that has not come.
func stormJoin() time.Duration { return stormSilence() * 4 / 3 }

// fault hits a world in one phase: signals for ranks, a lack on one of them, a signal for a plugin, or a
// plugin that is "stuck", "dies" or "stops" in a phase of its own.
type fault struct {
	phase  string
	kills  int
	stops  int
	lack   string
	signal unix.Signal
	plugin string
}

// faults returns every fault in every phase.
func faults() (all []fault) {
	for _, phase := range phases {
		for _, f := range []fault{{kills: 1}, {stops: 1}, {kills: 2}, {stops: 2}, {kills: 1, stops: 1},
			{lack: "descriptors"}, {lack: "memory"}, {signal: unix.SIGKILL}, {signal: unix.SIGSTOP}} {
			f.phase = phase
			// In init there is no process yet, and after a plugin's death shrink starts it again: the phases of plugins have
			// both, and TestShrinkStartsADeadPluginAgain.
			if f.signal == 0 || phase != "init" && phase != "shrink" {
				all = append(all, f)
			}
		}
	}
	for _, how := range []string{"stuck", "dies", "stops"} {
		for _, phase := range slices.Concat(stuck.Phases, stuck.Later) {
			all = append(all, fault{phase: phase, plugin: how})
		}
	}
	return all
}

// blow is a fault with all that decides what must come of it.
type blow struct {
	fault
	world  int
	hits   []int                 // ranks that get a signal, in their order
	killed []int                 // of these
	halted map[int]time.Duration // of these, and for how long they are stopped
	victim int
	from   int           // the round
	into   float64       // how far into the phase
	gap    time.Duration // between two
	spare  int           // descriptors that are left
	room   uint64        // memory that is left
}

func newBlow(f fault, random *rand.Rand) blow {
	least := max(2, f.kills+max(1, f.stops)) // one is left
	b := blow{fault: f, world: least + random.IntN(9-least), halted: map[int]time.Duration{}, from: 1 + random.IntN(3),
		into: 1.2 * random.Float64(), gap: time.Duration(random.Int64N(int64(20 * time.Millisecond))),
		spare: random.IntN(12), room: uint64(random.IntN(64 << 20))}
	ranks := random.Perm(b.world)
	b.victim, b.killed = ranks[0], slices.Clone(ranks[:f.kills])
	for _, rank := range ranks[f.kills : f.kills+f.stops] {
		// A twentieth to six fifths of the silence that is allowed: 0.5 to 12 s by default.
		b.halted[rank] = stormSilence()/20 + time.Duration(random.Int64N(int64(stormSilence()*23/20)))
	}
	b.hits = ranks[:f.kills+f.stops]
	random.Shuffle(len(b.hits), func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
	return b
}

// longest returns the length of the longest stop.
func (b blow) longest() (d time.Duration) {
	for _, h := range b.halted {
		d = max(d, h)
	}
	return d
}

// TestStorm lets faults hit random worlds at random moments, knows what it did, and checks what each survivor says of
// it: the cause, soon; one world of those that continue or none; nothing left over.
func TestStorm(t *testing.T) {
	random := random(t)
	var left []fault
	for number := range *storms {
		if len(left) == 0 {
			left = faults()
			random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		}
		b := newBlow(left[0], random)
		left = left[1:]
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			if b.plugin != "" {
				b.stuck(t)
			} else {
				b.strike(t)
			}
			if t.Failed() {
				t.Logf("%+v", b)
			}
		})
	}
}

func (b blow) strike(t *testing.T) {
	w := newWorldIn(t, b.world, fmt.Sprint("SHUNT_HEARTBEAT=", stormHeartbeat()))
	spec, binary := builtin, ""
	if b.signal != 0 {
		spec, binary = processTransport(t)
	}
	r := stormRequest{request: w.meet(spec, 2*stormSilence()), Phase: b.phase, Victim: b.victim, From: b.from,
		Into: b.into, Mark: filepath.Join(w.meets, "mark"), For: b.longest() + 300*time.Millisecond, Lack: b.lack, Room: b.room,
		Signal: b.signal}
	r.Spare, r.Bytes = b.spare, 1<<16
	if !r.lasts() {
		r.Timeout = stormJoin()
	}
	if b.signal != 0 && r.lasts() {
		r.For = 10 * time.Second // longer than a stopped plugin takes to be found
	}
	if err := unix.Mkfifo(r.Mark, 0o600); err != nil {
		t.Fatal(err)
	}
	mark, err := os.OpenFile(r.Mark, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mark.Close() //nolint:errcheck // it has been read
	w.mustAsk("faults open", r.request, 30*time.Second)
	a := aftermath{blow: b, resumed: map[int]time.Time{}, reports: map[int]weathered{}}
	result := w.raw("faults storm", r, 90*time.Second, func(ctx context.Context, pids []int) {
		defer context.AfterFunc(ctx, func() { _ = mark.SetReadDeadline(time.Now()) })()
		a.pids = slices.Clone(pids)
		if _, err := mark.Read(make([]byte, 1)); err != nil {
			t.Errorf("rank %d was not hit: %v", b.victim, err)
			return
		}
		a.struck = time.Now()
		a.signals(t)
	})
	for rank, o := range result.Outcomes {
		switch s := (weathered{}); {
		case slices.Contains(a.killed, rank):
		case rank == b.victim && b.lack == "memory" && ranOutOfMemory(o):
			a.killed, a.hits = []int{rank}, []int{rank} // as good as
		case o.Error != "" || json.Unmarshal(o.Payload, &s) != nil:
			t.Errorf("survivor %d: %s\n%s", rank, o.Error, o.Stderr)
		default:
			a.reports[rank] = s
		}
	}
	a.judge(t)
	if binary != "" {
		w.gone(binary)
	}
	w.close()
}

// signals kills and stops ranks, and continues those when their time is over.
func (a *aftermath) signals(t *testing.T) {
	var mu sync.Mutex
	var halts sync.WaitGroup
	defer halts.Wait()
	for i, rank := range a.hits {
		if i > 0 {
			time.Sleep(a.gap) // the moment of the fault, not a synchronization
		}
		d, halted := a.halted[rank]
		if !halted {
			signal(t, a.pids[rank:rank+1], unix.SIGKILL)
			continue
		}
		signal(t, a.pids[rank:rank+1], unix.SIGSTOP)
		halts.Go(func() {
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			a.resumed[rank] = time.Now()
			signal(t, a.pids[rank:rank+1], unix.SIGCONT)
		})
	}
}

// ranOutOfMemory reports whether a rank has ended because the language's runtime, or a thread's stack, got no memory.
func ranOutOfMemory(o pool.Outcome) bool {
	return o.Error != "" && (strings.Contains(o.Stderr, "out of memory") ||
		strings.Contains(o.Stderr, "pthread_create failed") || strings.Contains(o.Stderr, "cannot allocate memory"))
}

// stuck has the process of a plugin, in one of its phases, not respond, while it responds to pings, or end, or stop.
func (b blow) stuck(t *testing.T) {
	spec, _ := stuckIn(t, "process", b.fault.phase)
	binary := strings.TrimPrefix(spec, "process:")
	named := filepath.Join(filepath.Dir(binary), b.plugin+"-"+b.phase)
	if err := os.Rename(binary, named); err != nil {
		t.Fatal(err)
	}
	w := newWorldIn(t, b.world, fmt.Sprint("SHUNT_HEARTBEAT=", stormHeartbeat()))
	timeout := stormJoin()
	replies, result := w.ask("faults stuck", w.meet("process:"+named, timeout), 60*time.Second, nil)
	asked := cmp.Or(map[string]string{"init": "supports", "traffic": "prepare", "split": "open"}[b.phase], b.phase)
	if b.plugin == "stuck" && b.phase != "start" {
		judgeStuck(t, replies, result, "process", asked, timeout)
	} else {
		judgeLost(t, replies, result, b, named)
	}
	w.gone(named)
}

// judgeLost checks what ranks say of a plugin whose process ended or stopped in a phase, or never started.
func judgeLost(t *testing.T, replies []*reply, result *pool.Result, b blow, named string) {
	t.Helper()
	allowed := 3 * time.Second
	switch {
	case b.phase == "start" && b.plugin != "dies":
		allowed += stormJoin() // the time for joining, of which it gets a part
	case b.plugin == "stops":
		allowed = 6 * time.Second // until its pings are missed
	}
	for rank, a := range replies {
		if a == nil {
			t.Errorf("rank %d: %v", rank, result.Outcomes[rank])
			continue
		}
		message, code, want := a.Message, a.Code, plugin.PluginDied
		switch {
		case b.phase == "start":
			want = plugin.PluginRejected // it was never in use
		case b.phase == "close" && rank == 1:
			message, code = a.Close, a.CloseCode
		case b.phase == "close":
			continue // it has closed before
		}
		if code != want || !strings.Contains(message, "plugin stuck (pid ") && !strings.Contains(message, named) || a.Took > allowed || len(a.Leaks) > 0 {
			t.Errorf("rank %d after %v, with %v: %s: %s", rank, a.Took, a.Leaks, code, message)
		}
	}
}
