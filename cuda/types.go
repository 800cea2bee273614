package cuda

import (
	"fmt"
	"unsafe"
)

// Handles of the driver. The zero Stream is the default stream.
type (
	Ptr       uint64 // device address
	Context   uint64 // a device's primary context
	Stream    uint64
	Event     uint64
	Graph     uint64
	GraphExec uint64
	Module    uint64
	Function  uint64
)

// Default streams that have handles of their own. PerThreadStream is another
// stream in every thread.
const (
	LegacyStream    Stream = 1 // so has 0
	PerThreadStream Stream = 2
)

// Handle returns the CUstream as a pointer, which makes a Stream a host.Stream. It
// points to no memory of Go.
func (s Stream) Handle() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&s)) }

// DeviceInfo describes a device.
type DeviceInfo struct {
	Ordinal         int
	Name            string
	UUID            [16]byte
	Bus             string // PCI address, "0000:18:00.0"
	Memory          int64  // bytes
	Major, Minor    int    // compute capability
	Multiprocessors int
	MaxShared       int  // bytes of shared memory that a block may ask for
	VirtualMemory   bool // memory of CreateMemory
	ExportFD        bool // ExportMemory
	StreamMemoryOps bool // WriteValue and WaitValue
	Domains         int  // memory synchronization domains; fewer than 2: no LaunchRemote
}

// UUIDString returns the UUID as nvidia-smi prints it.
func (d DeviceInfo) UUIDString() string {
	u := d.UUID
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// Mapping is memory of CreateMemory or ImportMemory, mapped at Address with
// access for one device.
type Mapping struct {
	Address Ptr
	Bytes   int64 // a multiple of the granularity, at least what was asked for
	Handle  uint64
}

// MaxChunks is the most handles that a Range is made of.
const MaxChunks = 4096

// Range is memory of several handles, mapped behind each other at Address.
type Range struct {
	Address Ptr
	Bytes   int64
	Chunks  []Mapping
}

// Chunk is memory of one handle that other code of the process has mapped, and a descriptor
// that keeps it alive.
type Chunk struct {
	Address  Ptr
	Bytes    int64
	BufferID uint64 // of this mapping; another one at its address has another
	Device   int
	FD       int
}

// HostMemory is pinned host memory that kernels reach at Device. It starts
// zero-filled.
type HostMemory struct {
	Address uintptr
	Device  Ptr
	Bytes   int64
}

// PointerKind says what an address is.
type PointerKind int

// Kinds of address.
const (
	PointerUnknown PointerKind = iota // not CUDA's: plain host memory, or nothing
	PointerHost                       // pinned host memory
	PointerDevice
)

// PointerInfo describes the allocation that an address lies in.
type PointerInfo struct {
	Kind      PointerKind
	Device    int // ordinal, or -1
	Base      Ptr
	Bytes     int64
	BufferID  uint64 // differs between two allocations or mappings at one address
	Managed   bool
	LegacyIPC bool // ExportIPC
	Shareable bool // ExportRange
}

// IPCHandle lets another process open an allocation of Alloc.
type IPCHandle [64]byte

// CaptureStatus says whether a stream is being captured.
type CaptureStatus int

// Capture states.
const (
	CaptureNone CaptureStatus = iota
	CaptureActive
	CaptureInvalidated
)

// Capture identifies the capture that a stream is in. Stream is known outside
// captures too, from Submit: a number that no other stream of the process has or will
// have, although handles are reused; 0 if the driver does not tell.
type Capture struct {
	Stream uint64
	Status CaptureStatus
	ID     uint64
	Graph  Graph
}
