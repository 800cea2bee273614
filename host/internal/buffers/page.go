package buffers

import (
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Ranks of a host tell each other which of their users' buffers can be mapped in
// a page of shared host memory: no message, no agreement, and no waiting. Each
// rank writes its own page alone and reads the others', where anything may stand.
//
// A page holds an entry for each place in the directory, then, for each rank,
// the generations of that rank's entries that this rank has mapped.
const (
	entryWords = 16
	entryBytes = entryWords * 8
)

// Words of an entry. The generation is written last and cleared first.
const (
	entryGeneration = iota
	entryKind       // plugin.HandleKind; or kindWindow
	entryBase       // the exporter's address
	entryLength
	entryOrdinal                   // of the exporter's device, in its process; of a window the region
	entryHandle                    // 8 words: the IPC handle
	entryPieces  = entryHandle + 8 // memory by handle: how many handles it is of
)

// kindWindow marks the entry of a window, which all ranks have mapped.
const kindWindow = plugin.HandleKindCudaIpc + 1

// pageBytes returns the size of a page in a world of the given size.
func pageBytes(world int) int64 {
	return plugin.DirectoryExports * (entryBytes + 8*int64(world))
}

// page is one rank's page, mapped here.
type page struct{ base unsafe.Pointer }

func (p page) word(export, word int) *uint64 {
	return (*uint64)(unsafe.Add(p.base, export*entryBytes+word*8))
}

// mapped returns the word for the generation of a rank's export that this page's rank has mapped.
func (p page) mapped(rank, export int) *uint64 {
	return (*uint64)(unsafe.Add(p.base, plugin.DirectoryExports*(entryBytes+8*rank)+8*export))
}

// pageEntry is an entry as its exporter describes it.
type pageEntry struct {
	generation uint64
	kind       plugin.HandleKind
	base       cuda.Ptr
	bytes      int64
	ordinal    int
	pieces     int // of kind cuda_vmm: handles, mapped behind each other
	ipc        cuda.IPCHandle
}

// write publishes an entry.
func (p page) write(export int, s pageEntry) {
	// Go's atomics are sequentially consistent: a reader of the generation reads
	// the fields that were written before it.
	atomic.StoreUint64(p.word(export, entryGeneration), 0)
	atomic.StoreUint64(p.word(export, entryKind), uint64(s.kind))
	atomic.StoreUint64(p.word(export, entryBase), uint64(s.base))
	atomic.StoreUint64(p.word(export, entryLength), uint64(s.bytes))
	atomic.StoreUint64(p.word(export, entryOrdinal), uint64(s.ordinal))
	for i := range len(s.ipc) / 8 {
		atomic.StoreUint64(p.word(export, entryHandle+i), *(*uint64)(unsafe.Pointer(&s.ipc[8*i])))
	}
	atomic.StoreUint64(p.word(export, entryPieces), uint64(s.pieces))
	atomic.StoreUint64(p.word(export, entryGeneration), s.generation)
}

// clear withdraws an entry.
func (p page) clear(export int) { atomic.StoreUint64(p.word(export, entryGeneration), 0) }

// maxExport bounds the length of an allocation that a peer announces.
const maxExport = 1 << 46

// read returns an entry that holds still; ok is false for one that is absent, being
// written, or nonsense.
func (p page) read(export int) (s pageEntry, ok bool) {
	generation := atomic.LoadUint64(p.word(export, entryGeneration))
	if generation == 0 {
		return pageEntry{}, false
	}
	kind := atomic.LoadUint64(p.word(export, entryKind))
	base := atomic.LoadUint64(p.word(export, entryBase))
	length := atomic.LoadUint64(p.word(export, entryLength))
	ordinal := atomic.LoadUint64(p.word(export, entryOrdinal))
	s = pageEntry{generation: generation, kind: plugin.HandleKind(kind), base: cuda.Ptr(base), bytes: int64(length),
		ordinal: int(ordinal)}
	for i := range len(s.ipc) / 8 {
		*(*uint64)(unsafe.Pointer(&s.ipc[8*i])) = atomic.LoadUint64(p.word(export, entryHandle+i))
	}
	pieces := atomic.LoadUint64(p.word(export, entryPieces))
	if kind == uint64(plugin.HandleKindCudaVmm) {
		if pieces < 1 || pieces > maxPieces {
			return pageEntry{}, false
		}
		s.pieces = int(pieces)
	}
	sound := (kind == uint64(plugin.HandleKindCudaVmm) || kind == uint64(plugin.HandleKindCudaIpc) ||
		kind == uint64(kindWindow)) &&
		length > 0 && length <= maxExport && base <= ^uint64(0)-length && ordinal < 1<<16
	return s, sound && atomic.LoadUint64(p.word(export, entryGeneration)) == generation
}
