// Package pool keeps the ranks of a test as long-lived processes.
//
// A Pool is one world: as many copies of the current binary as the world has
// ranks, started on first use and kept until Close. Every case is one request
// frame and one response frame per rank, on a pair of pipes of their own
// (descriptors 3 and 4 of the worker), so that nothing a rank prints can be
// mistaken for a reply. A case that passes its deadline, or whose rank dies,
// fails alone: the pool is killed, and started again for the next case.
//
// The binary calls Main first in main or TestMain, and registers what workers
// can do with Handle, normally from an init function.
//
// What lives here is processes, frames and deadlines. What a case means, and
// how its result is checked, is the caller's; nothing here knows Shunt.
package pool
