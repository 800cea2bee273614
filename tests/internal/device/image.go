package device

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
)

// Image is pinned host memory that stands for device memory of the same size.
type Image struct {
	Bytes  []byte   // the host's
	Remote cuda.Ptr // the device's

	device *Device
	pinned cuda.HostMemory
	owned  bool
	shared cuda.Mapping // owned memory that was made to be shared
}

// NewImage allocates both.
func (d *Device) NewImage(bytes int64) (*Image, error) {
	m, err := d.ImageOf(0, bytes)
	if err != nil {
		return nil, err
	}
	if m.Remote, err = d.Driver.Alloc(d.Context, bytes); err != nil {
		return nil, errors.Join(fmt.Errorf("device memory: %w", err), m.Free())
	}
	m.owned = true
	return m, nil
}

// NewSharedImage is like NewImage, of device memory that other processes can map.
func (d *Device) NewSharedImage(bytes int64) (*Image, error) {
	m, err := d.ImageOf(0, bytes)
	if err != nil {
		return nil, err
	}
	if m.shared, err = d.Driver.CreateMemory(d.Context, d.Ordinal, bytes); err != nil {
		return nil, errors.Join(fmt.Errorf("device memory: %w", err), m.Free())
	}
	m.Remote, m.owned = m.shared.Address, true
	return m, nil
}

// ImageOf allocates an image of device memory that is someone else's.
func (d *Device) ImageOf(remote cuda.Ptr, bytes int64) (*Image, error) {
	pinned, err := d.Driver.AllocHost(d.Context, bytes)
	if err != nil {
		return nil, fmt.Errorf("pinned memory: %w", err)
	}
	data := *(*unsafe.Pointer)(unsafe.Pointer(&pinned.Address))
	return &Image{Bytes: unsafe.Slice((*byte)(data), bytes), Remote: remote, device: d, pinned: pinned}, nil
}

// Pointer returns the address, on the device, of the byte at offset.
func (m *Image) Pointer(offset int64) unsafe.Pointer { return Pointer(m.Remote + cuda.Ptr(offset)) }

// Part returns a range of an image. The image must outlive it.
func (m *Image) Part(offset, bytes int64) *Image {
	part := *m
	part.Bytes, part.Remote, part.owned = m.Bytes[offset:offset+bytes:offset+bytes], m.Remote+cuda.Ptr(offset), false
	part.pinned.Device += cuda.Ptr(offset)
	return &part
}

// At returns the same host memory as the image of other device memory.
func (m *Image) At(remote cuda.Ptr) *Image {
	other := *m
	other.Remote, other.owned = remote, false
	return &other
}

// Push copies the image to the device, in stream order.
func (m *Image) Push(s cuda.Stream) error {
	if len(m.Bytes) == 0 {
		return nil
	}
	return m.device.Driver.Copy(m.device.Context, m.Remote, m.pinned.Device, int64(len(m.Bytes)), s)
}

// Pull copies from the device into the image, in stream order.
func (m *Image) Pull(s cuda.Stream) error {
	if len(m.Bytes) == 0 {
		return nil
	}
	return m.device.Driver.Copy(m.device.Context, m.pinned.Device, m.Remote, int64(len(m.Bytes)), s)
}

// Free gives back what the image allocated. Streams that use it have ended. It
// is not for parts.
func (m *Image) Free() error {
	var err error
	switch {
	case m.owned && m.shared.Address != 0:
		err = m.device.Driver.Unmap(m.device.Context, m.shared)
	case m.owned:
		err = m.device.Driver.Free(m.device.Context, m.Remote)
	}
	return errors.Join(err, m.device.Driver.FreeHost(m.device.Context, m.pinned))
}
