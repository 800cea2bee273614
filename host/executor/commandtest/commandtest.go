// Package commandtest is the executor's kernel of engine steps (kernels/command.cu) in Go, for the driver in memory.
package commandtest

// #include "../kernels/command.h"
import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Kernels returns the kernel by its name, for cudatest.Options.
func Kernels() map[string]cudatest.Kernel {
	return map[string]cudatest.Kernel{"shunt_command": command}
}

// grace is command.cu's.
const grace = uint64(time.Second)

func at(address C.shunt_word) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func word(w *C.shunt_word) *uint64 { return (*uint64)(unsafe.Pointer(w)) }

func command(g cudatest.Grid) {
	a := (*C.shunt_command_args)(unsafe.Pointer(&g.Launch.Params[0]))
	counters := (*C.shunt_command_counters)(at(a.counters))
	w := wait{counters: counters, watch: at(a.watch), grid: g}
	number := atomic.AddUint64(word(&counters.next), 1) - 1
	if atomic.LoadUint64(word(&counters.lost)) != 0 {
		return
	}
	const slots = C.SHUNT_COMMANDS
	slot := (*C.shunt_command_slot)(unsafe.Add(at(a.slots), number%slots*C.sizeof_shunt_command_slot))
	ended := word(&counters.ended[number%slots])
	for atomic.LoadUint64(ended) != number/slots {
		if w.over(number) {
			return
		}
	}
	slot.order = a.order
	atomic.StoreUint64(word(&slot.posted), number+1)
	for atomic.LoadUint64(word(&slot.done)) != number+1 {
		if w.over(number) {
			return
		}
	}
	atomic.StoreUint64(ended, number/slots+1)
}

type wait struct {
	counters *C.shunt_command_counters
	watch    unsafe.Pointer
	grid     cudatest.Grid
	since    time.Time
	spins    int
}

func (w *wait) over(number uint64) bool {
	// The proxy needs a processor too.
	if w.spins++; w.spins < 20 {
		runtime.Gosched()
	} else {
		time.Sleep(20 * time.Microsecond)
	}
	select {
	case <-w.grid.Done:
		return true
	default:
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	word32 := func(offset uintptr) *uint32 { return (*uint32)(unsafe.Add(w.watch, offset)) }
	limit := atomic.LoadUint64((*uint64)(unsafe.Add(w.watch, plugin.WatchTimeout)))
	aborted := atomic.LoadUint32(word32(plugin.WatchAbort)) != 0
	if !aborted && (limit == 0 || uint64(time.Since(w.since)) <= limit+grace) {
		return false
	}
	atomic.StoreUint64(word(&w.counters.lost), 1)
	kind := plugin.FaultEngine
	if aborted {
		kind = plugin.FaultAborted
	}
	if atomic.LoadUint32(word32(plugin.WatchFault)) == 0 {
		atomic.StoreUint32(word32(plugin.WatchFaultPeer), ^uint32(0))
		atomic.StoreUint64((*uint64)(unsafe.Add(w.watch, plugin.WatchFaultEpoch)), number)
		atomic.StoreUint32(word32(plugin.WatchFault), uint32(kind))
	}
	return true
}
