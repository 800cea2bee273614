package executor

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// The watch page is written by host and kernels at once; see plugin.WatchAbort.
// Its fields are read and written with Go's atomics, which are sequentially
// consistent, so what a kernel released with the fault is read after it.

// watch calls f with the watch page, unless it is freed.
func (d *Device) watch(f func(page unsafe.Pointer)) {
	d.abortMu.Lock()
	defer d.abortMu.Unlock()
	if d.word.Address != 0 {
		f(*(*unsafe.Pointer)(unsafe.Pointer(&d.word.Address)))
	}
}

func word32(page unsafe.Pointer, offset uintptr) *uint32 { return (*uint32)(unsafe.Add(page, offset)) }
func word64(page unsafe.Pointer, offset uintptr) *uint64 { return (*uint64)(unsafe.Add(page, offset)) }

// SetTimeout bounds every wait of kernels launched before and after, those of
// graphs too; 0 means no limit. A kernel whose wait takes longer ends, and
// Fault says so.
func (d *Device) SetTimeout(limit time.Duration) {
	d.watch(func(page unsafe.Pointer) {
		atomic.StoreUint64(word64(page, plugin.WatchTimeout), uint64(max(limit, 0)))
	})
}

// Fault returns the reason why a kernel first gave up a wait, the rank that it waited for and
// the value. It calls no driver. The kind may be anything that a kernel wrote.
func (d *Device) Fault() (kind plugin.Fault, peer int, epoch uint64) {
	d.watch(func(page unsafe.Pointer) {
		kind = plugin.Fault(atomic.LoadUint32(word32(page, plugin.WatchFault)))
		peer = int(int32(atomic.LoadUint32(word32(page, plugin.WatchFaultPeer))))
		epoch = atomic.LoadUint64(word64(page, plugin.WatchFaultEpoch))
	})
	return kind, peer, epoch
}

// Faulted says whether Fault would name one. It takes no lock, and is only for callers that may call Run.
func (d *Device) Faulted() bool {
	if d.word.Address == 0 {
		return false
	}
	page := *(*unsafe.Pointer)(unsafe.Pointer(&d.word.Address))
	return atomic.LoadUint32(word32(page, plugin.WatchFault)) != 0
}

// Compared returns the values that a kernel which reported FaultAsymmetric, FaultLength or
// FaultCounts has compared, of this rank and of the peer; see plugin.WatchFaultOwn.
// They may be anything that a kernel wrote.
func (d *Device) Compared() (own, theirs [3]uint64) {
	d.watch(func(page unsafe.Pointer) {
		for i := range own {
			own[i] = atomic.LoadUint64(word64(page, plugin.WatchFaultOwn+uintptr(8*i)))
			theirs[i] = atomic.LoadUint64(word64(page, plugin.WatchFaultTheirs+uintptr(8*i)))
		}
	})
	return own, theirs
}

// HasMissed reports whether Missed would return something. It takes no lock: the caller keeps the Device from being
// closed.
func (d *Device) HasMissed() bool {
	page := *(*unsafe.Pointer)(unsafe.Pointer(&d.word.Address))
	return page != nil && atomic.LoadUint64(word64(page, plugin.WatchMissed)) != 0
}

// Missed takes the last address of the caller's that kernels did not find in
// the directory, and how many bytes from there they would have needed; 0 if
// there is none. It calls no driver. The two may be of different calls.
func (d *Device) Missed() (address cuda.Ptr, bytes int64) {
	d.watch(func(page unsafe.Pointer) {
		if atomic.LoadUint64(word64(page, plugin.WatchMissed)) == 0 {
			return // so that an idle page is only read
		}
		bytes = int64(atomic.LoadUint64(word64(page, plugin.WatchMissedBytes)))
		address = cuda.Ptr(atomic.SwapUint64(word64(page, plugin.WatchMissed), 0))
	})
	return address, bytes
}
