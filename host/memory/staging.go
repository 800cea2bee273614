package memory

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/pinned"
)

// Staging copies few bytes between the host and memory that a GPU reaches, in a stream of its own: a copy waits for
// nothing else, neither for kernels nor for the default stream.
type Staging struct {
	driver  cuda.Driver
	context cuda.Context
	stream  cuda.Stream

	mu     sync.Mutex
	memory cuda.HostMemory
}

// NewStaging makes a staging of up to the given number of bytes a copy.
func NewStaging(driver cuda.Driver, context cuda.Context, bytes int64) (*Staging, error) {
	s := &Staging{driver: driver, context: context}
	var err error
	if s.stream, err = driver.NewStream(context, 0); err != nil {
		return nil, err
	}
	if s.memory, err = pinned.Alloc(driver, context, bytes); err != nil {
		return nil, errors.Join(err, driver.DestroyStream(context, s.stream))
	}
	return s, nil
}

// Stream returns the stream of the copies. Nothing that waits is put into it.
func (s *Staging) Stream() cuda.Stream { return s.stream }

func (s *Staging) bytes() []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&s.memory.Address)), s.memory.Bytes)
}

// Put copies data to the GPU's memory, and returns when it is there.
func (s *Staging) Put(to cuda.Ptr, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	copy(s.bytes(), data)
	return s.Wait(s.driver.Copy(s.context, to, s.memory.Device, int64(len(data)), s.stream))
}

// Wait returns err and the stream's own error, once nothing in the stream is under way any more: the memory may be
// released, also after a failure.
func (s *Staging) Wait(err error) error {
	if failed := s.driver.SynchronizeStream(s.context, s.stream); failed != nil {
		_ = s.driver.Synchronize(s.context)
		err = errors.Join(err, failed)
	}
	return err
}

// Zero clears the GPU's memory, and returns when it is done. It runs on no multiprocessor: those may all be taken by
// kernels that wait.
func (s *Staging) Zero(to cuda.Ptr, bytes int64) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.bytes())
	for at := int64(0); at < bytes && err == nil; at += s.memory.Bytes {
		err = s.driver.Copy(s.context, to+cuda.Ptr(at), s.memory.Device, min(s.memory.Bytes, bytes-at), s.stream)
	}
	return s.Wait(err)
}

// Get copies the other way, from the device into data.
func (s *Staging) Get(data []byte, from cuda.Ptr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Wait(s.driver.Copy(s.context, s.memory.Device, from, int64(len(data)), s.stream)); err != nil {
		return err
	}
	copy(data, s.bytes())
	return nil
}

// Close releases the stream and the memory; nil is nothing to release.
func (s *Staging) Close() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.driver.DestroyStream(s.context, s.stream), pinned.Free(s.driver, s.context, s.memory))
}
