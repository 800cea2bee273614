package buffers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// Symmetric is the memory that all ranks have registered with the guarantee that they use it at equal offsets. The
// communicator's turn guards it.
type Symmetric struct {
	observer *diagnosis.Observer
	sorted   []*Range   // by base; where some overlap, they do so alike on all ranks
	reach    []cuda.Ptr // behind the last byte of the ranges up to this one
	count    int64      // of registrations so far, which all ranks count alike
	peers    []cuda.Ptr // receive memory of all ranks, for the call that runs

	// Addresses from gap on, so many, are in no range: a call whose memory is
	// beside the ranges is usually followed by others.
	gap, gapBytes cuda.Ptr
}

// NewSymmetric returns the symmetric memory of a communicator that has none yet.
func NewSymmetric(o *diagnosis.Observer) Symmetric { return Symmetric{observer: o} }

// Range is one registration.
type Range struct {
	base      cuda.Ptr
	bytes     int64
	number    int64            // from 1, alike on all ranks
	owned     bool             // an allocator's, which Deregister does not end
	addresses []cuda.Ptr       // of every rank's range, as this rank's GPU reaches it
	export    *Export          // in the directory; nil: a window's memory
	pieces    []cuda.Ptr       // what the memory is: what is mapped at these addresses,
	ids       []uint64         // by the driver's buffer ids
	held      []*sharedMapping // what the addresses of peers lie in
}

// Register makes a range symmetric. It is collective: every rank gives a range of its own and the same number of bytes.
// For host memory it only compares those. registry is nil where no transport reaches the buffers of peers. What is
// owned ends by End alone.
func (s *Symmetric) Register(ctx context.Context, group Group, registry *Registry, p cuda.Ptr, bytes int64,
	owned bool) (*Range, error) {
	s.count++
	tag := fmt.Sprintf("register symmetric memory (%s %d)", s.observer.Label, s.count)
	r := &Range{base: p, bytes: bytes, number: s.count, owned: owned}
	all, err := s.gather(ctx, group, tag, registry, r)
	if err == nil && s.observer.OnDevice {
		err = group.Agree(ctx, tag+" mapped", registry.settle(ctx, r.export))
		if err == nil {
			err = group.Agree(ctx, tag+" held", registry.hold(r, all))
		}
	}
	if err != nil {
		_ = registry.letGo(r) // the agreed error matters more
		return nil, err
	}
	if s.observer.OnDevice {
		s.insert(r)
	}
	return r, nil
}

// rangeExport is a rank's description of its range for the others.
type rangeExport struct {
	Bytes      int64
	Export     int // in its directory
	Generation uint64
	Offset     int64 // of the range within the export
	Overlaps   []overlap
	Code       plugin.Code
	Message    string
}

// overlap is a range that another one overlaps, and how far behind its beginning that one begins.
type overlap struct{ Number, Behind int64 }

// readRangeExport returns an export as a peer sent it.
func readRangeExport(b []byte) (rangeExport, error) {
	var o rangeExport
	if err := json.Unmarshal(b, &o); err != nil {
		return o, plugin.Errorf(plugin.Protocol, "a malformed export of symmetric memory: %w", err)
	}
	if o.Code == plugin.OK && (o.Bytes <= 0 || o.Offset < 0 || o.Offset > math.MaxInt64-o.Bytes || o.Export < 0 ||
		o.Export >= plugin.DirectoryExports) {
		return o, plugin.Errorf(plugin.Protocol, "an export of %d bytes of symmetric memory at offset %d of export %d",
			o.Bytes, o.Offset, o.Export)
	}
	return o, nil
}

// gather exports a range and returns the exports of all ranks. The error is that of the same rank on all ranks.
func (s *Symmetric) gather(ctx context.Context, group Group, tag string, registry *Registry, r *Range) ([]rangeExport,
	error) {
	mine, err := s.export(registry, r)
	if err != nil {
		mine.Code, mine.Message = plugin.CodeOf(err), err.Error()
	}
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, plugin.Errorf(plugin.Internal, "%w", err)
	}
	answers, err := group.AllGather(ctx, tag, payload)
	if err != nil {
		return nil, err
	}
	all := make([]rangeExport, len(answers))
	for rank, answer := range answers {
		if all[rank], err = readRangeExport(answer); err != nil {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank, Message: fmt.Sprintf("rank %d: %v", rank, err)}
		}
	}
	for rank, o := range all {
		if o.Code != plugin.OK {
			message := o.Message
			if rank != s.observer.Rank { // the caller's error names this rank already
				message = fmt.Sprintf("rank %d: %s", rank, message)
			}
			return nil, &plugin.Error{Code: o.Code, Rank: rank, Message: message}
		}
	}
	for rank, o := range all {
		if o.Bytes != all[0].Bytes {
			return nil, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("ranks disagree: rank 0 registers %d bytes of symmetric memory, rank %d %d", all[0].Bytes,
					rank, o.Bytes)}
		}
		if !slices.Equal(o.Overlaps, all[0].Overlaps) {
			return nil, &plugin.Error{Code: plugin.Unsupported, Rank: rank,
				Message: fmt.Sprintf("symmetric ranges have to overlap alike on all ranks: this one %s on rank 0, but %s on rank %d",
					overlaps(all[0].Overlaps), overlaps(o.Overlaps), rank)}
		}
	}
	return all, nil
}

// export makes peers map what a range lies in.
func (s *Symmetric) export(t *Registry, r *Range) (rangeExport, error) {
	o := rangeExport{Bytes: r.bytes}
	if r.base == 0 || r.bytes <= 0 || uint64(r.base) > math.MaxUint64-uint64(r.bytes) {
		return o, plugin.Errorf(plugin.InvalidArgument, "the range has %d bytes at %#x, want one byte or more at an address that holds them", r.bytes, uint64(r.base))
	}
	if !s.observer.OnDevice {
		return o, nil
	}
	for _, other := range s.overlapping(r) {
		if other.export == nil {
			return o, plugin.Errorf(plugin.InvalidArgument, "the %d bytes at %#x overlap a window, which is symmetric range %d, %d bytes at %#x",
				r.bytes, uint64(r.base), other.number, other.bytes, uint64(other.base))
		}
		o.Overlaps = append(o.Overlaps, overlap{other.number, int64(r.base - other.base)})
	}
	if t == nil {
		return o, plugin.Errorf(plugin.Unsupported, "no transport reaches the buffers of peers")
	}
	x, err := t.register(r.base, r.bytes)
	if err != nil {
		return o, err
	}
	r.export = x
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is(x) {
		return o, plugin.Errorf(plugin.InvalidArgument, "memory at %#x was freed while it was registered", uint64(r.base))
	}
	e := &t.exports[x.at]
	from, to := e.spanned(r.base, r.bytes)
	r.pieces, r.ids = e.pieces[from:to], e.ids[from:to]
	o.Export, o.Generation, o.Offset = x.at, e.generation, int64(r.base-e.base)
	return o, nil
}

// hold finds where every rank's range is mapped here, and keeps that
// mapped whatever becomes of the peers' exports.
func (t *Registry) hold(r *Range, all []rangeExport) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rank, o := range all {
		if rank == t.Rank {
			r.addresses = append(r.addresses, r.base)
			continue
		}
		have := &t.imports[rank][o.Export]
		if have.generation != o.Generation || have.mapping == nil || o.Offset > have.bytes-o.Bytes {
			return plugin.Errorf(plugin.Unsupported, "%d bytes at offset %d of export %d of rank %d are not mapped", o.Bytes,
				o.Offset, o.Export, rank)
		}
		have.mapping.hold()
		r.held = append(r.held, have.mapping)
		r.addresses = append(r.addresses, have.address+cuda.Ptr(o.Offset))
	}
	return nil
}

// letGo ends a registration here: peers unmap, and this rank unmaps theirs once no operation and no graph uses them.
func (t *Registry) letGo(r *Range) error {
	var errs []error
	for _, m := range r.held {
		errs = append(errs, t.exec.Later(m.Close))
	}
	r.held = nil
	errs = append(errs, t.Withdraw(r.export))
	r.export = nil
	return errors.Join(errs...)
}

// Address returns where this rank's GPU reaches what a rank has at the offset of p, which lies in this rank's range.
func (r *Range) Address(p cuda.Ptr, rank int) cuda.Ptr { return r.addresses[rank] + (p - r.base) }

// Last returns the last of the user's registrations that began at an address, which Deregister ends; nil: none.
func (s *Symmetric) Last(p cuda.Ptr) *Range {
	var last *Range
	for _, r := range s.sorted {
		if r.base == p && !r.owned && r.export != nil && (last == nil || last.number < r.number) {
			last = r
		}
	}
	return last
}

// Deregister ends the last of the user's registrations that began at an address; found is false if there is none.
func (s *Symmetric) Deregister(registry *Registry, p cuda.Ptr) (found bool, err error) {
	r := s.Last(p)
	if r == nil {
		return false, nil
	}
	return true, s.End(registry, r)
}

// End ends a registration.
func (s *Symmetric) End(registry *Registry, r *Range) error {
	s.Remove(r)
	return registry.letGo(r)
}

// Release ends all registrations, before the registry is closed.
func (s *Symmetric) Release(registry *Registry) error {
	var errs []error
	for _, r := range s.sorted {
		for _, m := range r.held { // exports go with the registry
			errs = append(errs, registry.exec.Later(m.Close))
		}
		r.held = nil
	}
	s.sorted, s.reach = nil, nil
	return errors.Join(errs...)
}

// AddWindow makes the user's part of a window, which all ranks have mapped at these addresses, symmetric memory. The
// range is nil where there is no memory.
func (s *Symmetric) AddWindow(addresses []cuda.Ptr, bytes int64) *Range {
	s.count++
	if bytes == 0 {
		return nil
	}
	r := &Range{base: addresses[s.observer.Rank], bytes: bytes, number: s.count, addresses: addresses}
	s.insert(r)
	return r
}
