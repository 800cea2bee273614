// Package cudaipctest holds the kernels of transports/cudaipc as Go functions
// for the CUDA driver in memory (cuda/cudatest), so that everything around the
// kernels runs in tests, under the race detector and without a GPU.
//
// They take the argument blocks of kernels/layout.h, wait for each other through
// the regions, poll the abort word, report faults and misses in the watch page, and
// use the directory of buffers where the real ones do; results are the same, to
// the bit. How bytes travel through the regions is their own, and much simpler:
// ranks of one communicator must all run these.
package cudaipctest
