package cudaipc

/*
#include <stddef.h>
#include "kernels/layout.h"

enum {
	offsetof_op = offsetof(shunt_kernel_args, op), offsetof_fenced = offsetof(shunt_kernel_args, fenced),
	offsetof_what = offsetof(shunt_kernel_args, what)
};
static int64_t region_bytes(int world) { return SHUNT_REGION_BYTES(world); }
static int64_t ll128_offset(int world) { return SHUNT_OFF_LL128(world); }
static int64_t channel_offset(int world) { return SHUNT_OFF_CHANNEL(world); }
static int64_t staging_offset(int world) { return SHUNT_OFF_STAGING(world); }
static int64_t counts_offset(int world) { return SHUNT_OFF_COUNTS(world); }
*/
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/transports/cudaipc/internal/parts"
)

// What kernels/layout.h says.
const (
	maxRanks   = C.SHUNT_MAX_RANKS
	maxBlocks  = C.SHUNT_MAX_BLOCKS
	maxThreads = C.SHUNT_MAX_THREADS

	channelBlocks = C.SHUNT_CHANNEL_BLOCKS

	directoryOffset = C.SHUNT_OFF_EXPORTS

	// Of the argument that holds the op and these.
	fencedShift = 8 * (C.offsetof_fenced - C.offsetof_op)
	whatShift   = 8 * (C.offsetof_what - C.offsetof_op)
)

// regionBytes returns the size of a rank's region, with what is deferred of it.
func regionBytes(world int) int64 { return int64(C.region_bytes(C.int(world))) }

// partEnds returns where in a rank's region the part ends that is there from the start, and where each deferred part
// does, in their order.
func partEnds(world int) [1 + parts.Count]int64 {
	w := C.int(world)
	return [...]int64{int64(C.ll128_offset(w)), int64(C.channel_offset(w)), int64(C.staging_offset(w)), regionBytes(world)}
}

// watchPage returns the offsets of the watch page's fields, as in plugin.
func watchPage() map[string]uintptr {
	var w C.shunt_watch
	var f C.shunt_fault
	fault := unsafe.Offsetof(w.fault)
	return map[string]uintptr{
		"abort": unsafe.Offsetof(w.abort), "timeout": unsafe.Offsetof(w.timeout),
		"own": unsafe.Offsetof(w.fault_own), "theirs": unsafe.Offsetof(w.fault_theirs),
		"fault": fault + unsafe.Offsetof(f.kind), "peer": fault + unsafe.Offsetof(f.peer),
		"epoch":  fault + unsafe.Offsetof(f.epoch),
		"missed": unsafe.Offsetof(w.missed), "missed bytes": unsafe.Offsetof(w.missed_bytes), "end": unsafe.Sizeof(w),
	}
}

// directoryLayout returns the sizes and offsets of the directory, as in plugin.
func directoryLayout() map[string]int64 {
	var e C.shunt_export
	var n C.shunt_counts
	return map[string]int64{
		"exports": C.SHUNT_MAX_EXPORTS, "entry": int64(unsafe.Sizeof(e)),
		"imports": C.SHUNT_OFF_IMPORTS - C.SHUNT_OFF_EXPORTS,
		"bytes":   int64(unsafe.Offsetof(e.bytes)), "known": int64(unsafe.Offsetof(e.known)),
		"generation":  int64(unsafe.Offsetof(e.generation)),
		"counts of 3": int64(C.counts_offset(3)) - C.SHUNT_OFF_EXPORTS, "begun": int64(unsafe.Offsetof(n.begun)),
		"decided": int64(unsafe.Offsetof(n.decided)),
		"ended":   int64(unsafe.Offsetof(n.ended)), "forgotten": int64(unsafe.Offsetof(n.forgotten)),
		"used": int64(unsafe.Offsetof(n.used)), "count bytes": int64(unsafe.Sizeof(n)),
	}
}

// argument is the place of a field in the kernels' argument block.
type argument struct {
	name          string
	offset, bytes int
}

// argumentBlock returns the fields of shunt_kernel_args and, behind them, those of
// shunt_kernel_args_v, one entry for each array element, or those of
// shunt_kernel_args_on_device.
func argumentBlock() (base, v, onDevice []argument) {
	var a C.shunt_kernel_args
	field := func(name string, offset uintptr, bytes uintptr) argument {
		return argument{name, int(offset), int(bytes)}
	}
	base = []argument{
		field("send", unsafe.Offsetof(a.send), unsafe.Sizeof(a.send)),
		field("recv", unsafe.Offsetof(a.recv), unsafe.Sizeof(a.recv)),
		field("bytes", unsafe.Offsetof(a.bytes), unsafe.Sizeof(a.bytes)),
		field("scalar", unsafe.Offsetof(a.scalar), unsafe.Sizeof(a.scalar)),
		field("abort", unsafe.Offsetof(a.abort), unsafe.Sizeof(a.abort)),
		field("timeout", unsafe.Offsetof(a.timeout), unsafe.Sizeof(a.timeout)),
		field("rank", unsafe.Offsetof(a.rank), unsafe.Sizeof(a.rank)),
		field("world", unsafe.Offsetof(a.world), unsafe.Sizeof(a.world)),
		field("op", unsafe.Offsetof(a.op), 4), // and fenced and what above it
		field("root", unsafe.Offsetof(a.root), unsafe.Sizeof(a.root)),
	}
	for i := range maxRanks {
		base = append(base, field("region", unsafe.Offsetof(a.region)+uintptr(8*i), 8))
	}
	var w C.shunt_kernel_args_v
	var m C.shunt_messages
	for _, array := range []struct {
		name   string
		offset uintptr
	}{
		{"send_count", unsafe.Offsetof(m.send_count)}, {"send_displ", unsafe.Offsetof(m.send_displ)},
		{"recv_count", unsafe.Offsetof(m.recv_count)}, {"recv_displ", unsafe.Offsetof(m.recv_displ)},
	} {
		for i := range maxRanks {
			v = append(v, field(array.name, unsafe.Offsetof(w.messages)+array.offset+uintptr(8*i), 8))
		}
	}
	var d C.shunt_kernel_args_on_device
	onDevice = []argument{
		field("send_counts", unsafe.Offsetof(d.send_counts), unsafe.Sizeof(d.send_counts)),
		field("send_displs", unsafe.Offsetof(d.send_displs), unsafe.Sizeof(d.send_displs)),
		field("recv_counts", unsafe.Offsetof(d.recv_counts), unsafe.Sizeof(d.recv_counts)),
		field("recv_displs", unsafe.Offsetof(d.recv_displs), unsafe.Sizeof(d.recv_displs)),
		field("element", unsafe.Offsetof(d.element), unsafe.Sizeof(d.element)),
		field("send_capacity", unsafe.Offsetof(d.send_capacity), unsafe.Sizeof(d.send_capacity)),
		field("recv_capacity", unsafe.Offsetof(d.recv_capacity), unsafe.Sizeof(d.recv_capacity)),
	}
	return base, v, onDevice
}
