package endpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/plugin"
)

// MaxWindows bounds the windows of one communicator at one time.
const MaxWindows = 1024

// Window is memory of every rank that peers write, read and signal. The communicator's turn guards it.
type Window struct {
	ID    uint32         // of its region, at the endpoint
	Local unsafe.Pointer // this rank's region, where the host can reach it

	set       *Set
	endpoint  *Endpoint
	lent      bool // the region is memory of the caller
	mappings  Mappings
	symmetric *buffers.Range // its memory, or what that lies in; nil for host memory
}

// WindowSize is the size of a window.
type WindowSize struct {
	Bytes         int64 // that the user has of each rank
	Total, Header int64 // of the region, and before the user's bytes
}

// NewWindow makes a window, zero-filled. It is collective.
func (s *Set) NewWindow(ctx context.Context, tag string, size WindowSize) (*Window, error) {
	w := &Window{set: s}
	var err error
	if w.endpoint, err = s.forWindows(ctx); err == nil {
		err = s.roomForAWindow()
	}
	place, differ := s.agreeOnWindow(ctx, tag, size.Bytes)
	if differ != nil {
		return nil, differ
	}
	var mine plugin.Region
	if err == nil {
		w.ID = s.placeOfWindows + place - w.endpoint.Base
		allocating, cancel := plans.TransportTime(ctx)
		mine, err = w.endpoint.Endpoint.Allocate(allocating, w.ID, size.Total)
		cancel()
	}
	if err = s.Group.Agree(ctx, tag+" memory", err); err != nil {
		if mine.Bytes > 0 {
			_ = w.free() // the agreed error matters more
		}
		return nil, err
	}
	w.mappings, err = s.Map(ctx, tag, w.endpoint, mine)
	if err == nil {
		err = s.Plans.PrepareAlone(ctx, tag+" plans", nil, oneSided...)
	}
	if err != nil {
		_ = errors.Join(w.unmap(), w.free()) // likewise
		return nil, err
	}
	w.Local = w.mappings.Local(s.Rank)
	if addresses := w.mappings.Addresses(0); addresses != nil {
		s.Buffers.AddWindow(w.place(), addresses, mine.Bytes)
		w.symmetric = s.Symmetric.AddWindow(w.mappings.Addresses(size.Header), size.Bytes)
	}
	s.windows[w.place()] = w
	return w, nil
}

// WindowAt makes a window of bytes from own on, which lie in a symmetric range. It is local.
func (s *Set) WindowAt(ctx context.Context, in *buffers.Range, own cuda.Ptr, bytes int64) (*Window, error) {
	e, err := s.forWindows(ctx)
	if err == nil {
		err = s.roomForAWindow()
	}
	if err == nil {
		err = s.Plans.PrepareHere(ctx, oneSided...)
	}
	if err != nil {
		return nil, err
	}
	at := s.placeOfWindows + MaxWindows
	for s.windows[at] != nil {
		at++
	}
	w := &Window{ID: at - e.Base, Local: *(*unsafe.Pointer)(unsafe.Pointer(&own)), set: s, endpoint: e, lent: true,
		symmetric: in}
	for rank := range s.World {
		if err := s.GPU.Exec.SetRegion(e.Base, w.ID, rank, in.Address(own, rank), bytes); err != nil {
			s.GPU.Exec.ClearRegion(e.Base, w.ID)
			return nil, err
		}
	}
	s.windows[at] = w
	return w, nil
}

// oneSided are the collectives whose plans are prepared with a window, so that none of them ever needs an agreement.
var oneSided = []plugin.Collective{plugin.Put, plugin.Get, plugin.Signal, plugin.Wait}

// agreeOnWindow fails on every rank unless all make a window of the same size. It returns the first place among those
// of windows that is free on all: one rank may have closed windows that another has still open.
func (s *Set) agreeOnWindow(ctx context.Context, tag string, bytes int64) (uint32, error) {
	mine := binary.LittleEndian.AppendUint64(nil, uint64(bytes))
	replies, err := s.Group.AllGather(ctx, tag, append(mine, s.openWindows()...))
	if err != nil {
		return 0, err
	}
	var first int64
	var open [MaxWindows / 8]byte
	for rank, reply := range replies {
		if len(reply) != len(mine)+len(open) {
			return 0, &plugin.Error{Code: plugin.Protocol, Rank: rank,
				Message: fmt.Sprintf("rank %d sent a malformed size of its window", rank)}
		}
		theirs := int64(binary.LittleEndian.Uint64(reply))
		if rank == 0 {
			first = theirs
		}
		if theirs != first {
			return 0, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("ranks disagree: rank 0 makes a window of %d bytes, rank %d one of %d", first, rank, theirs)}
		}
		for i := range open {
			open[i] |= reply[len(mine)+i]
		}
	}
	for place := range uint32(MaxWindows) {
		if open[place/8]>>(place%8)&1 == 0 {
			return place, nil
		}
	}
	return 0, plugin.Errorf(plugin.OutOfMemory, "%d windows are open already, on one rank or another", MaxWindows)
}

// openWindows returns a bit for each place of a window of NewWindow, which is set if the window is open, or was and its
// endpoint could not free it.
func (s *Set) openWindows() []byte {
	bits := make([]byte, MaxWindows/8)
	for at := range s.windows {
		if place := at - s.placeOfWindows; place < MaxWindows {
			bits[place/8] |= 1 << (place % 8)
		}
	}
	for place := range s.notFreed {
		bits[place/8] |= 1 << (place % 8)
	}
	return bits
}

func (s *Set) roomForAWindow() error {
	if len(s.windows) >= MaxWindows {
		return plugin.Errorf(plugin.OutOfMemory, "%d windows are open already", len(s.windows))
	}
	return nil
}

// Lent returns an open window, which WindowAt has made, in the symmetric range that Deregister of an address ends; nil:
// none.
func (s *Set) Lent(base cuda.Ptr) *Window {
	if in := s.Symmetric.Last(base); in != nil {
		for _, w := range s.windows {
			if w.lent && w.symmetric == in {
				return w
			}
		}
	}
	return nil
}

// CloseWindows closes the windows that are open, and ends the registrations of symmetric memory.
func (s *Set) CloseWindows() error {
	var errs []error
	for _, w := range s.windows {
		errs = append(errs, w.Close())
	}
	return errors.Join(append(errs, s.Symmetric.Release(s.Buffers))...)
}

// place returns where the window is in the executor's table, and a later one once it is closed.
func (w *Window) place() uint32 { return w.endpoint.Base + w.ID }

// Close gives this rank's part of an open window up, which peers may still have mapped.
func (w *Window) Close() error {
	delete(w.set.windows, w.place())
	if w.lent {
		w.set.GPU.Exec.ClearRegion(w.endpoint.Base, w.ID)
		return nil
	}
	return errors.Join(w.unmap(), w.free())
}

// free gives this rank's memory back, also where the context of the call has ended: what stays keeps its place from
// later windows.
func (w *Window) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.set.Timeout())
	defer cancel()
	err := w.endpoint.Endpoint.Free(ctx, w.ID)
	if err != nil {
		w.set.notFreed[w.place()-w.set.placeOfWindows] = true
	}
	return err
}

func (w *Window) unmap() error {
	s := w.set
	s.Symmetric.Remove(w.symmetric)
	if s.GPU != nil {
		if err := s.Buffers.DropWindow(w.place()); err != nil {
			s.Logger.Warn("a window could not be withdrawn from the directory of buffers", "communicator", s.Label, "rank",
				s.Rank, "reason", err)
		}
		s.GPU.Exec.ClearRegion(w.endpoint.Base, w.ID)
	} else {
		s.Engine.ClearRegion(w.endpoint.Base, w.ID)
	}
	err := w.mappings.Close()
	w.mappings = nil
	return err
}
