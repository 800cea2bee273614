// Package host runs collectives over transports.
//
// Init joins the ranks of a job into a Communicator; its methods are the collectives. The package imports no transport:
// a binary that wants a builtin one registers it, as database/sql drivers do, and others are named in
// Options.Transports.
//
// A call that takes a context returns an error of code Timeout after the context's deadline and Aborted if it was
// canceled. On the rank whose context it is, errors.Is finds the context's error in it, and the cause.
//
// What lives here is the communicator: its life, its calls, groups and sub-groups, and the thread from a call to its
// plan. The rooms under internal have the rest of the host, and none of them knows the communicator: call checks
// arguments, plans finds the plan, endpoints opens the transports' endpoints and maps their memory, buffers keeps the
// memory that peers reach, diagnosis words what goes wrong, survey gathers facts about the ranks, job holds what the
// communicators of a rendezvous share, regroup what ranks work out to make one of another, turn admits one caller at a
// time, guard bounds the calls of transports in this process, round exchanges what ranks tell each other, logs calls
// the program's handler, lockorder orders the locks around a launch, and allocator, pool and pinned make memory.
// Loading transports is in carrier, rendezvous in bootstrap, places in topology, the choice of an algorithm in
// selector, generic algorithms in algorithm, running plans in executor, handles and mappings in memory, records in
// report, and the table of SHUNT_* variables in option. No memory is moved here, and no kernel is known.
//
// On CUDA memory operations are enqueued on the caller's stream; what is special to it is in device*.go (running,
// groups) and register.go.
package host
