// Package nccl is a transport over NVIDIA's NCCL, which is found and opened when a
// communicator is made: GPUs of one host and of several. It writes plans of one native
// step, which enqueues a call of NCCL onto the caller's stream; so operations can be
// captured, and keep their order with everything else there. Its communicators of NCCL
// are made when the first plan is prepared that needs one.
//
// In a process of its own (Staged) it does not reach the caller's memory: plans copy that to staging memory, post
// commands, and copy the results back.
//
// What lives here: the table of NCCL's functions (nccl.h), their calls (nccl.c), the search for
// the library (library.go), the transport, and the commands and plans of Staged (staged.go,
// pieces.go). What may not: CUDA kernels, and the host.
package nccl
