package plugin

// Kernels and host share the watch page without a call of the driver. shunt_transport.h has the same layout.

// Offsets in the watch page, to which SpaceAbort points: pinned host memory of
// one communicator on one device. The first line is the host's: kernels look at
// it while they wait long. The others are the kernels'.
const (
	WatchAbort      = 0  // uint32: not 0 once the communicator is aborted
	WatchTimeout    = 8  // uint64: nanoseconds a wait may last; 0: no limit
	WatchFault      = 64 // uint32: why a kernel gave up, a Fault; written last, the first one stays
	WatchFaultPeer  = 68 // int32: rank that was waited for, or differs
	WatchFaultEpoch = 72 // uint64: value that was waited for
	// 3 uint64, of FaultAsymmetric: this rank's range, offset of its receive memory there, and bytes, which InPlace may be
	// added to; the first of FaultLength: bytes, of FaultCall: a CallWord; of FaultCounts: count and displacement in
	// elements, and 0 for send memory, 1 for receive memory, 2 for what this rank sends to itself
	WatchFaultOwn = 80
	// 3 uint64: and what the peer has instead; the first of FaultCounts: elements that there is room for, or that this
	// rank receives from itself
	WatchFaultTheirs = 104
	WatchMissed      = 128 // uint64: an address of the caller's that the directory lacks; any later one replaces it
	WatchMissedBytes = 136 // uint64: and how many bytes of it a kernel would have needed
	WatchBytes       = 192
)

// InPlace is added to the bytes of FaultAsymmetric where a rank's send memory is
// its receive memory, by algorithms in which all ranks must agree about that.
const InPlace = 1 << 62

// Fault is the reason why a kernel gave up.
type Fault uint32

// Faults.
const (
	FaultNone    Fault = 0
	FaultAborted Fault = 1 // the abort word was raised
	FaultTimeout Fault = 2 // the watch page's timeout passed
	// FaultAsymmetric: the receive memory of a symmetric request lies elsewhere on
	// a peer, or is its send memory there and not here. The kernel that says so does not end before the communicator is
	// aborted.
	FaultAsymmetric Fault = 3
	// FaultLength: the peer sends a message of another length than this rank expects.
	FaultLength Fault = 4
	// FaultCounts: a count or displacement that the kernel has read from device memory is invalid: it is negative,
	// reaches past the memory that was given, or this rank's count to itself differs from its count from itself. The
	// rank is the peer of the count.
	FaultCounts Fault = 5
	// FaultEngine: an engine step has failed, or its proxy has not ended it in time. The kernel of the executor's own and
	// the proxy report it; no kernel of a transport does.
	FaultEngine Fault = 6
	// FaultCall: the peer does another call, eager or replayed, than this rank.
	FaultCall Fault = 7
)
