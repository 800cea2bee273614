// Package allocator makes the segments of a pool (package pool) from a GPU's memory and gives them back: in a plain
// allocator as each rank needs, in a symmetric one in steps that all ranks take together, so that their blocks lie at
// equal offsets. Peers map the segments by the registry of buffers.
//
// An allocator knows of its communicator what Home has, and outlives it. It never holds a turn while the driver makes
// or releases memory.
package allocator
