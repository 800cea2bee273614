package bootstrap

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// What the store knows, its successor knows too.

// storeElsewhere joins ranks 1 to n-1 here, in s[1:], with rank 0, whose process runs the store.
func storeElsewhere(t *testing.T, n int) (s []*Session, rankZero *company) {
	t.Helper()
	return someElsewhere(t, n, 200*time.Millisecond, 0)
}

// someElsewhere joins a job of n ranks here, in s, but for some others, each of which has a process of its own.
func someElsewhere(t *testing.T, n int, heartbeat time.Duration, others ...int) (s []*Session, c *company) {
	t.Helper()
	url := meetingPlaces(t)["file"]
	c = &company{t: t}
	for _, rank := range others {
		env := append(rankEnv(rank, n, url), "SHUNT_TEST_HEARTBEAT="+heartbeat.String())
		c.ranks = append(c.ranks, start(t, "wait", env...))
	}
	s = make([]*Session, n)
	noErrors(t, each(n, func(rank int) (err error) {
		if !slices.Contains(others, rank) {
			s[rank], err = Join(t.Context(), Config{Rank: rank, World: n, URL: url, Timeout: 20 * time.Second,
				Heartbeat: heartbeat, Logger: quiet})
		}
		return err
	}))
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		each(n, func(rank int) error {
			if s[rank] == nil {
				return nil
			}
			return s[rank].Close()
		})
	})
	for i, rank := range others {
		c.ranks[i].expect(fmt.Sprint("joined ", rank, " ", n))
	}
	return s, c
}

// groupOf makes a group of these ranks, in which all have met.
func groupOf(t *testing.T, s []*Session, ranks ...int) map[int]*Group {
	t.Helper()
	groups := map[int]*Group{}
	for _, rank := range ranks {
		g, err := s[rank].Group("g", ranks)
		if err != nil {
			t.Fatal(err)
		}
		groups[rank] = g
	}
	noErrors(t, each(len(ranks), func(i int) error { return groups[ranks[i]].Barrier(t.Context(), "met") }))
	return groups
}

// timeIsUp is a context whose time is up.
func timeIsUp(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	t.Cleanup(cancel)
	return ctx
}

// wants checks an error's code and a part of its text.
func wants(t *testing.T, rank int, err error, code plugin.Code, text string) {
	t.Helper()
	if plugin.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("rank %d: %v, want %v: … %s …", rank, err, code, text)
	}
}

// A rank gives up while the store is silent, and the store is lost: the other rank gets the reason from the successor,
// whether it waits already or comes late.
func TestGivingUpWhileTheStoreIsSilent(t *testing.T) {
	lost := &plugin.Error{Code: plugin.PluginDied, Rank: 1, Message: "rank 1 lost its transport"}
	for name, c := range map[string]struct {
		giveUp func(g *Group)
		code   plugin.Code
		text   string
	}{
		"its time is up": {func(g *Group) {
			wants(t, 1, g.Barrier(timeIsUp(t), "b"), plugin.Timeout, "the store does not respond either")
		}, plugin.Timeout, "rank 0 waited"},
		"its time is up and it closes": {func(g *Group) {
			_ = g.Barrier(timeIsUp(t), "b")
			_ = g.Close()
		}, plugin.Timeout, "rank 0 waited"},
		"it fails the group":            {func(g *Group) { g.Fail(lost) }, plugin.PluginDied, lost.Message},
		"it fails the group and closes": {func(g *Group) { g.Fail(lost); _ = g.Close() }, plugin.PluginDied, lost.Message},
		"it closes":                     {func(g *Group) { _ = g.Close() }, plugin.Closed, "rank 0 ("},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late=%v", name, late), func(t *testing.T) {
				t.Parallel()
				s, rankZero := storeElsewhere(t, 3)
				g := groupOf(t, s, 1, 2)
				heard := make(chan error, 1)
				wait := func() { heard <- g[2].Barrier(short(t, 10*time.Second), "b") }
				if !late {
					go wait()
					for s[2].waiting() == 0 {
						pause(t.Context(), time.Millisecond)
					}
				}
				rankZero.stop(0)
				c.giveUp(g[1])
				rankZero.kill(0)
				if late {
					<-s[2].Failures() // the store is lost
					go wait()
				}
				wants(t, 2, <-heard, c.code, c.text)
			})
		}
	}
}

// A rank's time is up while the store's successor still waits for a rank that has stopped: the collective ends alike
// for all of its ranks.
func TestGivingUpWhileTheSuccessorWaits(t *testing.T) {
	t.Parallel()
	s, others := someElsewhere(t, 5, DefaultHeartbeat, 0, 4)
	g := groupOf(t, s, 1, 2, 3)
	others.stop(1)
	defer others.resume(1)
	others.kill(0)
	for _, rank := range []int{1, 2, 3} {
		<-s[rank].Failures() // the store is lost
	}
	contexts := []context.Context{short(t, 10*time.Second), timeIsUp(t), short(t, 10*time.Second)}
	errs := make([]error, len(contexts))
	each(len(errs), func(i int) error {
		errs[i] = g[i+1].Barrier(contexts[i], "b")
		return nil
	})
	for i, err := range errs {
		if fmt.Sprint(err) != fmt.Sprint(errs[0]) {
			t.Errorf("rank %d: %v; rank 1: %v", i+1, err, errs[0])
		}
	}
}

// A collective that has failed at the store that was lost fails alike for a rank that calls it once there is another
// store. Then it is over, and its tag is free.
func TestFailedCollectiveFailsAtTheSuccessor(t *testing.T) {
	gather := func(ctx context.Context, g *Group) error { _, err := g.AllGather(ctx, "c", nil); return err }
	for name, c := range map[string]struct {
		early, late func(ctx context.Context, g *Group) error
		code        plugin.Code
		text        string
	}{
		"AllGather": {gather, gather, plugin.Timeout, "rank 0 waited"},
		"Agree": {func(ctx context.Context, g *Group) error { return g.Agree(ctx, "c", context.Canceled) },
			func(ctx context.Context, g *Group) error { return g.Agree(ctx, "c", nil) }, plugin.Timeout, "rank 0 waited"},
		"Survivors": {func(ctx context.Context, g *Group) error { _, err := g.Survivors(ctx, "c"); return err },
			func(ctx context.Context, g *Group) error { _, err := g.Survivors(ctx, "c"); return err },
			plugin.Timeout, "rank 0 waited"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, rankZero := storeElsewhere(t, 4)
			g := groupOf(t, s, 1, 2, 3)
			wants(t, 1, c.early(timeIsUp(t), g[1]), c.code, c.text)
			wants(t, 2, c.early(t.Context(), g[2]), c.code, c.text)
			rankZero.kill(0)
			<-s[3].Failures() // the store is lost
			wants(t, 3, c.late(short(t, 10*time.Second), g[3]), c.code, c.text)
			noErrors(t, each(3, func(i int) error { return g[i+1].Barrier(short(t, 10*time.Second), "c") }))
		})
	}
}

// A rank repeats what it has told to another store, also if it has closed the group since.
func TestNewsIsToldAgain(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes=", closes), func(t *testing.T) {
			t.Parallel()
			s, rankZero := storeElsewhere(t, 4)
			g := groupOf(t, s, 1, 2, 3)
			for _, news := range []string{"old", "latest"} {
				if err := g[1].Tell([]byte(news)); err != nil {
					t.Fatal(err)
				}
			}
			noErrors(t, each(3, func(i int) error { return g[i+1].Barrier(t.Context(), "told") }))
			if got := string(g[2].Told()[0]); got != "latest" {
				t.Errorf("rank 2 was told %q", got)
			}
			if closes {
				_ = g[1].Close()
				wants(t, 2, g[2].Barrier(t.Context(), "closed"), plugin.Closed, "rank 0 (")
			}
			_ = g[3].Told()
			rankZero.kill(0)
			for _, rank := range []int{2, 3} {
				<-s[rank].Failures() // the store is lost
			}
			noErrors(t, each(3, func(i int) error {
				if i == 0 && closes {
					return nil
				}
				_, err := g[i+1].Survivors(t.Context(), "s")
				return err
			}))
			for _, rank := range []int{2, 3} {
				if got := string(g[rank].Told()[0]); got != "latest" {
					t.Errorf("rank %d is told %q by the successor", rank, got)
				}
			}
		})
	}
}

// Ranks that have received different outcomes of a collective agree at the successor: how it ended, and that it is
// over.
func TestHearsayOfAFailedCollective(t *testing.T) {
	gaveUp, old := rankError(plugin.Timeout, 1, "rank 1 waited"), rankError(plugin.Timeout, 2, "long ago")
	failed := func(seq uint64, err *plugin.Error) recent { return recent{seq: seq, tag: "c", err: err} }
	abandoned, oldOne, result := failed(0, gaveUp), failed(5, old), recent{seq: 6, tag: "c"}
	type heard [3][]recent
	for name, c := range map[string]struct {
		heard          // by ranks 1, 2 and 3
		waits [3]bool  // for another end
		want  [3]error // what ranks that wait return, and those that have given up, if the end is an error
	}{
		"one has heard":                   {heard{{failed(5, gaveUp)}, {failed(5, gaveUp)}, nil}, [3]bool{2: true}, [3]error{2: gaveUp}},
		"given up":                        {heard{{abandoned}, nil, nil}, [3]bool{1: true, 2: true}, [3]error{gaveUp, gaveUp, gaveUp}},
		"given up by two":                 {heard{{abandoned}, {abandoned}, nil}, [3]bool{2: true}, [3]error{gaveUp, gaveUp, gaveUp}},
		"given up, and failed":            {heard{{abandoned}, {oldOne}, nil}, [3]bool{2: true}, [3]error{0: old, 2: old}},
		"given up, and there is a result": {heard{{abandoned}, {result}, nil}, [3]bool{2: true}, [3]error{}},
		"given up after it failed": {heard{{oldOne, abandoned}, {oldOne}, {oldOne}}, [3]bool{1: true, 2: true},
			[3]error{gaveUp, gaveUp, gaveUp}},
		"failed twice": {heard{{failed(6, gaveUp)}, {oldOne}, {failed(6, gaveUp)}}, [3]bool{1: true},
			[3]error{1: gaveUp}},
		"a result since": {heard{{result}, {oldOne}, {result}}, [3]bool{1: true}, [3]error{}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnderstudy(t, 4)
			op := &message{Kind: msgOp, Group: 1, Op: opFirst, Tag: "c"}
			again := *op
			again.Again = true
			var ranks [3]*frameConn
			for i, recents := range c.heard {
				group := &message{Kind: msgRegroup, Group: 1, Key: "g", Ranks: []int{1, 2, 3}, Recent: recents}
				for _, r := range recents {
					group.Seq = max(group.Seq, r.seq)
				}
				said := []*message{group, {Kind: msgResumed}}
				if c.waits[i] {
					said = []*message{group, &again, {Kind: msgResumed}}
				}
				ranks[i] = u.arrive(i+1, said...)
			}
			hear := func(i int, want error) {
				if got := errorOf(u.expect(ranks[i], msgResult)); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("rank %d hears %v, want %v", i+1, got, want)
				}
			}
			for i, want := range c.want {
				if want != nil || c.waits[i] {
					hear(i, want)
				}
			}
			for _, f := range ranks {
				if err := f.write(op.frame()); err != nil {
					t.Fatal(err)
				}
			}
			for i := range ranks {
				hear(i, nil)
			}
		})
	}
}

// A rank whose cancellation of an exchange the lost store had not processed cancels it at the successor, in whatever
// order ranks report: it fails for all that take part.
func TestCancellationsAreSaidAgain(t *testing.T) {
	gaveUp := rankError(plugin.Timeout, 0, "rank 0 waited")
	again := &message{Kind: msgOp, Group: 1, Op: opFirst, Tag: "c", Again: true}
	cancel := &message{Kind: msgCancel, Group: 1, Tag: "c", Err: gaveUp, Again: true}
	for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}} {
		u := newUnderstudy(t, 4)
		ranks := map[int]*frameConn{}
		for _, rank := range order {
			said := []*message{{Kind: msgRegroup, Group: 1, Key: "g", Ranks: []int{1, 2, 3}}}
			switch rank {
			case 1:
				said = append(said, again, cancel)
			case 2:
				said = append(said, again)
			}
			ranks[rank] = u.arrive(rank, append(said, &message{Kind: msgResumed})...)
		}
		for _, rank := range []int{1, 2} {
			wants(t, rank, errorOf(u.expect(ranks[rank], msgResult)), plugin.Timeout, "rank 0 waited, still without rank 2")
		}
	}
}

// A rank that has given up a collective and called it again gets its outcome once: as the first did, if it calls
// before the others know the outcome, or together with their next call.
func TestCallingAgainWhatWasGivenUp(t *testing.T) {
	gaveUp := rankError(plugin.Timeout, 1, "rank 1 waited")
	op := &message{Kind: msgOp, Group: 1, Op: opFirst, Tag: "c"}
	again := *op
	again.Again = true
	for _, order := range [][]int{{1, 2, 3}, {2, 3, 1}} {
		u := newUnderstudy(t, 4)
		ranks := map[int]*frameConn{}
		for _, rank := range order {
			group := &message{Kind: msgRegroup, Group: 1, Key: "g", Ranks: []int{1, 2, 3}}
			if rank == 1 {
				group.Recent = []recent{{tag: "c", err: gaveUp}}
			}
			ranks[rank] = u.arrive(rank, group, &again, &message{Kind: msgResumed})
			for said := rank == order[2]; !said; runtime.Gosched() { // the store has them in this order
				u.root.store.mu.Lock()
				said = u.root.store.resuming.said[rank]
				u.root.store.mu.Unlock()
			}
		}
		waits := order[2] == 1
		for _, rank := range order {
			if rank == 1 && waits {
				continue
			}
			if err := errorOf(u.expect(ranks[rank], msgResult)); plugin.CodeOf(err) != plugin.Timeout {
				t.Errorf("rank %d hears %v", rank, err)
			}
		}
		for round := range 3 {
			for _, rank := range order {
				if rank == 1 && waits && round == 0 {
					continue
				}
				if err := ranks[rank].write(op.frame()); err != nil {
					t.Fatal(err)
				}
			}
			for _, rank := range order {
				if err := errorOf(u.expect(ranks[rank], msgResult)); err != nil {
					t.Errorf("round %d: rank %d hears %v", round, rank, err)
				}
			}
		}
	}
}
