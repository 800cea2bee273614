package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// maxBacklog is the most bytes that may wait for a rank that does not read.
const maxBacklog = 64 << 20

// partingTime bounds what a store waits for a rank to close its end.
const partingTime = time.Second

// member is one rank's connection at the store.
type member struct {
	store     *store
	who       Member
	conn      *frameConn
	process   processID
	parent    processID // of its process
	standby   []place   // where it would run the store
	inProcess bool
	heartbeat time.Duration // interval of signs of life to it
	silence   time.Duration // what it may be silent for while others are waited for

	// guarded by store.mu
	state  State
	reason *plugin.Error // why state is neither Alive nor Left
	gone   bool          // the connection has ended or is ending
	// suspicion is the reason why the rank counts as lost, until the store has decided that the others continue without it
	suspicion *plugin.Error
	round     uint64    // the latest that the rank has replied to
	held      int       // bytes of its data in collectives that are not complete
	again     int       // bytes that it has said again
	heard     time.Time // when it said something last
	groups    map[uint32]*storeGroup

	mu       sync.Mutex // guards the queue
	queue    []frame
	backlog  int
	finished bool // nothing more is sent after the queue
	overflow bool
	wake     chan struct{}
	read     chan struct{} // closed when the reader has ended
}

func newMember(st *store, f *frameConn, hello *message, inProcess bool) *member {
	return &member{
		store: st, heartbeat: hello.Heartbeat, silence: hello.Silence, who: hello.Member, process: hello.Process,
		parent: hello.Parent, conn: f, inProcess: inProcess, groups: map[uint32]*storeGroup{}, heard: time.Now(),
		wake: make(chan struct{}, 1), read: make(chan struct{}),
	}
}

func (m *member) start() {
	m.store.done.Add(2)
	go m.reader()
	go m.writer()
}

// send queues a frame. It never blocks.
func (m *member) send(fr frame) {
	m.mu.Lock()
	switch {
	case m.finished:
	case m.backlog+fr.size() > maxBacklog:
		m.overflow, m.finished, m.queue = true, true, nil
	default:
		m.queue = append(m.queue, fr)
		m.backlog += fr.size()
	}
	m.mu.Unlock()
	m.poke()
}

// finish closes the connection once the queue is empty.
func (m *member) finish() {
	m.gone = true
	m.mu.Lock()
	m.finished = true
	m.mu.Unlock()
	m.poke()
}

func (m *member) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// writer sends what is queued, and a beat when there was nothing for a while.
func (m *member) writer() {
	defer m.store.done.Done()
	defer m.conn.Close()
	var beat *time.Timer
	var tick <-chan time.Time
	defer func() {
		if beat != nil {
			beat.Stop()
		}
	}()
	for {
		m.mu.Lock()
		queue, finished := m.queue, m.finished
		m.queue, m.backlog = nil, 0
		m.mu.Unlock()
		for _, fr := range queue {
			m.waitFor(fr)
			if err := m.conn.write(fr); err != nil {
				// The reader reports the loss. Where the rank has closed its end, what it said before, as a goodbye, may
				// still be to read, and its end comes behind that.
				if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
					m.conn.Close()
				}
				<-m.read
				return
			}
			if fr.sent != nil {
				fr.sent()
			}
			// Each is sent first, whether others are waited for or not.
			if (fr.kind == msgAdmit || fr.kind == msgWelcome) && beat == nil {
				beat = time.NewTimer(m.heartbeat)
				tick = beat.C
			}
		}
		if finished {
			m.part()
			return
		}
		if beat != nil {
			beat.Reset(m.heartbeat)
		}
		select {
		case <-m.wake:
		case <-tick:
			m.send(frame{kind: msgBeat})
		case <-m.read:
			return
		}
	}
}

// part ends the connection so that what was sent last still arrives: closing a socket with unread bytes would reset it,
// so the reader reads until the rank closes its end.
func (m *member) part() {
	m.mu.Lock()
	overflow := m.overflow
	m.mu.Unlock()
	if overflow {
		return
	}
	half, ok := m.conn.Conn.(interface{ CloseWrite() error })
	if !ok {
		return // a pipe of this process: what was written has been read
	}
	if half.CloseWrite() != nil {
		return
	}
	timer := time.NewTimer(partingTime)
	defer timer.Stop()
	select {
	case <-m.read:
	case <-timer.C:
	}
}

// reader handles what the rank sends until the connection ends.
func (m *member) reader() {
	defer m.store.done.Done()
	defer close(m.read)
	watch := watchProcess(m.process, m.conn.expectEnd)
	defer watch.stop()
	for {
		msg, err := m.conn.receive()
		if err == nil {
			err = m.store.handle(m, msg)
		}
		if err != nil {
			m.store.lost(m, err)
			m.drain(err)
			return
		}
	}
}

// drain swallows what a rank sends after its part has ended, until it closes.
func (m *member) drain(err error) {
	silent := errors.Is(err, os.ErrDeadlineExceeded) && !m.conn.exited.Load()
	if err != errParted && !silent {
		m.conn.Close()
		return
	}
	if m.conn.limitReads(partingTime) == nil {
		_, _ = io.Copy(io.Discard, m.conn) // ends at the limit or when the rank closes
	}
	if silent {
		m.conn.Close() // the writer may wait for it too
	}
}

// errParted ends a reader whose member has been sent goodbye.
var errParted = plugin.Errorf(plugin.Closed, "the rank has left")

// lost is called when a connection has ended, for whatever reason.
func (st *store) lost(m *member, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	wasGone := m.gone
	m.mu.Lock()
	if m.overflow {
		err = plugin.Errorf(plugin.Protocol, "it does not read the messages that it is sent")
	}
	m.mu.Unlock()
	why := m.conn.lossReason(err, st.silenceOf(m))
	reason := rankError(plugin.PeerDied, m.who.Rank, "%v died: %s%s", m.who, why, st.afterPause())
	// It may have been stopped, and must not take this process for dead.
	if errors.Is(err, os.ErrDeadlineExceeded) && !m.conn.exited.Load() {
		m.send((&message{Kind: msgRefuse, Retry: st.phase == running, Err: reason}).frame())
	}
	m.finish()
	if wasGone {
		st.settle()
		return
	}
	if m.state == GaveUp {
		st.retire(m)
		return
	}
	if st.phase == gathering {
		m.state = Dead
		st.failJoin(reason)
		return
	}
	if st.phase != running {
		return
	}
	m.suspicion, st.asked = reason, 0
	st.decide()
}

// runs notes that this process runs. The caller holds mu.
func (st *store) runs() {
	now := time.Now()
	if held := now.Sub(st.ran); !st.ran.IsZero() && held > st.silence {
		st.held, st.goes = held, now
	}
	st.ran = now
}

// afterPause says, of what happens soon after a time for which this process did not run, that it was so: a rank may
// have ended because it missed the store. The caller holds mu.
func (st *store) afterPause() string {
	if here, _ := st.present(); here > 0 { // else none beats
		st.runs()
	}
	if st.held == 0 || time.Since(st.goes) > st.silence {
		return ""
	}
	return fmt.Sprintf("; %v, which runs the job's store, was stopped or did not run for %v before that, so that other "+
		"ranks may have given it up", st.self, st.held.Round(100*time.Millisecond))
}

// silenceOf returns the longest time that a rank may be silent.
func (st *store) silenceOf(m *member) time.Duration {
	switch {
	case m.inProcess:
		return neverSilent
	case st.phase == gathering:
		return m.silence
	}
	return st.silence
}

// announce tells every rank what became of m and fails the collectives it was
// part of. The caller holds mu.
func (st *store) announce(m *member, reason *plugin.Error) {
	m.reason = reason
	st.tellState(m)
	reason = endOf(m.who, reason)
	for g := range st.allGroups() {
		if _, ok := g.index[m.who.Rank]; ok {
			g.fail(numbered(reason, g.ranks, g.key))
		}
	}
	if m.gone {
		st.retire(m)
	}
}

// tellState tells the others what has become of m. The caller holds mu.
func (st *store) tellState(m *member) {
	tellAll((&message{Kind: msgEvent, Rank: m.who.Rank, State: m.state, Err: m.reason}).frame(),
		slices.DeleteFunc(slices.Clone(st.members), func(other *member) bool { return other == m }))
}

// ownLast is the longest time that ranks of the store's process wait until the others have been sent a frame.
const ownLast = 100 * time.Millisecond

// tellAll sends a frame to the ranks that are there, and to those of this process last: a program that ends as soon as
// it has the frame ends the store too, and the others would see only that end. The caller holds the store's mu.
func tellAll(fr frame, ranks []*member) {
	var left atomic.Int32
	told := make(chan struct{})
	ranks = slices.DeleteFunc(ranks, func(m *member) bool { return m.gone })
	for _, m := range ranks {
		if !m.inProcess {
			left.Add(1)
		}
	}
	own := fr
	if left.Load() > 0 {
		own.after, own.by = told, time.Now().Add(ownLast)
	}
	fr.sent = func() {
		if left.Add(-1) == 0 {
			close(told)
		}
	}
	for _, m := range ranks {
		if m.inProcess {
			m.send(own)
		} else {
			m.send(fr)
		}
	}
}

var failTell = failpoint.New("rendezvous.tell",
	"the job's store is about to tell a rank of another process what became of a rank")

// waitFor waits until a frame may be written.
func (m *member) waitFor(fr frame) {
	if fr.sent != nil {
		failTell.Hit()
	}
	if fr.after == nil {
		return
	}
	timer := time.NewTimer(time.Until(fr.by))
	defer timer.Stop()
	select {
	case <-fr.after:
	case <-timer.C:
	}
}

// retire forgets what a rank whose connection has ended held. The caller holds
// mu.
func (st *store) retire(m *member) {
	for id := range m.groups {
		st.leaveGroup(m, id)
	}
	for _, g := range slices.Clone(st.empty) {
		if !g.awaits() {
			st.forget(g)
		}
	}
	st.settle()
}

// handle does what a member asks. An error ends its connection.
func (st *store) handle(m *member, msg *message) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	m.heard = time.Now()
	if m.inProcess && st.phase == running {
		st.runs()
	}
	if m.gone {
		return errParted
	}
	if st.phase == running || st.phase == gathering {
		if err := m.conn.limitPeer(st.silenceOf(m)); err != nil {
			return err
		}
	}
	if st.phase != running && msg.Kind != msgBeat && msg.Kind != msgFail {
		return plugin.Errorf(plugin.Protocol, "message %d before all ranks have joined", msg.Kind)
	}
	if msg.Again || (st.resuming != nil && (msg.Kind == msgOp || msg.Kind == msgCancel || msg.Kind == msgUngroup)) {
		return st.hold(m, msg)
	}
	switch msg.Kind {
	case msgBeat:
		return nil
	case msgBye:
		m.send((&message{Kind: msgBye}).frame())
		m.finish()
		if m.state == GaveUp { // all ranks know
			st.retire(m)
			return nil
		}
		m.state = Left
		st.announce(m, nil)
		return nil
	case msgPong:
		st.pong(m, msg.Seq)
		return nil
	case msgGroup:
		return st.joinGroup(m, msg)
	case msgUngroup:
		st.leaveGroup(m, msg.Group)
		return nil
	case msgOp:
		return st.contribute(m, msg)
	case msgCancel:
		return st.cancel(m, msg)
	case msgRegroup:
		return st.rejoinGroup(m, msg)
	case msgResumed:
		return st.resumed(m)
	case msgFail:
		if st.phase == running {
			return st.giveUp(m, msg)
		}
		st.failJoin(msg.Err) // it waits for the other ranks no longer
		return errParted
	case msgTell:
		st.pass(m, msg)
		return nil
	}
	return plugin.Errorf(plugin.Protocol, "message %d is not for the store", msg.Kind)
}

// waits counts the collectives that a rank has come to and that are still there. Where all ranks have fewer than one
// may have it does not look. The caller holds the store's mu.
func (m *member) waits(st *store) (n int) {
	if st.open < maxWaiting {
		return 0
	}
	for _, g := range m.groups {
		for _, c := range g.pending {
			if c.have[g.index[m.who.Rank]] {
				n++
			}
		}
	}
	return n
}
