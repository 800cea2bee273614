package faults

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// aftermath holds a blow with its times, and the reports of the ranks.
type aftermath struct {
	blow
	pids    []int
	struck  time.Time
	resumed map[int]time.Time // of ranks that were stopped
	reports map[int]weathered // of ranks that were not killed
}

// judge checks what the survivors say, and that they continue as one world.
func (a *aftermath) judge(t *testing.T) {
	t.Helper()
	went := map[int][]int32{}
	for rank, s := range a.reports {
		wrong := a.wrong(rank, s)
		if len(s.Leaks) > 0 {
			wrong = append(wrong, fmt.Sprintf("it still holds %v", s.Leaks))
		}
		if s.Left != nil {
			went[rank] = s.Left
		} else if s.Failed.Code != plugin.OK && a.phase != "init" && a.phase != "close" && a.kills > 0 && a.stops == 0 {
			wrong = append(wrong, "it did not go on: "+s.Why)
		}
		if len(wrong) > 0 {
			t.Errorf("survivor %d: %s", rank, strings.Join(wrong, "; "))
		}
	}
	// Those that continue are one world, and all of it, but for ranks that were killed after they had agreed to it.
	for rank, left := range went {
		for _, other := range left {
			if !slices.Contains(a.killed, int(other)) && !slices.Equal(went[int(other)], left) {
				t.Errorf("rank %d goes on with %v, of which rank %d goes on with %v", rank, left, other, went[int(other)])
			}
		}
		for other, theirs := range went {
			if !slices.Equal(theirs, left) {
				t.Errorf("two worlds: rank %d goes on with %v, rank %d with %v", rank, left, other, theirs)
			}
		}
	}
	ends := map[plugin.Code]int{}
	for _, s := range a.reports {
		ends[s.Failed.Code]++
	}
	t.Logf("in %s: %d killed, %d stopped, lack of %q, signal %d for a plugin: %v, %d went on", a.phase, len(a.killed),
		len(a.halted), a.lack, a.signal, ends, len(went))
	if t.Failed() {
		for rank, s := range a.reports {
			t.Logf("rank %d after %v: %s: %s", rank, s.Failed.At.Sub(a.struck), s.Failed.Code, s.Failed.Message)
		}
	}
}

// wrong returns all that is wrong with what one survivor says.
func (a *aftermath) wrong(rank int, s weathered) (wrong []string) {
	f := s.Failed
	say := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	say(f.CloseCode != plugin.OK && f.CloseCode != plugin.PluginDied && f.CloseCode != plugin.Timeout, "closing: %s: %s",
		f.CloseCode, f.Close)
	took := f.At.Sub(a.struck)
	switch {
	case a.lack != "" && len(a.killed) == 0:
		words := map[string]string{"descriptors": "too many open files", "memory": "cannot allocate memory"}[a.lack]
		// What a split under way has is free afterwards, and may be enough.
		say(f.Code != plugin.OK && (f.Code != plugin.OutOfMemory || !strings.Contains(f.Message, words) ||
			!namesRank(f.Message, a.victim)), "the lack of rank %d is not named: %s", a.victim, words)
		say(s.Took > 3*time.Second, "the error came after %v", s.Took)
		return wrong
	case a.signal != 0:
		allowed := 3 * time.Second
		if a.signal == unix.SIGSTOP {
			allowed = 6 * time.Second // until its pings are missed
		}
		process := fmt.Sprint(a.reports[a.victim].Plugin)
		if a.phase == "close" { // the next communicator starts the plugin anew
			say(f.Code != plugin.OK || f.CloseCode != plugin.OK && (rank != a.victim || !strings.Contains(f.Close, process)),
				"want the end of plugin %s as it was closed, if anything: %s", process, f.Close)
			return wrong
		}
		say(f.Code != plugin.PluginDied || took > allowed || !strings.Contains(f.Message, process),
			"after %v; want the end of plugin %s", took, process)
		return wrong
	case f.Code == plugin.OK:
		// Ranks that stop for less than silence only wait.
		say(len(a.killed) > 0 || a.longest() > stormSilence()+2*time.Second, "it noticed nothing")
		return wrong
	case len(a.killed) == 0 && a.longest() < stormSilence()*3/4:
		say(true, "no rank was gone for long")
		return wrong
	}
	// Where the store's rank is gone, the successor gives the others a quarter of the silence (decision 5). Shrink waits
	// for all that are not known to be gone, and so do others where the store's rank is stopped.
	succession := max(stormSilence()/4, time.Second)
	allowed := 3 * time.Second
	if len(a.halted) > 0 {
		allowed += succession
		if len(a.killed) == 0 || a.halted[0] > 0 || a.phase == "shrink" {
			allowed += stormSilence()
		}
	}
	if resumed := a.resumed[rank]; !resumed.IsZero() && resumed.Before(f.At) && len(a.halted) == 1 {
		took, allowed = f.At.Sub(resumed), 3*time.Second+succession
	}
	named := a.blames(f.Message)
	for other, o := range a.reports { // a rank that was stopped finds that others have given it up
		named = named || len(a.halted) > 0 && namesRank(blame(f.Message), other) && a.blames(o.Failed.Message)
	}
	// A rank that has not called the next rendezvous yet differs from one that is slow by the timeout alone. Ranks that
	// wait for it may wait for rank 0, which waits for the one that was stopped; and rank 0, when it comes at last, may
	// find that they have given up.
	early := (a.phase == "init" || a.phase == "close") && f.Code == plugin.Timeout
	if early {
		allowed += stormJoin()
		for other, o := range a.reports {
			gaveUp := o.Failed.Code == plugin.Timeout && o.Failed.At.Before(f.At)
			named = named || namesRank(blame(f.Message), 0) || gaveUp && namesRank(blame(f.Message), other)
		}
	}
	say(!named, "the cause is not named")
	say(f.Code != plugin.PeerDied && !early, "want a death")
	say(took > allowed, "the error came after %v", took)
	return wrong
}

// blames reports whether a message names a rank that was killed or stopped, or its process.
func (a *aftermath) blames(message string) bool {
	return slices.ContainsFunc(a.hits, func(rank int) bool {
		return namesRank(blame(message), rank) || strings.Contains(message, fmt.Sprint(a.pids[rank]))
	})
}

// blame returns what an error says after the call and the rank that returns it.
func blame(message string) string {
	return regexp.MustCompile(`^[^:]* on rank \d+: `).ReplaceAllString(message, "")
}

// namesRank reports whether a text names a rank, alone or in a list: "rank 4", "ranks 1, 2, 4".
func namesRank(text string, rank int) bool {
	return regexp.MustCompile(fmt.Sprintf(`\brank(s (\d+, )*| )%d\b`, rank)).MatchString(text)
}

func TestNamesRank(t *testing.T) {
	for text, want := range map[string]bool{
		"rank 4 died": true, "ranks 1, 2, 4, 5": true, "ranks 4": true, "ranks 1, 4": true,
		"rank 40 died": false, "ranks 1, 14, 44": false, "4 ranks": false, "": false,
	} {
		require.Equal(t, want, namesRank(text, 4), text)
	}
}
