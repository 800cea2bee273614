package bootstrap

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// clashes are what a store knows of other jobs at its meeting place.
//
// Two jobs of one meeting place without a secret of their own have one store id, so a store cannot tell their ranks
// apart, except that ranks with the same parent process as rank 0 are of its job. A rank 0 that finds another at its
// place says so to that one's store: the later job fails, and the earlier one too unless it is sure of its ranks.
type clashes struct {
	parent processID     // of the store's process
	anyJob bool          // the meeting place does not name the job at all
	clash  *plugin.Error // another job is there, or ranks contradict each other that may be of two
	rival  bool          // its rank 0 knows that
	others []processID   // parents of its ranks
}

// mostOthers bounds clashes.others.
const mostOthers = 64

// useTwoPlaces is the remedy.
const useTwoPlaces = "give each job its own MASTER_PORT or SHUNT_ID"

// claimTime is the time that a complete job waits for others to claim one of its ranks, where that is possible.
var claimTime = time.Second

// probeTime is the time that whatever listens at a rank 0's place has to say that it is a store.
const probeTime = 2 * time.Second

// same reports whether p and q are certainly the same process.
func (p processID) same(q processID) bool {
	return p.boot != "" && p.pid > 0 && p.start != "" && p == q
}

// kin reports whether a rank with this parent is certainly of the store's job.
func (c *clashes) kin(parent processID) bool { return c.parent.same(parent) }

// meet notes that another job is there.
func (c *clashes) meet(err *plugin.Error, parent processID) {
	if c.clash == nil {
		c.clash = err
	}
	if len(c.others) < mostOthers && !slices.Contains(c.others, parent) {
		c.others = append(c.others, parent)
	}
}

// knows reports whether a process is one of the ranks. The caller holds mu.
func (st *store) knows(p processID) bool {
	return slices.ContainsFunc(st.members, func(m *member) bool { return m != nil && m.process.same(p) })
}

// ifTwoJobs returns what to do if ranks contradict each other because they are of two jobs.
func (st *store) ifTwoJobs() string {
	if st.name == (storeID{}) { // a secret names the job
		return ""
	}
	return "; if they are of two jobs, " + useTwoPlaces
}

// contradicted fails joining because ranks contradict each other. The caller holds mu.
func (st *store) contradicted(err *plugin.Error) {
	if st.ifTwoJobs() != "" {
		st.clash = err
	}
	st.failJoin(err)
}

// challenged returns the reply to a rank 0 that finds this store at its own place; with retry, it may open its store
// beside this one. The caller holds mu.
func (st *store) challenged(hello *message) (retry bool, err *plugin.Error) {
	switch {
	case st.phase == failed && st.clash != nil:
		return false, st.failure
	case st.phase == failed, st.root == nil, st.root.ending(): // as before a job that is started again
		return true, rankError(plugin.Closed, 0, "the job at this place is ending")
	case st.knows(hello.Process): // the same program meets a second time
		return true, rankError(plugin.Mismatch, 0, "pid %d has another rank in this job", hello.Member.PID)
	}
	st.rival = true
	st.meet(rankError(plugin.Mismatch, 0,
		"two jobs meet at one place: rank 0 of one is pid %d on host %s, rank 0 of the other is pid %d on host %s; %s",
		st.self.PID, st.self.Host, hello.Member.PID, hello.Member.Host, useTwoPlaces), hello.Parent)
	if st.kin(hello.Parent) || slices.ContainsFunc(st.members, func(m *member) bool {
		return m != nil && !st.kin(m.parent)
	}) {
		st.failJoin(st.clash) // some of its ranks may be the other's, or will be
	}
	return false, st.clash
}

// mayRetry reports whether a rank that is refused because of another job may try again: until its rank 0 has been
// refused, it may find that one when this job has ended. The caller holds mu.
func (st *store) mayRetry() bool { return st.phase != failed && !st.rival }

// ofAnother reports whether a newcomer is to be refused because of another job. The caller holds mu.
func (st *store) ofAnother(hello *message) bool {
	switch {
	case st.clash == nil || st.phase == failed:
		return false
	case st.phase == running:
		return !st.knows(hello.Process)
	case st.kin(hello.Parent):
		return false
	}
	if !slices.Contains(st.others, hello.Parent) {
		st.failJoin(st.clash) // nobody can tell whose rank it is
	}
	return true
}

// claimed decides about a newcomer whose rank is taken: true admits it in place of the other, which is of another job.
// Both get the error otherwise, or the newcomer if it is of another job. The caller holds mu.
func (st *store) claimed(other *member, hello *message, err *plugin.Error) (admit bool) {
	here, there := st.kin(hello.Parent), st.kin(other.parent)
	switch {
	case !st.anyJob || here == there:
		st.contradicted(err)
	case there:
		st.meet(err, hello.Parent)
	default:
		st.meet(err, other.parent)
		other.send((&message{Kind: msgRefuse, Retry: st.mayRetry(), Err: err}).frame())
		other.finish()
		other.state = Left
		st.arrived--
		return true
	}
	return false
}

// mayBeMixed reports whether ranks of this host may be another job's. The caller holds mu.
func (st *store) mayBeMixed() bool {
	return st.anyJob && slices.ContainsFunc(st.members, func(m *member) bool {
		return !st.kin(m.parent) && st.parent.boot != "" && m.process.boot == st.parent.boot
	})
}

// awaitClaims begins when no other has claimed a rank for a while. The caller holds mu.
func (st *store) awaitClaims() {
	if st.timer != nil {
		st.timer.Stop()
	}
	wait := claimTime
	if !st.deadline.IsZero() {
		wait = min(wait, time.Until(st.deadline))
	}
	st.timer = time.AfterFunc(wait, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.phase == gathering {
			st.begin()
			st.notify()
		}
	})
}

// ending reports whether the last session of the store's process has closed.
func (r *Root) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// challenge tells the store of another job at one of the places that this rank 0 is there too. It returns that store's
// refusal; nil if there is none, or if both can be.
func (j *joiner) challenge(ctx context.Context, m meeting, places []place) (refusal *plugin.Error) {
	if len(places) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replies := make(chan *plugin.Error, len(places))
	for _, p := range places {
		go func() { replies <- j.challengeAt(ctx, m, p) }()
	}
	for range places {
		if err := <-replies; err != nil && refusal == nil {
			refusal = err
			cancel()
		}
	}
	return refusal
}

func (j *joiner) challengeAt(ctx context.Context, m meeting, p place) *plugin.Error {
	dialer := net.Dialer{Timeout: probeTime}
	conn, err := dialer.DialContext(ctx, p.network, p.address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if SameUser(conn) != nil {
		return nil
	}
	f, err := greet(conn, m.secret, m.name, time.Now().Add(probeTime))
	if err != nil {
		return nil
	}
	hello := message{Kind: msgHello, Rival: true, Member: j.self, World: j.config.World, Heartbeat: j.config.Heartbeat,
		Silence: j.config.Silence, Process: thisProcess(), Parent: identify(os.Getppid())}
	if f.write(hello.frame()) != nil || f.limitReads(handshakeTimeout) != nil {
		return nil
	}
	reply, err := f.receive()
	if err != nil || reply.Kind != msgRefuse || reply.Retry {
		return nil
	}
	return reply.Err
}

// busyPlaces returns those of a rank 0's places that it could not listen at, as another process does: those before the
// hub's, or, where none was free, all.
func busyPlaces(places []place, h *hub, err error) []place {
	switch {
	case err == nil && h != nil:
		return places[:max(slices.Index(places, h.key), 0)]
	case errors.Is(err, syscall.EADDRINUSE):
		return places
	}
	return nil
}
