package faults

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/stuck"
	"github.com/shunt-ccl/shunt/tests/pool"
)

var storms = flag.Int("faults.storm", 16, "random faults of the storm; 500 is its long form")

const (
	stormHeartbeat = 300 * time.Millisecond
	stormSilence   = 10 * stormHeartbeat
	stormJoin      = 4 * time.Second // ranks wait so long for one that has not come
)

// blow is one fault of a storm, with all that decides what must come of it.
type blow struct {
	world   int
	phase   string
	killed  []int                 // ranks
	halted  map[int]time.Duration // ranks, and for how long they are stopped
	lacks   int                   // rank without descriptors, or -1
	spare   int
	plugin  unix.Signal // to the plugin of rank owner, if not 0
	owner   int
	wedged  string        // phase in which the plugin of rank 1 is stuck for ever, which still responds to pings; or ""
	starved int           // rank without memory, or -1
	room    uint64        // what it has left
	first   time.Duration // moment of the first
	second  time.Duration // between two
}

func (b blow) String() string {
	return fmt.Sprintf("world of %d in %s: killed %v, stopped %v, without descriptors %d (%d left), without memory %d (%d left), signal %d to the plugin of rank %d, plugin wedged in %q, after %v and %v",
		b.world, b.phase, b.killed, b.halted, b.lacks, b.spare, b.starved, b.room, b.plugin, b.owner, b.wedged, b.first,
		b.second)
}

func newBlow(random *rand.Rand) blow {
	b := blow{world: 2 + random.IntN(7), phase: phases[random.IntN(len(phases))], halted: map[int]time.Duration{},
		lacks: -1, starved: -1}
	b.first, b.second = time.Duration(random.Int64N(int64(60*time.Millisecond))),
		time.Duration(random.Int64N(int64(20*time.Millisecond)))
	ranks := random.Perm(b.world)
	// A fifth to six fifths of what silence is allowed, as 0.5 to 12 s is by default.
	halt := func() time.Duration { return stormSilence/20 + time.Duration(random.Int64N(int64(stormSilence*23/20))) }
	switch random.IntN(11) {
	case 0, 1, 2:
		b.killed = ranks[:1]
	case 3, 4:
		b.halted[ranks[0]] = halt()
	case 5:
		b.killed = ranks[:min(2, b.world-1)]
	case 6:
		b.killed = ranks[:1]
		b.halted[ranks[1]] = halt()
	case 7:
		b.phase, b.lacks, b.spare = "split", ranks[0], random.IntN(12)
	case 8:
		b.phase, b.owner = []string{"traffic", "split"}[random.IntN(2)], ranks[0]
		b.plugin = []unix.Signal{unix.SIGKILL, unix.SIGSTOP}[random.IntN(2)]
	case 9:
		b.wedged = stuck.Phases[random.IntN(len(stuck.Phases))]
	case 10:
		b.phase, b.starved, b.room = []string{"split", "shrink", "life"}[random.IntN(3)], ranks[0],
			uint64(random.IntN(64<<20))
	}
	return b
}

// longest returns the length of the longest stop.
func (b blow) longest() (d time.Duration) {
	for _, h := range b.halted {
		d = max(d, h)
	}
	return d
}

// TestStorm lets random faults hit random worlds, knows what it did, and checks what each survivor says of it: the
// cause, soon; one world of those that continue or none; nothing left over.
func TestStorm(t *testing.T) {
	random := random(t)
	for number := range *storms {
		b := newBlow(random)
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			b.strike(t)
			if t.Failed() {
				t.Log(b)
			}
		})
	}
}

func (b blow) strike(t *testing.T) {
	if b.wedged != "" {
		b.wedge(t)
		return
	}
	w := newWorldIn(t, b.world, fmt.Sprint("SHUNT_HEARTBEAT=", stormHeartbeat))
	spec, binary := builtin, ""
	if b.plugin != 0 {
		spec, binary = processTransport(t)
	}
	r := stormRequest{request: w.meet(spec, 20*time.Second), Phase: b.phase, For: b.longest() + 300*time.Millisecond,
		After: b.first}
	if b.phase == "life" {
		r.Timeout = stormJoin
	}
	r.Limited, r.Spare, r.Starved, r.Room = b.lacks, b.spare, b.starved, b.room
	r.Bytes = 1 << 16
	open := r.request
	open.Limited = -1
	if b.plugin != 0 {
		r.For = 10 * time.Second // longer than a stopped plugin takes to be found
	}
	opened := w.mustAsk("faults open", open, 30*time.Second)
	process := opened[b.owner].Plugin
	var struck time.Time
	pids := make([]int, b.world)
	result := w.raw("faults storm", r, 60*time.Second, func(_ context.Context, processes []int) {
		copy(pids, processes)
		time.Sleep(b.first) // the moment of the fault, not a synchronization
		struck = time.Now()
		if b.plugin != 0 {
			b.signal(t, process, b.plugin)
		}
		for rank, d := range b.halted {
			b.signal(t, pids[rank], unix.SIGSTOP)
			defer func() { b.signal(t, pids[rank], unix.SIGCONT) }()
			defer time.Sleep(d)
		}
		for i, rank := range b.killed {
			if i > 0 {
				time.Sleep(b.second)
			}
			b.signal(t, pids[rank], unix.SIGKILL)
		}
	})
	if b.starved >= 0 && ranOutOfMemory(result.Outcomes[b.starved]) {
		b.killed = []int{b.starved} // as good as
	}
	went, reports := map[int][]int32{}, map[int]weathered{}
	for rank, o := range result.Outcomes {
		if slices.Contains(b.killed, rank) {
			continue
		}
		var s weathered
		if o.Error != "" || json.Unmarshal(o.Payload, &s) != nil {
			t.Errorf("survivor %d: %s\n%s", rank, o.Error, o.Stderr)
			continue
		}
		reports[rank] = s
		if s.Left != nil {
			went[rank] = s.Left
		} else if s.Failed.Code != plugin.OK && b.phase != "life" && len(b.halted) == 0 && b.lacks < 0 && b.starved < 0 &&
			b.plugin == 0 {
			t.Errorf("survivor %d did not go on: %s", rank, s.Why)
		}
	}
	for rank, s := range reports {
		b.judge(t, rank, s, reports, struck, pids, process)
	}
	if t.Failed() {
		for rank, s := range reports {
			t.Logf("rank %d after %v: %s: %s", rank, s.Failed.At.Sub(struck), s.Failed.Code, s.Failed.Message)
		}
	}
	// Those that continue are one world, and all of it, but for ranks that were killed after they had agreed to it.
	for rank, left := range went {
		for _, other := range left {
			if slices.Index(b.killed, int(other)) > 0 {
				continue
			}
			if !slices.Equal(went[int(other)], left) {
				t.Errorf("rank %d goes on with %v, of which rank %d goes on with %v", rank, left, other, went[int(other)])
			}
		}
		for other, theirs := range went {
			if !slices.Equal(theirs, left) {
				t.Errorf("two worlds: rank %d goes on with %v, rank %d with %v", rank, left, other, theirs)
			}
		}
	}
	if binary != "" {
		w.gone(binary)
	}
	w.close()
}

// lack returns the rank that runs out of a resource, or -1, and the system's words for it.
func (b blow) lack() (rank int, words string) {
	if b.starved >= 0 {
		return b.starved, "cannot allocate memory"
	}
	return b.lacks, "too many open files"
}

// ranOutOfMemory reports whether a rank has ended because the language's runtime, or a thread's stack, got no memory.
func ranOutOfMemory(o pool.Outcome) bool {
	return o.Error != "" && (strings.Contains(o.Stderr, "out of memory") ||
		strings.Contains(o.Stderr, "pthread_create failed") || strings.Contains(o.Stderr, "cannot allocate memory"))
}

// namesRank reports whether a text names a rank, alone or in a list: "rank 4", "ranks 1, 2, 4".
func namesRank(text string, rank int) bool {
	return regexp.MustCompile(fmt.Sprintf(`\brank(s (\d+, )*| )%d\b`, rank)).MatchString(text)
}

// wedge has a plugin's process stop responding to calls in one phase, while it responds to pings.
func (b blow) wedge(t *testing.T) {
	spec, _ := stuckIn(t, "process", b.wedged)
	w := newWorldIn(t, b.world, fmt.Sprint("SHUNT_HEARTBEAT=", stormHeartbeat))
	replies, result := w.ask("faults stuck", w.meet(spec, stormJoin), 60*time.Second, nil)
	judgeStuck(t, replies, result, "process", b.wedged, stormJoin)
	w.gone(strings.TrimPrefix(spec, "process:"))
}

func (b blow) signal(t *testing.T, pid int, s unix.Signal) {
	if err := unix.Kill(pid, s); err != nil {
		t.Errorf("signal %v: %v", s, err)
	}
}

// judge checks what one survivor says.
func (b blow) judge(t *testing.T, rank int, s weathered, all map[int]weathered, struck time.Time, pids []int,
	process int) {
	t.Helper()
	f := s.Failed
	say := func(format string, args ...any) {
		t.Helper()
		t.Errorf("survivor %d of %v: %s: %s: %s", rank, b, fmt.Sprintf(format, args...), f.Code, f.Message)
	}
	if len(s.Leaks) > 0 {
		say("still holds %v", s.Leaks)
	}
	if rank, lack := b.lack(); rank >= 0 && len(b.killed) == 0 {
		// What a split under way has is free afterwards, and may be enough.
		if f.Code != plugin.OK && (f.Code != plugin.OutOfMemory || !strings.Contains(f.Message, lack) ||
			!strings.Contains(f.Message, fmt.Sprintf("rank %d", rank))) {
			say("want the lack of rank %d: %s", rank, lack)
		}
		if s.Took > 3*time.Second {
			say("the error came after %v", s.Took)
		}
		return
	}
	if b.plugin != 0 {
		allowed := 3 * time.Second
		if b.plugin == unix.SIGSTOP {
			allowed = 6 * time.Second // until its pings are missed
		}
		if f.Code != plugin.PluginDied || !strings.Contains(f.Message, fmt.Sprint(process)) || f.At.Sub(struck) > allowed {
			say("after %v; want the end of plugin %d", f.At.Sub(struck), process)
		}
		return
	}
	if f.Code == plugin.OK {
		// Ranks that stop for less than silence only wait.
		if len(b.killed) > 0 || b.longest() > stormSilence+2*time.Second {
			say("it noticed nothing")
		}
		return
	}
	if len(b.killed) == 0 && b.longest() < stormSilence*3/4 {
		say("nobody was gone for long")
		return
	}
	named := false
	for _, gone := range slices.AppendSeq(slices.Clone(b.killed), maps.Keys(b.halted)) {
		named = named || namesRank(f.Message, gone) || strings.Contains(f.Message, fmt.Sprint(pids[gone]))
	}
	if _, late := b.halted[rank]; late {
		return // what it finds when it continues may be anything of this, at its own time
	}
	allowed := 3 * time.Second
	if len(b.halted) > 0 {
		allowed += stormSilence
	}
	// A rank that has not called the next rendezvous yet differs from one that is slow by the timeout alone. Ranks that
	// wait for it may wait for rank 0, which waits for the one that was stopped; and rank 0, when it comes at last, may
	// find that they have given up.
	early := b.phase == "life" && f.Code == plugin.Timeout
	if early {
		allowed += stormJoin
		for other, o := range all {
			gaveUp := o.Failed.Code == plugin.Timeout && o.Failed.At.Before(f.At)
			named = named || namesRank(f.Message, 0) || gaveUp && namesRank(f.Message, other)
		}
	}
	if !named {
		say("the cause is not named")
	}
	if f.Code != plugin.PeerDied && !early {
		say("want a death")
	}
	if took := f.At.Sub(struck); took > allowed {
		say("the error came after %v", took)
	}
}

func TestNamesRank(t *testing.T) {
	for text, want := range map[string]bool{
		"rank 4 died": true, "ranks 1, 2, 4, 5": true, "ranks 4": true, "ranks 1, 4": true,
		"rank 40 died": false, "ranks 1, 14, 44": false, "4 ranks": false, "": false,
	} {
		require.Equal(t, want, namesRank(text, 4), text)
	}
}
