package bootstrap

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// understudy is a store that takes over, with ranks that have sent and received what the test says.
type understudy struct {
	t     *testing.T
	s     *Session
	root  *Root
	calls sync.WaitGroup
}

func newUnderstudy(t *testing.T, world int) *understudy { return newUnderstudyThatKnows(t, world, 0) }

// newUnderstudyThatKnows returns the one of rank 1, which knows that these ranks are dead.
func newUnderstudyThatKnows(t *testing.T, world int, dead ...int) *understudy {
	knows := map[int]standing{}
	for _, rank := range dead {
		knows[rank] = standing{Dead, rankError(plugin.PeerDied, rank, "rank %d died", rank)}
	}
	return newUnderstudyWith(t, world, knows)
}

// newUnderstudyWith returns the one of rank 1, which knows what has become of some ranks.
func newUnderstudyWith(t *testing.T, world int, knows map[int]standing) *understudy {
	u := &understudy{t: t, s: &Session{rank: 1, logger: quiet, heartbeat: time.Second, silence: 10 * time.Second,
		states: make([]State, world), reasons: make([]*plugin.Error, world)}}
	for rank := range world {
		u.s.members = append(u.s.members, Member{rank, 100 + rank, "host"})
	}
	u.s.contacts = make([]contact, world)
	for rank := range u.s.contacts {
		u.s.contacts[rank].process = identify(os.Getppid()) // which runs on
	}
	for rank, what := range knows {
		u.s.states[rank], u.s.reasons[rank] = what.state, what.err
	}
	u.root = newSuccessor(u.s, secret{1})
	t.Cleanup(func() {
		u.root.store.stop()
		u.root.store.done.Wait()
		u.calls.Wait()
	})
	return u
}

// takesIn lets a store's ranks in at once.
type takesIn struct{ *store }

func (d takesIn) awaits() msgKind                                 { return msgResume }
func (d takesIn) enroll(f *frameConn, m *message, inProcess bool) { d.takeIn(f, m, inProcess) }

// takesInFrom lets in the ranks of another process.
type takesInFrom struct{ takesIn }

func (d takesInFrom) enroll(f *frameConn, m *message, _ bool) { d.takeIn(f, m, false) }

// comes lets a process say through a door of the store that it is a rank.
func (u *understudy) comes(to door, hello *message) *frameConn {
	u.t.Helper()
	f, err := greet(connectTo(to, &u.calls), secret{1}, storeID{}, time.Now().Add(handshakeTimeout))
	require.NoError(u.t, err)
	u.t.Cleanup(func() { f.Close() })
	require.NoError(u.t, f.write(hello.frame()))
	return f
}

// hello returns the first message of a rank that knows as much as the rank with the store.
func (u *understudy) hello(rank int) *message {
	return &message{Kind: msgResume, Member: u.s.members[rank], World: len(u.s.members), Standings: u.s.standings()}
}

// arrive says messages as a rank that knows of the given deaths.
func (u *understudy) arrive(rank int, said ...*message) *frameConn {
	u.t.Helper()
	f := u.comes(takesIn{u.root.store}, u.hello(rank))
	u.expect(f, msgWelcome)
	for _, m := range said {
		if err := f.write(m.frame()); err != nil {
			u.t.Fatal(err)
		}
	}
	return f
}

// expect returns the next message that is no beat and no event.
func (u *understudy) expect(f *frameConn, want msgKind) *message {
	u.t.Helper()
	for {
		m, err := f.receive()
		require.NoError(u.t, err)
		if m.Kind == msgBeat || m.Kind == msgEvent {
			continue
		}
		require.Equal(u.t, want, m.Kind)
		return m
	}
}

// hears reads until a rank is told what has become of another.
func (u *understudy) hears(f *frameConn, rank, other int, state State, reason *plugin.Error) {
	u.t.Helper()
	require.NoError(u.t, f.limitReads(10*time.Second))
	for {
		m, err := f.receive()
		require.NoError(u.t, err, "rank %d", rank)
		if m.Kind == msgEvent && m.Rank == other {
			require.Equal(u.t, standing{state, reason}, standing{m.State, m.Err}, "rank %d", rank)
			return
		}
	}
}
