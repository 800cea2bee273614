package bench

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// image is the kernels of kernels/bench.cu.
//
//go:embed kernels/bench.fatbin
var image []byte

// deviceSpace is the memory of one GPU. Operations go into one stream, which is
// the benchmark's own.
type deviceSpace struct {
	driver  cuda.Driver
	ctx     cuda.Context
	ordinal int
	sms     int
	comm    barrierer

	own, side cuda.Stream // operations; other work beside them
	module    cuda.Module
	kernels   [deviceKernels]cuda.Function
	memory    [buffers]cuda.Ptr
	bytes     [buffers]int64
	blocks    map[source]cuda.Ptr // one period of each source
	counter   cuda.Ptr            // of wrong elements; eight bytes
	words     cuda.HostMemory     // pinned: the gate's
	opened    uint64              // gates so far
	start     cuda.Event
	stop      cuda.Event
	occupied  cuda.Event // where other work begins and ends
	vacant    cuda.Event

	iterations int // of Config.Iterations; 0: by size
	busy       int // percent of the multiprocessors
}

// barrierer is the part of a communicator that the timing needs.
type barrierer interface {
	Barrier(stream host.Stream) error
	Synchronize(stream host.Stream) error
}

// The kernels of kernels/bench.cu.
const (
	fillKernel = iota
	wrongKernel
	gateKernel
	busyKernel
	deviceKernels
)

var kernelNames = [deviceKernels]string{"bench_fill", "bench_wrong", "bench_gate", "bench_busy"}

// poisoned is a source of which every byte is poisonByte.
const poisoned source = -2

// rotated is the least memory in bytes that operations rotate over: several times a
// GPU's cache.
const rotated = 256 << 20

// newDeviceSpace takes the device's primary context and allocates every buffer
// that the configuration's jobs need, with at least arena bytes to rotate over.
func newDeviceSpace(driver cuda.Driver, ordinal int, c *Config, comm barrierer, arena int64) (_ *deviceSpace,
	err error) {
	d := &deviceSpace{driver: driver, ordinal: ordinal, comm: comm, blocks: map[source]cuda.Ptr{},
		iterations: c.Iterations, busy: c.Busy}
	devices, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	if ordinal >= len(devices) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "bench: no device %d; there are %d", ordinal, len(devices))
	}
	d.sms = devices[ordinal].Multiprocessors
	if d.ctx, err = driver.Retain(ordinal); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	steps := []func() error{
		func() (err error) { d.own, err = driver.NewStream(d.ctx, 0); return },
		func() (err error) { d.side, err = driver.NewStream(d.ctx, 0); return },
		func() (err error) { d.start, err = driver.NewEvent(d.ctx, true); return },
		func() (err error) { d.stop, err = driver.NewEvent(d.ctx, true); return },
		func() (err error) { d.occupied, err = driver.NewEvent(d.ctx, true); return },
		func() (err error) { d.vacant, err = driver.NewEvent(d.ctx, true); return },
		func() (err error) { d.module, err = driver.LoadModule(d.ctx, image); return },
		func() (err error) { d.words, err = driver.AllocHost(d.ctx, 4096); return },
		func() (err error) { d.counter, err = driver.Alloc(d.ctx, 4096); return },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	for i, name := range kernelNames {
		if d.kernels[i], err = driver.Function(d.ctx, d.module, name, 0); err != nil {
			return nil, err
		}
	}
	// At once, because memory that moves would have to be shared with the peers
	// again and again.
	largest := c.largest() + 2*guard + 512
	for _, which := range []bufferName{sendBuffer, recvBuffer} {
		if d.memory[which], err = driver.Alloc(d.ctx, largest+max(arena, largest)); err != nil {
			return nil, err
		}
		d.bytes[which] = largest + max(arena, largest)
	}
	if d.memory[meetBuffer], err = driver.Alloc(d.ctx, meetBytes); err != nil {
		return nil, err
	}
	d.bytes[meetBuffer] = meetBytes
	return d, nil
}

// register makes the buffers known to all ranks, once and for all jobs. It would
// come about by itself, but only while the first long messages are timed. Where
// no transport can use it there is nothing to lose.
func (d *deviceSpace) register(comm *host.Communicator) error {
	for _, which := range []bufferName{sendBuffer, recvBuffer} {
		if err := comm.Register(address(uint64(d.memory[which])), d.bytes[which]); err != nil &&
			!errors.Is(err, plugin.Unsupported) {
			return err
		}
	}
	return nil
}

// address returns a number of the driver's as the pointer that the host takes. It
// points to no memory of Go.
func address(v uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&v)) }

// pointer returns an area's address for the driver.
func (a area) pointer() cuda.Ptr { return cuda.Ptr(uintptr(a.at)) }

func (d *deviceSpace) stream() host.Stream { return d.own }

// finish also tells of operations that were aborted, which end too.
func (d *deviceSpace) finish() error { return d.comm.Synchronize(d.stream()) }

func (d *deviceSpace) buffer(which bufferName, bytes int64) (area, error) {
	if bytes > d.bytes[which] {
		return area{}, plugin.Errorf(plugin.Internal, "bench: a call needs %d bytes, and its buffer has %d", bytes,
			d.bytes[which])
	}
	if bytes == 0 {
		return area{}, nil
	}
	return area{address(uint64(d.memory[which])), bytes}, nil
}

// maxSlots bounds the places that an operation rotates over.
const maxSlots = 16

func (d *deviceSpace) slots(bytes int64) int {
	return int(min(max(d.bytes[sendBuffer]/max(bytes, 1), 1), maxSlots))
}

// launch puts a kernel of the benchmark into a stream. All its parameters are
// 64 bits wide.
func (d *deviceSpace) launch(s cuda.Stream, kernel int, blocks, threads uint32, parameters ...uint64) error {
	l := cuda.Launch{Function: d.kernels[kernel], Grid: [3]uint32{blocks, 1, 1}, Block: [3]uint32{threads, 1, 1},
		Bytes: uint32(8 * len(parameters))}
	for i, v := range parameters {
		binary.LittleEndian.PutUint64(l.Params[8*i:], v)
	}
	_, err := d.driver.LaunchKernels(d.ctx, s, []cuda.Launch{l})
	return err
}

// block returns one period of a source, on the device.
func (d *deviceSpace) block(p *pattern, s source) (cuda.Ptr, error) {
	if at, ok := d.blocks[s]; ok {
		return at, nil
	}
	var data []byte
	if s == poisoned {
		for range period {
			data = append(data, poisonByte)
		}
	} else {
		data = p.block(s)
	}
	at, err := d.driver.Alloc(d.ctx, int64(len(data)))
	if err != nil {
		return 0, err
	}
	d.blocks[s] = at
	return at, d.driver.Write(d.ctx, at, data)
}

// width returns the grid for a number of elements.
func width(count int64) uint32 { return uint32(min((count+255)/256, 1024)) }

func (d *deviceSpace) fill(to area, p *pattern, s source, first int64) error {
	size := p.dtype.Bytes()
	if to.bytes == 0 {
		return nil
	}
	block, err := d.block(p, s)
	if err != nil {
		return err
	}
	count := to.bytes / size
	return d.launch(d.own, fillKernel, width(count), 256, uint64(to.pointer()), uint64(count), uint64(block),
		uint64(first), period, uint64(size))
}

func (d *deviceSpace) poison(to area) error {
	if to.bytes == 0 {
		return nil
	}
	return d.driver.Set(d.ctx, to.pointer(), poisonByte, to.bytes, d.own)
}

// differ counts, behind what is in the stream, the elements that differ from a
// source's.
func (d *deviceSpace) differ(have area, p *pattern, s source, first, size int64) (int64, error) {
	if have.bytes == 0 {
		return 0, nil
	}
	block, err := d.block(p, s)
	if err != nil {
		return 0, err
	}
	if err := d.driver.Set(d.ctx, d.counter, 0, 8, d.own); err != nil {
		return 0, err
	}
	count := have.bytes / size
	if err := d.launch(d.own, wrongKernel, width(count), 256, uint64(have.pointer()), uint64(count), uint64(block),
		uint64(first), period, uint64(size), uint64(d.counter)); err != nil {
		return 0, err
	}
	if err := d.finish(); err != nil {
		return 0, err
	}
	var counted [8]byte
	if err := d.driver.Read(d.ctx, counted[:], d.counter); err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(counted[:])), nil
}

func (d *deviceSpace) wrong(have area, p *pattern, s source, first int64) (int64, error) {
	return d.differ(have, p, s, first, p.dtype.Bytes())
}

func (d *deviceSpace) unpoisoned(have area) (int64, error) {
	return d.differ(have, nil, poisoned, 0, 1)
}

func (d *deviceSpace) write(to area, data []byte) error {
	return d.driver.Write(d.ctx, to.pointer(), data)
}

func (d *deviceSpace) read(data []byte, from area) error {
	return d.driver.Read(d.ctx, data, from.pointer())
}

// spoil shows the failpoint the first bytes.
func (d *deviceSpace) spoil(at area) error {
	data := make([]byte, min(at.bytes, 4096))
	if len(data) == 0 {
		return nil
	}
	if err := d.driver.Read(d.ctx, data, at.pointer()); err != nil {
		return err
	}
	if !corrupt.Corrupt(data) {
		return nil
	}
	return d.driver.Write(d.ctx, at.pointer(), data)
}

// close gives everything back. It may be called on what is half made.
func (d *deviceSpace) close() error {
	err := d.driver.Synchronize(d.ctx)
	keep := func(e error) { err = errors.Join(err, e) }
	for _, s := range []cuda.Stream{d.own, d.side} {
		if s != 0 {
			keep(d.driver.DestroyStream(d.ctx, s))
		}
	}
	for _, e := range []cuda.Event{d.start, d.stop, d.occupied, d.vacant} {
		if e != 0 {
			keep(d.driver.DestroyEvent(d.ctx, e))
		}
	}
	for _, p := range append(d.memory[:], d.counter) {
		if p != 0 {
			keep(d.driver.Free(d.ctx, p))
		}
	}
	for _, p := range d.blocks {
		keep(d.driver.Free(d.ctx, p))
	}
	if d.words.Bytes != 0 {
		keep(d.driver.FreeHost(d.ctx, d.words))
	}
	if d.module != 0 {
		keep(d.driver.UnloadModule(d.ctx, d.module))
	}
	keep(d.driver.Release(d.ordinal))
	return err
}
