package diagnosis

import (
	"fmt"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Watchdog looks at operations that wait for long. It runs on one goroutine.
type Watchdog struct {
	warned     uint64        // collective whose stall was reported last,
	explained  string        // and what ranks were said to have rejected
	usual      time.Duration // a wait of another collective is reported from then on
	deserted   int           // 1 + the waited-for rank that had closed, or gone on, at the last look; 0: none
	native     uint64        // call of native code that the run was in at the last look; 0: none
	entered    time.Time
	rejections rejectionLook

	looked  time.Time // last
	resumed time.Time // when this process last went on after it was stopped
}

// stopped is the time without a look, of which there are four a second, after which this process or its machine was
// stopped in between (Ctrl-Z, a suspended job).
const stopped = time.Second

// sinceResumed returns how much of a wait lies after the last stop of this process, most often with the ranks that it
// waits for. It is called with every look.
func (w *Watchdog) sinceResumed(waited time.Duration) time.Duration {
	now := time.Now()
	if now.Sub(w.looked) > stopped {
		w.resumed = now
	}
	w.looked = now
	return min(waited, now.Sub(w.resumed))
}

// LookAtStall compares this rank's call with its peers' when it has waited for longer than the given time, and returns
// why the communicator must fail if they contradict, or at once if the peer that it waits for has left. Otherwise it
// warns. transport names the one whose endpoint has a base.
func (w *Watchdog) LookAtStall(o *Observer, stall time.Duration, transport func(base uint32) string) *plugin.Error {
	waiting, peer, since, _ := o.Engine.Waiting()
	since = w.sinceResumed(since)
	if reason := w.blocks(o, transport); reason != nil {
		return reason
	}
	if waiting {
		if reason := o.WrongLength(); reason != nil {
			return reason
		}
	}
	named := waiting && peer >= 0 && peer < o.World
	left := named && o.sendsNoMore(peer)
	if !waiting || (since < stall && !left) { // more time does not bring what one that has left has not sent
		w.deserted = 0
		return nil
	}
	if reason := o.Conflict(); reason != nil {
		return reason
	}
	if !named {
		return nil
	}
	mine, theirs := o.State(o.Rank), o.State(peer)
	var vain *plugin.Error
	switch passed := PassedBy(o.Rank, mine, peer, theirs); {
	case left:
		vain = o.Deserted(peer)
	case passed != "" && o.oneHost():
		vain = o.Mismatch(peer, passed)
	}
	if vain != nil {
		return w.waitsInVain(o, peer, mine.Seq, vain)
	}
	w.warn(o, peer, since, mine, theirs)
	return nil
}

// blocks returns why the communicator must fail if native code, which runs on the caller's thread and may not block,
// has not returned for as long as other functions of a transport may take. Nothing can end such a call: peers learn of
// it.
func (w *Watchdog) blocks(o *Observer, transport func(base uint32) string) *plugin.Error {
	call, base, deadline := o.Engine.Native()
	if call == 0 || call != w.native {
		w.native, w.entered = call, w.looked
		return nil
	}
	limit := deadline / 3 * 2 // of the run: SetTimeout may have changed that of later ones
	if o.Failure.Reason() != nil || limit <= 0 || w.sinceResumed(w.looked.Sub(w.entered)) < limit {
		return nil
	}
	reason := &plugin.Error{Code: plugin.Timeout, Rank: o.Rank, Message: fmt.Sprintf(
		"rank %d %s, and native code of transport %s has not returned from start or poll for %v", o.Rank, o.State(o.Rank),
		transport(base), limit)}
	o.Logger.Error("native code does not return", "communicator", o.Label, "rank", o.Rank, "reason", reason.Message)
	return reason
}

// waitsInVain takes a second look at a rank that will not come, as the first may have been too early: the rank's record
// was written after its last signal. So if the semaphore still does not have that signal, and this rank is still in
// the same call, the signal will never come. A rank that has left before the call sends none in any case.
func (w *Watchdog) waitsInVain(o *Observer, peer int, seq uint64, vain *plugin.Error) *plugin.Error {
	_, again, _, _ := o.Engine.Waiting()
	if again != peer || o.State(o.Rank).Seq != seq || (!o.hasLeft(peer) && !o.Engine.Unsatisfied()) {
		w.deserted = 0
		return nil
	}
	before := w.deserted
	w.deserted = 1 + peer
	if before == 1+peer { // a second look agrees, or nothing is said
		return vain
	}
	return nil
}

func (w *Watchdog) warn(o *Observer, peer int, since time.Duration, mine, theirs State) {
	if rejections := strings.TrimPrefix(o.rejections(absence), "; "); w.isNews(mine.Seq, since, o.Timeout(), rejections) {
		o.warnWaiting(peer, since, mine.Seq, mine.Collective, theirs, rejections)
	}
}

// isNews reports whether a wait is to be reported, and notes that it is. Programs may wait in every step, for a rank
// that writes a checkpoint: after each report a wait must be twice as long to be another, half of the timeout at most.
// What ranks have rejected is always one.
func (w *Watchdog) isNews(seq uint64, since, timeout time.Duration, rejections string) bool {
	explains := rejections != "" && rejections != w.explained
	if !explains && (seq == w.warned || since < w.usual) {
		return false
	}
	w.warned, w.explained = seq, rejections
	w.usual = 2 * since
	if timeout > 0 {
		w.usual = min(w.usual, timeout/2)
	}
	return true
}

func (o *Observer) warnWaiting(peer int, since time.Duration, seq uint64, collective plugin.Collective, theirs State,
	rejections string) {
	attributes := []any{"communicator", o.Label, "rank", o.Rank, "seq", seq, "collective", collective.String(),
		"for", o.PeerName(peer), "since", since, "peer_state", o.calls(peer, theirs)}
	if rejections != "" {
		attributes = append(attributes, "refused", rejections)
	}
	o.Logger.Warn("operation is waiting", attributes...)
}

// WarnAbsent warns of the ranks that are missing in the agreement about a collective, as LookAtStall does of
// operations that run. It looks at control pages alone, so it may come late.
func (o *Observer) WarnAbsent(seq uint64, collective plugin.Collective, stall time.Duration) {
	for rank := range o.World {
		if theirs := o.State(rank); rank != o.Rank && (!theirs.Valid || theirs.Seq < seq) {
			o.warnWaiting(rank, stall, seq, collective, theirs,
				rejected(rank, o.Engine.PeerRejection(rank), o.State(o.Rank), theirs))
		}
	}
}

// rejectionLook holds the rejected calls that the watchdog has seen and that keep this rank's operations waiting.
type rejectionLook struct {
	text   string
	since  time.Time
	warned bool
}

// LookAtRejections warns when a peer has rejected what this rank has enqueued, and has done nothing since for the given
// time. It is for operations on a GPU, of which the host does not see that they wait.
func (w *Watchdog) LookAtRejections(o *Observer, stall time.Duration) {
	look, text := &w.rejections, o.rejections(absence)
	if text != look.text {
		*look = rejectionLook{text: text, since: time.Now()}
	}
	if text == "" || look.warned || time.Since(look.since) < stall {
		return
	}
	look.warned = true
	mine := o.State(o.Rank)
	o.Logger.Warn("a call was refused", "communicator", o.Label, "rank", o.Rank, "seq", mine.Seq, "collective",
		mine.Collective.String(), "refused", strings.TrimPrefix(text, "; "))
}
