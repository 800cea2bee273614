// Package host loads transports and runs collectives over them.
//
// Init joins the ranks of a job into a Communicator; its methods are the
// collectives. The package imports no transport: a binary that wants a builtin
// one registers it, as database/sql drivers do, and others are named in
// Options.Transports.
//
// What lives here is the communicator: its life, its calls, groups and
// sub-groups, and the cache of prepared plans. Rendezvous is in bootstrap,
// places in topology, the choice of an algorithm in selector, generic
// algorithms in algorithm, running plans in executor, handles and mappings in
// memory, deadlines and records in watch, and the table of SHUNT_* variables
// in option. No memory is moved here but by the probe of GPU pairs, and no kernel
// is known here.
//
// On CUDA memory operations are enqueued on the caller's stream; what is special
// to it is in device*.go (running, groups, faults, the probe), directory*.go and
// register.go (which of the callers' buffers peers can reach), and gpu.go.
package host
