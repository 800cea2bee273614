package bootstrap

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// holds returns what the store keeps for exchanges that are not complete: their number, and the bytes of each rank.
func (st *store) holds() (open int, held []int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, m := range st.members {
		held = append(held, m.held)
	}
	return st.open, held
}

// nothingHeld makes sure that the store keeps nothing once it has read what all ranks have said so far.
func nothingHeld(t *testing.T, s []*Session, what string) {
	t.Helper()
	noErrors(t, each(len(s), func(rank int) error { return s[rank].All().Barrier(t.Context(), "after "+what) }))
	open, held := s[0].root.store.holds()
	require.Zero(t, open, what)
	require.Equal(t, make([]int, len(s)), held, what)
}

// Ranks that use one tag for different operations, or give different roots, all get the error, and lose nothing else.
func TestRanksThatDifferAboutAnExchange(t *testing.T) {
	s := joinAll(t, 2, nil)
	broadcast := func(root int) func(*Group) error {
		return func(g *Group) error {
			_, err := g.Broadcast(t.Context(), "meet", root, []byte("data"))
			return err
		}
	}
	gather := func(g *Group) error { _, err := g.AllGather(t.Context(), "meet", []byte("data")); return err }
	barrier := func(g *Group) error { return g.Barrier(t.Context(), "meet") }
	survivors := func(g *Group) error { _, err := g.Survivors(t.Context(), "meet"); return err }
	for name, calls := range map[string][2]func(*Group) error{
		"root":              {broadcast(0), broadcast(1)},
		"gather and root":   {gather, broadcast(0)},
		"barrier, gather":   {barrier, gather},
		"survivors, gather": {survivors, gather},
		"survivors, root":   {broadcast(0), survivors},
	} {
		for first := range 2 {
			errs := each(2, func(rank int) error { return calls[rank^first](s[rank].All()) })
			for rank, err := range errs {
				require.Equal(t, plugin.Mismatch, plugin.CodeOf(err), "%s on rank %d: %v", name, rank, err)
				require.ErrorContains(t, err, "ranks disagree, waiting for all ranks to meet: rank", name)
				require.ErrorContains(t, err, "asks for another operation or root than rank", name)
			}
			nothingHeld(t, s, fmt.Sprintf("%s, rank %d first", name, first))
		}
	}
}

// processes names ranks of this process as a timeout does that waits for them.
func processes(s []*Session, ranks []int) string {
	var names []string
	for _, rank := range ranks {
		names = append(names, fmt.Sprintf("rank %d (pid %d on host %s)", rank, os.Getpid(), s[0].members[rank].Host))
	}
	return strings.Join(names, ", ")
}

// A timeout is the error of the first rank that has not come, of those that others still wait for.
func TestTimeoutsNameTheRanksThatAreMissing(t *testing.T) {
	for _, there := range [][]int{{0, 1, 2}, {0, 1, 3}, {1, 2, 3}, {0, 3}, {2, 3}, {3}} {
		s := joinAll(t, 4, nil)
		come := map[int]bool{}
		for _, rank := range there {
			come[rank] = true
		}
		var missing []int
		for rank := range s {
			if !come[rank] {
				missing = append(missing, rank)
			}
		}
		errs := each(4, func(rank int) error {
			if !come[rank] {
				return nil
			}
			return s[rank].All().Barrier(short(t, 100*time.Millisecond), "meet")
		})
		for _, rank := range there {
			wants(t, rank, errs[rank], plugin.Timeout, "for all ranks to meet, still without "+processes(s, missing))
			var e *plugin.Error
			require.ErrorAs(t, errs[rank], &e)
			require.Equal(t, missing[0], e.Rank, "%v are there", there)
		}
		noErrors(t, each(4, func(rank int) error { // those that come later get the same
			if come[rank] {
				return nil
			}
			err := s[rank].All().Barrier(t.Context(), "meet")
			if plugin.CodeOf(err) != plugin.Timeout || !strings.HasSuffix(err.Error(), processes(s, missing)) {
				return fmt.Errorf("rank %d, which comes late: %w", rank, err)
			}
			return nil
		}))
	}
}

// What the store keeps for an exchange goes with it, however it ends.
func TestNothingIsHeldOfExchangesThatHaveEnded(t *testing.T) {
	data := []byte("what a rank brings")
	for name, use := range map[string]func(s []*Session, g [2]*Group){
		"complete": func(_ []*Session, g [2]*Group) {
			noErrors(t, each(2, func(rank int) error { _, err := g[rank].AllGather(t.Context(), "x", data); return err }))
		},
		"too late": func(_ []*Session, g [2]*Group) {
			_, err := g[0].AllGather(short(t, 50*time.Millisecond), "x", data)
			wants(t, 0, err, plugin.Timeout, "still without rank 1")
			_, err = g[1].AllGather(t.Context(), "x", data)
			wants(t, 1, err, plugin.Timeout, "still without rank 1")
		},
		"nobody else comes": func(_ []*Session, g [2]*Group) {
			for _, tag := range []string{"x", "y"} {
				_, err := g[0].AllGather(short(t, 50*time.Millisecond), tag, data)
				wants(t, 0, err, plugin.Timeout, "still without rank 1")
			}
		},
		"called again": func(s []*Session, g [2]*Group) { // by a rank that had given up, while the store was silent
			for _, more := range []string{"", "x", "yz"} {
				s[1].out.Lock()
				<-s[1].say(&message{Kind: msgOp, Group: g[1].id, Op: opGather, Tag: "x", Data: append(data, more...)})
				s[1].out.Unlock()
			}
			noErrors(t, each(2, func(rank int) error { return s[rank].All().Barrier(t.Context(), "the store has all") }))
			got, err := g[0].AllGather(t.Context(), "x", nil)
			require.NoError(t, err)
			require.Equal(t, string(data)+"yz", string(got[1]), "the latest counts")
		},
		"aborted": func(_ []*Session, g [2]*Group) {
			done := make(chan error, 1)
			go func() { _, err := g[0].AllGather(t.Context(), "x", data); done <- err }()
			g[1].Fail(rankError(plugin.Internal, 1, "no more"))
			require.ErrorContains(t, <-done, "no more")
		},
	} {
		s := joinAll(t, 2, nil)
		var groups [2]*Group
		noErrors(t, each(2, func(rank int) (err error) {
			groups[rank], err = s[rank].Group("g", []int{0, 1})
			return err
		}))
		use(s, groups)
		_, held := s[0].root.store.holds()
		require.Equal(t, []int{0, 0}, held, name)
		for _, g := range groups {
			require.NoError(t, g.Close())
		}
		nothingHeld(t, s, name)
	}
}

// What a rank asks for beyond a limit is refused, and nothing else is: the limits are its own fault, but no reason to
// lose it. Exchanges that it gave up count until the others have come to them.
func TestWhatIsBeyondALimitIsRefusedAlone(t *testing.T) {
	s := joinAll(t, 2, nil)
	tag := func(i int) string { return fmt.Sprint("meet (", i, ")") }
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range maxPending + 10 {
		err := s[1].All().Barrier(gaveUp, tag(i))
		if i < maxPending {
			wants(t, 1, err, plugin.Aborted, "gave up waiting for all ranks to meet")
		} else {
			wants(t, 1, err, plugin.OutOfMemory, "waiting for all ranks to meet: at most 1024 exchanges may wait at once")
		}
	}
	for i := range maxPending {
		wants(t, 0, s[0].All().Barrier(t.Context(), tag(i)), plugin.Aborted, "gave up waiting for all ranks to meet")
	}
	nothingHeld(t, s, "the others have come")

	for i := range maxGroups - 1 { // one is the group of all
		_, err := s[1].Group(fmt.Sprint(i), []int{1})
		require.NoError(t, err)
	}
	_, err := s[1].Group("more", []int{0, 1})
	wants(t, 1, err, plugin.OutOfMemory, `rank 1 is in 4096 groups at once and cannot make group "more"`)
	nothingHeld(t, s, "too many groups")
}
