// Package ucx is a transport over UCX (Unified Communication X), which is found and opened when a communicator first
// needs it: host memory of ranks on several hosts, over InfiniBand, RoCE, TCP and what else UCX finds.
//
// A plan is one track of native steps. Most are exchanges: every rank sends a message to every other and receives one,
// of no bytes too, directly between the ranks' buffers; a table in the endpoint's region says where. Reductions come
// piece by piece into that region, and the executor combines them in rank order, so all ranks get identical bits. Tags
// carry the call and its root, so ranks that disagree find out.
//
// What lives here: UCX's functions and types (ucx.h), their calls (ucx.c), the search for the library (library.go), the
// transport and its endpoint, and the plans. What may not: the host.
package ucx
