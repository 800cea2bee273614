package main

import (
	"encoding/binary"
	"errors"
	"os"
	"unsafe"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

// deviceOfRank returns the device that this rank of a job uses: that of its number, or one that it shares.
// On host memory there is none to choose.
func deviceOfRank(memory plugin.MemoryKind) (int, error) {
	if memory != plugin.MemoryKindCuda {
		return 0, nil
	}
	place, err := bootstrap.FromEnvironment(os.Getenv)
	if err != nil {
		return 0, err
	}
	driver, err := cuda.Open()
	if err != nil {
		return 0, err
	}
	return bench.DeviceOf(place.Rank, driver)
}

// probeWord is an integer in the memory that a trial reduces.
type probeWord interface {
	pointer() unsafe.Pointer
	set(int64) error
	// get waits for what was enqueued before.
	get() (int64, error)
	// free returns how many bytes of that memory are free; 0 where that tells nothing.
	free() (int64, error)
	close() error
}

// hostWord is in host memory.
type hostWord struct{ value int64 }

func (w *hostWord) pointer() unsafe.Pointer { return unsafe.Pointer(&w.value) }
func (w *hostWord) set(v int64) error       { w.value = v; return nil }
func (w *hostWord) get() (int64, error)     { return w.value, nil }
func (w *hostWord) free() (int64, error)    { return 0, nil }
func (w *hostWord) close() error            { return nil }

// deviceWord is in a GPU's memory; it is used on the default stream.
type deviceWord struct {
	driver  cuda.Driver
	device  int
	ctx     cuda.Context
	address cuda.Ptr
}

func newDeviceWord(device int) (*deviceWord, error) {
	driver, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	w := &deviceWord{driver: driver, device: device}
	if w.ctx, err = driver.Retain(device); err != nil {
		return nil, err
	}
	if w.address, err = driver.Alloc(w.ctx, 8); err != nil {
		return nil, errors.Join(err, driver.Release(device))
	}
	return w, nil
}

func (w *deviceWord) pointer() unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&w.address)) // the device's, not Go's
}

func (w *deviceWord) set(v int64) error {
	return w.driver.Write(w.ctx, w.address, binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

func (w *deviceWord) get() (int64, error) {
	if err := w.driver.SynchronizeStream(w.ctx, 0); err != nil {
		return 0, err
	}
	var data [8]byte
	err := w.driver.Read(w.ctx, data[:], w.address)
	return int64(binary.LittleEndian.Uint64(data[:])), err
}

func (w *deviceWord) free() (int64, error) {
	available, _, err := w.driver.MemoryInfo(w.ctx)
	return available, err
}

func (w *deviceWord) close() error {
	return errors.Join(w.driver.Free(w.ctx, w.address), w.driver.Release(w.device))
}
