// Package postbox is the example of docs/transport-author.md: a complete
// transport over memory that the ranks of one host share.
//
// It has a region of role scratch, on which the host's generic algorithms run
// every collective, buffers for windows, and one plan of its own: all_gather of
// small messages, by writing into one's own box and reading all others. What is
// fast and complete is transports/shm; here everything is as short as it can
// be while passing the conformance suite.
package postbox

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// Transport is the transport. It has no state.
type Transport struct{}

// Info describes the transport.
func (Transport) Info() plugin.Info {
	return plugin.Info{
		Name: "postbox", Version: "1.0.0", Doc: "the example of the transport author's guide",
		Features: plugin.FeatureMemory | plugin.FeaturePlans | plugin.FeatureBuffers,
		Memory:   []plugin.MemoryKind{plugin.MemoryKindHost},
	}
}

// Supports depends on the request alone, so that every rank returns the same.
func (Transport) Supports(req plugin.Request) plugin.Support {
	switch {
	case req.Memory != plugin.MemoryKindHost:
		return plugin.Support{Reason: "postbox moves host memory only"}
	case req.Hosts > 1:
		return plugin.Support{Reason: "postbox reaches the ranks of one host only"}
	case req.Collective != plugin.AllGather:
		return plugin.Support{Reason: "postbox has no plan of its own for " + req.Collective.String()}
	}
	return plugin.Support{Algorithms: []plugin.Algorithm{
		{Name: boxes, MaxBytes: boxBytes, Latency: 1 + 0.2*float64(req.World), Bandwidth: 2000},
	}}
}

// Open makes this rank's memory. It exchanges nothing with peers: the host hands the
// regions to the other ranks.
func (Transport) Open(_ context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	for name := range config.Options {
		return nil, plugin.Errorf(plugin.InvalidArgument, "postbox: unknown option %q; it has none", name)
	}
	e := &endpoint{buffers: map[uint32]plugin.Region{}}
	sizes := []int64{regionPost: postBytes, regionScratch: max(1<<20, int64(config.World)<<17)}
	roles := []plugin.RegionRole{regionPost: plugin.RegionRolePrivate, regionScratch: plugin.RegionRoleScratch}
	for id := range sizes {
		r, err := newRegion(uint32(id), roles[id], sizes[id])
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.regions = append(e.regions, r)
	}
	return e, nil
}

// The regions of an endpoint, by id, and the layout of the first one: this
// rank's semaphore, its private counter, and two boxes.
const (
	regionPost    = 0
	regionScratch = 1

	boxes     = "boxes" // the name of the algorithm
	boxBytes  = 4096
	semaphore = 0
	counter   = 64 // a line of its own: no other word is in it
	firstBox  = 128
	postBytes = firstBox + 2*boxBytes
)

// allGather writes the plan: counts, addresses and displacements are slots, so
// one plan serves every call.
func allGather(req plugin.Request) (*plugin.Plan, error) {
	b := plugin.NewBuilder(req, boxes)
	post, me := b.Const(regionPost), b.Const(int64(req.Rank))
	bytes := b.Slot(plugin.SlotBytes)
	b.Track(func() {
		// The number of this operation, counted in memory: nothing that the host
		// knows, so it is right whatever ran before.
		own := b.Region(post, me, b.Const(counter))
		epoch := b.Add(b.Load(own), b.Const(1))
		// Two boxes in turn suffice: this rank comes back to a box only after
		// the next signal of every rank, which it sends when it has read this one.
		box := b.Add(b.Const(firstBox), b.Mul(b.Mod(epoch, b.Const(2)), b.Const(boxBytes)))
		b.Copy(b.Region(post, me, box), b.Send(b.Const(0)), bytes)
		// Release: a peer that sees the epoch sees the bytes in the box.
		b.SignalAll(b.Region(post, me, b.Const(semaphore)), epoch)
		for rank := range req.World {
			peer := b.Const(int64(rank))
			// Acquire. It is waited for also when there are no bytes to read.
			b.Wait(b.Region(post, peer, b.Const(semaphore)), epoch, peer)
			b.Copy(b.Recv(b.RecvDispl(rank)), b.Region(post, peer, box), bytes)
		}
		b.Store(own, epoch)
	})
	return b.Plan()
}

// endpoint is one rank's end of one communicator.
type endpoint struct {
	regions []plugin.Region
	buffers map[uint32]plugin.Region
}

func (e *endpoint) Regions() []plugin.Region { return e.regions }
func (e *endpoint) Images() []plugin.Image   { return nil }

func (e *endpoint) Prepare(_ context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	if req.Collective != plugin.AllGather || algorithm != boxes {
		return nil, plugin.Errorf(plugin.Unsupported, "postbox: no algorithm %q for %s", algorithm, req.Collective)
	}
	return allGather(req)
}

func (e *endpoint) Allocate(_ context.Context, id uint32, bytes int64) (plugin.Region, error) {
	if _, taken := e.buffers[id]; taken || int(id) < len(e.regions) || bytes < 0 {
		return plugin.Region{}, plugin.Errorf(plugin.InvalidArgument, "postbox: buffer %d of %d bytes", id, bytes)
	}
	const page = 4096
	r, err := newRegion(id, plugin.RegionRoleBuffer, (max(bytes, 1)+page-1)/page*page)
	if err == nil {
		e.buffers[id] = r
	}
	return r, err
}

func (e *endpoint) Free(_ context.Context, id uint32) error {
	r, ok := e.buffers[id]
	if !ok {
		return plugin.Errorf(plugin.InvalidArgument, "postbox: no buffer %d", id)
	}
	delete(e.buffers, id)
	return closeRegion(r)
}

// Close closes the descriptors; memory that a peer has mapped lives on.
func (e *endpoint) Close() error {
	var err error
	for _, r := range e.regions {
		err = errors.Join(err, closeRegion(r))
	}
	for _, r := range e.buffers {
		err = errors.Join(err, closeRegion(r))
	}
	e.regions, e.buffers = nil, nil
	return err
}

// generations tells two memfds apart that get the same descriptor number.
var generations atomic.Uint64

// newRegion makes zero-filled memory that a descriptor names.
func newRegion(id uint32, role plugin.RegionRole, bytes int64) (plugin.Region, error) {
	fd, err := unix.MemfdCreate("postbox", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return plugin.Region{}, plugin.SystemError(err, "postbox: memfd_create")
	}
	r := plugin.Region{
		ID: id, Role: role, Memory: plugin.MemoryKindHost, Bytes: bytes,
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: generations.Add(1), Bytes: bytes, FD: fd},
	}
	err = unix.Ftruncate(fd, bytes)
	if err == nil {
		// It cannot shrink while a peer has it mapped.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		return plugin.Region{}, errors.Join(plugin.SystemError(err, "postbox: %d bytes", bytes), closeRegion(r))
	}
	return r, nil
}

func closeRegion(r plugin.Region) error {
	if err := unix.Close(r.Handle.FD); err != nil {
		return plugin.Errorf(plugin.System, "postbox: closing region %d: %w", r.ID, err)
	}
	return nil
}
