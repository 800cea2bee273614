package executor

/*
#include "engine.h"
*/
import "C"

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Record is the operation that a rank tells its peers it runs. It comes from
// memory that the peer writes, so any value may stand in it.
type Record struct {
	Valid      bool // false: the rank has no page, has called nothing, or its record did not hold still
	Ended      bool // the operation has ended well on that rank
	Seq        uint64
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Count      int64
	Root       int32
	Symmetric  bool // the receive memory is registered as symmetric

	DeviceCounts bool // counts are in device memory
}

// Flags in the dtype that Record is given.
const (
	RecordSymmetric    = 1 << 31 // the receive memory is registered as symmetric
	RecordDeviceCounts = 1 << 30 // counts are in device memory
)

// Record sets what the next Run or RunGroup publishes as it starts, and enters
// in the flight recorder, in the same crossing. seq counts from 1 what all
// ranks count alike, number from 1 this rank's operations. Only the running
// goroutine may call it.
func (e *Engine) Record(seq, number uint64, collective, dtype, op uint32, count int64, root int32) {
	e.record = RecordOf(collective, dtype, op, count, root)
	e.record[0], e.record[4] = seq, number
	e.recorded = true
}

// uncalled stands in the place of a collective where the only call was taken back.
const uncalled = math.MaxUint32

// Mark adds the mark of a collective to what Record set.
func (e *Engine) Mark(mark Mark) { e.record[5] = uint64(mark) }

// RecordOf returns the words that Record sets, without seq, number and mark (entries
// 0, 4 and 5).
func RecordOf(collective, dtype, op uint32, count int64, root int32) [6]uint64 {
	return [6]uint64{0, uint64(collective) | uint64(dtype)<<32, uint64(op) | uint64(uint32(root))<<32, uint64(count), 0, 0}
}

// Announce publishes what Record set at once, for an operation that has work to
// do before its first Run. Only the running goroutine may call it.
func (e *Engine) Announce() {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.closed && e.controls[e.rank].Base != nil {
		e.announce()
	}
}

// announce is Announce where the page is known to be there. e.mu is held.
func (e *Engine) announce() {
	r := &(*C.sx_control)(e.controls[e.rank].Base).record
	word := func(field unsafe.Pointer) *uint64 { return (*uint64)(field) }
	// Go's atomics are sequentially consistent, so the version is odd before any
	// field changes and even only after the last has.
	version := atomic.LoadUint64(word(unsafe.Pointer(&r.version))) | 1
	atomic.StoreUint64(word(unsafe.Pointer(&r.version)), version)
	atomic.StoreUint64(word(unsafe.Pointer(&r.seq)), e.record[0])
	atomic.StoreUint64(word(unsafe.Pointer(&r.what)), e.record[1])
	atomic.StoreUint64(word(unsafe.Pointer(&r.how)), e.record[2])
	atomic.StoreUint64(word(unsafe.Pointer(&r.count)), e.record[3])
	atomic.StoreUint64(word(unsafe.Pointer(&r.version)), version+1)
}

// PeerRecord reads a rank's record.
func (e *Engine) PeerRecord(rank int) Record {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if rank < 0 || rank >= e.world || e.closed || e.controls[rank].Base == nil {
		return Record{}
	}
	r := &(*C.sx_control)(e.controls[rank].Base).record
	load := func(field unsafe.Pointer) uint64 { return atomic.LoadUint64((*uint64)(field)) }
	// A seqlock: the fields belong together when the version is even and the
	// same before and after. The owner holds it odd for nanoseconds, so a
	// version that stays odd is a dead or hostile one.
	for range 1000 {
		version := load(unsafe.Pointer(&r.version))
		seq, what := load(unsafe.Pointer(&r.seq)), load(unsafe.Pointer(&r.what))
		how, count := load(unsafe.Pointer(&r.how)), load(unsafe.Pointer(&r.count))
		ended := load(unsafe.Pointer(&r.ended))
		if version%2 == 1 || version != load(unsafe.Pointer(&r.version)) {
			continue
		}
		record := recordFrom(seq, what, how, count)
		record.Valid = record.Valid && version != 0
		record.Ended = record.Valid && ended == seq
		return record
	}
	return Record{}
}

// recordFrom unpacks what RecordOf packs.
func recordFrom(seq, what, how, count uint64) Record {
	return Record{
		Valid: uint32(what) != uncalled, Seq: seq, Collective: plugin.Collective(uint32(what)),
		DType: plugin.DType(what >> 32 &^ (RecordSymmetric | RecordDeviceCounts)),
		Op:    plugin.Op(uint32(how)), Root: int32(how >> 32), Count: int64(count),
		Symmetric: what>>32&RecordSymmetric != 0, DeviceCounts: what>>32&RecordDeviceCounts != 0,
	}
}
