// Package job holds what the communicators of one rendezvous share: what options and environment say, the session with
// the store, the loaded transports, the GPU, the table of costs, and the goroutines that tell communicators of lost
// ranks and plugins.
//
// What lives here: joining and ending a job, reading its options, loading its transports and starting them again,
// asking the ranks of a communicator that is being made, and which communicators are notified of a failure. What may
// not: operations, plans, users' memory, and what a communicator does when it fails. It knows communicators as Members,
// and does not import package host.
package job
