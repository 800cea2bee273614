package executor

/*
#include <stddef.h>
#include "engine.h"
*/
import "C"

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// What a control page says of its rank's calls: the record, the last rejected call and the latest calls. Ranks of one
// host read it where it lies. Those of other hosts have a page in its place that is filled with reports.
const (
	reportAt    = unsafe.Offsetof(C.sx_control{}.record)
	reportWords = (unsafe.Sizeof(C.sx_control{}) - reportAt) / 8
	// ReportBytes is the size of a report.
	ReportBytes = int(reportWords * 8)
)

// Report returns what this rank's control page says of its calls. Fields that change meanwhile may be of different
// calls; a report is good if the next one is equal. It may be called from any goroutine.
func (e *Engine) Report() []byte {
	e.mu.RLock()
	defer e.mu.RUnlock()
	page := e.controls
	if e.closed || page[e.rank].Base == nil {
		return nil
	}
	report := make([]byte, 0, ReportBytes)
	for i := range reportWords {
		report = binary.LittleEndian.AppendUint64(report, atomic.LoadUint64(wordOf(page[e.rank], i)))
	}
	return report
}

// SetReport fills the page that stands for a rank of another host with a report, which may hold anything. One goroutine
// at a time may call it, beside all others that read the page.
func (e *Engine) SetReport(rank int, report []byte) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if rank < 0 || rank >= e.world || rank == e.rank || e.closed || e.controls[rank].Base == nil ||
		len(report) != ReportBytes {
		return
	}
	page := e.controls[rank]
	for i := range reportWords {
		if change, is := guard(i); is {
			atomic.StoreUint64(wordOf(page, i), change)
		}
	}
	for _, guards := range []bool{false, true} {
		for i := range reportWords {
			if _, is := guard(i); is == guards {
				atomic.StoreUint64(wordOf(page, i), binary.LittleEndian.Uint64(report[8*i:]))
			}
		}
	}
}

// wordOf returns a word of what a page says of its rank's calls.
func wordOf(page Memory, i uintptr) *uint64 {
	return (*uint64)(unsafe.Add(page.Base, reportAt+8*i))
}

// guard reports whether a word tells readers, which look at it before and after, that the fields behind it hold still,
// and what it is while they change: an odd version, or no mark of a call.
func guard(i uintptr) (change uint64, is bool) {
	const (
		record    = 0
		rejection = (unsafe.Offsetof(C.sx_control{}.rejection) - reportAt) / 8
		calls     = (unsafe.Offsetof(C.sx_control{}.calls) - reportAt) / 8
		each      = unsafe.Sizeof(C.sx_call{}) / 8
	)
	if i == record || i == rejection {
		return 1, true
	}
	return 0, i >= calls && (i-calls)%each == 0
}
