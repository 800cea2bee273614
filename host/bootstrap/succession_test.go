package bootstrap

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A rank that was stopped while the others found a successor and gave it up ends when it runs again, and does not make
// a world of its own.
func TestNoSecondWorldOfALateRank(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 5, meetingPlaces(t)["file"])
	c.stop(1)
	c.kill(0)
	c.tell("survivors all s", 2, 3, 4)
	for _, rank := range []int{2, 3, 4} {
		if got := c.ranks[rank].line(); got != "[2 3 4]" { // once rank 1 is given up
			t.Errorf("rank %d: survivors %s", rank, got)
		}
	}
	c.resume(1)
	c.all("peer_died rank 1 (pid…", "survivors all s", 1)
	c.all("done", "group after 2 3 4", 2, 3, 4)
	c.all("done", "barrier after b", 2, 3, 4)
	c.all("peer_died rank 1 (pid…", "barrier all b", 1)
	c.leave(1, 2, 3, 4)
}

// A rank that was stopped and given up learns that, and does not take the store's process, which is well, for dead. So
// does one that was stopped while others were waited for.
func TestStoppedRankIsToldThatItWasGivenUp(t *testing.T) {
	t.Parallel()
	for how, url := range meetingPlaces(t) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := &company{t: t}
			for rank := range 3 {
				what := []string{"wait", "failure", "failure"}[rank]
				c.ranks = append(c.ranks, start(t, what, append(rankEnv(rank, 3, url), "SHUNT_TEST_HEARTBEAT=200ms")...))
			}
			for rank, p := range c.ranks {
				p.expect(fmt.Sprintf("joined %d 3", rank))
			}
			c.stop(2)
			why := fmt.Sprintf("rank 2 (pid %d on host ", c.ranks[2].cmd.Process.Pid)
			if line := c.ranks[1].line(); !strings.HasPrefix(line, "failure 2 ") || !strings.Contains(line, why) {
				t.Errorf("a survivor says %q", line)
			}
			c.resume(2)
			line := c.ranks[2].line()
			if !strings.Contains(line, "which runs the job's store, has given up rank 2: "+why) ||
				!strings.Contains(line, "it gave no sign of life for 2s") {
				t.Errorf("the rank that was stopped says %q", line)
			}
			c.kill(2, 1, 0)

			c = arriving(t, url+"2", 0, 1, 3)
			c.stop(2)
			c.ranks[1].line() // which has received its outcome
			c.resume(2)
			if line := c.ranks[2].line(); !strings.HasPrefix(line, "error rank 3 (pid") ||
				!strings.Contains(line, "it gave no sign of life for 2s") {
				t.Errorf("the rank that was stopped while others were waited for says %q", line)
			}
		})
	}
}

// A rank that was stopped while it asked the others whether they still count it asks again: it does not take
// their silence for a reply.
func TestRankThatIsStoppedWhileItAsks(t *testing.T) {
	c := newCompany(t, 5, meetingPlaces(t)["file"], "SHUNT_TEST_HEARTBEAT=200ms", "SHUNT_FAILPOINTS=rendezvous.canvass[1]=stop@1")
	c.kill(0)
	c.stopped(1)
	c.tell("survivors all s", 2, 3, 4)
	for _, rank := range []int{2, 3, 4} {
		c.ranks[rank].expect("[2 3 4]")
	}
	c.resume(1)
	c.within(time.Second, "peer_died rank 1 (pid…", "survivors all s", 1)
	c.leave(1, 2, 3, 4)
}

// A rank that is too late for a store that still asks the others whether they are there ends with the reason that the
// store has for it, and does not open a store of its own meanwhile.
func TestLateRankMeetsAStoreThatIsNotSure(t *testing.T) {
	c := newCompany(t, 5, meetingPlaces(t)["file"], "SHUNT_TEST_HEARTBEAT=200ms", "SHUNT_FAILPOINTS=rendezvous.ping[3]=stop@1")
	c.stop(1)
	c.kill(0)
	c.stopped(3) // it is asked, as rank 1 has not come
	c.resume(1)
	c.within(time.Second, "peer_died rank 1 (pid…", "survivors all s", 1)
	c.resume(3)
	c.all("[2 3 4]", "survivors all s", 2, 3, 4)
	c.leave(1, 2, 3, 4)
}

// A store that was stopped for longer than the others wait loses to them.
func TestNoSecondWorldOfALateStore(t *testing.T) {
	t.Parallel()
	for _, world := range []int{2, 3, 5} {
		t.Run(fmt.Sprint("world=", world), func(t *testing.T) {
			t.Parallel()
			c := newCompany(t, world, meetingPlaces(t)["file"], "SHUNT_TEST_HEARTBEAT=200ms")
			c.stop(0)
			others := from(1, world)
			want := strings.ReplaceAll(fmt.Sprint(others), "\n", "")
			if world == 2 { // rank 1 alone is no majority, and cannot prove that rank 0 has ended
				want = "peer_died"
			}
			c.tell("survivors all s", others...)
			for _, rank := range others {
				if got := c.ranks[rank].line(); !strings.HasPrefix(got, want) {
					t.Errorf("rank %d: survivors %s, want %s", rank, got, want)
				}
			}
			c.resume(0)
			if world == 2 {
				c.all("[0]", "survivors all s", 0)
			} else {
				c.tell("survivors all s", 0)
				if got := c.ranks[0].line(); !strings.HasPrefix(got, "peer_died rank 0 (pid") {
					t.Errorf("the late store says %q", got)
				}
			}
			c.leave(from(0, world)...)
		})
	}
}

// The store ends with rank 0. The ranks that are left find a successor, learn of the death, agree on which they are and
// continue, one death after the other.
func TestStoreOutlivesItsProcess(t *testing.T) {
	for how, url := range meetingPlaces(t) {
		for _, world := range []int{3, 4} {
			t.Run(fmt.Sprintf("%s/world=%d", how, world), func(t *testing.T) {
				c := newCompany(t, world, url)
				for dead := range world - 1 {
					left := from(dead+1, world)
					c.kill(dead)
					c.all(c.died(dead), "failure", left...)
					c.all(fmt.Sprint(left), fmt.Sprintf("survivors all s%d", dead), left...)
					c.all(plugin.PeerDied.String()+" rank 0 (pid…", "barrier all b", left...)
					key := fmt.Sprintf("after%d", dead)
					c.all("done", "group "+key+" "+strings.Trim(fmt.Sprint(left), "[]"), left...)
					c.all("done", "barrier "+key+" b", left...)
				}
				c.leave(world - 1)
			})
		}
	}
}

// The process of the successor dies together with the first one.
func TestStoreAndItsHeirDieTogether(t *testing.T) {
	c := newCompany(t, 4, meetingPlaces(t)["file"])
	c.kill(1, 0)
	for range 2 {
		c.tell("failure", 2, 3)
	}
	for _, rank := range []int{2, 3} {
		heard := map[string]bool{c.ranks[rank].line(): true, c.ranks[rank].line(): true}
		if !heard[c.died(0)] || !heard[c.died(1)] {
			t.Errorf("rank %d heard %v", rank, heard)
		}
	}
	c.all("[2 3]", "survivors all s", 2, 3)
	c.leave(2, 3)
}

// A collective without the dead rank in it does not notice, though some ranks
// had spoken to the lost store and others speak to its successor.
func TestCollectiveOutlivesTheStore(t *testing.T) {
	c := newCompany(t, 4, meetingPlaces(t)["file"])
	c.all("done", "group rest 3 1 2", 1, 2, 3)
	c.all("done", "barrier rest first", 1, 2, 3)
	c.all("begun", "begin rest b", 1, 2)
	c.kill(0)
	c.all(c.died(0), "failure", 3)
	c.all("done", "barrier rest b", 3)
	c.all("done", "end", 1, 2)
	// What was closed at the lost store is closed at the new one.
	c.all("done", "group early 1 2", 1, 2)
	c.all("done", "shut early", 1)
	c.kill(1)
	c.all(plugin.PeerDied.String()+"…", "barrier rest b2", 2, 3)
	c.leave(2, 3)
}

// A group that a rank has closed fails at the successor too.
func TestClosedGroupStaysClosed(t *testing.T) {
	c := newCompany(t, 3, meetingPlaces(t)["file"])
	c.all("done", "group g 1 2", 1, 2)
	c.all("done", "barrier g b", 1, 2)
	c.all("begun", "begin g late", 1)
	c.kill(0)
	c.all(c.died(0), "failure", 2)
	c.all("done", "shut g", 2)
	c.all(plugin.Closed.String()+" rank 1…", "end", 1) // by its place in the group
	c.leave(1, 2)
}

// The process that runs the store leaves in peace: the others continue.
func TestStoreOutlivesALeavingRank(t *testing.T) {
	lingering := lingerTime
	defer func() { lingerTime = lingering }()
	lingerTime = 10 * time.Millisecond
	url := meetingPlaces(t)["file"]
	var s *Session
	joined := make(chan error, 1)
	go func() {
		var err error
		s, err = Join(t.Context(), Config{Rank: 0, World: 3, URL: url, Timeout: 20 * time.Second, Logger: quiet})
		joined <- err
	}()
	c := &company{t: t, ranks: make([]*process, 3)}
	for _, rank := range []int{1, 2} {
		c.ranks[rank] = start(t, "commands", rankEnv(rank, 3, url)...)
	}
	for _, rank := range []int{1, 2} {
		c.ranks[rank].expect(fmt.Sprintf("joined %d 3", rank))
	}
	if err := <-joined; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.all("[1 2]", "survivors all s", 1, 2)
	c.all(plugin.Closed.String()+" rank 0…", "barrier all b", 1, 2)
	c.leave(2, 1)
}

// The lost store had sent a result to rank 1 and not yet to rank 2, which asks the new one and gets the same, also if
// the group has failed since.
func TestResultThatOneRankHasHeard(t *testing.T) {
	u := newUnderstudy(t, 3)
	group := func(id uint32, key string, ranks []int, seq uint64, recents ...recent) *message {
		return &message{Kind: msgRegroup, Group: id, Key: key, Ranks: ranks, Seq: seq, Recent: recents}
	}
	op := func(id uint32, tag, data string) *message {
		return &message{Kind: msgOp, Again: true, Group: id, Op: opGather, Tag: tag, Data: []byte(data)}
	}
	old, latest := recent{seq: 7, tag: "t", data: []byte("old")}, recent{seq: 8, tag: "t", data: []byte("latest")}
	two := u.arrive(2,
		group(0, "", []int{0, 1, 2}, 7, old), group(1, "pair", []int{1, 2}, 7, old), group(2, "big", []int{1, 2}, 3),
		op(0, "t", "x"), op(1, "t", "x"), op(2, "t", "x"), op(0, "other", "x"), &message{Kind: msgResumed})
	one := u.arrive(1,
		group(0, "", []int{0, 1, 2}, 8, old, latest), group(1, "pair", []int{1, 2}, 8, old, latest),
		group(2, "big", []int{1, 2}, 4, recent{seq: 4, tag: "t", lost: true}),
		op(1, "t", "again"), &message{Kind: msgResumed})
	for id, want := range []string{"latest", "latest", "", ""} {
		m := u.expect(two, msgResult)
		if int(m.Group) != id%3 || string(m.Data) != want {
			t.Errorf("rank 2 heard %q in group %d, want %q", m.Data, m.Group, want)
		}
		if code := []plugin.Code{plugin.OK, plugin.OK, plugin.Aborted,
			plugin.PeerDied}[id]; plugin.CodeOf(errorOf(m)) != code {
			t.Errorf("rank 2 heard error %v in group %d, want %v", m.Err, m.Group, code)
		}
	}
	// Rank 1 has begun the next collective with the same tag; rank 2 joins it.
	if err := two.write((&message{Kind: msgOp, Group: 1, Op: opGather, Tag: "t",
		Data: []byte("too")}).frame()); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*frameConn{one, two} {
		m := u.expect(f, msgResult)
		all, err := decodeParts(m.Data, 2)
		if err != nil || parts(all) != `["again" "too"]` || m.Seq != 9 {
			t.Errorf("%v, %v, number %d", parts(all), err, m.Seq)
		}
	}
}

// A rank that had died before the store has failed all exchanges since, so the successor names it, too, and not the
// lower rank with which the store was lost.
func TestADeathBeforeThatOfTheStoreComesFirst(t *testing.T) {
	u := newUnderstudyThatKnows(t, 5, 0, 4)
	all := &message{Kind: msgRegroup, Ranks: []int{0, 1, 2, 3, 4}}
	b := &message{Kind: msgOp, Again: true, Op: opFirst, Tag: "b"}
	pair := &message{Kind: msgRegroup, Group: 1, Key: "pair", Ranks: []int{0, 2}}
	ofPair := &message{Kind: msgOp, Again: true, Group: 1, Op: opFirst, Tag: "b"}
	u.arrive(1, all, &message{Kind: msgResumed}) // the lost store has told it of the death when it called b
	u.arrive(3, all, &message{Kind: msgResumed})
	two := u.arrive(2, all, pair, b, ofPair, &message{Kind: msgResumed})
	require.Equal(t, u.s.reasons[4], u.expect(two, msgResult).Err)
	require.Equal(t, u.s.reasons[0], u.expect(two, msgResult).Err, "the only one of the group")
}

// A group that is made while the new store waits for another rank works like any other.
func TestGroupThatIsMadeDuringASuccession(t *testing.T) {
	u := newUnderstudy(t, 4)
	var pair []*frameConn
	for _, rank := range []int{1, 2} {
		pair = append(pair, u.arrive(rank, &message{Kind: msgResumed},
			&message{Kind: msgGroup, Group: 7, Key: "new", Ranks: []int{1, 2}},
			&message{Kind: msgOp, Group: 7, Op: opFirst, Tag: "b"}))
	}
	for st, held := u.root.store, 0; held < 2; {
		st.mu.Lock()
		held = len(st.resuming.held)
		st.mu.Unlock()
	}
	u.arrive(3, &message{Kind: msgResumed})
	for _, f := range pair {
		if m := u.expect(f, msgResult); m.Err != nil {
			t.Errorf("a barrier in the new group: %v", m.Err)
		}
	}
}

// A rank that the lost store had not notified of a death is notified by the new one.
func TestSuccessorTellsOfDeaths(t *testing.T) {
	u := newUnderstudyThatKnows(t, 4, 0, 2)
	u.s.states[2], u.s.reasons[2] = Alive, nil // rank 3 has not received it
	f := u.arrive(3, &message{Kind: msgResumed})
	for heard := map[int]bool{}; !heard[0] || !heard[2]; {
		m, err := f.receive()
		require.NoError(t, err)
		if m.Kind == msgEvent && m.State == Dead {
			heard[m.Rank] = true
		}
	}
}

// A group that a rank has failed and closed at the lost store fails at the new one for the same reason, also for a rank
// that had not joined it, whichever rank reports first.
func TestGroupThatHadFailedFailsAtTheSuccessor(t *testing.T) {
	lost := rankError(plugin.PluginDied, 1, "rank 1 lost its transport")
	failed := []*message{{Kind: msgRegroup, Group: 1, Key: "g", Ranks: []int{1, 2}, Err: lost},
		{Kind: msgUngroup, Group: 1, Again: true}, {Kind: msgResumed}}
	barrier := &message{Kind: msgOp, Group: 7, Op: opFirst, Tag: "b"}
	again := *barrier
	again.Again = true
	for name, ranks := range map[string][]int{"failed first": {1, 2}, "failed last": {2, 1}} {
		for came, said := range map[string][][]*message{
			"waits":      {{{Kind: msgRegroup, Group: 7, Key: "g", Ranks: []int{1, 2}}, &again, {Kind: msgResumed}}, nil},
			"comes late": {{{Kind: msgResumed}}, {{Kind: msgGroup, Group: 7, Key: "g", Ranks: []int{1, 2}}, barrier}},
		} {
			t.Run(name+", the other "+came, func(t *testing.T) {
				u := newUnderstudy(t, 3)
				var two *frameConn
				for _, rank := range ranks {
					if rank == 1 {
						u.arrive(1, failed...)
					} else {
						two = u.arrive(2, said[0]...)
					}
				}
				for _, m := range said[1] {
					if err := two.write(m.frame()); err != nil {
						t.Fatal(err)
					}
				}
				if came == "waits" {
					u.hears(two, 2, 1, Alive, lost)
				}
				if err := errorOf(u.expect(two, msgResult)); plugin.CodeOf(err) != plugin.PluginDied {
					t.Errorf("rank 2 heard %v", err)
				}
			})
		}
	}
}

func errorOf(m *message) error {
	if m.Err == nil {
		return nil
	}
	return m.Err
}

// A rank that does not come is given up, and all ranks are notified.
func TestRankThatDoesNotFindTheSuccessor(t *testing.T) {
	u := newUnderstudy(t, 5)
	op := &message{Kind: msgOp, Again: true, Group: 1, Op: opSurvivors, Tag: "s", Data: []byte{1}}
	said := []*message{{Kind: msgRegroup, Group: 1, Key: "", Ranks: []int{0, 1, 2, 3, 4}}, op, {Kind: msgResumed}}
	all := []*frameConn{u.arrive(1, said...), u.arrive(3, said...), u.arrive(4, said...)}
	u.root.store.resumeTimedOut()
	for _, f := range all {
		all, err := decodeParts(u.expect(f, msgResult).Data, 5)
		if err != nil || parts(all) != `["" "\x01" "" "\x01" "\x01"]` {
			t.Errorf("survivors %v, %v", parts(all), err)
		}
	}
	// Too late now.
	f := u.comes(takesIn{u.root.store}, u.hello(2))
	if m := u.expect(f, msgRefuse); m.Retry || m.Err.Code != plugin.PeerDied || m.Err.Rank != 2 {
		t.Errorf("a rank that was given up received %+v", m)
	}
}

// Half of the world without rank 0, and without proof of the end of the others, must not continue: the others may.
func TestStoreFoldsWithoutQuorum(t *testing.T) {
	u := newUnderstudy(t, 4)
	op := &message{Kind: msgOp, Again: true, Group: 1, Op: opSurvivors, Tag: "s"}
	said := []*message{{Kind: msgRegroup, Group: 1, Key: "", Ranks: []int{0, 1, 2, 3}}, op, {Kind: msgResumed}}
	all := []*frameConn{u.arrive(1, said...), u.arrive(3, said...)}
	u.root.store.resumeTimedOut()
	for _, f := range all {
		if m := u.expect(f, msgRefuse); m.Err.Code != plugin.PeerDied ||
			!strings.Contains(m.Err.Message, "ranks 1, 3 of the job's 4 may not go on without ranks 0, 2") {
			t.Errorf("%v", m.Err)
		}
	}
}

// What only a rank that comes over may say ends the connection of another.
func TestOldNewsWhereNoStoreWasLost(t *testing.T) {
	for _, m := range []*message{
		{Kind: msgRegroup, Group: 77, Key: "k", Ranks: []int{0, 1}}, {Kind: msgResumed},
		{Kind: msgOp, Again: true, Op: opFirst, Tag: "t"}, {Kind: msgUngroup, Again: true},
	} {
		s := joinAll(t, 2, nil)
		s[1].send(m)
		if f := <-s[0].Failures(); f.Rank != 1 || f.Err.Code != plugin.PeerDied {
			t.Errorf("%+v: %+v", m, f)
		}
	}
}

// A rank that still reaches its store turns others away.
func TestRankThatHasNotLostTheStore(t *testing.T) {
	dialing(t)
	s := joinAll(t, 2, func(c *Config) { c.Heartbeat = 100 * time.Millisecond })
	if s[1].standby == nil {
		t.Fatal("rank 1 does not listen")
	}
	_, err := s[0].follow(t.Context(), 1, silentHosts{})
	refusal, ok := err.(*refused)
	if !ok || refusal.retry || !strings.Contains(err.Error(), "rank 1 still reaches") {
		t.Errorf("%v", err)
	}
	s[1].standby.follow()
	_, err = s[0].follow(t.Context(), 1, silentHosts{})
	if refusal, ok := err.(*refused); !ok || !refusal.retry {
		t.Errorf("%v", err)
	}
}
