package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Session is one rank's membership of a job. Its methods may be called from
// any goroutine.
type Session struct {
	rank    int
	members []Member
	store   Member
	process processID // the store's
	conn    *frameConn
	root    *Root // set if the store runs in this process
	secret  secret
	timeout time.Duration
	logger  *slog.Logger

	heartbeat, silence time.Duration

	failures chan Failure
	ended    chan struct{} // closed when the store is lost or the session closed
	closing  chan struct{} // closed by Close
	read     chan struct{} // closed when the reader has ended
	work     sync.WaitGroup
	close    sync.Once
	all      *Group

	mu      sync.Mutex
	end     *plugin.Error // why ended is closed
	closed  bool
	states  []State
	reasons []*plugin.Error // of the states that are failures
	pending []Failure
	changed chan struct{} // closed and replaced when a state changes
	arrived chan struct{} // capacity 1: pending is not empty
	nextID  uint32
	waiters map[waitKey]chan *message
}

type waitKey struct {
	group uint32
	tag   string
}

// newSession takes a welcomed connection over.
func newSession(conn *frameConn, welcome *message, rank int, root *Root, s secret, timeout time.Duration, logger *slog.Logger) *Session {
	session := &Session{
		rank: rank, members: welcome.Members, store: welcome.Store, process: welcome.Process, conn: conn, root: root, secret: s, timeout: timeout, logger: logger,
		heartbeat: welcome.Heartbeat, silence: welcome.Silence,
		failures: make(chan Failure), ended: make(chan struct{}), closing: make(chan struct{}), read: make(chan struct{}),
		states: make([]State, len(welcome.Members)), reasons: make([]*plugin.Error, len(welcome.Members)), changed: make(chan struct{}), arrived: make(chan struct{}, 1), waiters: map[waitKey]chan *message{},
	}
	conn.setSilence(session.silence)
	session.work.Add(3)
	go session.reader()
	go session.beats()
	go session.deliver()
	ranks := make([]int, len(session.members))
	for i := range ranks {
		ranks[i] = i
	}
	session.all, _ = session.Group("", ranks) // fails only for a bad list
	return session
}

// Rank is this rank's number.
func (s *Session) Rank() int { return s.rank }

// World is the number of ranks.
func (s *Session) World() int { return len(s.members) }

// Members are all ranks with their processes. The slice is the caller's.
func (s *Session) Members() []Member { return slices.Clone(s.members) }

// State is what is known of a rank. It changes before the failure is
// delivered, and before a collective fails because of it.
func (s *Session) State(rank int) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[rank]
}

// Timeout is the deadline of collectives whose context has none.
func (s *Session) Timeout() time.Duration { return s.timeout }

// All is the group of all ranks.
func (s *Session) All() *Group { return s.all }

// send writes one message; a failure to do so means that the store is lost.
func (s *Session) send(m *message) {
	if err := s.conn.write(m.frame()); err != nil && plugin.CodeOf(err) != plugin.InvalidArgument {
		s.conn.Close() // the reader finds out and reports
	}
}

// call runs one collective of a group: contribute, then wait for the answer.
func (s *Session) call(ctx context.Context, group uint32, key string, op opKind, root int, tag string, data []byte) ([]byte, error) {
	if len(tag) > maxTag {
		return nil, plugin.Errorf(plugin.InvalidArgument, "tag of %d characters, at most %d", len(tag), maxTag)
	}
	if len(data) > maxFrame/2 {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%q on rank %d: %d bytes, at most %d", tag, s.rank, len(data), maxFrame/2)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	began := time.Now()
	k := waitKey{group, tag}
	answer := make(chan *message, 1)
	s.mu.Lock()
	if s.end != nil {
		defer s.mu.Unlock()
		return nil, s.end
	}
	if s.waiters[k] != nil {
		defer s.mu.Unlock()
		return nil, plugin.Errorf(plugin.InvalidArgument, "%q in group %q is called twice at once on rank %d", tag, key, s.rank)
	}
	s.waiters[k] = answer
	s.mu.Unlock()
	s.send(&message{Kind: msgOp, Group: group, Op: op, Root: root, Tag: tag, Data: data})

	m := s.await(ctx, k, answer, key, began)
	if m.Err != nil {
		return nil, m.Err
	}
	return m.Data, nil
}

// await waits for the answer. When the context ends first, the store is asked
// to fail the collective for everybody, and its verdict is waited for, so that
// all ranks hear the same.
func (s *Session) await(ctx context.Context, k waitKey, answer chan *message, key string, began time.Time) *message {
	select {
	case m := <-answer:
		return m
	case <-s.ended:
		return s.afterEnd(k, answer)
	case <-ctx.Done():
	}
	err := rankError(plugin.Aborted, s.rank, "rank %d cancelled %q in group %q", s.rank, k.tag, key)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = rankError(plugin.Timeout, s.rank, "rank %d waited %v for %q in group %q", s.rank, time.Since(began).Round(time.Millisecond), k.tag, key)
	}
	s.send(&message{Kind: msgCancel, Group: k.group, Tag: k.tag, Err: err})
	timer := time.NewTimer(s.heartbeat + time.Second)
	defer timer.Stop()
	select {
	case m := <-answer:
		return m
	case <-s.ended:
		return s.afterEnd(k, answer)
	case <-timer.C:
		s.mu.Lock()
		delete(s.waiters, k)
		s.mu.Unlock()
		err.Message += "; the store does not answer either"
		return &message{Err: err}
	}
}

// afterEnd is the answer of a session that has ended, unless the collective's
// own came before.
func (s *Session) afterEnd(k waitKey, answer chan *message) *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiters, k)
	select {
	case m := <-answer:
		return m
	default:
		return &message{Err: s.end}
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

// reader handles what the store sends until the connection ends.
func (s *Session) reader() {
	defer s.work.Done()
	defer close(s.read)
	defer s.conn.Close()
	var exited atomic.Bool // the store's process has ended; what it sent last is being read
	watch := watchProcess(s.process, func() {
		exited.Store(true)
		_ = s.conn.SetReadDeadline(time.Now().Add(lastWords)) // fails if the connection is closed, which is the aim
	})
	defer watch.stop()
	for {
		var m *message
		var err error
		if !exited.Load() {
			err = s.conn.SetReadDeadline(time.Now().Add(s.silence))
			if exited.Load() { // since the question above
				err = s.conn.SetReadDeadline(time.Now().Add(lastWords))
			}
		}
		if err == nil {
			var kind msgKind
			var body []byte
			if kind, body, err = s.conn.read(); err == nil {
				m, err = decode(kind, body)
			}
		}
		if err != nil {
			why := lossReason(err, s.silence)
			if exited.Load() {
				why = "its process has ended"
			}
			s.lost(why)
			return
		}
		switch m.Kind {
		case msgResult:
			s.mu.Lock()
			k := waitKey{m.Group, m.Tag}
			if answer := s.waiters[k]; answer != nil {
				delete(s.waiters, k)
				answer <- m // capacity 1, one answer each
			}
			s.mu.Unlock()
		case msgEvent:
			s.event(m)
		case msgBeat:
		case msgBye:
			s.finish(rankError(plugin.Closed, s.storeRank(), "%s has ended the session", s.storeName()))
			return
		default:
			s.lost(fmt.Sprintf("it sent message %d, which is not for a rank", m.Kind))
			return
		}
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
		s.conn.setSilence(partingTime)
		s.send(&message{Kind: msgBye})
		timer := time.NewTimer(partingTime)
		defer timer.Stop()
		select {
		case <-s.read: // the store has said goodbye too, or is lost
		case <-timer.C:
		}
		s.finish(rankError(plugin.Closed, s.rank, "the session of rank %d is closed", s.rank))
		close(s.closing)
		s.conn.Close()
		s.work.Wait()
		if s.root != nil {
			s.root.detach()
		}
	})
	return nil
}
