package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// symmetricRanges are the memory that all ranks have registered with the promise
// that they use it alike. Who holds the communicator's turn may touch them.
type symmetricRanges struct {
	sorted []*symmetricRange // by base; they do not overlap
	count  int64             // of registrations so far, which all ranks count alike
	peers  []cuda.Ptr        // receive memory of all ranks, for the call that runs

	// Addresses from gap on, so many, are in no range: a call whose memory is
	// beside the ranges is usually followed by others.
	gap, gapBytes cuda.Ptr
}

// symmetricRange is one registration.
type symmetricRange struct {
	base       cuda.Ptr
	bytes      int64
	number     int64      // from 1, alike on all ranks
	addresses  []cuda.Ptr // of every rank's range, as this rank's GPU reaches it
	export     int        // in the directory; -1: a window's memory
	generation uint64
	pieces     []cuda.Ptr       // what the memory is: what is mapped at these addresses,
	ids        []uint64         // by the driver's buffer ids
	held       []*sharedMapping // what the addresses of peers lie in
}

// RegisterSymmetric is Register with a promise, which opens algorithms that write
// into the receive memory of peers without asking where it is: large messages
// then go through the GPUs' copy engines.
//
// The promise: whenever the receive memory of a collective lies in the range on
// one rank, it lies in the same range, at the same offset from the address given
// here, on every rank. It holds for all_reduce, all_gather, all_to_all, broadcast
// and scatter, eager and in graphs. Send memory may be anywhere, but an all_reduce
// is in place on all ranks or on none. Where it is broken the ranks'
// call is an error on all of them, code mismatch, which names two ranks and their
// offsets, and the communicator is aborted; other bytes of the ranges may then have
// been overwritten, and no memory outside of them.
//
// It is collective: every rank gives a range of its own and the same number of
// bytes. Ranges do not overlap. The memory must stay allocated until Deregister.
// Windows are symmetric without it. For host memory, and in a world of one, there
// is nothing to do.
func (c *Communicator) RegisterSymmetric(p unsafe.Pointer, bytes int64) error {
	release, err := c.enter("register_symmetric")
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := c.deadline(c.job.ctx)
	defer cancel()
	s := &c.symmetric
	s.count++
	tag := fmt.Sprintf("symmetric %s %d", c.label, s.count)
	r := &symmetricRange{base: cuda.Ptr(uintptr(p)), bytes: bytes, number: s.count, export: -1}
	offers, err := c.offerSymmetric(ctx, tag, r)
	if err == nil && c.device != nil {
		t := c.device.buffers
		err = c.group.Agree(ctx, tag+" mapped", t.settle(ctx, r.export))
		if err == nil {
			err = c.group.Agree(ctx, tag+" held", t.holdSymmetric(r, offers))
		}
	}
	if err != nil {
		_ = c.letGo(r) // the agreed error matters more
		return c.named("register_symmetric", err)
	}
	if c.device != nil {
		s.insert(r)
	}
	return nil
}

// symmetricOffer is what a rank tells the others of its range.
type symmetricOffer struct {
	Bytes      int64
	Export     int // in its directory
	Generation uint64
	Offset     int64 // of the range within the export
	Code       plugin.Code
	Message    string
}

// readSymmetricOffer is an offer as a peer sent it.
func readSymmetricOffer(b []byte) (symmetricOffer, error) {
	var o symmetricOffer
	if err := json.Unmarshal(b, &o); err != nil {
		return o, plugin.Errorf(plugin.Protocol, "a malformed offer of symmetric memory: %w", err)
	}
	if o.Code == plugin.OK && (o.Bytes <= 0 || o.Offset < 0 || o.Offset > math.MaxInt64-o.Bytes || o.Export < 0 || o.Export >= plugin.DirectoryExports) {
		return o, plugin.Errorf(plugin.Protocol, "an offer of %d bytes of symmetric memory at offset %d of export %d", o.Bytes, o.Offset, o.Export)
	}
	return o, nil
}

// offerSymmetric exports a range and answers what all ranks offer. Every rank
// comes to the same verdict.
func (c *Communicator) offerSymmetric(ctx context.Context, tag string, r *symmetricRange) ([]symmetricOffer, error) {
	mine, err := c.exportSymmetric(r)
	if err != nil {
		mine.Code, mine.Message = plugin.CodeOf(err), err.Error()
	}
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, plugin.Errorf(plugin.Internal, "%w", err)
	}
	answers, err := c.group.AllGather(ctx, tag, payload)
	if err != nil {
		return nil, err
	}
	offers := make([]symmetricOffer, len(answers))
	for rank, answer := range answers {
		if offers[rank], err = readSymmetricOffer(answer); err != nil {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank, Message: fmt.Sprintf("rank %d: %v", rank, err)}
		}
	}
	for rank, o := range offers {
		if o.Code != plugin.OK {
			return nil, &plugin.Error{Code: o.Code, Rank: rank, Message: fmt.Sprintf("rank %d: %s", rank, o.Message)}
		}
	}
	for rank, o := range offers {
		if o.Bytes != offers[0].Bytes {
			return nil, &plugin.Error{Code: plugin.Mismatch, Rank: rank, Message: fmt.Sprintf("ranks disagree: rank 0 registers %d bytes of symmetric memory, rank %d %d", offers[0].Bytes, rank, o.Bytes)}
		}
	}
	return offers, nil
}

// exportSymmetric makes peers map what a range lies in.
func (c *Communicator) exportSymmetric(r *symmetricRange) (symmetricOffer, error) {
	o := symmetricOffer{Bytes: r.bytes}
	if r.base == 0 || r.bytes <= 0 || uint64(r.base) > math.MaxUint64-uint64(r.bytes) {
		return o, plugin.Errorf(plugin.InvalidArgument, "%d bytes at %#x", r.bytes, uint64(r.base))
	}
	if c.device == nil {
		return o, nil
	}
	if other := c.symmetric.overlapping(r); other != nil {
		return o, plugin.Errorf(plugin.InvalidArgument, "%d bytes at %#x overlap symmetric range %d, %d bytes at %#x", r.bytes, uint64(r.base), other.number, other.bytes, uint64(other.base))
	}
	t := c.device.buffers
	if t == nil {
		return o, plugin.Errorf(plugin.Unsupported, "no transport reaches the buffers of peers")
	}
	at, err := t.register(r.base, r.bytes)
	if err != nil {
		return o, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.exports[at]
	from, to := e.spanned(r.base, r.bytes)
	r.export, r.generation, r.pieces, r.ids = at, e.generation, e.pieces[from:to], e.ids[from:to]
	o.Export, o.Generation, o.Offset = at, e.generation, int64(r.base-e.base)
	return o, nil
}

// holdSymmetric finds where every rank's range is mapped here, and keeps that
// mapped whatever becomes of the peers' exports.
func (t *directory) holdSymmetric(r *symmetricRange, offers []symmetricOffer) error {
	c := t.device.comm
	t.mu.Lock()
	defer t.mu.Unlock()
	for rank, o := range offers {
		if rank == c.rank {
			r.addresses = append(r.addresses, r.base)
			continue
		}
		have := &t.imports[rank][o.Export]
		if have.generation != o.Generation || have.mapping == nil || o.Offset > have.bytes-o.Bytes {
			return plugin.Errorf(plugin.Unsupported, "%d bytes at offset %d of export %d of rank %d are not mapped", o.Bytes, o.Offset, o.Export, rank)
		}
		have.mapping.hold()
		r.held = append(r.held, have.mapping)
		r.addresses = append(r.addresses, have.address+cuda.Ptr(o.Offset))
	}
	return nil
}

// letGo ends a registration here: peers are told to unmap, and what this rank
// holds of theirs goes once no operation and no graph uses it.
func (c *Communicator) letGo(r *symmetricRange) error {
	var errs []error
	for _, m := range r.held {
		errs = append(errs, c.device.exec.Later(m.Close))
	}
	r.held = nil
	if r.export >= 0 && c.device.buffers.has(r) {
		errs = append(errs, c.device.buffers.deregister(r.export))
	}
	r.export = -1
	return errors.Join(errs...)
}

// deregisterSymmetric ends the registration that began at an address; ok is false
// if there is none.
func (c *Communicator) deregisterSymmetric(p cuda.Ptr) (ok bool, err error) {
	r := c.symmetric.find(p)
	if r == nil || r.base != p || r.export < 0 {
		return false, nil
	}
	c.symmetric.remove(r)
	return true, c.letGo(r)
}

// releaseSymmetric ends all registrations.
func (c *Communicator) releaseSymmetric() error {
	var errs []error
	for _, r := range c.symmetric.sorted {
		for _, m := range r.held { // exports go with the directory
			errs = append(errs, c.device.exec.Later(m.Close))
		}
		r.held = nil
	}
	c.symmetric.sorted = nil
	return errors.Join(errs...)
}

// addSymmetric makes the user's part of a window, which all ranks have mapped at
// these addresses, symmetric memory.
func (w *Window) addSymmetric(addresses []cuda.Ptr) {
	s := &w.comm.symmetric
	s.count++
	if w.facts.Bytes == 0 {
		return
	}
	r := &symmetricRange{bytes: w.facts.Bytes, number: s.count, export: -1}
	for _, a := range addresses {
		r.addresses = append(r.addresses, a+cuda.Ptr(w.user))
	}
	r.base = r.addresses[w.comm.rank]
	w.symmetric = r
	s.insert(r)
}
