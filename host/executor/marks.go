package executor

/*
#include "engine.h"
*/
import "C"

import (
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
	// As sx_call_publish, without the crossing: mark is 0 while the fields change.
	words := e.entry(Mark(e.record[5]))
	atomic.StoreUint64(&words[0], 0)
	for i := 1; i < len(words); i++ {
		atomic.StoreUint64(&words[i], e.record[i])
	}
	atomic.StoreUint64(&words[0], e.record[5])
}

// ForgetCall takes back what was noted of a collective that has not begun after all.
func (e *Engine) ForgetCall(mark Mark) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.closed && e.controls[e.rank].Base != nil {
		atomic.CompareAndSwapUint64(&e.entry(mark)[0], uint64(mark), 0)
	}
}

// entry returns a call's sx_call in this rank's control page: mark, what, how and count.
func (e *Engine) entry(mark Mark) *[4]uint64 {
	calls := unsafe.Pointer(&(*C.sx_control)(e.controls[e.rank].Base).calls)
	return (*[4]uint64)(unsafe.Add(calls, uintptr(mark%C.SX_CALLS)*unsafe.Sizeof(C.sx_call{})))
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
		a, mine, ok := callAt(own, i, latest)
		b, other, okay := callAt(theirs, i, latest)
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

// callAt returns an entry of a page's latest calls; false: it is empty or in change.
func callAt(page *C.sx_control, i uintptr, latest uint64) (Mark, Record, bool) {
	c := (*C.sx_call)(unsafe.Add(unsafe.Pointer(&page.calls), i*unsafe.Sizeof(C.sx_call{})))
	load := func(field unsafe.Pointer) uint64 { return atomic.LoadUint64((*uint64)(field)) }
	mark := load(unsafe.Pointer(&c.mark))
	what, how, count := load(unsafe.Pointer(&c.what)), load(unsafe.Pointer(&c.how)), load(unsafe.Pointer(&c.count))
	if mark == 0 || mark != load(unsafe.Pointer(&c.mark)) {
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
