// Package pinned makes the pinned host memory of communicators, and keeps what they give back for the next ones.
//
// Freeing such memory may wait for every kernel of its context. A kernel of another communicator may wait for what a
// peer calls next, and that peer may be a thread of this process, which the driver holds up meanwhile. So memory is
// freed when none of a GPU's is in use any more, as then nothing of ours runs there. Until then there is as much of it
// as was once in use.
//
// What lives here: which pinned memory there is, in use and not. What may not: what it is for.
package pinned

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
)

// place is a GPU's context in a driver.
type place struct {
	driver  cuda.Driver
	context cuda.Context
}

// stock is the memory of a place: how many pieces are in use, and those that are not.
type stock struct {
	used int
	free []cuda.HostMemory
}

var (
	mu     sync.Mutex
	stocks = map[place]*stock{}
)

// Alloc returns zero-filled memory.
func Alloc(driver cuda.Driver, context cuda.Context, bytes int64) (cuda.HostMemory, error) {
	at := place{driver, context}
	mu.Lock()
	s := stocks[at]
	if s == nil {
		s = &stock{}
		stocks[at] = s
	}
	s.used++ // from now on, so that the rest stays
	i := slices.IndexFunc(s.free, func(m cuda.HostMemory) bool { return m.Bytes == bytes })
	var m cuda.HostMemory
	if i >= 0 {
		m = s.free[i]
		s.free = slices.Delete(s.free, i, i+1)
	}
	mu.Unlock()
	if i < 0 {
		var err error
		if m, err = driver.AllocHost(context, bytes); err != nil {
			return cuda.HostMemory{}, errors.Join(err, leave(at, nil))
		}
	}
	clear(unsafe.Slice(*(**byte)(unsafe.Pointer(&m.Address)), m.Bytes))
	return m, nil
}

// Free gives memory of Alloc back, which nothing uses any more. The error is of freeing, if it was the last in use.
func Free(driver cuda.Driver, context cuda.Context, m cuda.HostMemory) error {
	return leave(place{driver, context}, &m)
}

// leave ends the use of a piece of memory, which may be none.
func leave(at place, m *cuda.HostMemory) error {
	mu.Lock()
	s := stocks[at]
	if m != nil {
		s.free = append(s.free, *m)
	}
	s.used--
	var last []cuda.HostMemory
	if s.used == 0 {
		last = s.free
		delete(stocks, at)
	}
	mu.Unlock()
	var errs []error
	for _, m := range last {
		errs = append(errs, at.driver.FreeHost(at.context, m))
	}
	return errors.Join(errs...)
}
