package executor

/*
#include "engine.h"
*/
import "C"

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"unicode"
	"unsafe"
)

// maxRejection is the most bytes of a rejection's text that a control page holds.
const maxRejection = 28 * 8

// Rejection is the last call that a rank rejected by itself, for an error in its
// arguments. Nothing came of that call, and the rank may still make it as it should
// be; until then its peers wait for it. It comes from memory that the peer writes,
// so any value may stand in it, but Text is printable.
type Rejection struct {
	Valid bool   // false: the rank has no page, has rejected nothing, or was writing it
	Seq   uint64 // that the call would have had among the collectives; 0: it is none
	Since uint64 // how many operations the rank has announced since
	Text  string // the operation and what was wrong with it
}

// RejectCall tells peers that this rank has rejected a call. Text beyond some 200
// bytes is cut off. It may be called from any goroutine.
func (e *Engine) RejectCall(seq uint64, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.controls[e.rank].Base == nil {
		return
	}
	control := (*C.sx_control)(e.controls[e.rank].Base)
	r := &control.rejection
	var bytes [maxRejection]byte
	length := copy(bytes[:], printable(text))
	// Go's atomics are sequentially consistent, so the version is odd before any
	// field changes and even only after the last has.
	version := atomic.LoadUint64(shared(unsafe.Pointer(&r.version))) | 1
	atomic.StoreUint64(shared(unsafe.Pointer(&r.version)), version)
	atomic.StoreUint64(shared(unsafe.Pointer(&r.seq)), seq)
	atomic.StoreUint64(shared(unsafe.Pointer(&r.record)),
		atomic.LoadUint64(shared(unsafe.Pointer(&control.record.version))))
	atomic.StoreUint64(shared(unsafe.Pointer(&r.length)), uint64(length))
	for i := range r.text {
		atomic.StoreUint64(shared(unsafe.Pointer(&r.text[i])), binary.LittleEndian.Uint64(bytes[8*i:]))
	}
	atomic.StoreUint64(shared(unsafe.Pointer(&r.version)), version+1)
}

// PeerRejection reads a rank's last rejected call.
func (e *Engine) PeerRejection(rank int) Rejection {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if rank < 0 || rank >= e.world || e.closed || e.controls[rank].Base == nil {
		return Rejection{}
	}
	control := (*C.sx_control)(e.controls[rank].Base)
	r := &control.rejection
	var bytes [maxRejection]byte
	// A seqlock, as in PeerRecord: a version that stays odd is a dead or hostile one.
	for range 1000 {
		version := atomic.LoadUint64(shared(unsafe.Pointer(&r.version)))
		if version == 0 {
			return Rejection{}
		}
		rejection := Rejection{Valid: true, Seq: atomic.LoadUint64(shared(unsafe.Pointer(&r.seq)))}
		record, length := atomic.LoadUint64(shared(unsafe.Pointer(&r.record))),
			atomic.LoadUint64(shared(unsafe.Pointer(&r.length)))
		for i := range r.text {
			binary.LittleEndian.PutUint64(bytes[8*i:], atomic.LoadUint64(shared(unsafe.Pointer(&r.text[i]))))
		}
		if version%2 == 1 || version != atomic.LoadUint64(shared(unsafe.Pointer(&r.version))) {
			continue
		}
		// A record that is being written has an odd version already.
		rejection.Since = (atomic.LoadUint64(shared(unsafe.Pointer(&control.record.version))) - record + 1) / 2
		rejection.Text = printable(string(bytes[:min(length, maxRejection)]))
		return rejection
	}
	return Rejection{}
}

// shared returns a word of a control page, for Go's atomics.
func shared(field unsafe.Pointer) *uint64 { return (*uint64)(field) }

// printable returns a text without what a terminal or a log might stumble over, cut to
// what a control page holds.
func printable(text string) string {
	if len(text) > maxRejection {
		text = text[:maxRejection]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
