package bootstrap

import (
	"os"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// resuming is the state of a store that takes over from a lost one, until
// every rank that is alive has come and said again what it had said before.
type resuming struct {
	from    string                // name of the lost store, for messages
	its     []int                 // ranks of the lost store's process
	awaited map[int]*processWatch // ranks that have not come
	said    map[int]bool          // ranks that have said everything again
	held    []heldMessage
	told    map[toldBy]*message // the latest news
	stop    func()              // the timer of limit
	limit   time.Duration
	late    bool // the time to come is over
}

// heldMessage is a repeated message. It waits for what the other ranks have received from the lost store.
type heldMessage struct {
	from *member
	msg  *message
}

// toldBy is a rank that has called Tell, and the group by its numbering.
type toldBy struct {
	from  *member
	group uint32
}

// history collects the results that the ranks of a group have received from a lost store.
type history struct {
	heard  map[int]uint64 // rank → number of the latest result it knows
	recent []recent       // results
	failed []failedAt     // collectives that have failed
}

// failedAt is a collective that has failed, as a rank knows.
type failedAt struct {
	rank int
	recent
}

// newSuccessor makes the store that the process of the session's rank runs
// instead of a lost one. It is running from the start; the ranks that are not
// known to be gone are given a while to come.
func newSuccessor(s *Session, key secret) *Root {
	st := newStore(key, s.logger)
	r := &Root{store: st}
	st.root = r
	st.phase, st.world, st.arrived = running, len(s.members), len(s.members)
	st.heartbeat, st.silence, st.job = s.heartbeat, s.silence, s.job
	st.self = s.members[s.rank]
	st.members = make([]*member, st.world)
	standings := s.standings()
	st.mu.Lock()
	defer st.mu.Unlock()
	for rank, who := range s.members {
		m := newMember(st, nil, &message{Member: who, Process: s.contacts[rank].process, Heartbeat: s.heartbeat,
			Silence: s.silence}, false)
		m.standby = s.contacts[rank].standby
		m.state, m.reason = standings[rank].state, standings[rank].err
		if m.state == Dead || m.state == Left {
			m.finish()
		}
		st.members[rank] = m
	}
	limit := s.replyTime()
	st.resuming = &resuming{from: s.storeProcess().String(), its: s.ofStore(), awaited: map[int]*processWatch{},
		said: map[int]bool{}, told: map[toldBy]*message{}, limit: limit}
	for rank, m := range st.members {
		if m.gone || rank == s.rank {
			continue
		}
		st.resuming.awaited[rank] = watchProcess(m.process, func() { st.suspectLate(rank, "its process has ended") })
	}
	st.resuming.stop = afterRunning(limit, st.resumeTimedOut)
	for _, m := range st.members { // the lost store may not have notified all ranks
		if m.state != Alive {
			st.tellState(m)
		}
	}
	return r
}

// resumeTimedOut gives up the ranks that have not come.
func (st *store) resumeTimedOut() {
	st.mu.Lock()
	if st.resuming != nil {
		st.resuming.late = true
	}
	st.mu.Unlock()
	for rank := range st.world {
		st.suspectLate(rank, "")
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.decide()
}

// suspectLate suspects a rank that has not come; why is "" if it is late.
func (st *store) suspectLate(rank int, why string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	m := st.members[rank]
	if st.resuming == nil || st.phase != running || m.conn != nil || m.gone {
		return
	}
	if why == "" {
		why = "it did not find the successor of " + st.resuming.from + " within " + st.resuming.limit.String()
	}
	m.suspicion = rankError(plugin.PeerDied, rank, "%v died: %s", m.who, why)
	m.finish()
	st.asked = 0
	st.decide()
}

// bury declares a rank dead. The caller holds mu.
func (st *store) bury(m *member, reason *plugin.Error) {
	// No warning: calls that need the rank return this as their error, and a program may just end without Close.
	st.logger.Info("rendezvous: rank lost", "rank", m.who.Rank, "reason", reason.Message)
	m.state = Dead
	m.finish()
	st.announce(m, reason)
}

// takeIn makes a member of a rank of the lost store that has proved the secret.
// It takes the connection over.
func (st *store) takeIn(f *frameConn, msg *message, inProcess bool) {
	if refusal := st.readmit(f, msg, inProcess); refusal != nil {
		turnAway(f, false, refusal)
	}
}

// readmit is takeIn but for the reply to a rank that is not to be taken in, which waits until the rank reads.
func (st *store) readmit(f *frameConn, msg *message, inProcess bool) (refusal *plugin.Error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.phase != running {
		f.Close()
		return nil
	}
	rank := msg.Member.Rank
	if msg.World != st.world || msg.Member.PID != st.members[rank].who.PID {
		return rankError(plugin.Mismatch, rank, "rank %d (pid %d) of world %d came to the successor of another job", rank,
			msg.Member.PID, msg.World)
	}
	m := st.members[rank]
	if m.conn != nil || m.gone {
		switch {
		case m.suspicion != nil:
			return m.suspicion
		case m.reason != nil:
			return m.reason
		}
		return rankError(plugin.Protocol, rank, "%v came to rank %d's store twice", m.who, st.self.Rank)
	}
	st.resuming.awaited[rank].stop()
	delete(st.resuming.awaited, rank)
	m.conn, m.inProcess, m.process = f, inProcess, msg.Process
	f.setSilence(st.silence)
	if f.limitReads(st.silenceOf(m)) != nil {
		m.process = processID{} // the connection is lost already, as the reader finds out
	}
	m.mu.Lock()
	m.queue = append([]frame{st.welcome()}, m.queue...)
	m.mu.Unlock()
	m.start()
	for other, s := range msg.Standings {
		st.learn(st.members[other], s)
	}
	st.notify()
	return nil
}

// turnAway replies to a rank that there is no place for it.
func turnAway(f *frameConn, retry bool, err *plugin.Error) {
	_ = f.write((&message{Kind: msgRefuse, Retry: retry, Err: err}).frame()) // to whom it does not matter it is lost
	f.Close()
}

// learn takes over what a rank knows of another. The caller holds mu.
func (st *store) learn(m *member, s standing) {
	if m.state != Alive || s.state == Alive {
		return
	}
	m.state = s.state
	if s.state == Dead { // it may have come before this was known here
		m.send((&message{Kind: msgRefuse, Err: s.err}).frame())
	}
	if s.state != GaveUp {
		m.finish()
	}
	st.announce(m, s.err)
}

// rejoinGroup enters m in a group that it was in at the lost store. The caller
// holds mu.
func (st *store) rejoinGroup(m *member, msg *message) error {
	if st.resuming == nil || st.resuming.said[m.who.Rank] {
		return plugin.Errorf(plugin.Protocol, "the rank sent an old group, and no store was lost")
	}
	if err := st.joinGroup(m, msg); err != nil {
		return err
	}
	g := m.groups[msg.Group]
	if g.history == nil {
		g.history = &history{heard: map[int]uint64{}}
	}
	g.history.heard[m.who.Rank] = msg.Seq
	g.seq = max(g.seq, msg.Seq)
	for _, r := range msg.Recent {
		if r.err != nil {
			g.history.failed = append(g.history.failed, failedAt{m.who.Rank, r})
		} else {
			g.history.recent = append(g.history.recent, r)
		}
	}
	if msg.Err != nil && (g.failed == nil || g.failed.Message != msg.Err.Message) {
		fr := (&message{Kind: msgEvent, Rank: m.who.Rank, State: m.state, Key: g.key, Err: msg.Err}).frame()
		for _, rank := range g.ranks {
			if other := st.members[rank]; other != m && !other.gone {
				other.send(fr)
			}
		}
		g.aborted = true
		g.fail(msg.Err)
	}
	return nil
}

// hold keeps a message that was repeated, or sent to a store that does not know yet whether it may continue, until all
// ranks have come. The caller holds mu.
func (st *store) hold(m *member, msg *message) error {
	if st.resuming == nil || (msg.Again && st.resuming.said[m.who.Rank]) || len(st.resuming.held) >= maxPending*st.world ||
		m.again+len(msg.Data) > maxHeld {
		return plugin.Errorf(plugin.Protocol, "the rank repeated message %d, and no store was lost", msg.Kind)
	}
	m.again += len(msg.Data) // of one succession, as a store takes over once
	st.resuming.held = append(st.resuming.held, heldMessage{m, msg})
	return nil
}

// resumed is called when m has said everything again. The caller holds mu.
func (st *store) resumed(m *member) error {
	if st.resuming == nil || st.resuming.said[m.who.Rank] {
		return plugin.Errorf(plugin.Protocol, "the rank ended its report, and no store was lost")
	}
	st.resuming.said[m.who.Rank] = true
	st.decide()
	return nil
}

// resume processes the held messages once every living rank has come: first the
// collectives, then those that would make them fail. The caller holds mu.
func (st *store) resume() {
	if st.resuming == nil {
		return
	}
	for rank, m := range st.members {
		if !m.gone && !st.resuming.said[rank] {
			return
		}
	}
	old := st.resuming
	st.endResuming()
	for g := range st.allGroups() {
		if g.history != nil {
			g.failAgain(old.held)
		}
	}
	for by, msg := range old.told {
		st.pass(by.from, msg)
	}
	for _, kind := range []msgKind{msgOp, msgCancel, msgUngroup} {
		for _, h := range old.held {
			if h.msg.Kind != kind || h.from.gone {
				continue
			}
			var err error
			switch kind {
			case msgOp:
				err = st.contributeAgain(h.from, h.msg)
			case msgCancel:
				err = st.cancel(h.from, h.msg)
			case msgUngroup:
				st.leaveGroup(h.from, h.msg.Group)
			}
			if err != nil {
				h.from.conn.Close() // its reader says that it is lost
			}
		}
	}
	for g := range st.allGroups() {
		g.history = nil
	}
}

// failAgain restores the collectives that have failed, for the ranks that have no result yet. A rank that has given one
// up and calls it again, as a held message says, gets the failure when that message is processed. The caller holds the
// store's mu.
func (g *storeGroup) failAgain(held []heldMessage) {
	calls := func(rank int, tag string) bool {
		return slices.ContainsFunc(held, func(h heldMessage) bool {
			return h.msg.Kind == msgOp && h.msg.Tag == tag && h.from.who.Rank == rank && h.from.groups[h.msg.Group] == g
		})
	}
	for _, f := range g.history.failed {
		if f.seq == 0 || g.succeededSince(f) {
			continue
		}
		c := g.pending[f.tag]
		if c == nil || c.seq < f.seq {
			c = g.begin(f.tag)
			c.err, c.seq = f.err, f.seq
		}
		if c.seq == f.seq {
			c.have[g.index[f.rank]] = true
		}
	}
	g.recount()
	for _, f := range g.history.failed {
		if f.seq > 0 || g.succeededSince(f) {
			continue
		}
		c := g.pending[f.tag]
		if c == nil {
			c = g.begin(f.tag)
		}
		me := g.index[f.rank]
		c.have[me] = true
		if c.err == nil {
			g.failOne(f.tag, c, f.err, me)
		}
		if !calls(f.rank, f.tag) {
			g.reply(f.rank, f.tag, c.seq, c.err)
		}
	}
	g.recount()
}

// succeededSince reports whether a collective with the tag of a failed one has had a result after that. The caller
// holds the store's mu.
func (g *storeGroup) succeededSince(f failedAt) bool {
	seq := f.seq
	if seq == 0 {
		seq = g.history.heard[f.rank]
	}
	return slices.ContainsFunc(g.history.recent, func(r recent) bool { return r.tag == f.tag && r.seq > seq })
}

// endResuming drops what only a store that takes over needs. The caller
// holds mu.
func (st *store) endResuming() {
	if st.resuming == nil {
		return
	}
	st.resuming.stop()
	for _, watch := range st.resuming.awaited {
		watch.stop()
	}
	st.resuming = nil
}

// contributeAgain takes a rank's part of a collective whose result the lost store has
// not sent to it. If the lost store has sent it to another rank, the collective was
// complete, and that is the result. The caller holds mu.
func (st *store) contributeAgain(m *member, msg *message) error {
	g := m.groups[msg.Group]
	if g == nil || g.history == nil { // made since
		return st.contribute(m, msg)
	}
	rank := m.who.Rank
	for _, r := range g.history.recent {
		if r.tag != msg.Tag || r.seq <= g.history.heard[rank] {
			continue
		}
		if r.lost {
			g.reply(rank, msg.Tag, 0, rankError(plugin.Aborted, st.self.Rank,
				"waiting for %s: the reply was lost with the job's store, and rank %d (pid %d) has not kept it",
				purposeOf(msg.Tag, g.key), st.self.Rank, os.Getpid()))
		} else {
			g.tell(rank, &message{Kind: msgResult, Tag: msg.Tag, Seq: r.seq, Data: r.data})
		}
		return nil
	}
	return st.contribute(m, msg)
}
