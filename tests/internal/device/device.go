package device

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/plugin"
)

var drivers = struct {
	sync.Mutex
	open func(ordinal int) (cuda.Driver, error)
}{open: func(int) (cuda.Driver, error) { return cuda.Open() }}

// Use makes the ranks of this process run on other drivers than that of
// cuda.Open: drivers in memory. open is given the rank's device. Call it before
// any rank, in every process that has one.
func Use(open func(ordinal int) (cuda.Driver, error)) {
	drivers.Lock()
	defer drivers.Unlock()
	drivers.open = open
}

// Driver returns the driver of a rank on a device.
func Driver(ordinal int) (cuda.Driver, error) {
	drivers.Lock()
	open := drivers.open
	drivers.Unlock()
	return open(ordinal)
}

// Count returns the number of devices that ranks can have. Without a driver or a device the
// error's code is unsupported and its text says what is absent.
func Count() (int, error) {
	d, err := Driver(0)
	if err != nil {
		return 0, err
	}
	devices, err := d.Devices()
	if err == nil && len(devices) == 0 {
		err = plugin.Errorf(plugin.Unsupported, "no CUDA device")
	}
	return len(devices), err
}

// Shared reports whether ranks may share devices, as SHUNT_SHARE_GPU says.
func Shared() bool {
	settings, _ := option.Load(os.Environ())
	return settings.ShareGPU()
}

// Lacks returns the reason why a world of the given size cannot run on GPUs, or "".
func Lacks(world int) string {
	n, err := Count()
	switch {
	case err != nil:
		return err.Error()
	case n < world:
		return fmt.Sprintf("needs %d GPUs, there are %d", world, n)
	}
	return ""
}

// StreamCount is the number of streams of a Device.
const StreamCount = 3

// Device is a rank's GPU.
type Device struct {
	Driver  cuda.Driver
	Context cuda.Context
	Ordinal int
	Streams [StreamCount]cuda.Stream // none waits for the default stream
}

// Open retains the context of a rank's device, that of its number or one that it shares, and makes streams.
func Open(rank int) (_ *Device, err error) {
	d := &Device{Ordinal: rank}
	if d.Driver, err = Driver(rank); err != nil {
		return nil, err
	}
	if Shared() {
		n, err := Count()
		if err != nil {
			return nil, err
		}
		d.Ordinal = rank % n
	}
	if d.Context, err = d.Driver.Retain(d.Ordinal); err != nil {
		return nil, err
	}
	for i := range d.Streams {
		// Ranks differ in priority: what a plan does by it must suit what its peers do.
		if d.Streams[i], err = d.Driver.NewStream(d.Context, -(rank % 2)); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Close destroys the streams and releases the context.
func (d *Device) Close() error {
	var errs []error
	for i, s := range d.Streams {
		if s != 0 {
			errs = append(errs, d.Driver.DestroyStream(d.Context, s))
			d.Streams[i] = 0
		}
	}
	return errors.Join(append(errs, d.Driver.Release(d.Ordinal))...)
}

// Stream returns a stream as operations take it: nil for the default stream, as an
// application would give it.
func Stream(s cuda.Stream) host.Stream {
	if s == 0 {
		return nil
	}
	return s
}

// Pointer returns a device address as operations take it.
func Pointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
