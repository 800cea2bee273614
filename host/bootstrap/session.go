package bootstrap

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// Session is one rank's membership of a job. Its methods may be called from
// any goroutine.
type Session struct {
	rank     int
	members  []Member
	contacts []contact
	job      nonce
	secret   secret
	timeout  time.Duration
	logger   *slog.Logger
	standby  *standby // nil if this process ran the store from the start, or cannot listen

	// the reader's
	root    *Root         // set if the store runs in this process
	epoch   uint32        // how many stores there have been before this one
	givenUp *plugin.Error // why the store, which is alive, is lost to this rank

	out  sync.Mutex                // held while something is noted and said, or everything is said again
	link atomic.Pointer[frameConn] // to the store; nothing is said on a lost one

	heartbeat, silence time.Duration

	exchanges atomic.Uint64 // collectives that this rank has begun

	failures chan Failure
	ended    chan struct{} // closed when the store is lost or the session closed
	closing  chan struct{} // closed by Close
	read     chan struct{} // closed when the reader has ended
	work     sync.WaitGroup
	close    sync.Once
	all      *Group

	mu      sync.Mutex
	store   Member        // where the store runs
	process processID     // in which process
	seeking bool          // a successor of the store
	found   time.Time     // when it was found; zero: the store is the first one
	end     *plugin.Error // why ended is closed
	closed  bool
	states  []State
	reasons []*plugin.Error // of the states that are failures
	pending []Failure
	changed chan struct{} // closed and replaced when a state changes
	arrived chan struct{} // capacity 1: pending is not empty
	nextID  uint32
	waiters map[waitKey]*waiter
	groups  map[uint32]*Group // open ones
	parted  []*Group          // closed ones, the latest last
	gaveUp  *plugin.Error     // by this rank
}

// newSession takes a welcomed connection over, and the hub, if there is one,
// for the case that this rank must run the store.
func newSession(conn *frameConn, welcome *message, rank int, root *Root, h *hub, s secret, timeout time.Duration,
	logger *slog.Logger) *Session {
	session := &Session{
		rank: rank, members: welcome.Members, contacts: welcome.Contacts, job: welcome.Job, store: welcome.Store,
		process: welcome.Process, root: root, secret: s, timeout: timeout, logger: logger,
		heartbeat: welcome.Heartbeat, silence: welcome.Silence,
		failures: make(chan Failure), ended: make(chan struct{}), closing: make(chan struct{}), read: make(chan struct{}),
		states: make([]State, len(welcome.Members)), reasons: make([]*plugin.Error, len(welcome.Members)),
		changed: make(chan struct{}), arrived: make(chan struct{}, 1), waiters: map[waitKey]*waiter{},
		groups: map[uint32]*Group{},
	}
	if h != nil {
		session.standby = newStandby(h, s.successor(session.job, rank), rank, session.heartbeat, session.replyTime(),
			session.fate)
	}
	conn.setSilence(session.silence)
	session.link.Store(conn)
	session.work.Add(3)
	go session.reader(conn)
	go session.beats()
	go session.deliver()
	ranks := make([]int, len(session.members))
	for i := range ranks {
		ranks[i] = i
	}
	session.all, _ = session.Group("", ranks) // fails only for a bad list
	return session
}

// Rank returns this rank's number.
func (s *Session) Rank() int { return s.rank }

// World returns the number of ranks.
func (s *Session) World() int { return len(s.members) }

// Job tells jobs apart: 32 hexadecimal digits, equal on all ranks.
func (s *Session) Job() string { return hex.EncodeToString(s.job[:]) }

// Members returns all ranks with their processes. The slice is the caller's.
func (s *Session) Members() []Member { return slices.Clone(s.members) }

// State returns the state of a rank, as far as it is known. It changes before the failure is
// delivered, and before a collective fails because of it.
func (s *Session) State(rank int) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[rank]
}

// fate returns the reason why a rank is dead; nil if it is not.
func (s *Session) fate(rank int) *plugin.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank >= len(s.states) || s.states[rank] != Dead {
		return nil
	}
	return s.reasons[rank]
}

// Exchanges returns the number of collectives that this rank has begun, in all groups. Each costs it one way to the
// store and back.
func (s *Session) Exchanges() uint64 { return s.exchanges.Load() }

// All returns the group of all ranks.
func (s *Session) All() *Group { return s.all }

// send says one message.
func (s *Session) send(m *message) {
	s.out.Lock()
	defer s.out.Unlock()
	s.say(m)
}

// say says one message, without waiting for a store that takes nothing; a failure to do so means that the store is
// lost. The caller holds out.
func (s *Session) say(m *message) (said <-chan struct{}) {
	said, _ = s.link.Load().say(m)
	return said
}

// lastWord is called without out: after these words, if there are any, the program may end, and they are to be on their
// way. It does not wait long for a store that takes nothing.
func lastWord(said <-chan struct{}) {
	if said == nil {
		return
	}
	timer := time.NewTimer(partingTime)
	defer timer.Stop()
	select {
	case <-said:
	case <-timer.C:
	}
}

// finish ends the session with a reason; the first one stays.
func (s *Session) finish(reason *plugin.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.end = reason
		close(s.ended)
	}
}

// reader handles what the store sends until there is no store any more.
func (s *Session) reader(link *frameConn) {
	defer s.work.Done()
	defer close(s.read)
	for {
		why, folded := s.listen(link)
		link.Close()
		if folded != nil {
			s.condemned(folded, false)
			return
		}
		reason, goOn := s.bereft(why)
		if goOn {
			var err error
			if link, err = s.succeed(); err == nil {
				continue
			}
			s.logger.Warn("rendezvous: the store has no successor for this rank", "rank", s.rank, "reason", err)
			if refusal, is := errors.AsType[*refused](err); is {
				s.condemned(refusal.reason, true)
				return
			}
			if why != "" {
				s.condemned(reason, false)
				return
			}
		}
		s.finish(reason)
		return
	}
}

// neverSilent is longer than any job.
const neverSilent = 100 * 365 * 24 * time.Hour

// condemned ends the session of a rank that may not continue, as the others have
// declared it dead or may be a job of their own. The watchers of this rank's failures
// are notified, so nothing that includes this rank continues.
func (s *Session) condemned(reason *plugin.Error, dead bool) {
	if !dead {
		if verdict, _ := s.canvass(context.Background()); verdict != nil {
			reason, dead = verdict, true
		}
	}
	me := s.members[s.rank]
	if dead {
		reason = rankError(plugin.PeerDied, s.rank, "%v was out of reach and the others go on without it: %s", me,
			reason.Message)
	}
	if s.standby != nil {
		s.standby.set(func() { s.standby.over = true }) // what this rank thinks of others no longer counts
	}
	s.mu.Lock()
	if !s.closed {
		s.push(Failure{Rank: s.rank, PID: me.PID, Host: me.Host, Err: reason})
	}
	s.mu.Unlock()
	s.finish(reason)
}

// bereft records that there is no store any more: it is lost, which why says, or has said goodbye. goOn is true if
// another store is to be found; else the session ends with the reason.
func (s *Session) bereft(why string) (reason *plugin.Error, goOn bool) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return s.closedReason(), false
	case why == "":
		return s.bye(), true
	}
	return s.lost(why), true
}

var failPing = failpoint.New("rendezvous.ping", "the job's store asks this rank whether it is there")

// listen handles what one store sends. It returns when the store says goodbye,
// with "", is lost, with what happened to it, or folds, with the reason.
func (s *Session) listen(link *frameConn) (why string, folded *plugin.Error) {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	// A store of this process is as alive as this rank: when both were stopped,
	// the clock says nothing.
	silence := s.silence
	if process == thisProcess() {
		silence = neverSilent
	}
	watch := watchProcess(process, link.expectEnd)
	defer watch.stop()
	for {
		err := link.limitPeer(silence)
		var m *message
		if err == nil {
			m, err = link.receive()
		}
		if err != nil {
			return link.lossReason(err, s.silence), nil
		}
		switch m.Kind {
		case msgResult:
			s.result(m)
		case msgEvent:
			s.event(m)
		case msgTell:
			s.hear(m)
		case msgBeat:
		case msgPing:
			failPing.Hit()
			_, _ = link.say(&message{Kind: msgPong, Seq: m.Seq}) // the next read tells of a failure
		case msgBye:
			return "", nil
		case msgRefuse:
			if m.Retry {
				s.givenUp = m.Err
				return m.Err.Message, nil
			}
			return "", m.Err
		default:
			return fmt.Sprintf("it sent message %d, which is not for a rank", m.Kind), nil
		}
	}
}

// result hands the outcome of a collective to the call that waits for it, and keeps it
// for a while, for ranks that miss it because the store is lost.
func (s *Session) result(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := waitKey{m.Group, m.Tag}
	if g := s.groups[m.Group]; g != nil && m.Seq > 0 && s.standby != nil {
		g.keep(recent{seq: m.Seq, tag: m.Tag, data: m.Data, err: m.Err})
	}
	if w := s.waiters[k]; w != nil {
		delete(s.waiters, k)
		w.reply <- m // capacity 1, one reply each
	}
}

// beats tells the store regularly that this rank is alive.
func (s *Session) beats() {
	defer s.work.Done()
	ticker := time.NewTicker(s.heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.send(&message{Kind: msgBeat})
		case <-s.ended:
			return
		case <-s.closing:
			return
		}
	}
}

// Close says goodbye. Collectives in progress on this rank fail with code
// Closed. In the process that runs the store, the last session to close waits
// a few seconds at most for the ranks of other processes to say goodbye, so
// that they see no false death.
func (s *Session) Close() error {
	s.close.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.link.Load().setSilence(partingTime)
		s.send(&message{Kind: msgBye}) // a successor that is being found gets it later
		timer := time.NewTimer(partingTime)
		defer timer.Stop()
		select {
		case <-s.read: // the store has said goodbye too, or is lost
		case <-timer.C:
		}
		s.finish(s.closedReason())
		close(s.closing)
		s.link.Load().Close()
		s.work.Wait()
		if s.standby != nil {
			s.standby.release()
		}
		if s.root != nil {
			s.root.detach()
		}
	})
	return nil
}
