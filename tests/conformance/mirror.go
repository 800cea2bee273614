package conformance

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
)

// allocate makes device memory and its pinned image.
func (a *arena) allocate(bytes int64) (err error) {
	d := a.device
	if a.pinned, err = d.driver.AllocHost(d.ctx, bytes); err != nil {
		return fmt.Errorf("pinned memory for buffers: %w", err)
	}
	a.memory = unsafe.Slice((*byte)(addressOf(a.pinned)), bytes)
	if a.remote, err = d.driver.Alloc(d.ctx, bytes); err != nil {
		return errors.Join(fmt.Errorf("device memory for buffers: %w", err), a.free())
	}
	return nil
}

func addressOf(m cuda.HostMemory) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&m.Address))
}

// free gives both back. Streams that used them have ended.
func (a *arena) free() error {
	d := a.device
	var err error
	if a.remote != 0 {
		err = d.driver.Free(d.ctx, a.remote)
	}
	err = errors.Join(err, d.driver.FreeHost(d.ctx, a.pinned))
	a.memory, a.remote, a.pinned = nil, 0, cuda.HostMemory{}
	return err
}

// push copies all buffers to the device, in stream order.
func (a *arena) push(s cuda.Stream) error {
	if a.used == 0 {
		return nil
	}
	return a.device.driver.Copy(a.device.ctx, a.remote, a.pinned.Device, a.used, s)
}

// pull copies all buffers back, in stream order.
func (a *arena) pull(s cuda.Stream) error {
	if a.used == 0 {
		return nil
	}
	return a.device.driver.Copy(a.device.ctx, a.pinned.Device, a.remote, a.used, s)
}

// push copies one buffer to the device; on host memory there is nothing to do.
func (b *buffer) push(s cuda.Stream) error {
	if b.device == nil {
		return nil
	}
	return b.device.driver.Copy(b.device.ctx, b.remote, b.pinned, int64(len(b.all)), s)
}

// pull copies one buffer back; on host memory there is nothing to do.
func (b *buffer) pull(s cuda.Stream) error {
	if b.device == nil {
		return nil
	}
	return b.device.driver.Copy(b.device.ctx, b.pinned, b.remote, int64(len(b.all)), s)
}

// image gives a buffer of someone else's device memory its pinned image.
func (a *arena) image(b *buffer, address unsafe.Pointer, bytes int64) error {
	start := (a.used + 63) &^ 63
	end := start + bytes
	if end > int64(len(a.memory)) {
		return fmt.Errorf("the image of %d bytes of buffer %s does not fit into %d", bytes, b.name, len(a.memory))
	}
	a.used = end
	b.all = a.memory[start:end:end]
	b.device, b.pinned, b.remote = a.device, a.pinned.Device+cuda.Ptr(start), cuda.Ptr(uintptr(address))
	return nil
}
