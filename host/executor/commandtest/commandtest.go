// Package commandtest is the executor's kernel of engine steps (kernels/command.cu) in Go, for the driver in memory.
package commandtest

// #include "../kernels/command.h"
import "C"

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Kernels returns the kernel by its name, for cudatest.Options. It stores an order in any sequence, as memory may see
// the GPU's stores.
func Kernels() map[string]cudatest.Kernel {
	return map[string]cudatest.Kernel{"shunt_command": func(g cudatest.Grid) { command(g, rand.Perm, func(int) {}) }}
}

// Late returns the kernel which stores one half of an order after the others, and before that calls delay: the first
// half of the first order, the second of the next one, and so on, over and over.
func Late(delay func()) map[string]cudatest.Kernel {
	var last atomic.Int64
	return map[string]cudatest.Kernel{"shunt_command": func(g cudatest.Grid) {
		sequence := func(halves int) []int {
			late := int(last.Add(1)-1) % halves
			return append(slices.DeleteFunc(rand.Perm(halves), func(i int) bool { return i == late }), late)
		}
		command(g, sequence, func(left int) {
			if left == 1 {
				delay()
			}
		})
	}}
}

// grace is command.cu's.
const grace = int64(time.Second)

func at(address C.shunt_word) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func word(w *C.shunt_word) *uint64 { return (*uint64)(unsafe.Pointer(w)) }

// command is the kernel: it stores the halves of the order in the given sequence, and before each calls before with
// the number of those that are left.
func command(g cudatest.Grid, sequence func(halves int) []int, before func(left int)) {
	a := (*C.shunt_command_args)(unsafe.Pointer(&g.Launch.Params[0]))
	counters := (*C.shunt_command_counters)(at(a.counters))
	w := wait{counters: counters, watch: at(a.watch), grid: g}
	number := atomic.AddUint64(word(&counters.next), 1) - 1
	if atomic.LoadUint64(word(&counters.lost)) != 0 {
		return
	}
	const slots = C.SHUNT_COMMANDS
	slot := (*C.shunt_command_slot)(unsafe.Add(at(a.slots), number%slots*C.sizeof_shunt_command_slot))
	order := (*[C.SHUNT_ORDER_WORDS]uint64)(unsafe.Pointer(&a.order))
	halves := 2 * (C.SHUNT_ORDER_FIXED + int(a.order.count))
	for done, i := range sequence(halves) {
		before(halves - done)
		half := order[i/2] >> (32 * (i % 2)) & math.MaxUint32
		atomic.StoreUint64(word(&slot.order[i]), (number+1)<<32|half)
	}
	for int64(atomic.LoadUint64(word(&slot.done))-(number+1)) < 0 {
		if w.over(number) {
			return
		}
	}
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
	if !aborted && (limit == 0 || int64(time.Since(w.since))-grace <= int64(limit)) {
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
