package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

type phase uint8

const (
	gathering phase = iota // ranks arrive
	running                // all ranks have arrived
	failed                 // joining failed; newcomers get the reason
	stopped                // nothing is served any more
)

// store is the server of one session; it decides which ranks are alive and what was
// agreed. mu guards everything below it; nothing blocks while it is held, because frames
// to a rank go through that rank's queue.
type store struct {
	secret secret
	name   storeID // of its meeting place, whatever the secret; zero: it has none
	logger *slog.Logger
	self   Member
	root   *Root
	done   sync.WaitGroup // goroutines of members

	mu       sync.Mutex
	phase    phase
	world    int
	first    Member // whose world counts when ranks disagree
	members  []*member
	arrived  int
	failure  *plugin.Error // why joining failed
	deaf     bool          // its listener accepts nothing, so that no other process hears of failure
	deadline time.Time
	timer    *time.Timer
	groups   map[string][]*storeGroup
	open     int           // collectives that are pending in them
	empty    []*storeGroup // those that no rank is in and that some may still join, the latest last
	changed  chan struct{} // closed and replaced when a rank's state or the phase changes
	onStop   []func()
	job      nonce     // number among the jobs with this secret
	resuming *resuming // nil, except while the ranks of a lost store come over
	proofBy  time.Time // when the store folds without proof that lost ranks have ended; zero: it may continue
	round    uint64    // of questions to the ranks whether they are here
	asked    uint64    // the round whose replies decide about lost ranks; 0: none is asked
	stranger string    // where a rank that cannot join came from, and what it differs in; "": none did
	clashes            // with other jobs at its meeting place

	ran  time.Time     // when a rank of this process, which beats, was heard last
	held time.Duration // the latest time for which this process did not run, if longer than a rank may be silent
	goes time.Time     // when it went on

	heartbeat, silence time.Duration
}

func newStore(s secret, logger *slog.Logger) *store {
	return &store{
		job: newNonce(), secret: s, logger: logger, self: ofThisProcess(-1),
		clashes: clashes{parent: identify(os.Getppid())},
		groups:  map[string][]*storeGroup{}, changed: make(chan struct{}),
	}
}

func (st *store) gathering() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.phase == gathering
}

// notify wakes the goroutines that wait for changed. The caller holds mu.
func (st *store) notify() {
	close(st.changed)
	st.changed = make(chan struct{})
}

// enroll makes a member of a newcomer that has proved the secret. It takes
// the connection over.
func (st *store) enroll(f *frameConn, hello *message, inProcess bool) {
	m := newMember(st, f, hello, inProcess)
	m.standby = hello.Standby
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.phase == stopped { // the next store of the job may be about to open
		st.done.Add(1)
		go func() {
			defer st.done.Done()
			f.setSilence(partingTime)
			turnAway(f, true, rankError(plugin.Closed, hello.Member.Rank, "the store has just ended"))
		}()
		return
	}
	if retry, err := st.refusalOf(hello); err != nil {
		m.send((&message{Kind: msgRefuse, Retry: retry, Err: err}).frame())
		m.finish()
		m.start()
	} else {
		st.add(m, hello)
	}
	st.notify()
}

// refusalOf returns the reason why a newcomer is not to be admitted, which may fail joining for all ranks; nil admits
// it. With retry it may come again. The caller holds mu.
func (st *store) refusalOf(hello *message) (retry bool, err *plugin.Error) {
	rank := hello.Member.Rank
	switch {
	case hello.Rival:
		return st.challenged(hello)
	case st.ofAnother(hello):
		return st.mayRetry(), st.clash
	case st.phase == running:
		return true, rankError(plugin.Mismatch, rank, "%v came to a job whose %d ranks are complete", hello.Member, st.world)
	case st.phase == failed:
		st.arrived++ // linger waits until all have received the failure
		return false, st.failure
	case ofLauncher(hello) && st.world == 0: // a rank that comes says how many there are
		return true, rankError(plugin.Closed, rank, "no rank has joined yet")
	case ofLauncher(hello) && rank >= st.world: // the program makes a smaller job of its ranks
		return false, hello.Err
	case st.world == 0:
		st.world, st.first = hello.World, hello.Member
		st.members = make([]*member, st.world)
	case st.world != hello.World && !ofLauncher(hello): // which counts the program's
		err = rankError(plugin.Mismatch, rank, "ranks disagree about the world size: %v says %d, %v says %d%s", st.first,
			st.world, hello.Member, hello.World, st.ifTwoJobs())
		st.contradicted(err)
		return false, err
	}
	if other := st.members[rank]; other != nil {
		if hello.Err != nil {
			return false, hello.Err // what became of it its connection tells
		}
		err = rankError(plugin.Mismatch, rank, "rank %d joined twice: as pid %d on host %s and as pid %d on host %s%s", rank,
			other.who.PID, other.who.Host, hello.Member.PID, hello.Member.Host, st.ifTwoJobs())
		if !st.claimed(other, hello, err) {
			return st.mayRetry(), err
		}
	}
	if hello.Err != nil {
		st.arrived++
		st.failJoin(hello.Err)
	}
	return false, hello.Err
}

// add makes a newcomer one of the ranks. The caller holds mu.
func (st *store) add(m *member, hello *message) {
	st.members[m.who.Rank] = m
	st.arrived++
	if m.who.Rank == 0 || st.heartbeat == 0 {
		st.heartbeat, st.silence = hello.Heartbeat, hello.Silence
	}
	if m.inProcess && (st.self.Rank < 0 || m.who.Rank < st.self.Rank) {
		st.self.Rank = m.who.Rank
	}
	m.send((&message{Kind: msgAdmit, Store: st.self, Process: thisProcess()}).frame())
	m.conn.resendWithin(hello.Silence)
	if !m.inProcess && m.conn.limitReads(hello.Silence) != nil {
		m.process = processID{} // the connection is lost already, as the reader finds out
	}
	m.start()
	switch {
	case st.arrived == st.world && st.mayBeMixed():
		st.awaitClaims()
	case st.arrived == st.world:
		st.begin()
	default:
		st.expect(time.Now().Add(hello.Left))
	}
}

// expect makes joining fail at the given time, unless it already fails
// earlier: the rank with the shortest timeout decides for all. The caller holds mu.
func (st *store) expect(deadline time.Time) {
	if !st.deadline.IsZero() && !deadline.Before(st.deadline) {
		return
	}
	st.deadline = deadline
	if st.timer != nil {
		st.timer.Stop()
	} else {
		st.remind(patience)
	}
	began := time.Now()
	st.timer = time.AfterFunc(time.Until(deadline), func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.phase == gathering && st.arrived < st.world {
			missing, list := st.missing()
			st.failJoin(rankError(plugin.Timeout, missing[0], "%d of %d ranks have not joined within %v: %s%s",
				len(missing), st.world, spent(time.Since(began)), list, st.hints()))
		}
	})
}

// spent returns a time that was waited as it is read: a deadline of a second, less what its message took, is "1s".
func spent(d time.Duration) time.Duration {
	if d < 900*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// patience is the time after which a rank that waits for others to join says so; the starts of most differ by less.
var patience = 10 * time.Second

// remind logs after a time which ranks are missing, and again ever more seldom. The caller holds mu.
func (st *store) remind(after time.Duration) {
	time.AfterFunc(after, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.phase != gathering {
			return
		}
		if missing, list := st.missing(); len(missing) > 0 {
			st.logger.Warn("rendezvous: ranks have not joined yet", "missing", list+st.hints(), "world", st.world)
		}
		st.remind(3 * after)
	})
}

// hints says what may keep ranks away. The caller holds mu.
func (st *store) hints() (text string) {
	if st.root != nil && st.root.hub != nil && st.root.hub.foreign {
		address, _, _ := net.SplitHostPort(st.root.hub.key.address)
		text = fmt.Sprintf("; rank 0 is on host %s, which has no address %s", st.self.Host, address)
	}
	if st.stranger != "" {
		text += "; a rank came from " + st.stranger
	}
	return text
}

// meetStranger is called for a rank that cannot join, and with what it differs in.
func (st *store) meetStranger(from net.Addr, what string) {
	place := "this host"
	if tcp, is := from.(*net.TCPAddr); is {
		place = tcp.AddrPort().Addr().Unmap().String()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stranger = place + " with " + what
}

// missing returns the ranks that have not arrived. The caller holds mu.
func (st *store) missing() (ranks []int, list string) {
	for rank, m := range st.members {
		if m == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks, rankList(ranks)
}

// rankList names ranks in a message: "rank 2", "ranks 2, 3, 7".
func rankList(ranks []int) string {
	var b strings.Builder
	b.WriteString("rank")
	if len(ranks) != 1 {
		b.WriteString("s")
	}
	for i, rank := range ranks {
		if i == 16 {
			fmt.Fprintf(&b, " and %d more", len(ranks)-i)
			break
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %d", rank)
	}
	return b.String()
}

// begin welcomes all ranks. The caller holds mu.
func (st *store) begin() {
	st.phase = running
	if st.timer != nil {
		st.timer.Stop()
	}
	fr := st.welcome()
	for _, m := range st.members {
		m.conn.setSilence(st.silence)
		if m.conn.limitReads(st.silenceOf(m)) != nil {
			continue // already lost; its reader says so
		}
		m.send(fr)
	}
}

// welcome returns the frame that lists all ranks. The caller holds mu.
func (st *store) welcome() frame {
	welcome := message{Kind: msgWelcome, Heartbeat: st.heartbeat, Silence: st.silence, Store: st.self,
		Process: thisProcess(), Job: st.job}
	for _, m := range st.members {
		welcome.Members = append(welcome.Members, m.who)
		welcome.Contacts = append(welcome.Contacts, contact{m.process, m.standby})
	}
	return welcome.frame()
}

// failJoin ends the gathering with the same error for all ranks that have come or will
// come. The caller holds mu.
func (st *store) failJoin(err *plugin.Error) {
	if st.phase != gathering {
		return
	}
	st.phase, st.failure = failed, err
	if st.timer != nil {
		st.timer.Stop()
	}
	level := slog.LevelError
	if err.Code == plugin.Aborted { // a rank meant to leave
		level = slog.LevelInfo
	}
	st.logger.Log(context.Background(), level, "rendezvous: joining failed", "reason", err.Message)
	for _, m := range st.members {
		if m != nil && m.state == Alive {
			m.send((&message{Kind: msgRefuse, Err: err}).frame())
			m.finish()
			m.state = Left
		}
	}
	st.notify()
}

// settle is called when a rank's state has changed: the store ends itself with
// its last rank. The caller holds mu.
func (st *store) settle() {
	st.notify()
	if st.phase != running {
		return
	}
	st.decide()
	for _, m := range st.members {
		if !m.gone || m.suspicion != nil {
			return
		}
	}
	st.stopLocked()
}

// stop says goodbye to the ranks that are still connected and ends the store.
func (st *store) stop() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stopLocked()
}

func (st *store) stopLocked() {
	if st.phase == stopped {
		return
	}
	st.phase = stopped
	st.endResuming()
	if st.timer != nil {
		st.timer.Stop()
	}
	for _, m := range st.members {
		if m != nil && !m.gone {
			m.send((&message{Kind: msgBye}).frame())
			m.finish()
		}
		if m != nil && m.conn != nil {
			m.conn.setSilence(partingTime) // it may take nothing of what it was sent
		}
	}
	for _, f := range st.onStop {
		st.done.Add(1)
		go func() {
			defer st.done.Done()
			f()
		}()
	}
	st.onStop = nil
	st.notify()
}

// present counts the ranks still connected, those of this process and others.
// The caller holds mu.
func (st *store) present() (here, elsewhere int) {
	for _, m := range st.members {
		if m == nil || m.gone {
			continue
		}
		if m.inProcess {
			here++
		} else {
			elsewhere++
		}
	}
	return here, elsewhere
}

// awaySilent is the number of heartbeats for which a rank may be silent before nobody lingers for it.
const awaySilent = 3

// linger waits, for limit at most, for the ranks of other processes to leave. It does not wait for those that are out
// of reach: they have been silent for some heartbeats, also while this process could run, and find the store's goodbye
// when they are back.
func (st *store) linger(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	st.mu.Lock()
	ticker := time.NewTicker(max(st.heartbeat, time.Millisecond))
	st.mu.Unlock()
	defer ticker.Stop()
	for ticks := 0; ; {
		st.mu.Lock()
		changed := st.changed
		_, elsewhere := st.present()
		// The ranks of another job, if there is one, are not counted.
		late := st.phase == failed && !st.deaf && (st.arrived < st.world || st.clash != nil)
		away := ticks > 1 && elsewhere == st.silent(awaySilent*st.heartbeat)
		over := st.phase == stopped || ((elsewhere == 0 || away) && !late)
		st.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-ticker.C:
			ticks++
		case <-timer.C:
			return
		}
	}
}

// silent counts the connected ranks of other processes that have not been heard for so long. The caller holds mu.
func (st *store) silent(d time.Duration) (n int) {
	for _, m := range st.members {
		if m != nil && !m.gone && !m.inProcess && time.Since(m.heard) > d {
			n++
		}
	}
	return n
}

// connect joins a rank of this process over a pipe; nil if the store has ended.
func (st *store) connect() net.Conn {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.phase == stopped {
		return nil
	}
	return connectTo(st, &st.done)
}

// connectTo returns the near end of a pipe that leads through a door of this
// process.
func connectTo(d door, done *sync.WaitGroup) net.Conn {
	near, far := net.Pipe()
	done.Add(1)
	go func() {
		defer done.Done()
		f, _, first, err := admit(far, func(storeID) door { return d })
		if err != nil {
			far.Close()
			return
		}
		d.enroll(f, first, true)
	}()
	return near
}

func (st *store) key() secret     { return st.secret }
func (st *store) awaits() msgKind { return msgHello }

// rankError returns an error that began on a rank.
func rankError(code plugin.Code, rank int, format string, args ...any) *plugin.Error {
	return &plugin.Error{Code: code, Rank: rank, Message: fmt.Sprintf(format, args...)}
}
