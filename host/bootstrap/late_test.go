package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// A rank that joins a group after others have failed and closed it gets the reason, though no rank is in it any more.
// The store forgets the group when all have been there or are gone.
func TestLateToAGroup(t *testing.T) {
	const n = 3
	lost := &plugin.Error{Code: plugin.PluginDied, Rank: 0, Message: "rank 0 lost its transport"}
	giveUp := func(g *Group) {
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		_ = g.Barrier(ctx, "b")
	}
	for name, c := range map[string]struct {
		early []int // ranks that come first, do this and close the group
		do    func(g *Group)
		code  plugin.Code
	}{
		"one failed":   {[]int{0}, func(g *Group) { g.Fail(lost) }, plugin.PluginDied},
		"two failed":   {[]int{0, 1}, func(g *Group) { g.Fail(lost) }, plugin.PluginDied},
		"one closed":   {[]int{1}, func(*Group) {}, plugin.Closed},
		"two closed":   {[]int{0, 1}, func(*Group) {}, plugin.Closed},
		"one left":     {[]int{1}, func(g *Group) { _ = g.Session().Close() }, plugin.Closed},
		"one gave up":  {[]int{0}, giveUp, plugin.Timeout},
		"two gave up":  {[]int{0, 1}, giveUp, plugin.Timeout},
		"failed, left": {[]int{1}, func(g *Group) { g.Fail(lost); _ = g.Session().Close() }, plugin.PluginDied},
	} {
		t.Run(name, func(t *testing.T) {
			s := joinAll(t, n, nil)
			come := func(rank int) *Group {
				g, err := s[rank].Group("late", []int{0, 1, 2})
				if err != nil {
					t.Fatal(err)
				}
				return g
			}
			for _, rank := range c.early {
				g := come(rank)
				c.do(g)
				_ = g.Close()
			}
			_ = each(n, func(rank int) error { return s[rank].All().Barrier(t.Context(), "the store has heard them") })
			for rank := range n {
				if slices.Contains(c.early, rank) {
					continue
				}
				g := come(rank)
				if err := g.Barrier(t.Context(), "b"); plugin.CodeOf(err) != c.code {
					t.Errorf("rank %d: %v, want %v", rank, err, c.code)
				}
				_ = g.Close()
			}
			_ = each(n, func(rank int) error { return s[rank].All().Barrier(t.Context(), "the store has heard all") })
			st := s[1].root.store
			st.mu.Lock()
			defer st.mu.Unlock()
			if len(st.groups["late"]) > 0 || len(st.empty) > 0 {
				t.Errorf("the store keeps %d groups, %d of them empty", len(st.groups["late"]), len(st.empty))
			}
		})
	}
}

// A rank that closes the group while it waits in survivors is none.
func TestSurvivorsWithoutWhoHasClosed(t *testing.T) {
	const n = 3
	s := joinAll(t, n, nil)
	groups := make([]*Group, n)
	for rank := range n {
		var err error
		if groups[rank], err = s[rank].Group("g", []int{0, 1, 2}); err != nil {
			t.Fatal(err)
		}
	}
	noErrors(t, each(n, func(rank int) error { return groups[rank].Barrier(t.Context(), "b") }))
	waiting := make(chan error, 1)
	go func() { _, err := groups[0].Survivors(t.Context(), "s"); waiting <- err }()
	for st, come := s[1].root.store, 0; come == 0; {
		st.mu.Lock()
		if c := st.groups["g"][0].pending["s"]; c != nil {
			come = c.count
		}
		st.mu.Unlock()
	}
	_ = groups[0].Close()
	if err := <-waiting; plugin.CodeOf(err) != plugin.Closed {
		t.Errorf("rank 0: %v", err)
	}
	_ = each(n, func(rank int) error { return s[rank].All().Barrier(t.Context(), "the store has heard it") })
	for i, err := range each(2, func(i int) error {
		got, said, err := groups[i+1].GatherSurvivors(t.Context(), "s", fmt.Append(nil, "from ", i+1))
		if err != nil || fmt.Sprint(got) != "[1 2]" || parts(said) != `["from 1" "from 2"]` {
			return fmt.Errorf("%v, %s, %w", got, parts(said), err)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", i+1, err)
		}
	}
}

// A store keeps a bounded number of groups that some ranks never join, and none of a rank that has left.
func TestGroupsThatNobodyComesTo(t *testing.T) {
	s := joinAll(t, 2, nil)
	for i := range 3 * maxEmpty {
		g, err := s[0].Group(fmt.Sprint(i), []int{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		_ = g.Close()
	}
	noErrors(t, each(2, func(rank int) error { return s[rank].All().Barrier(t.Context(), "b") }))
	kept := func() int {
		st := s[1].root.store
		st.mu.Lock()
		defer st.mu.Unlock()
		if len(st.groups) != len(st.empty)+1 {
			t.Errorf("%d groups, of which %d are empty", len(st.groups), len(st.empty))
		}
		return len(st.empty)
	}
	if n := kept(); n != 2*maxEmpty {
		t.Errorf("%d groups are kept, want %d", n, 2*maxEmpty)
	}
	if err := s[1].Close(); err != nil {
		t.Fatal(err)
	}
	_ = s[0].All().Barrier(t.Context(), "the store has heard it")
	if n := kept(); n != 0 {
		t.Errorf("%d groups are kept of a rank that has left", n)
	}
}

// A rank that tries a collective again before all have received its failure gets the same once more.
func TestTryingAgainBeforeAllHaveHeard(t *testing.T) {
	s := joinAll(t, 2, nil)
	barrier := func(rank int) error { return s[rank].All().Barrier(t.Context(), "b") }
	gaveUp := s[0].All().Barrier(timeIsUp(t), "b")
	same(t, plugin.Timeout, []error{gaveUp, barrier(0), barrier(0), barrier(1)})
	noErrors(t, each(2, barrier))
}
