// Package cudaipc moves bytes between GPUs of one host through peer memory,
// over NVLink.
//
// An endpoint owns one region of device memory, which every peer maps: slots,
// flags, counters and credits, laid out by kernels/layout.h. Its plans launch
// kernels, which are CUDA C in kernels/, compiled ahead of time (kernels/compile)
// into images/ and embedded. All protocol state lives in the region and is advanced by the
// kernels themselves, so the plans run eagerly, captured, and replayed in any
// mixture.
//
// What lives here is which algorithms there are, for which sizes and with which
// grids (algorithms.go), and how their plans are built (plans.go; copies.go for
// symmetric requests, whose bytes the copy engines move; window.go for one-sided
// operations; beside.go for plans beside computation), with what the kernels and Go
// must have alike (layout.go). No mapping of
// peers, no stream and no launch: those are the host's. bench/ measures the
// kernels against NCCL and checks them, without any Go.
//
// Limits only say where an algorithm is offered. Of those offered host/selector takes
// the one that costs least (latency + bytes / bandwidth), whatever their order in the
// table; only equal costs go by order. So an upper limit often changes nothing: the
// next algorithm is cheaper before it is reached. Two collectives whose blocks differ
// choose within their plans (blocks.go): reduce_scatter_v among the rows of reduce_scatter
// and of reduce, by order and upper limit; all_gather_v adds a broadcast for each rank.
package cudaipc
