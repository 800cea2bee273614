package bootstrap

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// keeper is the door of a rank that runs the store, or would, and replies what a test says.
type keeper struct {
	secret
	reply func(f *frameConn, hello *message)
}

func (k keeper) key() secret                                   { return k.secret }
func (k keeper) awaits() msgKind                               { return msgResume }
func (k keeper) enroll(f *frameConn, hello *message, far bool) { k.reply(f, hello) }

// keeps lets a rank that a session knows reply what the test says.
func keeps(t *testing.T, s *Session, rank int, reply func(f *frameConn, hello *message)) {
	keepsAt(t, "127.0.0.1:0", s, rank, reply)
}

func keepsAt(t *testing.T, address string, s *Session, rank int, reply func(f *frameConn, hello *message)) {
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s.contacts[rank].standby = []place{{"tcp", l.Addr().String()}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f, d, hello, err := admit(conn, func(storeID) door { return keeper{s.secret.successor(s.job, rank), reply} })
			if err != nil {
				conn.Close()
				continue
			}
			d.enroll(f, hello, false)
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
}

// replies returns a keeper's replies, to a question and to a rank that would be taken in.
func replies(question, other *message) func(f *frameConn, hello *message) {
	return func(f *frameConn, hello *message) {
		reply := other
		if hello.Question {
			reply = question
		}
		if reply != nil {
			_ = f.write(reply.frame())
		}
		if reply == nil || reply.Kind != msgWelcome {
			f.Close()
		}
	}
}

// seeker returns the session of rank 1 of three, which has lost the store of rank 0 and can run one itself.
func seeker(t *testing.T) *Session { return seekerOf(t, 1, 3) }

func seekerOf(t *testing.T, rank, world int) *Session {
	s := bereaved(0)
	s.rank, s.members, s.contacts = rank, welcomeTo(world).Members, make([]contact, world)
	for len(s.states) < world {
		s.states, s.reasons = append(s.states, Alive), append(s.reasons, nil)
	}
	s.job[0], s.secret, s.closing = byte(time.Now().UnixNano()), secret{7}, make(chan struct{})
	h, _, err := listenOnStandby([]place{{"unix", "@x"}}, quiet)
	require.NoError(t, err)
	s.standby = newStandby(h, s.secret.successor(s.job, rank), rank, s.heartbeat, s.replyTime(), s.fate)
	t.Cleanup(func() {
		s.standby.release()
		close(s.closing)
		if s.root != nil {
			s.root.detach()
		}
	})
	return s
}

// A rank that would run the store asks the others before. It ends where it is given up, follows a store that there is,
// and runs one where the others have none, or none that may continue.
func TestRanksAskBeforeTheyRunTheStore(t *testing.T) {
	beat := &message{Kind: msgBeat}
	another := &message{Kind: msgRefuse, Retry: true, Err: rankError(plugin.Aborted, 2, "another")}
	gone := &message{Kind: msgRefuse, Err: rankError(plugin.PeerDied, 1, "rank 1 is given up")}
	for name, c := range map[string]struct {
		question, other *message
		hosts           bool
		dead            bool
	}{
		"there is no other store":               {beat, nil, true, false},
		"nobody replies":                        {nil, nil, true, false},
		"it is given up":                        {gone, nil, false, true},
		"another store takes it in":             {another, welcomeTo(3), false, false},
		"another store is not sure":             {another, another, true, false},
		"another store has given it up":         {another, gone, false, true},
		"the store of another has ended by now": {another, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := seeker(t)
			keeps(t, s, 2, replies(c.question, c.other))
			link, err := s.succeed()
			var refusal *refused
			if c.dead {
				require.ErrorAs(t, err, &refusal)
				require.Equal(t, gone.Err, refusal.reason)
			} else {
				require.NoError(t, err)
				require.NoError(t, link.Close())
			}
			require.Equal(t, c.hosts, s.root != nil)
			require.False(t, s.seeking, "it still seeks a store")
		})
	}
}

// A rank that others were sent to by one that follows another store is asked again, though it was not there before.
func TestRanksAreAskedAgain(t *testing.T) {
	s := bereaved(0)
	s.rank, s.contacts, s.closing = 3, append(s.contacts, contact{}), make(chan struct{})
	s.members, s.states, s.reasons = append(s.members, Member{3, 103, "host"}), append(s.states, Alive), append(s.reasons, nil)
	defer close(s.closing)
	asked := make(chan bool, 9)
	keeps(t, s, 1, func(f *frameConn, _ *message) {
		first := len(asked) == 0
		asked <- true
		if !first {
			_ = f.write(welcomeTo(4).frame())
			return
		}
		f.Close()
	})
	keeps(t, s, 2, replies(nil, &message{Kind: msgRefuse, Retry: true, Err: rankError(plugin.Aborted, 2, "another")}))
	link, err := s.succeed()
	require.NoError(t, err)
	require.NoError(t, link.Close())
	require.Len(t, asked, 2)
}

// The ranks of a host that nothing replies from, however many, do not end the search for a successor. An address of
// theirs that replies is tried.
func TestHostOfManyRanksThatIsSilent(t *testing.T) {
	t.Parallel()
	silent := place{"tcp", silentAddress(t)}
	for name, c := range map[string]struct {
		rank int // that seeks
		find func(s *Session)
	}{
		"no other rank is left": {10, nil},
		"one has another address": {10, func(s *Session) {
			keepsAt(t, "127.0.0.3:0", s, 9, replies(nil, welcomeTo(12)))
			s.contacts[9].standby = append([]place{silent}, s.contacts[9].standby...)
		}},
		"one is on another host": {11, func(s *Session) { keepsAt(t, "127.0.0.3:0", s, 10, replies(nil, welcomeTo(12))) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := seekerOf(t, c.rank, 12)
			for rank := 1; rank < 10; rank++ { // one more than the search would wait for
				s.contacts[rank].standby = []place{{"tcp", "127.0.0.3:1"}, silent} // the first is refused, as a loopback is
			}
			if c.find != nil {
				c.find(s)
			}
			link, err := s.succeed()
			require.NoError(t, err)
			require.NoError(t, link.Close())
			require.Equal(t, c.find == nil, s.root != nil)
		})
	}
}

// Where a rank says that there is another store, the ranks at addresses that were silent are asked again.
func TestSilentHostsAreAskedAgain(t *testing.T) {
	t.Parallel()
	s := seekerOf(t, 3, 4)
	s.contacts[1].standby = []place{{"tcp", silentAddress(t)}}
	keepsAt(t, "127.0.0.3:0", s, 2, func(f *frameConn, hello *message) {
		keepsAt(t, "127.0.0.1:0", s, 1, replies(nil, welcomeTo(4))) // meanwhile the session waits for this reply
		replies(nil, &message{Kind: msgRefuse, Retry: true, Err: rankError(plugin.Aborted, 2, "another")})(f, hello)
	})
	link, err := s.succeed()
	require.NoError(t, err)
	require.NoError(t, link.Close())
	require.Nil(t, s.root)
}

// Exchanges with a dead rank in them end if there is no other store for long, but for those of survivors.
func TestExchangesWithoutHope(t *testing.T) {
	s := bereaved(0)
	s.groups[1], s.groups[2] = &Group{id: 1, ranks: []int{1, 0}}, &Group{id: 2, ranks: []int{1, 2}}
	all := map[waitKey]*waiter{}
	for group := range uint32(4) { // 0 and 3 are closed
		for _, op := range []opKind{opGather, opFirst, opRoot, opSurvivors} {
			w := &waiter{reply: make(chan *message, 1), op: message{Group: group, Op: op}}
			all[waitKey{group, string(rune('a' + op))}] = w
			s.waiters[waitKey{group, string(rune('a' + op))}] = w
		}
	}
	s.failHopeless()
	for k, w := range all {
		hopeless := k.group == 1 && w.op.Op != opSurvivors
		require.Equal(t, hopeless, s.waiters[k] == nil, "%v", k)
		if hopeless {
			err := (<-w.reply).Err
			require.Equal(t, plugin.PeerDied, err.Code)
			require.Equal(t, 1, err.Rank, "rank 0 of the job has another number in the group")
			require.Contains(t, err.Message, s.reasons[0].Message)
		}
		require.Empty(t, w.reply)
	}
}

// Ranks whose store is lost end exchanges with the dead while they still wait for a successor that has stopped.
func TestExchangesEndBeforeTheSuccessorIsFound(t *testing.T) {
	t.Parallel()
	s, others := someElsewhere(t, 5, DefaultHeartbeat, 0, 1)
	others.stop(1)
	defer others.resume(1)
	others.kill(0)
	ranks := []int{2, 3, 4}
	errs := each(len(ranks), func(i int) error {
		err := s[ranks[i]].All().Barrier(short(t, 20*time.Second), "b")
		s[ranks[i]].mu.Lock()
		defer s[ranks[i]].mu.Unlock()
		if !s[ranks[i]].seeking {
			t.Errorf("rank %d has found a store: it was no test", ranks[i])
		}
		return err
	})
	for i, err := range errs {
		wants(t, ranks[i], err, plugin.PeerDied, "rank 0 (pid")
	}
}

// What a rank replies to one that asks whether it is still counted: the reason why it is not, from the store that
// counts; that there is another store; or that it knows nothing. One that is given up itself replies nothing.
func TestRepliesToRanksThatAsk(t *testing.T) {
	died := rankError(plugin.PeerDied, 2, "rank 2 died")
	for _, runs := range []string{"no store", "a store that takes over", "a store"} {
		for code := range 32 {
			bit := func(i int) bool { return code>>i&1 == 1 }
			deadHere, deadThere, seeking, later, over := bit(0), bit(1), bit(2), bit(3), bit(4) && runs == "no store"
			follows := later && !seeking
			want, wantStranger := nothingKnown, nothingKnown
			switch {
			case over:
				want, wantStranger = noReply, noReply
			case runs != "no store", follows:
				want, wantStranger = anotherStore, anotherStore
			}
			if (runs == "a store" && deadThere) || (runs == "no store" && follows && deadHere && !over) {
				want = givenUp
			}
			s := bereaved(0)
			if deadHere {
				s.states[2], s.reasons[2] = Dead, died
			}
			asked := &standby{secret: secret{1}, rank: 1, heartbeat: time.Second, replyTime: time.Second, fate: s.fate,
				seeking: seeking, over: over, changed: make(chan struct{})}
			if later {
				asked.epoch = 1
			}
			if runs != "no store" {
				st := newUnderstudyWith(t, 3, map[int]standing{0: {Left, nil}}).root.store
				st.mu.Lock()
				if deadThere {
					st.members[2].state, st.members[2].reason = Dead, died
				}
				if runs == "a store" {
					st.endResuming()
				}
				st.mu.Unlock()
				asked.store = st
			}
			what := fmt.Sprintf("it runs %s, dead here %v and there %v, seeking %v, another store since %v, over %v", runs, deadHere,
				deadThere, seeking, later, over)
			require.Equal(t, want, question(t, asked, 2), what)
			require.Equal(t, wantStranger, question(t, asked, 9), "a rank of a larger world: %s", what)
		}
	}
}

// A rank that has closed, or that the others go on without, takes no other rank in any more.
func TestRanksThatTakeNobodyIn(t *testing.T) {
	for name, end := range map[string]func(s *Session){
		"it has closed":  func(s *Session) { s.standby.release() },
		"it is given up": func(s *Session) { s.condemned(rankError(plugin.PeerDied, 1, "it was late"), true) },
	} {
		t.Run(name, func(t *testing.T) {
			s := seeker(t)
			s.ended, s.arrived = make(chan struct{}), make(chan struct{}, 1)
			require.Equal(t, nothingKnown, question(t, s.standby, 2))
			end(s)
			require.Equal(t, noReply, question(t, s.standby, 2))
			require.Nil(t, s.standby.connect())
		})
	}
}

// What a rank learns that asks whether it is still counted.
const (
	nothingKnown = "nothing is known"
	anotherStore = "there is another store"
	givenUp      = "it is given up"
	noReply      = "nothing comes"
)

// question asks a rank whether another is still counted.
func question(t *testing.T, s *standby, rank int) string {
	var calls sync.WaitGroup
	defer calls.Wait()
	f, err := greet(connectTo(s, &calls), s.secret, storeID{}, time.Now().Add(handshakeTimeout))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.limitReads(10*time.Second))
	require.NoError(t, f.write((&message{Kind: msgResume, Member: Member{rank, 100 + rank, "host"}, World: 10,
		Question: true, Standings: make([]standing, 10)}).frame()))
	kind, body, err := f.read()
	if err != nil {
		return noReply
	}
	m, err := decode(kind, body)
	require.NoError(t, err)
	switch {
	case kind == msgBeat:
		return nothingKnown
	case m.Retry:
		return anotherStore
	}
	require.Equal(t, "rank 2 died", m.Err.Message)
	return givenUp
}
