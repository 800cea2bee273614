// Code generated from plugin/tables.json by gentables. DO NOT EDIT.

package plugin

// Code says what kind of failure an error is. Zero is success.
type Code int32

const (
	// OK: success.
	OK Code = 0
	// InvalidArgument: an argument is null, misaligned, negative, overflowing or of the wrong kind.
	InvalidArgument Code = 1
	// Unsupported: no transport can do this; the message says why each one cannot.
	Unsupported Code = 2
	// Mismatch: ranks disagree about the operation, its dtype, count, root or order.
	Mismatch Code = 3
	// Timeout: a deadline passed; the message names the rank that was waited for.
	Timeout Code = 4
	// PeerDied: a peer rank's process ended or its connection was lost.
	PeerDied Code = 5
	// PluginDied: a transport's process ended or does not respond.
	PluginDied Code = 6
	// Aborted: the communicator was aborted, here or on a peer.
	Aborted Code = 7
	// Closed: the communicator, endpoint or handle is closed.
	Closed Code = 8
	// OutOfMemory: memory, file descriptors or another limit ran out.
	OutOfMemory Code = 9
	// System: a system call failed; the message carries errno.
	System Code = 10
	// Protocol: bytes from another process are malformed or not authentic.
	Protocol Code = 11
	// PluginRejected: a plugin could not be loaded; the message says what is wrong with it.
	PluginRejected Code = 12
	// Forked: the process forked after Shunt started; use spawn or forkserver.
	Forked Code = 13
	// Device: the accelerator or its driver reported an error.
	Device Code = 14
	// Internal: a bug in Shunt or in a transport.
	Internal Code = 15
)

var codeNames = map[Code]string{
	OK:              "ok",
	InvalidArgument: "invalid_argument",
	Unsupported:     "unsupported",
	Mismatch:        "mismatch",
	Timeout:         "timeout",
	PeerDied:        "peer_died",
	PluginDied:      "plugin_died",
	Aborted:         "aborted",
	Closed:          "closed",
	OutOfMemory:     "out_of_memory",
	System:          "system",
	Protocol:        "protocol",
	PluginRejected:  "plugin_rejected",
	Forked:          "forked",
	Device:          "device",
	Internal:        "internal",
}

var codeDocs = map[Code]string{
	OK:              "success",
	InvalidArgument: "an argument is null, misaligned, negative, overflowing or of the wrong kind",
	Unsupported:     "no transport can do this; the message says why each one cannot",
	Mismatch:        "ranks disagree about the operation, its dtype, count, root or order",
	Timeout:         "a deadline passed; the message names the rank that was waited for",
	PeerDied:        "a peer rank's process ended or its connection was lost",
	PluginDied:      "a transport's process ended or does not respond",
	Aborted:         "the communicator was aborted, here or on a peer",
	Closed:          "the communicator, endpoint or handle is closed",
	OutOfMemory:     "memory, file descriptors or another limit ran out",
	System:          "a system call failed; the message carries errno",
	Protocol:        "bytes from another process are malformed or not authentic",
	PluginRejected:  "a plugin could not be loaded; the message says what is wrong with it",
	Forked:          "the process forked after Shunt started; use spawn or forkserver",
	Device:          "the accelerator or its driver reported an error",
	Internal:        "a bug in Shunt or in a transport",
}

// Codes lists every Code in the order of its value.
func Codes() []Code {
	return []Code{OK, InvalidArgument, Unsupported, Mismatch, Timeout, PeerDied, PluginDied, Aborted, Closed, OutOfMemory, System, Protocol, PluginRejected, Forked, Device, Internal}
}

// String returns the name used in messages, options and files.
func (v Code) String() string { return nameOf(codeNames, v) }

// Doc returns the table's one-line explanation.
func (v Code) Doc() string { return codeDocs[v] }

// DType is the type of one element. Values equal ncclDataType_t.
type DType uint32

const (
	// Int8: 8-bit signed integer.
	Int8 DType = 0
	// Uint8: 8-bit unsigned integer.
	Uint8 DType = 1
	// Int32: 32-bit signed integer.
	Int32 DType = 2
	// Uint32: 32-bit unsigned integer.
	Uint32 DType = 3
	// Int64: 64-bit signed integer.
	Int64 DType = 4
	// Uint64: 64-bit unsigned integer.
	Uint64 DType = 5
	// Float16: IEEE 754 binary16; reductions accumulate in float32.
	Float16 DType = 6
	// Float32: IEEE 754 binary32.
	Float32 DType = 7
	// Float64: IEEE 754 binary64.
	Float64 DType = 8
	// Bfloat16: bfloat16; reductions accumulate in float32.
	Bfloat16 DType = 9
	// Float8E4m3: OCP FP8 E4M3 (no infinity, saturating); reductions accumulate in float32.
	Float8E4m3 DType = 10
	// Float8E5m2: OCP FP8 E5M2; reductions accumulate in float32.
	Float8E5m2 DType = 11
)

var dTypeNames = map[DType]string{
	Int8:       "int8",
	Uint8:      "uint8",
	Int32:      "int32",
	Uint32:     "uint32",
	Int64:      "int64",
	Uint64:     "uint64",
	Float16:    "float16",
	Float32:    "float32",
	Float64:    "float64",
	Bfloat16:   "bfloat16",
	Float8E4m3: "float8_e4m3",
	Float8E5m2: "float8_e5m2",
}

var dTypeDocs = map[DType]string{
	Int8:       "8-bit signed integer",
	Uint8:      "8-bit unsigned integer",
	Int32:      "32-bit signed integer",
	Uint32:     "32-bit unsigned integer",
	Int64:      "64-bit signed integer",
	Uint64:     "64-bit unsigned integer",
	Float16:    "IEEE 754 binary16; reductions accumulate in float32",
	Float32:    "IEEE 754 binary32",
	Float64:    "IEEE 754 binary64",
	Bfloat16:   "bfloat16; reductions accumulate in float32",
	Float8E4m3: "OCP FP8 E4M3 (no infinity, saturating); reductions accumulate in float32",
	Float8E5m2: "OCP FP8 E5M2; reductions accumulate in float32",
}

// DTypes lists every DType in the order of its value.
func DTypes() []DType {
	return []DType{Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16, Float8E4m3, Float8E5m2}
}

// String returns the name used in messages, options and files.
func (v DType) String() string { return nameOf(dTypeNames, v) }

// Doc returns the table's one-line explanation.
func (v DType) Doc() string { return dTypeDocs[v] }

var dTypeBytes = [...]int64{
	Int8:       1,
	Uint8:      1,
	Int32:      4,
	Uint32:     4,
	Int64:      8,
	Uint64:     8,
	Float16:    2,
	Float32:    4,
	Float64:    8,
	Bfloat16:   2,
	Float8E4m3: 1,
	Float8E5m2: 1,
}

// Op is a reduction operation. Values equal ncclRedOp_t. Integer sums and products wrap; avg of integers truncates toward zero; min and max return NaN if any input is NaN.
type Op uint32

const (
	// OpSum: sum of all ranks.
	OpSum Op = 0
	// OpProd: product of all ranks.
	OpProd Op = 1
	// OpMax: maximum of all ranks.
	OpMax Op = 2
	// OpMin: minimum of all ranks.
	OpMin Op = 3
	// OpAvg: sum divided by the world size.
	OpAvg Op = 4
	// OpPremulSum: sum of each rank's data times that rank's scalar; the product is rounded to the dtype before it is summed.
	OpPremulSum Op = 5
)

var opNames = map[Op]string{
	OpSum:       "sum",
	OpProd:      "prod",
	OpMax:       "max",
	OpMin:       "min",
	OpAvg:       "avg",
	OpPremulSum: "premul_sum",
}

var opDocs = map[Op]string{
	OpSum:       "sum of all ranks",
	OpProd:      "product of all ranks",
	OpMax:       "maximum of all ranks",
	OpMin:       "minimum of all ranks",
	OpAvg:       "sum divided by the world size",
	OpPremulSum: "sum of each rank's data times that rank's scalar; the product is rounded to the dtype before it is summed",
}

// Ops lists every Op in the order of its value.
func Ops() []Op {
	return []Op{OpSum, OpProd, OpMax, OpMin, OpAvg, OpPremulSum}
}

// String returns the name used in messages, options and files.
func (v Op) String() string { return nameOf(opNames, v) }

// Doc returns the table's one-line explanation.
func (v Op) Doc() string { return opDocs[v] }

// Collective is an operation that a communicator offers.
type Collective uint32

const (
	// AllReduce: reduce count elements over all ranks; every rank gets the result.
	AllReduce Collective = 0
	// Reduce: reduce count elements over all ranks; root gets the result.
	Reduce Collective = 1
	// Broadcast: root's count elements go to every rank.
	Broadcast Collective = 2
	// AllGather: count elements of every rank, in rank order, to every rank.
	AllGather Collective = 3
	// AllGatherV: as all_gather, with a count and displacement for each rank.
	AllGatherV Collective = 4
	// ReduceScatter: reduce world*count elements; rank r gets block r of count elements.
	ReduceScatter Collective = 5
	// ReduceScatterV: as reduce_scatter, with a count and displacement for each rank.
	ReduceScatterV Collective = 6
	// AllToAll: block r of count elements goes to rank r.
	AllToAll Collective = 7
	// AllToAllV: as all_to_all, with counts and displacements for each peer, both ways.
	AllToAllV Collective = 8
	// Gather: count elements of every rank, in rank order, to root.
	Gather Collective = 9
	// GatherV: as gather, with a count and displacement for each rank.
	GatherV Collective = 10
	// Scatter: root's block r of count elements goes to rank r.
	Scatter Collective = 11
	// ScatterV: as scatter, with a count and displacement for each rank.
	ScatterV Collective = 12
	// Send: count elements to one peer, matched in order by its recv.
	Send Collective = 13
	// Recv: count elements from one peer, matched in order by its send.
	Recv Collective = 14
	// Barrier: no rank leaves before every rank has entered.
	Barrier Collective = 15
	// Put: write into a peer's window.
	Put Collective = 16
	// Get: read from a peer's window.
	Get Collective = 17
	// Signal: raise this rank's counter at a peer's window after earlier puts are visible there.
	Signal Collective = 18
	// Wait: wait until a peer has raised its counter at this rank's window the given number of times.
	Wait Collective = 19
)

var collectiveNames = map[Collective]string{
	AllReduce:      "all_reduce",
	Reduce:         "reduce",
	Broadcast:      "broadcast",
	AllGather:      "all_gather",
	AllGatherV:     "all_gather_v",
	ReduceScatter:  "reduce_scatter",
	ReduceScatterV: "reduce_scatter_v",
	AllToAll:       "all_to_all",
	AllToAllV:      "all_to_all_v",
	Gather:         "gather",
	GatherV:        "gather_v",
	Scatter:        "scatter",
	ScatterV:       "scatter_v",
	Send:           "send",
	Recv:           "recv",
	Barrier:        "barrier",
	Put:            "put",
	Get:            "get",
	Signal:         "signal",
	Wait:           "wait",
}

var collectiveDocs = map[Collective]string{
	AllReduce:      "reduce count elements over all ranks; every rank gets the result",
	Reduce:         "reduce count elements over all ranks; root gets the result",
	Broadcast:      "root's count elements go to every rank",
	AllGather:      "count elements of every rank, in rank order, to every rank",
	AllGatherV:     "as all_gather, with a count and displacement for each rank",
	ReduceScatter:  "reduce world*count elements; rank r gets block r of count elements",
	ReduceScatterV: "as reduce_scatter, with a count and displacement for each rank",
	AllToAll:       "block r of count elements goes to rank r",
	AllToAllV:      "as all_to_all, with counts and displacements for each peer, both ways",
	Gather:         "count elements of every rank, in rank order, to root",
	GatherV:        "as gather, with a count and displacement for each rank",
	Scatter:        "root's block r of count elements goes to rank r",
	ScatterV:       "as scatter, with a count and displacement for each rank",
	Send:           "count elements to one peer, matched in order by its recv",
	Recv:           "count elements from one peer, matched in order by its send",
	Barrier:        "no rank leaves before every rank has entered",
	Put:            "write into a peer's window",
	Get:            "read from a peer's window",
	Signal:         "raise this rank's counter at a peer's window after earlier puts are visible there",
	Wait:           "wait until a peer has raised its counter at this rank's window the given number of times",
}

// Collectives lists every Collective in the order of its value.
func Collectives() []Collective {
	return []Collective{AllReduce, Reduce, Broadcast, AllGather, AllGatherV, ReduceScatter, ReduceScatterV, AllToAll, AllToAllV, Gather, GatherV, Scatter, ScatterV, Send, Recv, Barrier, Put, Get, Signal, Wait}
}

// String returns the name used in messages, options and files.
func (v Collective) String() string { return nameOf(collectiveNames, v) }

// Doc returns the table's one-line explanation.
func (v Collective) Doc() string { return collectiveDocs[v] }

// MemoryKind says where bytes live.
type MemoryKind uint32

const (
	// MemoryKindHost: host memory, reached by CPU loads and stores.
	MemoryKindHost MemoryKind = 0
	// MemoryKindCuda: memory of a CUDA device.
	MemoryKindCuda MemoryKind = 1
)

var memoryKindNames = map[MemoryKind]string{
	MemoryKindHost: "host",
	MemoryKindCuda: "cuda",
}

var memoryKindDocs = map[MemoryKind]string{
	MemoryKindHost: "host memory, reached by CPU loads and stores",
	MemoryKindCuda: "memory of a CUDA device",
}

// MemoryKinds lists every MemoryKind in the order of its value.
func MemoryKinds() []MemoryKind {
	return []MemoryKind{MemoryKindHost, MemoryKindCuda}
}

// String returns the name used in messages, options and files.
func (v MemoryKind) String() string { return nameOf(memoryKindNames, v) }

// Doc returns the table's one-line explanation.
func (v MemoryKind) Doc() string { return memoryKindDocs[v] }

// HandleKind says how a peer maps a region.
type HandleKind uint32

const (
	// HandleKindNone: not exported.
	HandleKindNone HandleKind = 0
	// HandleKindMemfd: a file descriptor for mmap.
	HandleKindMemfd HandleKind = 1
	// HandleKindCudaVmm: a POSIX file descriptor from cuMemExportToShareableHandle.
	HandleKindCudaVmm HandleKind = 2
	// HandleKindCudaIpc: a cuIpcMemHandle (64 bytes of data) and an offset from the allocation's base.
	HandleKindCudaIpc HandleKind = 3
)

var handleKindNames = map[HandleKind]string{
	HandleKindNone:    "none",
	HandleKindMemfd:   "memfd",
	HandleKindCudaVmm: "cuda_vmm",
	HandleKindCudaIpc: "cuda_ipc",
}

var handleKindDocs = map[HandleKind]string{
	HandleKindNone:    "not exported",
	HandleKindMemfd:   "a file descriptor for mmap",
	HandleKindCudaVmm: "a POSIX file descriptor from cuMemExportToShareableHandle",
	HandleKindCudaIpc: "a cuIpcMemHandle (64 bytes of data) and an offset from the allocation's base",
}

// HandleKinds lists every HandleKind in the order of its value.
func HandleKinds() []HandleKind {
	return []HandleKind{HandleKindNone, HandleKindMemfd, HandleKindCudaVmm, HandleKindCudaIpc}
}

// String returns the name used in messages, options and files.
func (v HandleKind) String() string { return nameOf(handleKindNames, v) }

// Doc returns the table's one-line explanation.
func (v HandleKind) Doc() string { return handleKindDocs[v] }

// Feature is a bit of what a transport can do.
type Feature uint64

const (
	// FeatureMemory: allocates regions that every peer maps; the host's generic algorithms run over the region of role scratch.
	FeatureMemory Feature = 1
	// FeaturePlans: returns plans of its own for some collectives.
	FeaturePlans Feature = 2
	// FeatureBuffers: allocates buffers for users (windows, one-sided operations).
	FeatureBuffers Feature = 4
	// FeatureMultiHost: reaches ranks on other hosts.
	FeatureMultiHost Feature = 8
	// FeatureLengths: its messages carry their length: a plan of recv never takes a message of another length; it waits until its deadline.
	FeatureLengths Feature = 16
	// FeatureDeviceCounts: its plans of all_to_all_v take counts and displacements from device memory where Request.device_counts holds.
	FeatureDeviceCounts Feature = 32
	// FeatureMarks: behind every semaphore that its plans of collectives signal or wait for, a word is left to the host, which tells by it that ranks have called different ones.
	FeatureMarks Feature = 64
	// FeatureExchange: its endpoints exchange bytes of their own when a communicator is made and before each plan is prepared: publish and connect.
	FeatureExchange Feature = 128
	// FeaturePeerAccess: needs GPUs that reach each other's memory, where there is more than one rank on CUDA memory.
	FeaturePeerAccess Feature = 256
	// FeatureOwnGpu: needs a GPU for each rank on CUDA memory; SHUNT_SHARE_GPU lets ranks share one.
	FeatureOwnGpu Feature = 512
	// FeatureRegistration: the host registers the caller's memory with its endpoints before plans touch it, and deregisters it afterwards; builtin and shared carriers only.
	FeatureRegistration Feature = 1024
)

var featureNames = map[Feature]string{
	FeatureMemory:       "memory",
	FeaturePlans:        "plans",
	FeatureBuffers:      "buffers",
	FeatureMultiHost:    "multi_host",
	FeatureLengths:      "lengths",
	FeatureDeviceCounts: "device_counts",
	FeatureMarks:        "marks",
	FeatureExchange:     "exchange",
	FeaturePeerAccess:   "peer_access",
	FeatureOwnGpu:       "own_gpu",
	FeatureRegistration: "registration",
}

var featureDocs = map[Feature]string{
	FeatureMemory:       "allocates regions that every peer maps; the host's generic algorithms run over the region of role scratch",
	FeaturePlans:        "returns plans of its own for some collectives",
	FeatureBuffers:      "allocates buffers for users (windows, one-sided operations)",
	FeatureMultiHost:    "reaches ranks on other hosts",
	FeatureLengths:      "its messages carry their length: a plan of recv never takes a message of another length; it waits until its deadline",
	FeatureDeviceCounts: "its plans of all_to_all_v take counts and displacements from device memory where Request.device_counts holds",
	FeatureMarks:        "behind every semaphore that its plans of collectives signal or wait for, a word is left to the host, which tells by it that ranks have called different ones",
	FeatureExchange:     "its endpoints exchange bytes of their own when a communicator is made and before each plan is prepared: publish and connect",
	FeaturePeerAccess:   "needs GPUs that reach each other's memory, where there is more than one rank on CUDA memory",
	FeatureOwnGpu:       "needs a GPU for each rank on CUDA memory; SHUNT_SHARE_GPU lets ranks share one",
	FeatureRegistration: "the host registers the caller's memory with its endpoints before plans touch it, and deregisters it afterwards; builtin and shared carriers only",
}

// Features lists every Feature in the order of its value.
func Features() []Feature {
	return []Feature{FeatureMemory, FeaturePlans, FeatureBuffers, FeatureMultiHost, FeatureLengths, FeatureDeviceCounts, FeatureMarks, FeatureExchange, FeaturePeerAccess, FeatureOwnGpu, FeatureRegistration}
}

// Doc returns the table's one-line explanation.
func (v Feature) Doc() string { return featureDocs[v] }

// RegionRole says what a region that an endpoint publishes is for.
type RegionRole uint32

const (
	// RegionRolePrivate: laid out and used by the transport's own plans alone.
	RegionRolePrivate RegionRole = 0
	// RegionRoleScratch: zero-filled, at the disposal of the host's generic algorithms.
	RegionRoleScratch RegionRole = 1
	// RegionRoleBuffer: allocated for a user.
	RegionRoleBuffer RegionRole = 2
	// RegionRoleDirectory: the users' buffers that peers reach directly, entered by the host: a shunt_directory.
	RegionRoleDirectory RegionRole = 3
	// RegionRoleLocal: memory of this rank's own, which no peer maps and whose size may differ: a ring of commands, in host memory with a memfd, and what they work on, there or in CUDA memory with a cuda_vmm handle.
	RegionRoleLocal RegionRole = 4
	// RegionRoleDeferred: CUDA memory that the host makes, zero-filled, when an operation first needs it: without a handle, behind region 0 and the deferred regions before it in the address space, in multiples of 2 MiB.
	RegionRoleDeferred RegionRole = 5
)

var regionRoleNames = map[RegionRole]string{
	RegionRolePrivate:   "private",
	RegionRoleScratch:   "scratch",
	RegionRoleBuffer:    "buffer",
	RegionRoleDirectory: "directory",
	RegionRoleLocal:     "local",
	RegionRoleDeferred:  "deferred",
}

var regionRoleDocs = map[RegionRole]string{
	RegionRolePrivate:   "laid out and used by the transport's own plans alone",
	RegionRoleScratch:   "zero-filled, at the disposal of the host's generic algorithms",
	RegionRoleBuffer:    "allocated for a user",
	RegionRoleDirectory: "the users' buffers that peers reach directly, entered by the host: a shunt_directory",
	RegionRoleLocal:     "memory of this rank's own, which no peer maps and whose size may differ: a ring of commands, in host memory with a memfd, and what they work on, there or in CUDA memory with a cuda_vmm handle",
	RegionRoleDeferred:  "CUDA memory that the host makes, zero-filled, when an operation first needs it: without a handle, behind region 0 and the deferred regions before it in the address space, in multiples of 2 MiB",
}

// RegionRoles lists every RegionRole in the order of its value.
func RegionRoles() []RegionRole {
	return []RegionRole{RegionRolePrivate, RegionRoleScratch, RegionRoleBuffer, RegionRoleDirectory, RegionRoleLocal, RegionRoleDeferred}
}

// String returns the name used in messages, options and files.
func (v RegionRole) String() string { return nameOf(regionRoleNames, v) }

// Doc returns the table's one-line explanation.
func (v RegionRole) Doc() string { return regionRoleDocs[v] }

// Space says which memory a Ref points into.
type Space uint16

const (
	// SpaceSend: the caller's send memory, SlotSendBytes long.
	SpaceSend Space = 0
	// SpaceRecv: the caller's receive memory, SlotRecvBytes long.
	SpaceRecv Space = 1
	// SpaceRegion: region number [region] of rank [rank].
	SpaceRegion Space = 2
	// SpacePeer: memory of rank [rank]'s process, at the address [region] that this rank published; only where Request.peer_read holds, and only as the source of a copy.
	SpacePeer Space = 3
	// SpaceAbort: the communicator's watch page, a shunt_watch_page, as kernels see it: it begins with the abort word; only as a kernel argument.
	SpaceAbort Space = 4
	// SpacePeerRecv: the receive memory of rank [rank], as long as this rank's; only where Request.symmetric holds, to copy to and from and as a kernel argument.
	SpacePeerRecv Space = 5
)

var spaceNames = map[Space]string{
	SpaceSend:     "send",
	SpaceRecv:     "recv",
	SpaceRegion:   "region",
	SpacePeer:     "peer",
	SpaceAbort:    "abort",
	SpacePeerRecv: "peer_recv",
}

var spaceDocs = map[Space]string{
	SpaceSend:     "the caller's send memory, SlotSendBytes long",
	SpaceRecv:     "the caller's receive memory, SlotRecvBytes long",
	SpaceRegion:   "region number [region] of rank [rank]",
	SpacePeer:     "memory of rank [rank]'s process, at the address [region] that this rank published; only where Request.peer_read holds, and only as the source of a copy",
	SpaceAbort:    "the communicator's watch page, a shunt_watch_page, as kernels see it: it begins with the abort word; only as a kernel argument",
	SpacePeerRecv: "the receive memory of rank [rank], as long as this rank's; only where Request.symmetric holds, to copy to and from and as a kernel argument",
}

// Spaces lists every Space in the order of its value.
func Spaces() []Space {
	return []Space{SpaceSend, SpaceRecv, SpaceRegion, SpacePeer, SpaceAbort, SpacePeerRecv}
}

// String returns the name used in messages, options and files.
func (v Space) String() string { return nameOf(spaceNames, v) }

// Doc returns the table's one-line explanation.
func (v Space) Doc() string { return spaceDocs[v] }

// StepKind is the kind of one step of a plan.
type StepKind uint16

const (
	// StepSet: registers: dst = alu(a, b, c).
	StepSet StepKind = 1
	// StepLoad: register dst = 64-bit word at ref a (acquire).
	StepLoad StepKind = 2
	// StepStore: 64-bit word at ref dst = register a (plain; for words only this rank reads, or that a later signal publishes).
	StepStore StepKind = 3
	// StepCopy: register n bytes from ref a to ref dst.
	StepCopy StepKind = 4
	// StepReduce: register n elements: ref dst = op over refs a..a+b-1, in that order.
	StepReduce StepKind = 5
	// StepSignal: semaphore at ref dst = register a (release, system scope), then wake rank [register b], or every rank if b is none.
	StepSignal StepKind = 6
	// StepWait: until semaphore at ref a is at least register b, by signed difference (acquire); register c, if not none, holds the rank that is waited for.
	StepWait StepKind = 7
	// StepBarrier: raise the counter word at ref a (this rank's private word), publish it at ref dst (own semaphore), wait for the same semaphore of every rank.
	StepBarrier StepKind = 8
	// StepLoop: repeat the next b steps [register n] times; register dst holds the index 0, 1, ….
	StepLoop StepKind = 9
	// StepIf: skip the next b steps if register a is zero.
	StepIf StepKind = 10
	// StepLaunch: kernel a of the plan with its grid, block and arguments, on the stream; b is 1 (LaunchDependent) if the kernel itself waits for what is before it there, else 0.
	StepLaunch StepKind = 11
	// StepNative: call native function a of the plan in this address space (builtin and shared carriers only), with the values of arguments b..b+n-1 if it is one that starts and is polled.
	StepNative StepKind = 12
	// StepRemote: post command [register a] with the values of arguments b..b+n-1 to the ring of [register c] commands at ref dst, then wait until the plugin has done it; see shunt_ring.h.
	StepRemote StepKind = 13
	// StepAddress: register dst = address of ref a, in send or receive memory, in this process; for a peer to copy from (space peer).
	StepAddress StepKind = 14
)

var stepKindNames = map[StepKind]string{
	StepSet:     "set",
	StepLoad:    "load",
	StepStore:   "store",
	StepCopy:    "copy",
	StepReduce:  "reduce",
	StepSignal:  "signal",
	StepWait:    "wait",
	StepBarrier: "barrier",
	StepLoop:    "loop",
	StepIf:      "if",
	StepLaunch:  "launch",
	StepNative:  "native",
	StepRemote:  "remote",
	StepAddress: "address",
}

var stepKindDocs = map[StepKind]string{
	StepSet:     "registers: dst = alu(a, b, c)",
	StepLoad:    "register dst = 64-bit word at ref a (acquire)",
	StepStore:   "64-bit word at ref dst = register a (plain; for words only this rank reads, or that a later signal publishes)",
	StepCopy:    "register n bytes from ref a to ref dst",
	StepReduce:  "register n elements: ref dst = op over refs a..a+b-1, in that order",
	StepSignal:  "semaphore at ref dst = register a (release, system scope), then wake rank [register b], or every rank if b is none",
	StepWait:    "until semaphore at ref a is at least register b, by signed difference (acquire); register c, if not none, holds the rank that is waited for",
	StepBarrier: "raise the counter word at ref a (this rank's private word), publish it at ref dst (own semaphore), wait for the same semaphore of every rank",
	StepLoop:    "repeat the next b steps [register n] times; register dst holds the index 0, 1, …",
	StepIf:      "skip the next b steps if register a is zero",
	StepLaunch:  "kernel a of the plan with its grid, block and arguments, on the stream; b is 1 (LaunchDependent) if the kernel itself waits for what is before it there, else 0",
	StepNative:  "call native function a of the plan in this address space (builtin and shared carriers only), with the values of arguments b..b+n-1 if it is one that starts and is polled",
	StepRemote:  "post command [register a] with the values of arguments b..b+n-1 to the ring of [register c] commands at ref dst, then wait until the plugin has done it; see shunt_ring.h",
	StepAddress: "register dst = address of ref a, in send or receive memory, in this process; for a peer to copy from (space peer)",
}

// StepKinds lists every StepKind in the order of its value.
func StepKinds() []StepKind {
	return []StepKind{StepSet, StepLoad, StepStore, StepCopy, StepReduce, StepSignal, StepWait, StepBarrier, StepLoop, StepIf, StepLaunch, StepNative, StepRemote, StepAddress}
}

// String returns the name used in messages, options and files.
func (v StepKind) String() string { return nameOf(stepKindNames, v) }

// Doc returns the table's one-line explanation.
func (v StepKind) Doc() string { return stepKindDocs[v] }

// Alu is the operation of a set step, on signed 64-bit registers. Arithmetic wraps; div and mod by zero give zero.
type Alu uint16

const (
	// AluMov: a.
	AluMov Alu = 0
	// AluAdd: a + b.
	AluAdd Alu = 1
	// AluSub: a - b.
	AluSub Alu = 2
	// AluMul: a * b.
	AluMul Alu = 3
	// AluDiv: a / b.
	AluDiv Alu = 4
	// AluMod: a % b.
	AluMod Alu = 5
	// AluMin: the smaller of a and b.
	AluMin Alu = 6
	// AluMax: the larger of a and b.
	AluMax Alu = 7
	// AluLt: a < b.
	AluLt Alu = 8
	// AluLe: a <= b.
	AluLe Alu = 9
	// AluEq: a == b.
	AluEq Alu = 10
	// AluNe: a != b.
	AluNe Alu = 11
	// AluSelect: a != 0 ? b : c.
	AluSelect Alu = 12
)

var aluNames = map[Alu]string{
	AluMov:    "mov",
	AluAdd:    "add",
	AluSub:    "sub",
	AluMul:    "mul",
	AluDiv:    "div",
	AluMod:    "mod",
	AluMin:    "min",
	AluMax:    "max",
	AluLt:     "lt",
	AluLe:     "le",
	AluEq:     "eq",
	AluNe:     "ne",
	AluSelect: "select",
}

var aluDocs = map[Alu]string{
	AluMov:    "a",
	AluAdd:    "a + b",
	AluSub:    "a - b",
	AluMul:    "a * b",
	AluDiv:    "a / b",
	AluMod:    "a % b",
	AluMin:    "the smaller of a and b",
	AluMax:    "the larger of a and b",
	AluLt:     "a < b",
	AluLe:     "a <= b",
	AluEq:     "a == b",
	AluNe:     "a != b",
	AluSelect: "a != 0 ? b : c",
}

// Alus lists every Alu in the order of its value.
func Alus() []Alu {
	return []Alu{AluMov, AluAdd, AluSub, AluMul, AluDiv, AluMod, AluMin, AluMax, AluLt, AluLe, AluEq, AluNe, AluSelect}
}

// String returns the name used in messages, options and files.
func (v Alu) String() string { return nameOf(aluNames, v) }

// Doc returns the table's one-line explanation.
func (v Alu) Doc() string { return aluDocs[v] }

// Slot is a register that the host fills at launch. Slots come first in the register file; the four arrays follow the scalars, world entries each, in bytes.
type Slot uint16

const (
	// SlotCount: elements, as the caller gave them.
	SlotCount Slot = 0
	// SlotBytes: count times the element size; where Request.device_counts holds, the bytes that a count of 1 in device memory stands for, which is not 0.
	SlotBytes Slot = 1
	// SlotRoot: the root, or the peer of send, recv, put, get, signal and wait; 0 for all others.
	SlotRoot Slot = 2
	// SlotScalar: premul_sum: this rank's scalar, the bits of a float64.
	SlotScalar Slot = 3
	// SlotSendBytes: length of the send memory.
	SlotSendBytes Slot = 4
	// SlotRecvBytes: length of the receive memory.
	SlotRecvBytes Slot = 5
	// SlotWindow: one-sided operations: region number of the window; symmetric requests: number of the symmetric range, alike on all ranks.
	SlotWindow Slot = 6
	// SlotOffset: one-sided operations: byte offset in the peer's window; wait: the value waited for; symmetric requests: byte offset of the receive memory in the symmetric range.
	SlotOffset Slot = 7
	// SlotPriority: how far the stream's priority is above the default's of 0, as for work that is to overtake what runs beside it; 0: not above, not in a stream, or unknown. A rank's own matter, unlike counts: ranks may differ in it, so no plan may choose by it what peers have to do alike.
	SlotPriority Slot = 8
	// SlotArrays: first of the arrays: send counts, send displacements, receive counts, receive displacements; where Request.device_counts holds the first entry of each is instead the device address of that array, of world int64 in units of the slot bytes, or 0 for displacements that are packed in rank order.
	SlotArrays Slot = 9
)

var slotNames = map[Slot]string{
	SlotCount:     "count",
	SlotBytes:     "bytes",
	SlotRoot:      "root",
	SlotScalar:    "scalar",
	SlotSendBytes: "send_bytes",
	SlotRecvBytes: "recv_bytes",
	SlotWindow:    "window",
	SlotOffset:    "offset",
	SlotPriority:  "priority",
	SlotArrays:    "arrays",
}

var slotDocs = map[Slot]string{
	SlotCount:     "elements, as the caller gave them",
	SlotBytes:     "count times the element size; where Request.device_counts holds, the bytes that a count of 1 in device memory stands for, which is not 0",
	SlotRoot:      "the root, or the peer of send, recv, put, get, signal and wait; 0 for all others",
	SlotScalar:    "premul_sum: this rank's scalar, the bits of a float64",
	SlotSendBytes: "length of the send memory",
	SlotRecvBytes: "length of the receive memory",
	SlotWindow:    "one-sided operations: region number of the window; symmetric requests: number of the symmetric range, alike on all ranks",
	SlotOffset:    "one-sided operations: byte offset in the peer's window; wait: the value waited for; symmetric requests: byte offset of the receive memory in the symmetric range",
	SlotPriority:  "how far the stream's priority is above the default's of 0, as for work that is to overtake what runs beside it; 0: not above, not in a stream, or unknown. A rank's own matter, unlike counts: ranks may differ in it, so no plan may choose by it what peers have to do alike",
	SlotArrays:    "first of the arrays: send counts, send displacements, receive counts, receive displacements; where Request.device_counts holds the first entry of each is instead the device address of that array, of world int64 in units of the slot bytes, or 0 for displacements that are packed in rank order",
}

// Slots lists every Slot in the order of its value.
func Slots() []Slot {
	return []Slot{SlotCount, SlotBytes, SlotRoot, SlotScalar, SlotSendBytes, SlotRecvBytes, SlotWindow, SlotOffset, SlotPriority, SlotArrays}
}

// String returns the name used in messages, options and files.
func (v Slot) String() string { return nameOf(slotNames, v) }

// Doc returns the table's one-line explanation.
func (v Slot) Doc() string { return slotDocs[v] }
