// Package executor runs plans, on the CPU and on CUDA streams.
//
// An Engine belongs to one rank of one communicator. It holds the table of
// regions, rank by rank, as the host mapped them, and the control pages through
// which ranks wake each other. Load turns a plan into a Program; Run executes
// it on the calling thread, in one cgo crossing and without allocating.
//
// A Program that is run again and again with the same slots may have a Quick, a
// short form that runs in Go where nothing has to be waited for.
//
// A Device runs plans on a GPU: it works out their launches and copies here and
// puts them into the caller's stream, in one crossing into the driver and
// without allocating; a plan that asks for the priority of another stream than
// before, or in a capture, takes one more. device_order.go keeps operations of several streams in
// order, device_fork.go runs tracks at the same time, and graph.go keeps what
// graphs use until they are gone. Beside a Device an Engine still holds the
// control pages and the flight recorder. Engine steps, native code and the commands
// of plugins, run on a thread of the Device's proxy (device_proxy.go, proxy.c), to
// which a kernel in the stream posts them (kernels/command.cu).
//
// What lives here is the interpreter of plans (interpret.c, run.c), waiting and
// waking (wait.c), copies (copy.c, peer.c) and reductions (reduce*.c, float.h),
// with a thin Go face. Nothing here maps memory, talks to other processes except
// through mapped memory and by reading theirs, chooses algorithms or knows a
// transport.
//
// Plans are not trusted: a plan that passed Validate may still hold any
// numbers, so every address is checked against its region or the caller's
// memory when it is used, and every loop and wait looks at the abort word.
// What a hostile plan can do is write wrong bytes inside the memory it may
// use, fail, or take until the deadline. Where the host has named the ranks'
// processes (SetPeerProcess) it can also read whatever this process may read of
// theirs, as ptrace's rules say. Native steps are the exception: they
// call into this address space, so the host refuses them from other processes.
package executor
