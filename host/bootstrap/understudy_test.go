package bootstrap

import (
	"sync"
	"testing"
	"time"

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
	u := &understudy{t: t, s: &Session{rank: 1, logger: quiet, heartbeat: time.Second, silence: 10 * time.Second,
		states: make([]State, world), reasons: make([]*plugin.Error, world)}}
	for rank := range world {
		u.s.members = append(u.s.members, Member{rank, 100 + rank, "host"})
	}
	u.s.contacts = make([]contact, world)
	for _, rank := range dead {
		u.s.states[rank], u.s.reasons[rank] = Dead, rankError(plugin.PeerDied, rank, "rank %d died", rank)
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

// arrive says messages as a rank that knows of the given deaths.
func (u *understudy) arrive(rank int, said ...*message) *frameConn {
	u.t.Helper()
	conn := connectTo(takesIn{u.root.store}, &u.calls)
	f, err := greet(conn, secret{1}, storeID{}, time.Now().Add(handshakeTimeout))
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { f.Close() })
	hello := &message{Kind: msgResume, Member: u.s.members[rank], World: len(u.s.members), Standings: u.s.standings()}
	if err := f.write(hello.frame()); err != nil {
		u.t.Fatal(err)
	}
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
		kind, body, err := f.read()
		if err != nil {
			u.t.Fatal(err)
		}
		m, err := decode(kind, body)
		if err != nil {
			u.t.Fatal(err)
		}
		if kind == msgBeat || kind == msgEvent {
			continue
		}
		if kind != want {
			u.t.Fatalf("message %d instead of %d", kind, want)
		}
		return m
	}
}
