// Package endpoints opens the transports' endpoints of one communicator, leaves out those that some rank cannot use,
// exchanges and maps the memory of the others, and closes them.
//
// What lives here: which transports reach the ranks, the ranks' control pages, regions and their mappings for the CPU
// (connect.go) and the GPU (gpu.go), memory that is made when a plan needs it, windows, and what looks after the work
// on the GPU beside the operations (watch.go). What may not: loading transports, choosing algorithms, operations, and
// waiting for another rank's calls. What can fail on one rank alone between two steps of all ranks is brought to the
// next step, so that all return the same error. It does not import package host.
package endpoints
