package bootstrap

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// heir is the door of a store that takes over, and passes on who comes.
type heir struct{ came chan arrival }

// arrival is a rank that has come, and what it said first.
type arrival struct {
	*frameConn
	hello *message
}

func (h heir) key() secret                                      { return secret{1} }
func (h heir) awaits() msgKind                                  { return msgResume }
func (h heir) enroll(f *frameConn, hello *message, inside bool) { h.came <- arrival{f, hello} }

// bereaved returns the session of rank 1 of three, which has had some stores and has lost the last of them.
func bereaved(stores uint32) *Session {
	s := &Session{rank: 1, epoch: stores, logger: quiet, heartbeat: 20 * time.Millisecond, silence: time.Second,
		states: []State{Dead, Alive, Alive}, reasons: []*plugin.Error{rankError(plugin.PeerDied, 0, "rank 0 died"), nil, nil},
		members: []Member{{0, 100, "host"}, {1, 101, "host"}, {2, 102, "host"}}, contacts: make([]contact, 3),
		waiters: map[waitKey]*waiter{}, groups: map[uint32]*Group{}, standby: &standby{changed: make(chan struct{})}}
	s.standby.epoch, s.standby.seeking = stores, true
	return s
}

// resumes lets a rank come to a store, which does what the test says.
func resumes(t *testing.T, s *Session, store func(arrival)) (*frameConn, error) {
	t.Helper()
	h, calls := heir{make(chan arrival, 1)}, sync.WaitGroup{}
	conn := connectTo(h, &calls)
	calls.Go(func() {
		a := <-h.came
		require.NoError(t, a.limitReads(10*time.Second))
		store(a)
	})
	f, err := s.resumeAt(t.Context(), conn, secret{1})
	if err != nil {
		_, closed := conn.Write([]byte("x"))
		require.ErrorIs(t, closed, io.ErrClosedPipe, "the connection stays open")
	}
	calls.Wait()
	return f, err
}

// welcomeTo is a store's welcome to so many ranks, from process 77.
func welcomeTo(ranks int) *message {
	m := &message{Kind: msgWelcome, Heartbeat: 1, Silence: 2, Store: Member{2, 102, "host"},
		Process: processID{boot: "b", pid: 77, start: "1"}}
	for rank := range ranks {
		m.Members = append(m.Members, Member{rank, 100 + rank, "host"})
		m.Contacts = append(m.Contacts, contact{standby: []place{}})
	}
	return m
}

// A rank that comes to the successor of its store says which ranks are gone, that it gave up, and how many stores it
// has had. Then it says again what the lost store knew of it, each thing behind those that it needs.
func TestWhatARankSaysAgain(t *testing.T) {
	failure := rankError(plugin.Timeout, 0, "rank 0 waited")
	ended := []recent{{seq: 6, tag: "x", data: []byte("result")}}
	failures := []recent{{seq: 5, tag: "y", data: []byte{}, err: failure}}
	told := func(id uint32) *message { return &message{Kind: msgTell, Group: id, Data: []byte("news")} }
	regroup := func(id uint32) *message {
		return &message{Kind: msgRegroup, Group: id, Key: "g", Ranks: []int{2, 1}, Recent: []recent{}}
	}
	full := &message{Kind: msgRegroup, Group: 2, Key: "g", Ranks: []int{2, 1}, Err: failure, Seq: 6,
		Recent: append(append([]recent{}, ended...), failures...)}
	op := message{Kind: msgOp, Group: 2, Op: opGather, Tag: "x", Data: []byte("mine")}
	again := op
	again.Again = true
	resumed := &message{Kind: msgResumed}
	for name, c := range map[string]struct {
		before func(s *Session)
		want   []*message
	}{
		"in two groups": {func(s *Session) {
			s.groups[2] = &Group{id: 2, key: "g", ranks: []int{2, 1}, failed: failure, heard: 6, recent: ended,
				failures: failures, tells: told(2)}
			s.groups[0] = &Group{id: 0, key: "g", ranks: []int{2, 1}}
		}, []*message{regroup(0), full, told(2), resumed}},
		"it waits": {func(s *Session) { s.waiters[waitKey{2, "x"}] = &waiter{op: op} }, []*message{&again, resumed}},
		"it has given an exchange up": {func(s *Session) { s.waiters[waitKey{2, "x"}] = &waiter{op: op, cancel: failure} },
			[]*message{&again, {Kind: msgCancel, Group: 2, Tag: "x", Err: failure, Again: true}, resumed}},
		"it has closed a group while it waits in another": {func(s *Session) {
			s.parted = []*Group{{id: 1, key: "g", ranks: []int{2, 1}, tells: told(1)}}
			s.waiters[waitKey{2, "x"}] = &waiter{op: op}
		}, []*message{regroup(1), told(1), &again, {Kind: msgUngroup, Group: 1, Again: true}, resumed}},
		"it has given up":           {func(s *Session) { s.gaveUp = failure }, []*message{resumed}},
		"it has closed its session": {func(s *Session) { s.closed = true }, []*message{resumed, {Kind: msgBye}}},
		"it has nothing to say":     {func(s *Session) {}, []*message{resumed}},
	} {
		t.Run(name, func(t *testing.T) {
			s := bereaved(4)
			c.before(s)
			f, err := resumes(t, s, func(a arrival) {
				want := &message{Kind: msgResume, Member: s.members[1], World: 3, Epoch: 4, Process: thisProcess(),
					Standings: []standing{{Dead, s.reasons[0]}, {}, {}}}
				if s.gaveUp != nil {
					want.Standings[1] = standing{GaveUp, failure}
				}
				require.Equal(t, want, a.hello)
				require.NoError(t, a.write(frame{kind: msgBeat}))
				require.NoError(t, a.write(welcomeTo(3).frame()))
				for _, want := range c.want {
					got, err := a.receive()
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
			})
			require.NoError(t, err)
			require.Same(t, f, s.link.Load())
			require.Equal(t, []any{uint32(5), uint32(5), false}, []any{s.epoch, s.standby.epoch, s.standby.seeking})
			require.Equal(t, []any{welcomeTo(3).Store, welcomeTo(3).Process}, []any{s.store, s.process})
			require.NoError(t, f.Close())
		})
	}
}

// A rank that is not taken in keeps what it knows of its stores, and nothing of the connection.
func TestRanksThatAreNotTakenIn(t *testing.T) {
	gone := rankError(plugin.PeerDied, 1, "rank 1 died")
	refusal := func(t *testing.T, err error, want refused) {
		var r *refused
		require.ErrorAs(t, err, &r)
		require.Equal(t, want, *r)
	}
	for name, c := range map[string]struct {
		reply *message
		check func(t *testing.T, err error)
	}{
		"the welcome is to another world": {welcomeTo(2), func(t *testing.T, err error) {
			require.ErrorContains(t, err, "a welcome is to 2 ranks, want 3")
		}},
		"it is given up": {&message{Kind: msgRefuse, Err: gone}, func(t *testing.T, err error) {
			refusal(t, err, refused{gone, false})
		}},
		"it is to ask another": {&message{Kind: msgRefuse, Retry: true, Err: gone}, func(t *testing.T, err error) {
			refusal(t, err, refused{gone, true})
		}},
		"another message": {&message{Kind: msgPing, Seq: 1}, func(t *testing.T, err error) {
			require.ErrorIs(t, err, plugin.Protocol)
			require.ErrorContains(t, err, "want a welcome")
		}},
		"silence": {nil, func(t *testing.T, err error) { require.ErrorIs(t, err, os.ErrDeadlineExceeded) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bereaved(4)
			_, err := resumes(t, s, func(a arrival) {
				if c.reply != nil {
					require.NoError(t, a.write(c.reply.frame()))
				}
				_, _, err := a.read() // until the rank closes
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed), "%v", err)
			})
			c.check(t, err)
			require.Equal(t, []any{uint32(4), uint32(4), true}, []any{s.epoch, s.standby.epoch, s.standby.seeking})
			require.Nil(t, s.link.Load())
		})
	}
}
