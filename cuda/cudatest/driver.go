package cudatest

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/cuda"
)

// Kernel is a registered kernel. It runs on its stream's goroutine and may
// block: device memory is host memory, so kernels of several drivers can wait
// for each other. It must end when Grid.Done is closed.
type Kernel func(Grid)

// Grid is one launch of a kernel.
type Grid struct {
	Launch cuda.Launch
	Done   <-chan struct{} // closed when the driver is closed
}

// Options describe the machine.
type Options struct {
	Devices int // default 1
	// Kernels by name, for every module whose image is loaded.
	Kernels map[string]Kernel
	// NoStreamIDs makes it a driver of before CUDA 12.0.
	NoStreamIDs bool
	// CanAccess says whether a device reaches another one's memory; nil: all do.
	CanAccess func(device, peer int) bool
	// HostFreesWait makes FreeHost wait for everything in streams, as the driver's may.
	HostFreesWait bool
}

// Driver is a driver in memory. Close it at the end of the test.
type Driver struct {
	options Options
	done    chan struct{}
	work    sync.WaitGroup

	mu         sync.Mutex
	frees      frees
	next       uint64
	failures   map[string]*failure
	calls      map[string]int // made so far
	memory     memory
	streams    map[cuda.Stream]*stream
	handles    []cuda.Stream // of destroyed streams, for the next ones
	dying      []*stream     // destroyed, but perhaps still running what they were given
	events     map[cuda.Event]*event
	graphs     map[cuda.Graph]*graph
	conditions map[Condition]*condition
	execs      map[cuda.GraphExec]*graph
	modules    map[cuda.Module]bool
	kernels    map[cuda.Function]loaded
	released   []uint64
	peers      map[[2]cuda.Context]bool
	retained   map[int]int
	hazards    []string
	limit      int64 // bytes of CreateMemory on one device; 0: none
}

type failure struct {
	after  int
	result cuda.Result
}

var _ cuda.Driver = (*Driver)(nil)

// machine numbers handles across drivers, so that one driver's handle is never
// valid in another, as with processes.
var machine atomic.Uint64

// New makes a driver.
func New(o Options) *Driver {
	if o.Devices == 0 {
		o.Devices = 1
	}
	d := &Driver{
		options: o, done: make(chan struct{}), next: machine.Add(1) << 32, failures: map[string]*failure{},
		calls:  map[string]int{},
		memory: newMemory(), streams: map[cuda.Stream]*stream{}, events: map[cuda.Event]*event{},
		graphs: map[cuda.Graph]*graph{}, conditions: map[Condition]*condition{}, execs: map[cuda.GraphExec]*graph{},
		modules: map[cuda.Module]bool{}, kernels: map[cuda.Function]loaded{}, peers: map[[2]cuda.Context]bool{},
		retained: map[int]int{},
	}
	d.frees.ended.L = &d.mu
	return d
}

// Fail makes the call named (the method of cuda.Driver) fail with result, once,
// after it has succeeded the given number of times.
func (d *Driver) Fail(method string, after int, result cuda.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures[method] = &failure{after, result}
}

// Calls counts the calls so far by the names that Fail takes.
func (d *Driver) Calls() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.calls)
}

// Pending reports whether a failure that Fail asked for has not happened yet.
func (d *Driver) Pending(method string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failures[method] != nil
}

// Leaks lists what was made and not destroyed, in words.
func (d *Driver) Leaks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var leaks []string
	count := func(what string, n int) {
		if n > 0 {
			leaks = append(leaks, fmt.Sprintf("%d %s", n, what))
		}
	}
	count("allocations", len(d.memory.blocks))
	count("memory handles", d.memory.openHandles())
	count("segments", len(d.memory.segments))
	count("reserved ranges", len(d.memory.reserved))
	streams := 0
	for s := range d.streams {
		if !permanent(s) { // default streams belong to no caller
			streams++
		}
	}
	count("streams", streams)
	count("events", len(d.events))
	count("graphs", len(d.graphs))
	count("graph executables", len(d.execs))
	count("modules", len(d.modules))
	contexts := 0
	for _, n := range d.retained {
		contexts += n
	}
	count("retained contexts", contexts)
	return leaks
}

// Held counts everything that the driver keeps, by kind, down to what only its
// own bookkeeping knows: for tests that it all stays as it is over time.
func (d *Driver) Held() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bury()
	contexts := 0
	for _, n := range d.retained {
		contexts += n
	}
	opened.Lock()
	exports := 0
	for _, e := range opened.fds {
		if e.driver == d {
			exports++
		}
	}
	opened.Unlock()
	return map[string]int{
		"allocations": len(d.memory.blocks), "memory handles": d.memory.openHandles(), "segments": len(d.memory.segments),
		"reserved ranges": len(d.memory.reserved), "IPC handles": exports,
		"streams": len(d.streams), "destroyed streams": len(d.dying), "events": len(d.events), "graphs": len(d.graphs),
		"graph executables": len(d.execs),
		"released tokens":   len(d.released), "modules": len(d.modules), "functions": len(d.kernels),
		"retained contexts": contexts,
	}
}

// Close ends every stream's goroutine and frees all memory.
func (d *Driver) Close() {
	close(d.done)
	d.work.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory.close()
}

// call begins a method: it counts it, and fails where a test asked for it. The
// lock is held when it returns nil.
func (d *Driver) call(method string, format string, args ...any) error {
	d.mu.Lock()
	for d.frees.waiting {
		d.frees.ended.Wait()
	}
	if r := d.injected(method); r != cuda.Success {
		d.mu.Unlock()
		return failed(r, format, args...)
	}
	return nil
}

// injected counts a call and returns the result that a test injected for it. The
// caller holds the lock.
func (d *Driver) injected(method string) cuda.Result {
	d.calls[method]++
	f := d.failures[method]
	if f == nil {
		return cuda.Success
	}
	if f.after > 0 {
		f.after--
		return cuda.Success
	}
	delete(d.failures, method)
	return f.result
}

var resultNames = map[cuda.Result][2]string{
	cuda.InvalidValue:       {"CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	cuda.OutOfMemory:        {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	cuda.InvalidDevice:      {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	cuda.InvalidImage:       {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
	cuda.InvalidContext:     {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	cuda.InvalidHandle:      {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	cuda.NotFound:           {"CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	cuda.NotSupported:       {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	cuda.CaptureUnsupported: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
	cuda.CaptureInvalid: {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
		"operation failed due to a previous error during capture"},
	cuda.CaptureMerge: {"CUDA_ERROR_STREAM_CAPTURE_MERGE",
		"operation would result in a merge of separate capture sequences"},
	cuda.CaptureUnjoined: {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
	cuda.CaptureIsolation: {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
		"dependency created on uncaptured work in another stream"},
	cuda.CapturedEvent: {"CUDA_ERROR_CAPTURED_EVENT",
		"operation not permitted on an event last recorded in a capturing stream"},
	cuda.IllegalAddress: {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	cuda.LaunchFailed:   {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
}

func failed(r cuda.Result, format string, args ...any) error {
	name := resultNames[r]
	return cuda.Wrap(&cuda.Error{Call: fmt.Sprintf(format, args...), Result: r, Name: name[0], Text: name[1]})
}

func (d *Driver) id() uint64 {
	d.next++
	return d.next
}

// Version returns 12.8.
func (d *Driver) Version() int { return 12080 }

// Devices lists the fake devices; their UUIDs differ.
func (d *Driver) Devices() ([]cuda.DeviceInfo, error) {
	if err := d.call("Devices", "cuDeviceGetCount"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	infos := make([]cuda.DeviceInfo, d.options.Devices)
	for i := range infos {
		infos[i] = cuda.DeviceInfo{
			Ordinal: i, Name: "In memory", Bus: fmt.Sprintf("0000:%02x:00.0", i+1), UUID: [16]byte{15: byte(i + 1)},
			Memory: 1 << 30,
			Major:  9, Minor: 0, Multiprocessors: 132, MaxShared: 227 << 10, VirtualMemory: true, ExportFD: true,
			StreamMemoryOps: true, Domains: 4,
		}
	}
	return infos, nil
}

// CanAccess reports true for different devices, unless the options say otherwise.
func (d *Driver) CanAccess(device, peer int) (bool, error) {
	if err := d.call("CanAccess", "cuDeviceCanAccessPeer of devices %d and %d", device, peer); err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	return device != peer && d.has(device) && d.has(peer) &&
		(d.options.CanAccess == nil || d.options.CanAccess(device, peer)), nil
}

func (d *Driver) has(device int) bool { return device >= 0 && device < d.options.Devices }

// contextOf numbers contexts by device, from 1.
func contextOf(device int) cuda.Context { return cuda.Context(device + 1) }

func (d *Driver) valid(ctx cuda.Context) bool { return d.retained[int(ctx)-1] > 0 }

// Retain counts a use of a device's context.
func (d *Driver) Retain(device int) (cuda.Context, error) {
	if err := d.call("Retain", "cuDevicePrimaryCtxRetain of device %d", device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if !d.has(device) {
		return 0, failed(cuda.InvalidDevice, "cuDevicePrimaryCtxRetain of device %d", device)
	}
	d.retained[device]++
	return contextOf(device), nil
}

// Release undoes one Retain.
func (d *Driver) Release(device int) error {
	if err := d.call("Release", "cuDevicePrimaryCtxRelease of device %d", device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.retained[device] == 0 {
		return failed(cuda.InvalidContext, "cuDevicePrimaryCtxRelease of device %d", device)
	}
	d.retained[device]--
	return nil
}

// Synchronize waits for every stream, destroyed ones included.
func (d *Driver) Synchronize(ctx cuda.Context) error {
	if err := d.in(ctx, "Synchronize", "cuCtxSynchronize"); err != nil {
		return err
	}
	d.drainAll()
	d.mu.Unlock()
	return nil
}

// drainAll waits for every stream. The caller holds the lock, which is free meanwhile.
func (d *Driver) drainAll() {
	all := d.dying
	d.dying = nil
	for _, s := range d.streams {
		all = append(all, s)
	}
	d.mu.Unlock()
	for _, s := range all {
		s.drain(d)
	}
	d.mu.Lock()
}

// EnablePeer remembers the pair.
func (d *Driver) EnablePeer(ctx, peer cuda.Context) error {
	if err := d.in(ctx, "EnablePeer", "cuCtxEnablePeerAccess"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if ctx == peer {
		return failed(cuda.InvalidDevice, "cuCtxEnablePeerAccess")
	}
	d.peers[[2]cuda.Context{ctx, peer}] = true
	return nil
}

// in is call for methods that need a live context.
func (d *Driver) in(ctx cuda.Context, method, format string, args ...any) error {
	if err := d.call(method, format, args...); err != nil {
		return err
	}
	if !d.valid(ctx) {
		d.mu.Unlock()
		return failed(cuda.InvalidContext, format, args...)
	}
	return nil
}
