package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Deferred makes the memory of one endpoint's regions of role deferred, when an operation first needs it: each rank
// makes its own, and maps what its peers have made. A rank that needs a peer's asks that peer's share, which makes it
// if it is not there yet, whatever the peer's callers do meanwhile. So no rank decides anything for another, and nobody
// waits for a call of anybody else.
type Deferred struct {
	DeferredConfig
	parts []part

	mu     sync.Mutex     // guards what this rank makes, which peers ask for too
	made   []cuda.Mapping // by region; peers get descriptors of its handle, as one that was imported cannot be exported
	closed bool
	held   atomic.Int64 // bytes of what was made
}

// DeferredConfig says whose regions they are.
type DeferredConfig struct {
	Driver  cuda.Driver
	Context cuda.Context
	Device  int
	Rank    int
	Copies  *Staging
	Share   *Share           // nil in a world of one
	Tag     string           // equal on all ranks, and this endpoint's alone
	Ranks   []*DeviceMapping // region 0 of each rank, with addresses behind it for all that is deferred
	Before  int64            // bytes of region 0's handle
}

// part is a region of role deferred.
type part struct {
	plugin.Region
	offset int64  // from the start of region 0
	mapped []bool // of each rank; the caller's
	whole  bool   // of all ranks
}

// NewDeferred takes the regions of role deferred, in order.
func NewDeferred(c DeferredConfig, regions []plugin.Region) *Deferred {
	f := &Deferred{DeferredConfig: c, made: make([]cuda.Mapping, len(regions))}
	at := c.Before
	for i, r := range regions {
		f.parts = append(f.parts, part{Region: r, offset: at, mapped: make([]bool, len(c.Ranks))})
		at += r.Bytes
		if c.Share != nil {
			c.Share.OnDemand(f.tag(i), func() (int, error) { return f.give(i) })
		}
	}
	return f
}

func (f *Deferred) tag(i int) string { return fmt.Sprintf("%s deferred %d", f.Tag, f.parts[i].ID) }

// Held returns the bytes of what this rank has made.
func (f *Deferred) Held() int64 { return f.held.Load() }

// Close ends the making of memory; peers that ask for some are refused. What was made lives on in the mappings of
// region 0, which are closed afterwards.
func (f *Deferred) Close() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	var err error
	for _, m := range f.made {
		if m.Bytes != 0 {
			err = errors.Join(err, f.Driver.Unmap(f.Context, m))
		}
	}
	f.made = nil
	return err
}

// Region returns deferred region i.
func (f *Deferred) Region(i int) plugin.Region { return f.parts[i].Region }

// Has reports whether deferred region i of a rank is mapped here, or with -1 of every rank. One caller at a time.
func (f *Deferred) Has(i, rank int) bool {
	p := &f.parts[i]
	return p.whole || rank >= 0 && p.mapped[f.Rank] && p.mapped[rank]
}

// Map maps deferred region i of this rank and of another one, or with -1 of every rank, and passes the address of each
// to enter. One caller at a time.
func (f *Deferred) Map(ctx context.Context, i, rank int, enter func(rank int, address cuda.Ptr) error) error {
	p := &f.parts[i]
	for k := range f.Ranks {
		// This rank's first, then the next one's, so that not all ask the same rank at once.
		of := (f.Rank + k) % len(f.Ranks)
		if p.mapped[of] || rank >= 0 && of != rank && of != f.Rank {
			continue
		}
		err := f.mapOf(ctx, i, of)
		if err == nil {
			err = enter(of, f.Ranks[of].Address()+cuda.Ptr(p.offset))
		}
		if err != nil {
			return plugin.Errorf(plugin.CodeOf(err), "making %d bytes of memory for messages (region %d of rank %d): %w", p.Bytes,
				p.ID, of, err)
		}
		p.mapped[of] = true
	}
	p.whole = p.whole || rank < 0
	return nil
}

func (f *Deferred) mapOf(ctx context.Context, i, rank int) error {
	p := &f.parts[i]
	if rank == f.Rank {
		return f.makeOwn(i)
	}
	fds, err := f.Share.Fetch(ctx, rank, f.tag(i), 1)
	switch plugin.CodeOf(err) {
	case plugin.OK:
		defer closeAll(fds)
		return f.Ranks[rank].Extend(f.Device, p.offset, fds[0], p.Bytes)
	case plugin.PeerDied, plugin.Closed:
		// It will read nothing any more, but what it has sent before may still be taken: what this rank stores there
		// goes into memory that nobody reads. Whoever waits for that rank learns of its end as ever.
		m, err := f.place(i, rank)
		if err == nil {
			err = f.Driver.Unmap(f.Context, m) // behind region 0 it stays
		}
		return err
	}
	return err
}

// give returns a descriptor of this rank's memory for a peer.
func (f *Deferred) give(i int) (fd int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.makeLocked(i); err != nil {
		return -1, err
	}
	return f.Driver.ExportMemory(f.Context, f.made[i].Handle)
}

// makeOwn makes this rank's memory, once.
func (f *Deferred) makeOwn(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.makeLocked(i)
}

func (f *Deferred) makeLocked(i int) (err error) {
	if f.closed {
		return plugin.Errorf(plugin.Closed, "the communicator is closed")
	}
	if f.made[i].Bytes == 0 {
		f.made[i], err = f.place(i, f.Rank)
	}
	return err
}

// place makes memory of this GPU, zero-filled, and maps it where a rank's is, too.
func (f *Deferred) place(i, rank int) (cuda.Mapping, error) {
	p := &f.parts[i]
	m, err := f.Driver.CreateMemory(f.Context, f.Device, p.Bytes)
	if err != nil {
		return cuda.Mapping{}, err
	}
	if m.Bytes != p.Bytes {
		err = plugin.Errorf(plugin.Unsupported, "this GPU's memory has pages of another size: %d bytes became %d", p.Bytes, m.Bytes)
	}
	if err == nil {
		err = f.Copies.Zero(m.Address, m.Bytes)
	}
	fd := -1
	if err == nil {
		fd, err = f.Driver.ExportMemory(f.Context, m.Handle)
	}
	if err == nil {
		err = errors.Join(f.Ranks[rank].Extend(f.Device, p.offset, fd, p.Bytes), unix.Close(fd))
	}
	if err != nil {
		return cuda.Mapping{}, errors.Join(err, f.Driver.Unmap(f.Context, m))
	}
	f.held.Add(p.Bytes)
	return m, nil
}
