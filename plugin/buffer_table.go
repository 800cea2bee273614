package plugin

// Kernels and host share the directory of buffers without a call of the driver. shunt_transport.h has the same layout.

// A region of role directory tells kernels which of the caller's buffers peers
// can reach without staging. It begins with DirectoryExports entries for
// allocations of this rank, each DirectoryEntryBytes long: base address, bytes
// (0: unused), a word with bit r set once rank r has entered its mapping, and
// the allocation's generation, all 64 bits wide. Behind them stands, for each
// rank, where that rank's exports are mapped here: DirectoryExports addresses. It
// ends with what kernels count, see DirectoryBegun.
//
// The host writes an export before any kernel can need it, an import before
// the exporter's bit, and takes a bit back before it unmaps. Of this kernels only
// read.
const (
	DirectoryExports    = 128
	DirectoryEntryBytes = 32
)

// Offsets of the kernels' counters, by which the host learns, without a call and while graphs are replayed, that
// nothing uses a withdrawn buffer any more. All are uint64, start at 0 and only grow. A launch of one block, or one
// whose blocks each look for themselves, may leave out decided and forgotten.
const (
	DirectoryBegun   = 0 // blocks that are about to read entries; raised before they do
	DirectoryDecided = 8 // findings of a launch, at most two, that blocks which begin later will use
	// blocks that have ended, as have the accesses of peers to this rank's memory for them; never raised by one that has
	// given up a wait
	DirectoryEnded     = 16
	DirectoryForgotten = 24 // findings that are not used any more: all blocks of their launch have begun
	// DirectoryExports uint64: how often each export was found, so that the host keeps those in use
	DirectoryUsed = 64

	DirectoryCountBytes = DirectoryUsed + 8*DirectoryExports
)

// DirectoryBytes returns the size of the directory in a world of the given size.
func DirectoryBytes(world int) int64 { return DirectoryCounts(world) + DirectoryCountBytes }

// DirectoryCounts returns the offset of what kernels count.
func DirectoryCounts(world int) int64 {
	return DirectoryExports * (DirectoryEntryBytes + 8*int64(world))
}

// DirectoryEntry returns the offset of an export.
func DirectoryEntry(export int) int64 { return int64(export) * DirectoryEntryBytes }

// DirectoryImport returns the offset of the address where an export of a rank is mapped here.
func DirectoryImport(rank, export int) int64 {
	return DirectoryExports*(DirectoryEntryBytes+8*int64(rank)) + 8*int64(export)
}
