package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// openDriver is the driver of the ranks of this process.
var openDriver = struct {
	sync.Mutex
	open func() (cuda.Driver, error)
}{open: cuda.Open}

// UseDriver makes the ranks of this process run on another driver than that of
// cuda.Open: one in memory, for tests. It must be called by every process of a
// run, before the run.
func UseDriver(d cuda.Driver) {
	openDriver.Lock()
	defer openDriver.Unlock()
	openDriver.open = func() (cuda.Driver, error) { return d, nil }
}

// Driver is the driver of the ranks of this process.
func Driver() (cuda.Driver, error) {
	openDriver.Lock()
	open := openDriver.open
	openDriver.Unlock()
	return open()
}

// streamCount is how many streams a rank has: one for each of the two
// communicators, and one more to switch to.
const streamCount = 3

// device is a rank's GPU and what the suite needs on it.
type device struct {
	driver  cuda.Driver
	ctx     cuda.Context
	ordinal int
	streams [streamCount]cuda.Stream
}

func newDevice(ordinal int) (_ *device, err error) {
	d := &device{ordinal: ordinal}
	if d.driver, err = Driver(); err != nil {
		return nil, err
	}
	if d.ctx, err = d.driver.Retain(ordinal); err != nil {
		return nil, err
	}
	for i := range d.streams {
		if d.streams[i], err = d.driver.NewStream(d.ctx, 0); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

func (d *device) close() error {
	var errs []error
	for i, s := range d.streams {
		if s != 0 {
			errs = append(errs, d.driver.DestroyStream(d.ctx, s))
			d.streams[i] = 0
		}
	}
	return errors.Join(append(errs, d.driver.Release(d.ordinal))...)
}

// stream is a CUDA stream as the host's interface wants it.
type stream cuda.Stream

// Handle is the CUstream.
func (s stream) Handle() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&s)) }

// hostStream is nil for the default stream, as an application would give it.
func hostStream(s cuda.Stream) host.Stream {
	if s == 0 {
		return nil
	}
	return stream(s)
}

// devicePointer is a device address as operations take it.
func devicePointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// graph is a captured graph and its executable.
type graph struct {
	device *device
	graph  cuda.Graph
	exec   cuda.GraphExec
}

// capture records what enqueue puts into the stream. The thread is kept: a
// capture belongs to the one that began it.
func (d *device) capture(s cuda.Stream, enqueue func() error) (_ *graph, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.driver.BeginCapture(d.ctx, s); err != nil {
		return nil, err
	}
	failed := enqueue()
	g := &graph{device: d}
	g.graph, err = d.driver.EndCapture(d.ctx, s)
	if failed != nil || err != nil {
		if g.graph != 0 {
			err = errors.Join(err, d.driver.DestroyGraph(g.graph))
		}
		return nil, fmt.Errorf("under capture: %w", errors.Join(failed, err))
	}
	if g.exec, err = d.driver.Instantiate(d.ctx, g.graph); err != nil {
		return nil, errors.Join(err, d.driver.DestroyGraph(g.graph))
	}
	return g, nil
}

func (g *graph) launch(s cuda.Stream) error {
	return g.device.driver.LaunchGraph(g.device.ctx, g.exec, s)
}

func (g *graph) destroy() error {
	return errors.Join(g.device.driver.DestroyGraphExec(g.exec), g.device.driver.DestroyGraph(g.graph))
}

// settle waits for a stream and says what the communicator met meanwhile.
func (d *device) settle(comm *host.Communicator, s cuda.Stream) error {
	err := d.driver.SynchronizeStream(d.ctx, s)
	if failure := comm.Err(); failure != nil {
		err = errors.Join(failure, err)
	}
	return err
}

// deviceCount is how many devices a run has, and why there is none.
func deviceCount() (int, error) {
	d, err := Driver()
	if err != nil {
		return 0, err
	}
	devices, err := d.Devices()
	if err == nil && len(devices) == 0 {
		err = plugin.Errorf(plugin.Unsupported, "no CUDA device")
	}
	return len(devices), err
}
