package cudaipc

import (
	stdcontext "context"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

type context = stdcontext.Context

// Transport opens endpoints on CUDA devices. The zero value uses the driver of
// cuda.Open, loaded when the first endpoint is opened.
type Transport struct {
	Driver cuda.Driver // nil: cuda.Open
}

// Info describes the transport.
func (t Transport) Info() plugin.Info {
	return plugin.Info{
		Name: "cudaipc", Version: plugin.Release, Features: plugin.FeaturePlans | plugin.FeatureBuffers | plugin.FeatureDeviceCounts |
			plugin.FeaturePeerAccess,
		Memory: []plugin.MemoryKind{plugin.MemoryKindCuda}, Doc: "GPUs of one host through peer memory, over NVLink or PCIe",
		MaxWorld: maxRanks,
	}
}

// Open allocates the endpoint's region on its device and exports it.
func (t Transport) Open(_ context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	if c.World < 1 || c.World > maxRanks || c.Rank < 0 || c.Rank >= c.World {
		return nil, plugin.Errorf(plugin.InvalidArgument, "rank %d of a world of %d; it serves at most %d ranks",
			c.Rank, c.World, maxRanks)
	}
	if c.Memory != plugin.MemoryKindCuda || c.Device < 0 {
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"%s memory on device %d cannot be served, want CUDA memory of a device", c.Memory, c.Device)
	}
	for name := range c.Options {
		return nil, plugin.Errorf(plugin.InvalidArgument, "unknown option %q; it has none", name)
	}
	driver := t.Driver
	if driver == nil {
		var err error
		if driver, err = cuda.Open(); err != nil {
			return nil, err
		}
	}
	if err := suits(driver, c.Device); err != nil {
		return nil, err
	}
	ctx, err := driver.Retain(c.Device)
	if err != nil {
		return nil, err
	}
	e := &endpoint{driver: driver, ctx: ctx, device: c.Device, rank: c.Rank, world: c.World, maxSMs: c.MaxSMs,
		buffers: map[uint32]buffer{}}
	ends := partEnds(c.World)
	own, err := e.allocate(0, plugin.RegionRolePrivate, ends[0])
	if err != nil {
		_ = driver.Release(c.Device)
		return nil, err
	}
	e.own = own
	e.regions = []plugin.Region{own.region, directory(own.region, c.World)}
	for i, end := range ends[1:] {
		e.regions = append(e.regions, plugin.Region{ID: firstDeferred + uint32(i), Role: plugin.RegionRoleDeferred,
			Memory: plugin.MemoryKindCuda, Bytes: end - ends[i], Handle: plugin.Handle{FD: -1}})
	}
	return e, nil
}

// firstDeferred is the number of the first deferred region, behind the first part and the directory.
const firstDeferred = 2

// leastDriver is the oldest CUDA version whose drivers load the images, as
// cuDriverGetVersion tells it.
const leastDriver = 12000

// suits says why a device cannot be used, if it cannot.
func suits(driver cuda.Driver, device int) error {
	if v := driver.Version(); v < leastDriver {
		return plugin.Errorf(plugin.Unsupported, "the CUDA driver supports CUDA %d.%d; 12.0 (driver 525) is the least", v/1000, v%1000/10)
	}
	devices, err := driver.Devices()
	if err != nil {
		return err
	}
	if device >= len(devices) {
		return plugin.Errorf(plugin.InvalidArgument, "device %d is out of range: %d visible", device, len(devices))
	}
	d := devices[device]
	switch {
	case d.Major < 8:
		return plugin.Errorf(plugin.Unsupported, "device %d (%s) has compute capability %d.%d; 8.0 is the least",
			device, d.Name, d.Major, d.Minor)
	case !d.VirtualMemory || !d.ExportFD:
		return plugin.Errorf(plugin.Unsupported, "device %d (%s) cannot export memory as a file descriptor", device,
			d.Name)
	case d.Multiprocessors <= maxBlocks:
		return plugin.Errorf(plugin.Unsupported, "device %d (%s) has %d multiprocessors; kernels need more than %d",
			device, d.Name, d.Multiprocessors, maxBlocks)
	}
	return nil
}

// endpoint is one rank's.
type endpoint struct {
	driver      cuda.Driver
	ctx         cuda.Context
	device      int
	rank, world int
	maxSMs      int // the communicator's budget, 0: none
	own         buffer
	regions     []plugin.Region // own, and the directory within it
	buffers     map[uint32]buffer
	closed      bool
}

// buffer is a region and the memory behind it.
type buffer struct {
	mapping cuda.Mapping
	region  plugin.Region
}

// allocate makes zero-filled, exported memory.
func (e *endpoint) allocate(id uint32, role plugin.RegionRole, bytes int64) (buffer, error) {
	m, err := e.driver.CreateMemory(e.ctx, e.device, bytes)
	if err != nil {
		return buffer{}, err
	}
	fd, err := e.clear(m)
	if err != nil {
		_ = e.driver.Unmap(e.ctx, m)
		return buffer{}, err
	}
	return buffer{m, plugin.Region{
		ID: id, Role: role, Memory: plugin.MemoryKindCuda, Bytes: bytes,
		Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: rand.Uint64() | 1, Bytes: m.Bytes, FD: fd},
	}}, nil
}

// clear zeroes memory and exports it.
func (e *endpoint) clear(m cuda.Mapping) (int, error) {
	if err := cuda.Clear(e.driver, e.ctx, m.Address, m.Bytes); err != nil {
		// The memory is about to be unmapped, which waits for nothing.
		_ = e.driver.Synchronize(e.ctx)
		return -1, err
	}
	return e.driver.ExportMemory(e.ctx, m.Handle)
}

func (e *endpoint) release(b buffer) error {
	err := unix.Close(b.region.Handle.FD)
	if err != nil {
		err = plugin.Errorf(plugin.System, "cudaipc: closing the descriptor of region %d: %w", b.region.ID, err)
	}
	if unmapped := e.driver.Unmap(e.ctx, b.mapping); err == nil {
		err = unmapped
	}
	return err
}

// directory returns the part of the region where the host enters users' buffers.
func directory(own plugin.Region, world int) plugin.Region {
	d := own
	d.ID, d.Role, d.Bytes = 1, plugin.RegionRoleDirectory, plugin.DirectoryBytes(world)
	d.Handle.Offset = directoryOffset
	return d
}

// Regions returns the region of slots and counters, and the directory within it.
func (e *endpoint) Regions() []plugin.Region { return e.regions }

// Images returns the compiled kernels.
func (e *endpoint) Images() []plugin.Image { return images }

// Allocate makes device memory for a user.
func (e *endpoint) Allocate(_ context, id uint32, bytes int64) (plugin.Region, error) {
	if _, taken := e.buffers[id]; taken || id == 0 {
		return plugin.Region{}, plugin.Errorf(plugin.InvalidArgument, "cudaipc: region %d exists already", id)
	}
	b, err := e.allocate(id, plugin.RegionRoleBuffer, bytes)
	if err != nil {
		return plugin.Region{}, err
	}
	e.buffers[id] = b
	return b.region, nil
}

// Free releases memory of Allocate.
func (e *endpoint) Free(_ context, id uint32) error {
	b, ok := e.buffers[id]
	if !ok {
		return plugin.Errorf(plugin.InvalidArgument, "cudaipc: region %d was not allocated here", id)
	}
	delete(e.buffers, id)
	return e.release(b)
}

// Close releases everything; the first error is reported.
func (e *endpoint) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	err := e.release(e.own)
	for _, b := range e.buffers {
		if released := e.release(b); err == nil {
			err = released
		}
	}
	if released := e.driver.Release(e.device); err == nil {
		err = released
	}
	return err
}
