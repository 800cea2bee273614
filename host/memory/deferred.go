package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Deferred makes the memory of one endpoint's regions of role deferred, when an operation first needs it: each rank
// makes its own, and maps what its peers have made. A rank that needs a peer's asks that peer's share, which makes it
// if it is not there yet, whatever the peer's callers do meanwhile. So no rank decides anything for another, and no
// rank waits for a call of another.
//
// But making calls the driver, which may keep a thread waiting while another one of the process frees memory: that
// waits for kernels, and they for other ranks. So only ranks that take part in an operation are asked, and a rank that
// has made memory gives it away without the driver: a rank that is ahead of others holds none of them up.
type Deferred struct {
	DeferredConfig
	parts []part
	own   []own        // by region
	held  atomic.Int64 // bytes of what was made
	ended atomic.Bool
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
	// Late words that a peer has given nothing in time; asked says that its process has taken the request.
	Late func(rank int, asked bool) error
}

// part is a region of role deferred.
type part struct {
	plugin.Region
	offset int64  // from the start of region 0
	mapped []bool // of each rank; the caller's
	whole  bool   // of all ranks
}

// own is the memory that this rank makes for a region, for its peers too.
type own struct {
	mu     sync.Mutex   // held while it is made
	memory cuda.Mapping // its handle can be exported, unlike one that was imported
	fd     int          // of it, for the peers that have got none yet
	owed   int          // how many these are
}

// NewDeferred takes the regions of role deferred, in order.
func NewDeferred(c DeferredConfig, regions []plugin.Region) *Deferred {
	f := &Deferred{DeferredConfig: c, own: make([]own, len(regions))}
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

// End ends the making of memory: peers that ask for some that this rank has not made are refused. What it has made they
// still get: an operation that it has begun waits for what they store there. It waits for no call of the driver.
func (f *Deferred) End() {
	if f != nil {
		f.ended.Store(true)
	}
}

// Close releases the memory, once no operation can be running any more. It lives on in the mappings of region 0,
// which are closed afterwards.
func (f *Deferred) Close() error {
	if f == nil {
		return nil
	}
	f.End()
	var err error
	for i := range f.own {
		err = errors.Join(err, f.closeOwn(&f.own[i]))
	}
	return err
}

func (f *Deferred) closeOwn(o *own) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owed > 0 {
		_ = unix.Close(o.fd) // a descriptor of memory has nothing to write back
		o.owed = 0
	}
	if o.memory.Bytes == 0 {
		return nil
	}
	m := o.memory
	o.memory = cuda.Mapping{}
	return f.Driver.Unmap(f.Context, m)
}

// Region returns deferred region i.
func (f *Deferred) Region(i int) plugin.Region { return f.parts[i].Region }

// Has reports whether deferred region i of this rank and of some peers is mapped here; nil are all ranks. One caller at
// a time.
func (f *Deferred) Has(i int, peers []int) bool {
	p := &f.parts[i]
	if p.whole || peers == nil {
		return p.whole
	}
	return p.mapped[f.Rank] && !slices.ContainsFunc(peers, func(rank int) bool { return !p.mapped[rank] })
}

// Map maps deferred region i of this rank and of some peers, or with nil of all ranks, and passes the address of each
// to enter. One caller at a time.
func (f *Deferred) Map(ctx context.Context, i int, peers []int, enter func(rank int, address cuda.Ptr) error) error {
	p := &f.parts[i]
	for k := range f.Ranks {
		// This rank's first, then the next one's, so that not all ask the same rank at once.
		of := (f.Rank + k) % len(f.Ranks)
		if p.mapped[of] || peers != nil && of != f.Rank && !slices.Contains(peers, of) {
			continue
		}
		err := f.mapOf(ctx, i, of)
		if err == nil {
			err = enter(of, f.Ranks[of].Address()+cuda.Ptr(p.offset))
		}
		if err != nil {
			return &plugin.Error{Code: plugin.CodeOf(err), Rank: rankOf(err), Cause: err,
				Message: fmt.Sprintf("making %d bytes of memory for messages on rank %d (region %d of rank %d): %v", p.Bytes,
					f.Rank, p.ID, of, err)}
		}
		p.mapped[of] = true
	}
	p.whole = !slices.Contains(p.mapped, false)
	return nil
}

// rankOf returns the rank that an error names, or -1.
func rankOf(err error) int {
	var e *plugin.Error
	if errors.As(err, &e) {
		return e.Rank
	}
	return -1
}

func (f *Deferred) mapOf(ctx context.Context, i, rank int) error {
	p := &f.parts[i]
	if rank == f.Rank {
		return f.makeOwn(i)
	}
	fds, err := f.Share.Fetch(ctx, rank, f.tag(i), 1)
	var late *LateError
	if errors.As(err, &late) {
		return f.Late(rank, late.Asked)
	}
	if err != nil && ctx.Err() != nil {
		return err // that says nothing of the peer
	}
	switch plugin.CodeOf(err) {
	case plugin.OK:
		defer closeAll(fds)
		return f.Ranks[rank].Extend(f.Device, p.offset, fds[0], p.Bytes)
	case plugin.PeerDied, plugin.Closed:
		// It has begun nothing that reads this memory, or it is dead. What it has sent before may still be taken: what this
		// rank stores there goes into memory that is not read. Ranks that wait for that rank return the usual error of its
		// end.
		m, fd, err := f.place(i, rank)
		if err == nil {
			err = errors.Join(unix.Close(fd), f.Driver.Unmap(f.Context, m)) // behind region 0 it stays
		}
		return err
	}
	return err
}

// give returns a descriptor of this rank's memory for a peer.
func (f *Deferred) give(i int) (fd int, err error) {
	o := &f.own[i]
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := f.makeLocked(i); err != nil {
		return -1, err
	}
	if o.owed == 0 { // a peer asks again
		return f.Driver.ExportMemory(f.Context, o.memory.Handle)
	}
	fd = o.fd
	if o.owed > 1 {
		copies, err := duplicate([]int{o.fd})
		if err != nil {
			return -1, err
		}
		fd = copies[0]
	}
	o.owed--
	return fd, nil
}

// makeOwn makes this rank's memory, once.
func (f *Deferred) makeOwn(i int) error {
	o := &f.own[i]
	o.mu.Lock()
	defer o.mu.Unlock()
	return f.makeLocked(i)
}

// makeLocked makes this rank's memory if it is not there yet. The caller holds its lock.
func (f *Deferred) makeLocked(i int) (err error) {
	o := &f.own[i]
	if o.memory.Bytes != 0 {
		return nil
	}
	if f.ended.Load() {
		return plugin.Errorf(plugin.Closed, "the communicator is closed")
	}
	if o.memory, o.fd, err = f.place(i, f.Rank); err != nil {
		return err
	}
	if o.owed = len(f.Ranks) - 1; o.owed == 0 {
		return unix.Close(o.fd)
	}
	return nil
}

// place makes memory of this GPU, zero-filled, and maps it where a rank's is, too. The descriptor is the caller's.
func (f *Deferred) place(i, rank int) (m cuda.Mapping, fd int, err error) {
	p := &f.parts[i]
	if m, err = f.Driver.CreateMemory(f.Context, f.Device, p.Bytes); err != nil {
		return cuda.Mapping{}, -1, err
	}
	if m.Bytes != p.Bytes {
		err = plugin.Errorf(plugin.Unsupported, "this GPU's memory has pages of another size: %d bytes became %d", p.Bytes, m.Bytes)
	}
	if err == nil {
		err = f.Copies.Zero(m.Address, m.Bytes)
	}
	fd = -1
	if err == nil {
		fd, err = f.Driver.ExportMemory(f.Context, m.Handle)
	}
	if err == nil {
		if err = f.Ranks[rank].Extend(f.Device, p.offset, fd, p.Bytes); err != nil {
			_ = unix.Close(fd) // the reason matters more
		}
	}
	if err != nil {
		return cuda.Mapping{}, -1, errors.Join(err, f.Driver.Unmap(f.Context, m))
	}
	f.held.Add(p.Bytes)
	return m, fd, nil
}
