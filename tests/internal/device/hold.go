package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
)

// HoldKernel is the kernel that Hold launches. Parameters, all of 64 bits: the address of
// a word that the host sets to end it, the most nanoseconds it runs, how many
// multiprocessors it holds, and the address of a count of the blocks that hold one.
const HoldKernel = "hold"

// holdPTX: blocks on the first so many multiprocessors stay, others end at once. Two
// blocks of 1024 threads are all the threads that a multiprocessor has.
const holdPTX = `
.version 7.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u64 word, .param .u64 limit, .param .u64 multiprocessors, .param .u64 count)
.maxntid 1024, 1, 1
.minnctapersm 2
{
  .reg .pred %p;
  .reg .u32 %here32, %t;
  .reg .u64 %word, %limit, %held, %count, %here, %start, %now, %set;
  ld.param.u64 %word, [word];
  ld.param.u64 %limit, [limit];
  ld.param.u64 %held, [multiprocessors];
  ld.param.u64 %count, [count];
  mov.u32 %here32, %smid;
  cvt.u64.u32 %here, %here32;
  setp.ge.u64 %p, %here, %held;
  @%p bra done;
  mov.u32 %t, %tid.x;
  setp.ne.u32 %p, %t, 0;
  @%p bra meet;
  red.global.add.u64 [%count], 1;
  mov.u64 %start, %globaltimer;
again:
  ld.volatile.global.u64 %set, [%word];
  setp.ne.u64 %p, %set, 0;
  @%p bra meet;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %p, %now, %limit;
  @%p bra again;
meet:
  bar.sync 0;
done:
  ret;
}
`

// Holder keeps multiprocessors of a device busy, as an application's kernels do.
type Holder struct {
	device        *Device
	module        cuda.Module
	kernel        cuda.Function
	stream, other cuda.Stream
	word          cuda.HostMemory
	count         cuda.Ptr
	sms           int
}

// NewHolder loads the kernel.
func (d *Device) NewHolder() (_ *Holder, err error) {
	h := &Holder{device: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	devices, err := d.Driver.Devices()
	if err != nil {
		return nil, err
	}
	h.sms = devices[d.Ordinal].Multiprocessors
	for _, step := range []func() error{
		func() (err error) { h.module, err = d.Driver.LoadModule(d.Context, []byte(holdPTX)); return },
		func() (err error) { h.kernel, err = d.Driver.Function(d.Context, h.module, HoldKernel, 0); return },
		func() (err error) { h.stream, err = d.Driver.NewStream(d.Context, 0); return },
		func() (err error) { h.other, err = d.Driver.NewStream(d.Context, 0); return },
		func() (err error) { h.word, err = d.Driver.AllocHost(d.Context, 16); return },
		func() (err error) { h.count, err = d.Driver.Alloc(d.Context, 8); return },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Multiprocessors returns the number of multiprocessors of the device.
func (h *Holder) Multiprocessors() int { return h.sms }

func (h *Holder) at(i int) *uint64 {
	return (*uint64)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&h.word.Address)), 8*i))
}

// Hold occupies so many multiprocessors until Release, or until the limit is over. It
// returns when it has them. Nothing else may run on the device before.
func (h *Holder) Hold(multiprocessors int, limit time.Duration) error {
	d := h.device
	atomic.StoreUint64(h.at(0), 0)
	if err := d.Driver.Set(d.Context, h.count, 0, 8, h.stream); err != nil {
		return err
	}
	l := cuda.Launch{Function: h.kernel, Grid: [3]uint32{uint32(2 * h.sms), 1, 1}, Block: [3]uint32{1024, 1, 1}, Bytes: 32}
	for i, v := range []uint64{uint64(h.word.Device), uint64(limit), uint64(multiprocessors), uint64(h.count)} {
		binary.LittleEndian.PutUint64(l.Params[8*i:], v)
	}
	if _, err := d.Driver.LaunchKernels(d.Context, h.stream, []cuda.Launch{l}); err != nil {
		return err
	}
	for begin := time.Now(); ; {
		if err := d.Driver.Copy(d.Context, h.word.Device+8, h.count, 8, h.other); err != nil {
			return err
		}
		if err := d.Driver.SynchronizeStream(d.Context, h.other); err != nil {
			return err
		}
		if held := atomic.LoadUint64(h.at(1)); held == uint64(2*multiprocessors) {
			return nil
		} else if time.Since(begin) > limit/2 {
			return fmt.Errorf("%d blocks hold a multiprocessor, want two on each of %d", held, multiprocessors)
		}
	}
}

// Held reports whether the multiprocessors are still held.
func (h *Holder) Held() (bool, error) {
	done, err := h.device.Driver.StreamDone(h.device.Context, h.stream)
	return !done, err
}

// Release frees the multiprocessors and waits until they are free.
func (h *Holder) Release() error {
	atomic.StoreUint64(h.at(0), 1)
	return h.device.Driver.SynchronizeStream(h.device.Context, h.stream)
}

// Close gives back what the holder has. Nothing is held.
func (h *Holder) Close() error {
	d, errs := h.device, []error(nil)
	for _, s := range []cuda.Stream{h.stream, h.other} {
		if s != 0 {
			errs = append(errs, d.Driver.DestroyStream(d.Context, s))
		}
	}
	if h.count != 0 {
		errs = append(errs, d.Driver.Free(d.Context, h.count))
	}
	if h.word.Address != 0 {
		errs = append(errs, d.Driver.FreeHost(d.Context, h.word))
	}
	if h.module != 0 {
		errs = append(errs, d.Driver.UnloadModule(d.Context, h.module))
	}
	return errors.Join(errs...)
}
