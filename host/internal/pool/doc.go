// Package pool keeps the blocks of an allocator: segments of GPU memory, cut into blocks by best fit, merged when they
// are freed, and given out again in the order of streams.
//
// A free block remembers its uses: an event for each stream that used it, or the capture it belongs to. Work that was
// put into a stream later comes after them, so the block serves that stream at once. The two kinds of pool differ in
// when it may serve others:
//
//   - A plain pool looks at the events, and gives a block to another stream when they have passed. No stream waits.
//   - An ordered pool looks at nothing that ranks see differently. It gives the block to the other stream at once, and
//     that stream waits for the events. So ranks that make the same calls in the same order get the same places, and
//     their blocks lie at equal offsets: the memory is symmetric. That uses have passed counts once the ranks have
//     agreed on it (Passed, Agreed).
//
// Memory that was allocated or freed in a stream that is being captured serves that capture alone, until its graph, and
// every executable made of it, is gone.
//
// A pool calls the driver for events and queries. It neither makes nor releases memory of a GPU: it is handed segments
// and hands them back, and its lock is the last in the order (package lockorder).
package pool
