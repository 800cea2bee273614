package cuda

import "unsafe"

// Driver is the part of a CUDA driver that Shunt uses. Its methods may be called from
// any goroutine. Every error is a *plugin.Error that wraps an *Error; lengths
// are in bytes. Calls that take a Context run in it and leave the thread's own
// context as it was.
type Driver interface {
	// Version is the CUDA version that the driver supports, 1000*major+10*minor.
	Version() int
	// Devices lists the devices that this process sees.
	Devices() ([]DeviceInfo, error)
	// CanAccess reports whether device can reach peer's memory.
	CanAccess(device, peer int) (bool, error)
	// Retain makes or shares the primary context of a device; Release undoes
	// one Retain.
	Retain(device int) (Context, error)
	Release(device int) error
	// Synchronize waits for everything in a context.
	Synchronize(Context) error
	// EnablePeer lets kernels of ctx reach memory of peer's context. Doing it
	// twice is no error.
	EnablePeer(ctx, peer Context) error

	// Alloc is memory that ExportIPC can export. Not zeroed.
	Alloc(ctx Context, bytes int64) (Ptr, error)
	Free(ctx Context, p Ptr) error
	// MemoryInfo returns the free and the total memory.
	MemoryInfo(ctx Context) (available, total int64, err error)
	AllocHost(ctx Context, bytes int64) (HostMemory, error)
	FreeHost(ctx Context, m HostMemory) error
	// RegisterHost lets the GPU reach memory that this process has mapped, whole pages of it,
	// at the address that it returns. UnregisterHost undoes that, before the memory is unmapped.
	RegisterHost(ctx Context, p unsafe.Pointer, bytes int64) (Ptr, error)
	UnregisterHost(ctx Context, p unsafe.Pointer) error
	// CreateMemory is memory on a device that ExportMemory can export. Not
	// zeroed.
	CreateMemory(ctx Context, device int, bytes int64) (Mapping, error)
	// ExportMemory makes a file descriptor of a Mapping's handle. The caller owns
	// it; it keeps the memory alive.
	ExportMemory(ctx Context, handle uint64) (fd int, err error)
	// ImportMemory maps exported memory for a device. bytes is the exporter's
	// Mapping.Bytes; fd stays the caller's.
	ImportMemory(ctx Context, device, fd int, bytes int64) (Mapping, error)
	// Unmap ends a Mapping; the memory lives on while anyone else maps it or
	// holds a descriptor.
	Unmap(ctx Context, m Mapping) error
	// ExportRange exports memory by handle that other code of the process has mapped from p on for bytes: a tensor of an
	// expandable segment spans several handles. The chunks lie behind each other, the first begins at or before p, and
	// there are at most so many; their descriptors are the caller's.
	//
	// No caller may unmap the range meanwhile: the driver's heap breaks when a handle is
	// retained in one thread while another lets it go. So it is for the call that was
	// given the memory, and never for a goroutine that looks at it by itself.
	ExportRange(ctx Context, p Ptr, bytes int64, most int) ([]Chunk, error)
	// StillMapped reports whether the mapping at each address still has the buffer
	// id beside it, of a Chunk or of PointerInfo. The memory may be freed and unmapped
	// meanwhile. It makes one crossing and allocates nothing. The slices are of one
	// length.
	StillMapped(ctx Context, at []Ptr, ids []uint64) (bool, error)
	// ImportRange maps exported chunks behind each other for a device. fds and
	// bytes are the chunks', in order; the descriptors stay the caller's.
	ImportRange(ctx Context, device int, fds []int, bytes []int64) (Range, error)
	// ReserveRange reserves addresses for memory of a device, a multiple of 2 MiB, in which nothing is mapped yet;
	// MapChunk maps exported memory there for the device, at an offset where nothing is mapped, and adds it to the
	// range's chunks. fd stays the caller's.
	ReserveRange(ctx Context, device int, bytes int64) (Range, error)
	MapChunk(ctx Context, device int, r *Range, offset int64, fd int, bytes int64) error
	// UnmapRange ends a range, with what is mapped in it.
	UnmapRange(ctx Context, r Range) error
	// Pointer describes the allocation that p lies in. Memory that CUDA does
	// not know is PointerUnknown, not an error.
	Pointer(ctx Context, p Ptr) (PointerInfo, error)
	// ExportIPC exports the whole allocation that p lies in; OpenIPC returns
	// its base. A handle cannot be opened in the process that exported it.
	ExportIPC(ctx Context, p Ptr) (IPCHandle, error)
	OpenIPC(ctx Context, h IPCHandle) (Ptr, error)
	CloseIPC(ctx Context, p Ptr) error
	// Write and Read copy between Go memory and the device; the copy is done,
	// for every stream, when they return.
	Write(ctx Context, to Ptr, from []byte) error
	Read(ctx Context, to []byte, from Ptr) error

	// NewStream makes a stream that does not wait for the default stream.
	// Lower priorities are more urgent; 0 is normal.
	NewStream(ctx Context, priority int) (Stream, error)
	// StreamPriority returns what a stream was made with, within the device's range.
	StreamPriority(ctx Context, s Stream) (int, error)
	DestroyStream(ctx Context, s Stream) error
	SynchronizeStream(ctx Context, s Stream) error
	// StreamDone reports whether everything in the stream has ended.
	StreamDone(ctx Context, s Stream) (bool, error)
	Copy(ctx Context, to, from Ptr, bytes int64, s Stream) error
	Set(ctx Context, to Ptr, value byte, bytes int64, s Stream) error // see also Clear
	// WriteValue stores a 64-bit word after what is in the stream; WaitValue
	// holds the stream until a word has reached value, by signed difference.
	WriteValue(ctx Context, s Stream, word Ptr, value uint64) error
	WaitValue(ctx Context, s Stream, word Ptr, value uint64) error

	// NewEvent makes an event, with a time stamp if timing.
	NewEvent(ctx Context, timing bool) (Event, error)
	DestroyEvent(ctx Context, e Event) error
	Record(ctx Context, e Event, s Stream) error
	// RecordContext records everything that is in the streams of a context; a
	// driver before CUDA 12.5 waits for it instead. It fails, and breaks that
	// capture, while a stream of the context is being captured.
	RecordContext(ctx Context, e Event) error
	EventDone(ctx Context, e Event) (bool, error)
	// Elapsed is the time between two events with time stamps, in microseconds.
	Elapsed(ctx Context, from, to Event) (float64, error)
	WaitEvent(ctx Context, s Stream, e Event) error

	// BeginCapture turns what this thread puts into a stream into a graph.
	BeginCapture(ctx Context, s Stream) error
	EndCapture(ctx Context, s Stream) (Graph, error)
	CaptureInfo(ctx Context, s Stream) (Capture, error)
	Instantiate(ctx Context, g Graph) (GraphExec, error)
	LaunchGraph(ctx Context, x GraphExec, s Stream) error
	DestroyGraph(g Graph) error
	DestroyGraphExec(x GraphExec) error
	// RetainOnGraph ties a token to a graph: Released hands it out once neither
	// the graph nor an executable made of it is left. Nothing else happens
	// when they go: no call, no lock. After an error Released may hand the token
	// out too.
	RetainOnGraph(g Graph, token uint64) error
	Released(tokens []uint64) []uint64

	// LoadModule loads a cubin, fatbin or PTX; the image is not kept. In a primary
	// context libcuda's driver returns the same module for the same image, which
	// stays loaded, and the context retained, for the rest of the process;
	// UnloadModule then does nothing.
	LoadModule(ctx Context, image []byte) (Module, error)
	UnloadModule(ctx Context, m Module) error
	// Function finds a kernel and loads its code, so that its first launch
	// waits for nothing. maxShared is the dynamic shared memory it may be
	// launched with.
	Function(ctx Context, m Module, name string, maxShared int) (Function, error)
	// LaunchKernels launches in order on one stream, in one crossing and without
	// allocating; launched counts those that were launched.
	LaunchKernels(ctx Context, s Stream, launches []Launch) (launched int, err error)
	// Submit puts work into streams, in order, in one crossing and without
	// allocating, if b.Stream is in the capture b.Capture and the stream b.StreamID.
	// If it is not, nothing is done and there is no error: compare the Capture, which
	// is b.Stream's. done counts the pieces of work that were put; those before a
	// failure stay.
	Submit(ctx Context, b *Batch) (done int, c Capture, err error)
}

// Clear zeroes memory in a stream of its own and waits until that is done. It may be called beside captures, which
// [Driver].Write would break.
func Clear(d Driver, ctx Context, at Ptr, bytes int64) error {
	s, err := d.NewStream(ctx, 0)
	if err != nil {
		return err
	}
	err = d.Set(ctx, at, 0, bytes, s)
	if err == nil {
		err = d.SynchronizeStream(ctx, s)
	}
	if destroyed := d.DestroyStream(ctx, s); err == nil {
		err = destroyed
	}
	return err
}
