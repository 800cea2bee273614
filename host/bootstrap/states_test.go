package bootstrap

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// What ranks had become before their store was lost, they are at its successor.

// Ranks that are there, and those that have given up, meet at one store, and the others count on.
func TestRanksMeetWhateverOthersHaveBecome(t *testing.T) {
	const n = 4
	for _, one := range []State{Alive, GaveUp, Left} {
		for _, two := range []State{Alive, GaveUp, Left} {
			for _, three := range []State{Alive, GaveUp, Left} {
				became := []State{Dead, one, two, three}
				if slices.Index(became, Alive) < 0 && slices.Index(became, GaveUp) < 0 {
					continue // nobody is left
				}
				t.Run(fmt.Sprintf("%v %v %v", one, two, three), func(t *testing.T) {
					t.Parallel()
					meetAgain(t, n, became)
				})
			}
		}
	}
}

// meetAgain lets ranks become something, and loses the store in rank 0.
func meetAgain(t *testing.T, n int, became []State) {
	s, rankZero := storeElsewhere(t, n)
	var here, alive []int
	for rank := 1; rank < n; rank++ {
		switch became[rank] {
		case Left:
			require.NoError(t, s[rank].Close())
			continue
		case GaveUp:
			s[rank].Fail(rankError(plugin.Aborted, rank, "rank %d has had enough", rank))
		case Alive:
			alive = append(alive, rank)
		}
		here = append(here, rank)
	}
	ctx := short(t, 20*time.Second)
	// know waits until all ranks that are here know what has become of the others, and is where the store is.
	know := func(first int) {
		for _, rank := range here {
			for other := first; other < n; other++ {
				for other != rank && s[rank].State(other) != became[other] {
					require.NoError(t, ctx.Err(), "rank %d takes rank %d for %v, want %v", rank, other, s[rank].State(other),
						became[other])
					pause(ctx, time.Millisecond)
				}
			}
		}
	}
	know(1)
	rankZero.kill(0)
	know(0)
	groups := make([]*Group, n)
	noErrors(t, each(len(alive), func(i int) (err error) {
		all, err := s[alive[i]].All().Survivors(ctx, "s")
		if err == nil && !slices.Equal(all, alive) {
			err = fmt.Errorf("survivors %v, want %v", all, alive)
		}
		if err == nil {
			groups[i], err = s[alive[i]].Group("again", alive)
		}
		if err == nil {
			err = groups[i].Barrier(ctx, "b")
		}
		return err
	}))
	know(0)
	for _, rank := range here {
		for s[rank].storeProcess().Rank != here[0] {
			require.NoError(t, ctx.Err(), "rank %d has the store of %v, want that of rank %d", rank, s[rank].storeProcess(),
				here[0])
			pause(ctx, time.Millisecond)
		}
	}
}

// A store that takes over waits for ranks that are alive or have given up, and for no others, whether it knew of them
// before or learns of them from a rank that comes. Every rank that comes hears of them.
func TestSuccessorsWaitForRanksThatMayCome(t *testing.T) {
	for _, state := range []State{Alive, GaveUp, Left, Dead} {
		for _, knew := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, knew=%v", state, knew), func(t *testing.T) {
				var reason *plugin.Error
				if state == GaveUp || state == Dead {
					reason = rankError(plugin.Aborted, 2, "rank 2 is no more")
				}
				u := newUnderstudyThatKnows(t, 5, 0)
				if knew {
					u = newUnderstudyWith(t, 5, map[int]standing{0: {Dead, rankError(plugin.PeerDied, 0, "rank 0 died")},
						2: {state, reason}})
				}
				u.s.states[2], u.s.reasons[2] = state, reason // which the ranks that come know
				watches := slices.Collect(maps.Values(u.root.store.resuming.awaited))
				resumed := &message{Kind: msgResumed}
				ends := map[int]*frameConn{1: u.arrive(1, resumed), 3: u.arrive(3, resumed), 4: u.arrive(4, resumed)}
				st, ctx := u.root.store, short(t, 20*time.Second)
				look := func() (said int, waits, awaited bool) {
					st.mu.Lock()
					defer st.mu.Unlock()
					if st.resuming != nil {
						said = len(st.resuming.said)
					}
					return said, st.resuming != nil, !st.members[2].gone
				}
				said, waits, awaited := look()
				for waits && said < 3 {
					require.NoError(t, ctx.Err())
					pause(ctx, time.Millisecond)
					said, waits, awaited = look()
				}
				want := state == Alive || state == GaveUp
				require.Equal(t, []bool{want, want}, []bool{waits, awaited})
				for rank, f := range ends {
					if state != Alive {
						u.hears(f, rank, 2, state, reason)
					}
				}
				if want {
					u.arrive(2, resumed)
					for waits {
						require.NoError(t, ctx.Err())
						pause(ctx, time.Millisecond)
						_, waits, _ = look()
					}
				}
				require.NotEmpty(t, watches)
				for _, w := range watches {
					require.ErrorIs(t, w.file.Close(), os.ErrClosed, "a process is still watched")
				}
			})
		}
	}
}

// A successor turns away who is no rank of its job, who is there already, and who is given up, and says why.
func TestWhoIsTurnedAwayByASuccessor(t *testing.T) {
	for name, c := range map[string]struct {
		who   func(u *understudy) *message
		code  plugin.Code
		texts []string
	}{
		"another process": {func(u *understudy) *message {
			hello := u.hello(3)
			hello.Member.PID++
			return hello
		}, plugin.Mismatch, []string{"rank 3 (pid 104) of world 5 came to the successor of another job"}},
		"a smaller world": {func(u *understudy) *message {
			hello := u.hello(3)
			hello.World, hello.Standings = 4, hello.Standings[:4]
			return hello
		}, plugin.Mismatch, []string{"rank 3 (pid 103) of world 4 came"}},
		"a larger world": {func(u *understudy) *message {
			return &message{Kind: msgResume, Member: Member{6, 106, "host"}, World: 7, Standings: make([]standing, 7)}
		}, plugin.Mismatch, []string{"rank 6 (pid 106) of world 7 came"}},
		"a rank that is there": {func(u *understudy) *message { return u.hello(2) }, plugin.Protocol,
			[]string{"rank 2 (pid 102 on host host) came to rank 1's store twice"}},
		"a rank that has died": {func(u *understudy) *message { return u.hello(4) }, plugin.PeerDied,
			[]string{"rank 4 has died"}},
		"a rank that is late": {func(u *understudy) *message {
			u.root.store.suspectLate(3, "")
			return u.hello(3)
		}, plugin.PeerDied, []string{"rank 3 (pid 103 on host host) died", "it did not find the successor of rank 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnderstudyWith(t, 5, map[int]standing{4: {Dead, rankError(plugin.PeerDied, 4, "rank 4 has died")}})
			there := u.arrive(2)
			f := u.comes(takesIn{u.root.store}, c.who(u))
			m := u.expect(f, msgRefuse)
			require.False(t, m.Retry)
			require.Equal(t, c.code, m.Err.Code)
			for _, text := range c.texts {
				require.Contains(t, m.Err.Message, text)
			}
			_, _, err := f.read()
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, there.write(frame{kind: msgBeat}), "the rank that is there stays")
		})
	}
}

// A rank that has come, and that one which comes later knows to be dead, is told why before its connection ends.
func TestRanksThatCameAndAreDead(t *testing.T) {
	u := newUnderstudyThatKnows(t, 5, 0)
	dead := u.arrive(3, &message{Kind: msgResumed})
	reason := rankError(plugin.PeerDied, 3, "rank 3 was silent")
	u.s.states[3], u.s.reasons[3] = Dead, reason
	u.arrive(2)
	require.NoError(t, dead.limitReads(30*time.Second))
	require.Equal(t, &message{Kind: msgRefuse, Err: reason}, u.expect(dead, msgRefuse))
	_, _, err := dead.read()
	require.ErrorIs(t, err, io.EOF)
}

// Ranks that are turned away and do not read why hold up neither a rank that comes nor one that is there.
func TestRanksTurnedAwayThatDoNotRead(t *testing.T) {
	u := newUnderstudyThatKnows(t, 4, 0)
	there := u.arrive(2)
	foreign := u.hello(3)
	foreign.Member.PID++
	for _, hello := range []*message{foreign, u.hello(2)} {
		f := u.comes(takesIn{u.root.store}, hello)
		require.NoError(t, f.SetReadDeadline(time.Now().Add(30*time.Second)))
		_, err := f.Conn.Read(make([]byte, 1)) // the reply is being written
		require.NoError(t, err)
	}
	came := u.comes(takesIn{u.root.store}, u.hello(3))
	require.NoError(t, came.limitReads(30*time.Second))
	u.expect(came, msgWelcome)
	require.NoError(t, there.write((&message{Kind: msgBye}).frame()))
	require.NoError(t, there.limitReads(30*time.Second))
	u.expect(there, msgBye)
}

// A rank of another process that comes and then says nothing is lost like any other; one of the store's process is as
// alive as the store.
func TestRanksThatComeAndAreSilent(t *testing.T) {
	u := newUnderstudyWith(t, 4, map[int]standing{0: {Dead, rankError(plugin.PeerDied, 0, "rank 0 died")}})
	st := u.root.store
	st.mu.Lock()
	st.silence = 50 * time.Millisecond
	st.mu.Unlock()
	two, three := u.arrive(2), u.comes(takesInFrom{takesIn{st}}, u.hello(3))
	for _, f := range []*frameConn{two, three} { // they read what comes
		u.calls.Go(func() { _, _ = io.Copy(io.Discard, f.Conn) })
	}
	ctx := short(t, 10*time.Second)
	for lost := false; !lost; {
		require.NoError(t, ctx.Err(), "the silent rank counts as there")
		pause(ctx, time.Millisecond)
		st.mu.Lock()
		lost = st.members[3].gone
		other := st.members[2].gone
		st.mu.Unlock()
		require.False(t, other)
	}
}
