package executor

/*
#include "engine.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Mark stands for a collective and all that came before it in a communicator: its
// number in the low 40 bits, a hash above them. Ranks whose marks of one number
// differ have called different collectives. mark.c says where marks travel.
type Mark uint64

// MarkOf returns the mark of collective number seq, whose hash includes the hashes of
// those before.
func MarkOf(seq, hash uint64) Mark {
	return Mark(hash<<C.SX_NUMBER_BITS | seq&(1<<C.SX_NUMBER_BITS-1))
}

// ahead returns by how much the number of a mark is larger than that of another.
func ahead(mark, of Mark) int64 {
	const hash = 64 - C.SX_NUMBER_BITS
	return int64(mark-of) << hash >> hash
}

// Marked has a program put marks behind its semaphores, where its plan has left room
// for them (plugin.FeatureMarks).
func (p *Program) Marked() { p.c.marked = 1 }

// NoteCall has the control page say that this rank has called what Record set, for a
// collective that does something else before its first Run, or instead of one. Only
// the running goroutine may call it.
func (e *Engine) NoteCall() {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed || e.controls[e.rank].Base == nil || e.record[5] == 0 {
		return
	}
	// As sx_call_publish, without the crossing.
	mark := Mark(e.record[5])
	e.entry(mark).set(e.record)
	if e.past.calls != nil && ahead(mark, e.past.next) >= C.SX_CALLS/2 {
		e.keep(mark)
	}
}

// ForgetCall takes back what was announced and noted of the latest collective, which has not begun after all: the page
// has the one before it again. Only the running goroutine may call it.
func (e *Engine) ForgetCall(mark Mark) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed || e.controls[e.rank].Base == nil || mark == 0 { // a world of one compares nothing
		return
	}
	atomic.CompareAndSwapUint64(&e.entry(mark)[0], uint64(mark), 0)
	if e.past.calls != nil && ahead(mark, e.past.next) < 0 {
		e.past.mu.Lock()
		*e.past.at(mark) = noted{}
		e.past.mu.Unlock()
		e.past.next = mark
	}
	before := *e.entry(mark - 1)
	if before[0] == 0 || ahead(mark, Mark(before[0])) != 1 {
		before = noted{1: uncalled}
	}
	e.record = [6]uint64{e.record[0] - 1, before[1], before[2], before[3], e.record[4], before[0]}
	e.announce()
}

// RememberCalls has the engine keep the latest n collectives of NoteCall, a power of two, for a rank that may have
// called many more than its peers: of those its page has the last few only, which tell a peer that comes later nothing.
// It is called before the first Run.
func (e *Engine) RememberCalls(n int) { e.past.calls = make([]noted, n) }

// past is what an engine keeps of collectives that leave its page.
type past struct {
	next  Mark // the first one that is not here yet; the running goroutine's
	mu    sync.Mutex
	calls []noted
}

// at returns the place of a collective.
func (p *past) at(mark Mark) *noted { return &p.calls[mark%Mark(len(p.calls))] }

// keep takes over from the page what is not here yet, all at once: much less for a call than to write every one twice.
func (e *Engine) keep(latest Mark) {
	e.past.mu.Lock()
	defer e.past.mu.Unlock()
	for n := min(ahead(latest, e.past.next), C.SX_CALLS-1); n >= 0; n-- {
		*e.past.at(latest - Mark(n)) = *e.entry(latest - Mark(n))
	}
	e.past.next = latest + 1
}

// find returns what is kept of the collective that has the number of a mark.
func (p *past) find(mark Mark, latest uint64) (Mark, Record, bool) {
	if p.calls == nil {
		return 0, Record{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at(mark).read(latest)
}

// noted is an sx_call: mark, what, how and count.
type noted [4]uint64

var _ = [1]struct{}{}[unsafe.Sizeof(noted{})-unsafe.Sizeof(C.sx_call{})]

// set notes a collective. mark is 0 while the fields change.
func (n *noted) set(record [6]uint64) {
	atomic.StoreUint64(&n[0], 0)
	for i := 1; i < len(n); i++ {
		atomic.StoreUint64(&n[i], record[i])
	}
	atomic.StoreUint64(&n[0], record[5])
}

// entry returns the place of a call in this rank's control page.
func (e *Engine) entry(mark Mark) *noted {
	return callOf((*C.sx_control)(e.controls[e.rank].Base), uintptr(mark%C.SX_CALLS))
}

// callOf returns an entry of a page's latest calls.
func callOf(page *C.sx_control, i uintptr) *noted {
	return (*noted)(unsafe.Add(unsafe.Pointer(&page.calls), i*unsafe.Sizeof(C.sx_call{})))
}

// Disagreement is the first collective that two ranks have called differently, as
// far as their control pages still tell. Both are valid; they are alike in all that
// a record has where the ranks' counts for each rank differ, or where it is longer
// ago.
type Disagreement struct{ Mine, Theirs Record }

// Disagreement compares the latest collectives of this rank with a peer's. A peer
// that is behind or ahead has called nothing different yet. The peer's part comes
// from memory that the peer writes. It may be called from any goroutine. latest is
// how many collectives this rank has called, for their numbers.
func (e *Engine) Disagreement(peer int, latest uint64) (d Disagreement, found bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if peer < 0 || peer >= e.world || peer == e.rank || e.closed || e.controls[peer].Base == nil ||
		e.controls[e.rank].Base == nil {
		return Disagreement{}, false
	}
	own, theirs := (*C.sx_control)(e.controls[e.rank].Base), (*C.sx_control)(e.controls[peer].Base)
	for i := range uintptr(C.SX_CALLS) {
		b, other, okay := callOf(theirs, i).read(latest)
		a, mine, ok := callOf(own, i).read(latest)
		if okay && (!ok || ahead(a, b) != 0) {
			a, mine, ok = e.past.find(b, latest)
		}
		if !ok || !okay || a == b || ahead(a, b) != 0 {
			continue
		}
		// The first that differs in words too is the cause of those behind it.
		before := int64(mine.Seq-d.Mine.Seq) < 0
		if told := mine != other; !found || told && (d.Mine == d.Theirs || before) ||
			(!told && d.Mine == d.Theirs && before) {
			d, found = Disagreement{mine, other}, true
		}
	}
	return d, found
}

// read returns a call; false: there is none, or it is in change. latest is as for Disagreement.
func (n *noted) read(latest uint64) (Mark, Record, bool) {
	mark := atomic.LoadUint64(&n[0])
	what, how, count := atomic.LoadUint64(&n[1]), atomic.LoadUint64(&n[2]), atomic.LoadUint64(&n[3])
	if mark == 0 || mark != atomic.LoadUint64(&n[0]) {
		return 0, Record{}, false
	}
	seq := latest + uint64(ahead(Mark(mark), Mark(latest)))
	return Mark(mark), recordFrom(seq, what, how, count), true
}

// Contradicts reports whether a peer's page says that it has called something else
// than this rank under the number of a mark. Only the running goroutine may call it.
func (e *Engine) Contradicts(peer int, mark Mark) bool {
	if e.controls[peer].Base == nil || peer == e.rank {
		return false
	}
	calls := unsafe.Pointer(&(*C.sx_control)(e.controls[peer].Base).calls)
	theirs := Mark(atomic.LoadUint64((*uint64)(unsafe.Add(calls, uintptr(mark%C.SX_CALLS)*unsafe.Sizeof(C.sx_call{})))))
	return theirs != mark && ahead(theirs, mark) == 0 && theirs != 0
}
