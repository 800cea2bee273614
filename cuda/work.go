package cuda

// ParamBytes is the size of the largest kernel argument block.
const ParamBytes = 640

// Flags of a launch. A driver that refuses one launches without it.
const (
	// LaunchDependent lets a kernel be scheduled before the one before it in the
	// stream has ended; the kernel itself waits for that end before it touches
	// memory.
	LaunchDependent uint32 = 1
	// LaunchRemote puts a kernel into the memory synchronization domain for remote
	// traffic (CUDA 12.0, compute capability 9.0). A system-scope fence waits for all
	// stores under way in its domain, so beside a kernel that computes, in the
	// default domain, it no longer waits for that kernel's, nor that kernel's end for
	// stores over a link. CUDA Programming Guide, "Memory Synchronization Domains":
	// what is in different domains of one GPU is ordered at system scope alone. That
	// suffices here:
	//   - The end of a kernel flushes its writes, and what depends on it (the next
	//     work of its stream, waiting for an event, griddepcontrol.wait) begins
	//     behind that, whatever domains the two are in. So a kernel reads what
	//     another one computed before it, and lets peers read that.
	//   - What a kernel orders while it runs, against peers' kernels, the host and
	//     copy engines, it fences at system scope.
	//   - Blocks of one kernel, and kernels that are all launched so, share a domain.
	LaunchRemote uint32 = 2
)

// Launch is one kernel launch. Its layout is that of sc_kernel_launch in driver.h; it
// holds no pointers.
type Launch struct {
	Function    Function
	Grid, Block [3]uint32
	Shared      uint32 // dynamic shared memory in bytes
	Flags       uint32
	Bytes       uint32 // used of Params
	_           uint32
	Params      [ParamBytes]byte // the argument block, laid out as the kernel declares it
}

// WorkKind is the kind of work that a piece of Work puts into its stream.
type WorkKind uint32

// Kinds of work, with the fields that they use besides Stream.
const (
	WorkLaunch WorkKind = 1 // Handle: Function; Grid, Block, Shared, Flags; Params, ParamBytes: the argument block
	WorkCopy   WorkKind = 2 // To, From, Bytes
	WorkRecord WorkKind = 3 // Handle: Event
	WorkWait   WorkKind = 4 // Handle: Event
	// WorkCall calls C code on this thread as it is submitted:
	// Handle(Bytes, registers at Params, From, To, Stream, report), which returns a
	// plugin.Code and must not call Go. See plugin.Native.
	WorkCall WorkKind = 5
)

// String returns the driver's function.
func (k WorkKind) String() string {
	switch k {
	case WorkLaunch:
		return "cuLaunchKernelEx"
	case WorkCopy:
		return "cuMemcpyAsync"
	case WorkRecord:
		return "cuEventRecord"
	case WorkWait:
		return "cuStreamWaitEvent"
	case WorkCall:
		return "native function"
	}
	return "unknown work"
}

// Work is one thing that Submit puts into a stream. Its layout is that of
// sc_work in driver.h; it holds no pointers.
type Work struct {
	Kind        WorkKind
	Flags       uint32
	Stream      Stream
	Handle      uint64
	Grid, Block [3]uint32
	Shared      uint32
	ParamBytes  uint32
	Params      uint64 // offset in Batch.Params, a multiple of 8
	To, From    Ptr
	Bytes       uint64
}

// Batch is work for Submit.
type Batch struct {
	Stream   Stream // whose capture decides
	StreamID uint64 // Capture.Stream that Stream must have outside captures; 0: any
	Capture  uint64 // Capture.ID that Stream must be in; 0: none
	Work     []Work
	Params   []byte
}
