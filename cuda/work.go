package cuda

// ParamBytes is the size of the largest kernel argument block.
const ParamBytes = 640

// LaunchDependent lets a kernel be scheduled before the one before it in the
// stream has ended; the kernel itself waits for that end before it touches
// memory.
const LaunchDependent uint32 = 1

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

// WorkKind is what a piece of Work puts into its stream.
type WorkKind uint32

// Kinds of work, with the fields that they use besides Stream.
const (
	WorkLaunch WorkKind = 1 // Handle: Function; Grid, Block, Shared, Flags; Params, ParamBytes: the argument block
	WorkCopy   WorkKind = 2 // To, From, Bytes
	WorkRecord WorkKind = 3 // Handle: Event
	WorkWait   WorkKind = 4 // Handle: Event
	// WorkCall calls C code on this thread as it is submitted:
	// Handle(Bytes, registers at Params, From, To, Stream), which returns a
	// plugin.Code and must not call Go. See plugin.Native.
	WorkCall WorkKind = 5
)

// String is the driver's function.
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
