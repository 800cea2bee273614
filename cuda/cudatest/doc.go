// Package cudatest is a CUDA driver in memory: cuda.Driver over the host's
// memory, for tests of code that drives a GPU, under the race detector and on
// machines without one.
//
// Device memory is host memory at its own address, so a test looks into it
// directly (Bytes). Streams run in order, each in a goroutine of its own;
// events, captures, graphs with conditional nodes, and their tokens behave as the
// driver's; shareable
// memory is a memfd, so exporting it to another process works; IPC handles
// work between drivers and goroutines of one process. Kernels are Go functions
// that a test registers by name. Fail injects an error into a call.
//
// Nothing here imitates timing, caches or the memory model of a GPU.
package cudatest
