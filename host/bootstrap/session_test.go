package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestCollectives(t *testing.T) {
	for _, dial := range []bool{false, true} {
		for _, n := range []int{1, 2, 3, 8} {
			t.Run(fmt.Sprintf("dial=%v/world=%d", dial, n), func(t *testing.T) {
				if dial {
					dialing(t)
				}
				s := joinAll(t, n, nil)
				want := make([][]byte, n)
				for i := range want {
					want[i] = fmt.Appendf(nil, "data of %d", i)
				}
				want[n-1] = []byte{}
				ctx := t.Context()
				noErrors(t, each(n, func(rank int) error {
					g := s[rank].All()
					if s[rank].Rank() != rank || s[rank].World() != n || g.Rank() != rank || g.World() != n {
						return errors.New("wrong rank or world")
					}
					for range 3 { // a tag may be used again
						all, err := g.AllGather(ctx, "gather", want[rank])
						if err != nil {
							return err
						}
						if parts(all) != parts(want) {
							return fmt.Errorf("gathered %s", parts(all))
						}
					}
					if err := g.Barrier(ctx, "barrier"); err != nil {
						return err
					}
					got, err := g.Broadcast(ctx, "broadcast", n-1, fmt.Appendf(nil, "from %d", rank))
					if err != nil {
						return err
					}
					if string(got) != fmt.Sprintf("from %d", n-1) {
						return fmt.Errorf("broadcast gave %q", got)
					}
					if err := g.Agree(ctx, "agree", nil); err != nil {
						return fmt.Errorf("agreement of nil: %w", err)
					}
					ranks, err := g.Survivors(ctx, "survivors")
					if err != nil || len(ranks) != n {
						return fmt.Errorf("survivors %v, %w", ranks, err)
					}
					return nil
				}))
			})
		}
	}
}

// A barrier that let ranks go early would let one see a stale counter.
func TestBarrierHoldsEverybody(t *testing.T) {
	const n = 4
	s := joinAll(t, n, nil)
	entered := make(chan int, n)
	noErrors(t, each(n, func(rank int) error {
		entered <- rank
		if err := s[rank].All().Barrier(t.Context(), "b"); err != nil {
			return err
		}
		if len(entered) != n {
			return fmt.Errorf("left when %d of %d had entered", len(entered), n)
		}
		return nil
	}))
}

func TestAgreeGivesTheLowestRanksErrorToAll(t *testing.T) {
	const n = 4
	s := joinAll(t, n, nil)
	cause := errors.New("no more descriptors")
	errs := each(n, func(rank int) error {
		var mine error
		switch rank {
		case 1:
			mine = plugin.Errorf(plugin.OutOfMemory, "importing region 3: %w", cause)
		case 3:
			mine = plugin.Errorf(plugin.System, "something else")
		}
		return s[rank].All().Agree(t.Context(), "import", mine)
	})
	same(t, plugin.OutOfMemory, errs)
	if got := errs[0].Error(); got != "rank 1: importing region 3: no more descriptors" {
		t.Errorf("message %q", got)
	}
	if !errors.Is(errs[1], cause) {
		t.Errorf("rank 1 does not see its own cause in %v", errs[1])
	}
	var e *plugin.Error
	if !errors.As(errs[2], &e) || e.Rank != 1 {
		t.Errorf("rank %v, want 1", e)
	}
	// The group is as good as before.
	noErrors(t, each(n, func(rank int) error { return s[rank].All().Agree(t.Context(), "again", nil) }))
}

func TestDifferentOrderOfTags(t *testing.T) {
	const n = 4
	s := joinAll(t, n, nil)
	noErrors(t, each(n, func(rank int) error {
		return errors.Join(each(6, func(i int) error {
			tag := fmt.Sprintf("tag %d", (i+rank)%6)
			all, err := s[rank].All().AllGather(t.Context(), tag, []byte(tag))
			if err == nil && strings.Count(parts(all), tag) != n {
				err = fmt.Errorf("gathered %s under %q", parts(all), tag)
			}
			return err
		})...)
	}))
}

func TestGroups(t *testing.T) {
	const n = 5
	s := joinAll(t, n, nil)
	lists := [][]int{{4, 0, 2}, {3, 1}}
	noErrors(t, each(n, func(rank int) error {
		list := lists[rank%2]
		g, err := s[rank].Group("colors", list) // one key, two groups without a common rank
		if err != nil {
			return err
		}
		all, err := g.AllGather(t.Context(), "who", fmt.Appendf(nil, "%d", rank))
		if err != nil {
			return err
		}
		if got := strings.Join(strings.Fields(strings.NewReplacer(`"`, "", "[", "", "]", "").Replace(parts(all))),
			" "); got != strings.Trim(fmt.Sprint(list), "[]") {
			return fmt.Errorf("members %s, want %v", got, list)
		}
		if g.Member(g.Rank()).Rank != rank {
			return fmt.Errorf("rank %d takes itself for %v", rank, g.Member(g.Rank()))
		}
		return g.Close()
	}))
}

func TestGroupListsThatDiffer(t *testing.T) {
	s := joinAll(t, 3, nil)
	lists := [][]int{{0, 1, 2}, {1, 2, 0}, {0, 1, 2}}
	errs := each(3, func(rank int) error {
		g, err := s[rank].Group("mixed", lists[rank])
		if err != nil {
			return err
		}
		return g.Barrier(short(t, 10*time.Second), "b")
	})
	for rank, err := range errs {
		// Who says something else is named as the rank that it is in the job, and numbered as in this rank's group.
		e, ok := errors.AsType[*plugin.Error](err)
		if !ok || e.Code != plugin.Mismatch || !strings.Contains(err.Error(), "disagree about the members") ||
			!strings.Contains(err.Error(), fmt.Sprintf(": rank %d (pid ", lists[rank][e.Rank])) {
			t.Errorf("rank %d: %+v", rank, err)
		}
	}
	for _, bad := range [][]int{{}, {0, 0}, {1, 2}, {0, 3}, {0, -1}} {
		if _, err := s[0].Group("bad", bad); plugin.CodeOf(err) != plugin.InvalidArgument {
			t.Errorf("group of %v: %v", bad, err)
		}
	}
}

func TestRanksThatDisagreeAboutACollective(t *testing.T) {
	s := joinAll(t, 3, nil)
	errs := each(3, func(rank int) error {
		if rank == 1 {
			return s[rank].All().Barrier(t.Context(), "x")
		}
		_, err := s[rank].All().AllGather(t.Context(), "x", nil)
		return err
	})
	same(t, plugin.Mismatch, errs)
}

func TestTimeoutNamesWhoIsMissingOnEveryRank(t *testing.T) {
	const n = 4
	const tag = "agree on a call (world 1)"
	s := joinAll(t, n, nil)
	errs := make([]error, n)
	late := each(3, func(i int) error {
		rank := []int{0, 1, 3}[i]
		ctx := t.Context()
		if rank == 1 { // gives up when the others are there
			for st := s[1].root.store; st.waiting(tag) < 2; {
				runtimeYield()
			}
			ctx = short(t, 50*time.Millisecond)
		}
		errs[rank] = s[rank].All().Barrier(ctx, tag)
		return errs[rank]
	})
	errs[2] = s[2].All().Barrier(t.Context(), tag) // comes after it has failed
	same(t, plugin.Timeout, errs)
	if !strings.Contains(late[0].Error(), "ms, all the time that was left, for all ranks to agree on a call, still without rank 2") {
		t.Errorf("%v", late[0])
	}
	if got := purposeOf(tag, "world"); got != `the ranks of "world" to agree on a call` {
		t.Error(got)
	}
	// All ranks have the error, so the tag is free.
	noErrors(t, each(n, func(rank int) error { return s[rank].All().Barrier(short(t, 10*time.Second), tag) }))
}

// A call had all of its time, also where later ones get more.
func TestTimeoutOfBeforeItWasChanged(t *testing.T) {
	s := joinAll(t, 2, nil)
	g := s[1].All()
	g.SetTimeout(500 * time.Millisecond)
	late := make(chan error, 1)
	go func() { late <- g.Barrier(t.Context(), "barrier") }()
	for st := s[1].root.store; st.waiting("barrier") < 1 && len(late) == 0; {
		runtimeYield()
	}
	g.SetTimeout(time.Minute)
	err := <-late
	if plugin.CodeOf(err) != plugin.Timeout || !strings.Contains(err.Error(), "ms for all ranks to barrier") {
		t.Errorf("%v", err)
	}
}

// waiting returns the number of ranks that have called a collective of all ranks.
func (st *store) waiting(tag string) int {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.groups[""]) == 0 { // it is made with the first call that comes
		return 0
	}
	if c := st.groups[""][0].pending[tag]; c != nil {
		return c.count
	}
	return 0
}

func TestCancelFailsEverybody(t *testing.T) {
	s := joinAll(t, 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s[1].All().Barrier(ctx, "b")
	same(t, plugin.Aborted, []error{s[0].All().Barrier(t.Context(), "b"), err})
}

func TestFail(t *testing.T) {
	const n = 3
	s := joinAll(t, n, nil)
	reason := &plugin.Error{Code: plugin.Device, Rank: 1, Message: "rank 1: its device fell off the bus"}
	errs := each(n, func(rank int) error {
		if rank == 1 {
			s[1].Fail(reason)
		}
		return s[rank].All().Barrier(t.Context(), "b")
	})
	same(t, plugin.Device, errs)
	for _, rank := range []int{0, 2} {
		if f := <-s[rank].Failures(); f.Rank != 1 || f.Group != "" || f.Err.Message != reason.Message {
			t.Errorf("rank %d: %+v", rank, f)
		}
		if s[rank].State(1) != GaveUp {
			t.Errorf("rank %d: state %v", rank, s[rank].State(1))
		}
	}
	got := make([][]int, n)
	noErrors(t, each(2, func(i int) (err error) {
		got[2*i], err = s[2*i].All().Survivors(t.Context(), "s")
		return err
	}))
	if fmt.Sprint(got[0], got[2]) != "[0 2] [0 2]" {
		t.Errorf("survivors %v and %v", got[0], got[2])
	}
}

func TestGroupFail(t *testing.T) {
	const n = 3
	s := joinAll(t, n, nil)
	groups := make([]*Group, n)
	for rank := range n {
		var err error
		if groups[rank], err = s[rank].Group("comm", []int{0, 1, 2}); err != nil {
			t.Fatal(err)
		}
	}
	noErrors(t, each(n, func(rank int) error { return groups[rank].Barrier(t.Context(), "start") }))
	groups[2].Fail(&plugin.Error{Code: plugin.Aborted, Rank: 2, Message: "rank 2 aborted: enough"})
	for _, rank := range []int{0, 1} {
		if f := <-s[rank].Failures(); f.Rank != 2 || f.Group != "comm" || plugin.CodeOf(f.Err) != plugin.Aborted {
			t.Errorf("rank %d: %+v", rank, f)
		}
	}
	same(t, plugin.Aborted, each(n, func(rank int) error { return groups[rank].Barrier(t.Context(), "b") }))
	// Other groups still work, and so does agreeing on which ranks are left.
	noErrors(t, each(n, func(rank int) error {
		if ranks, err := groups[rank].Survivors(t.Context(), "s"); err != nil || len(ranks) != n {
			return fmt.Errorf("survivors %v, %w", ranks, err)
		}
		return s[rank].All().Barrier(t.Context(), "b")
	}))
}

// Whatever a rank does with a group that it has closed, or closes while it waits there, the others do not take it for
// dead: what watches a communicator may be late.
func TestUseOfAClosedGroup(t *testing.T) {
	const n = 3
	s := joinAll(t, n, nil)
	group := func(key string) *Group {
		g, err := s[1].Group(key, []int{0, 1, 2})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	closed := func(g *Group, err error) {
		t.Helper()
		if want := fmt.Sprintf("rank 1 has closed group %q", g.Key()); plugin.CodeOf(err) != plugin.Closed || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	g, waiting := group("waits"), make(chan error, 1)
	go func() { waiting <- g.Barrier(t.Context(), "b") }()
	for begun := false; !begun; {
		s[1].mu.Lock()
		begun = len(s[1].waiters) > 0
		s[1].mu.Unlock()
	}
	_ = g.Close()
	closed(g, <-waiting)
	_ = g.Close()
	g.Fail(&plugin.Error{Code: plugin.Aborted, Rank: 1, Message: "late"})
	closed(g, g.Barrier(t.Context(), "b"))
	_, err := g.Survivors(t.Context(), "s")
	closed(g, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	closed(g, g.Barrier(over, "b"))
	noErrors(t, each(n, func(rank int) error { return s[rank].All().Barrier(t.Context(), "all live") }))
}

// A rank that leaves because of another's end is not taken for the cause by ranks that make a group later.
func TestWhoLeftIsNotTheCause(t *testing.T) {
	s := joinAll(t, 3, nil)
	s[1].Fail(&plugin.Error{Code: plugin.PeerDied, Rank: 1, Message: "the cause"})
	<-s[0].Failures()
	if err := s[0].Close(); err != nil {
		t.Fatal(err)
	}
	for s[2].State(0) == Alive { // the news travels
		if err := s[2].All().Barrier(t.Context(), "again"); err == nil {
			t.Fatal("a barrier with a closed rank succeeded")
		}
	}
	g, err := s[2].Group("late", []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Barrier(t.Context(), "b"); plugin.CodeOf(err) != plugin.PeerDied || err.Error() != "the cause" {
		t.Errorf("a collective: %v, want the cause", err)
	}
	ctx, cancel := g.WhileAlive(t.Context())
	defer cancel()
	<-ctx.Done()
	if err := context.Cause(ctx); plugin.CodeOf(err) != plugin.PeerDied || err.Error() != "the cause" {
		t.Errorf("while alive: %v, want the cause", err)
	}
}

func TestClosedSession(t *testing.T) {
	s := joinAll(t, 3, nil)
	waiting := make(chan error, 1)
	go func() { waiting <- s[1].All().Barrier(t.Context(), "b") }()
	if err := s[2].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; plugin.CodeOf(err) != plugin.Closed || !strings.Contains(err.Error(), "rank 2") {
		t.Errorf("waiting for a rank that closed: %v", err)
	}
	if err := s[2].All().Barrier(t.Context(), "b"); plugin.CodeOf(err) != plugin.Closed {
		t.Errorf("on the closed session: %v", err)
	}
	if _, ok := <-s[2].Failures(); ok {
		t.Error("failures of a closed session are open")
	}
	for s[0].State(2) == Alive { // the news travels
		if err := s[0].All().Barrier(t.Context(), "again"); err == nil {
			t.Fatal("a barrier with a closed rank succeeded")
		}
	}
	if got := s[0].State(2); got != Left {
		t.Errorf("state %v", got)
	}
}

func TestInvalidCalls(t *testing.T) {
	s := joinAll(t, 1, nil)
	g := s[0].All()
	for name, err := range map[string]error{
		"tag":  g.Barrier(t.Context(), strings.Repeat("x", maxTag+1)),
		"data": func() error { _, err := g.AllGather(t.Context(), "t", make([]byte, maxFrame/2+1)); return err }(),
		"root": func() error { _, err := g.Broadcast(t.Context(), "t", 1, nil); return err }(),
		"key":  func() error { _, err := s[0].Group(strings.Repeat("x", maxKey+1), []int{0}); return err }(),
	} {
		if plugin.CodeOf(err) != plugin.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGatherThatIsTooLarge(t *testing.T) {
	s := joinAll(t, 2, nil)
	same(t, plugin.InvalidArgument, each(2, func(rank int) error {
		_, err := s[rank].All().AllGather(t.Context(), "big", make([]byte, maxFrame/2-8))
		return err
	}))
	noErrors(t, each(2, func(rank int) error {
		_, err := s[rank].All().AllGather(t.Context(), "big", make([]byte, 1<<20))
		return err
	}))
}

func BenchmarkAgree(b *testing.B) {
	forceDial = true
	defer func() { forceDial = false }()
	const n = 4
	s := joinAll(b, n, nil)
	b.ResetTimer()
	noErrors(b, each(n, func(rank int) error {
		for range b.N {
			if err := s[rank].All().Agree(context.Background(), "x", nil); err != nil {
				return err
			}
		}
		return nil
	}))
	b.StopTimer()
}

// Errors of a group number ranks by their places in it, as its communicator does.
func TestErrorsOfAGroupNumberItsRanks(t *testing.T) {
	t.Parallel()
	s, _ := storeElsewhere(t, 4)
	g := groupOf(t, s, 3, 1, 2)
	errs := make([]error, 4)
	each(2, func(i int) error {
		rank := []int{3, 2}[i]
		errs[rank] = g[rank].Barrier(short(t, []time.Duration{300 * time.Millisecond, 10 * time.Second}[i]), "meet")
		return nil
	})
	for _, rank := range []int{2, 3} {
		wants(t, rank, errs[rank], plugin.Timeout, "rank 0 waited ")
		wants(t, rank, errs[rank], plugin.Timeout, fmt.Sprintf(`for the ranks of "g" to meet, still without rank 1 (pid %d on `,
			os.Getpid()))
	}
	if err := g[2].Close(); err != nil {
		t.Error(err)
	}
	wants(t, 3, g[3].Barrier(t.Context(), "again"), plugin.Closed, "rank 2 (")
	wants(t, 2, g[2].Barrier(t.Context(), "again"), plugin.Closed, "rank 2 has closed")
}
