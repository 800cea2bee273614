// Package buffers keeps the caller's memory that peers reach directly: the registry of what this rank exports and of
// what it has mapped of its peers, registration by users and by what kernels have missed, ranges that all ranks use
// alike (symmetric memory), and the withdrawal of memory that its owner has freed. Engines (engines.go) registers the
// memory of calls with transports that move it by a library of their own.
//
// Comments call the registry's table, which kernels read, the directory. Keep (keep.go) runs on a goroutine of its own
// and maps what peers export. It retries a refused import after ever longer pauses.
//
// What lives here: which memory peers have mapped, how they learn of it, and how long it stays. What may not:
// operations and plans, the memory of transports, and waiting on the path of a call. Collective steps ask the
// communicator's ranks through Group. It does not import package host.
package buffers
