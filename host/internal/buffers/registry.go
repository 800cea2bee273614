package buffers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// Registry keeps the table by which kernels find out whether peers can reach a caller's buffer directly. A buffer
// enters it by Register, or by itself after a kernel has missed it: this rank exports the allocation that it lies in,
// each peer maps it when it sees it in this rank's page, and once all have, it is entered in the kernels' table. Until
// then, and where an export is impossible, calls are staged.
//
// Memory by handle is exported by a call that was given it, on the call's own thread (missed.go): at any other time its
// owner may be unmapping it, which the driver does not survive.
//
// No call waits for the registry, no rank decides anything for another, and what a kernel finds is agreed between the
// ranks by the kernels themselves.
type Registry struct {
	*diagnosis.Observer
	gpu    GPU
	exec   *executor.Device
	copies *memory.Staging
	share  *memory.Share // nil in a world of one
	table  cuda.Ptr      // the region of role directory
	pages  []page        // by rank; empty in a world of one

	// fetch is the share's Fetch.
	fetch func(ctx context.Context, rank int, tag string, wanted int) ([]int, error)

	mu         lockorder.Mutex
	exports    [plugin.DirectoryExports]export
	imports    [][plugin.DirectoryExports]imported // by rank
	next       uint64                              // generations of this rank's exports
	high       int                                 // exports from there on are unused
	failed     map[allocation]exportFailure        // what could not be exported
	missed     []span                              // memory by handle that kernels have missed
	candidates []candidate                         // what calls have exported of it
	audited    position                            // of the exports, how many the audit has come past
	told       string                              // the failure to withdraw that was logged last; the keeper's
	windows    map[uint32][]cuda.Ptr               // where windows of all ranks are mapped, by region

	used     [plugin.DirectoryExports]uint64 // how often kernels had found each export
	lookedAt time.Time                       // when
	unmapped bool                            // something of a peer's lately: what could not be mapped may fit now
	silent   []silence                       // by rank

	wake    chan struct{} // makes keep look at once
	changed atomic.Bool   // and often
	made    time.Time
	noticed atomic.Int64 // when a call last saw that kernels had missed something; since made
	count   atomic.Int32 // exports there are, so that calls without any look no further
	want    atomic.Int32 // the length of missed, likewise
}

// export is memory of this rank that peers map as one: an allocation, or what
// allocators map by handle in pieces, one behind the other. bytes is 0 where
// there is none.
type export struct {
	base       cuda.Ptr
	bytes      int64
	pieces     []cuda.Ptr // where it begins, or where each of its handles is mapped, in order,
	ids        []uint64   // and the driver's buffer ids there: other memory has others
	shared     bool       // peers may still have to fetch the descriptors
	window     bool       // a window's, which is not freed without the registry
	generation uint64
	known      uint64     // ranks that have mapped it
	explicit   []cuda.Ptr // where the user's registrations begin
	settling   int        // calls that wait until peers have mapped it
	entered    time.Time
	idle       int // looks in a row that have found it unused
	leaving    departure
	left       time.Time // from when on kernels to come do not find it; zero: they still may
	until      uint64    // findings of kernels that have to be forgotten first
}

// departure is the progress of the withdrawal of an export; see depart.
type departure int

const (
	staying   departure = iota
	withdrawn           // kernels to come do not find it
	awaited             // nor will those that may have found it use it, once until is reached
)

// imported is a peer's export, mapped here. The goroutine that keeps the
// directory writes it, with mu held.
type imported struct {
	generation uint64 // 0: none
	mapping    *sharedMapping
	address    cuda.Ptr
	bytes      int64
	retry      time.Time     // what could not be mapped is tried again then,
	pause      time.Duration // and so long after that
}

// silence is that of a peer which has not given a descriptor in time.
type silence struct {
	until time.Time     // nothing is fetched from it before,
	pause time.Duration // and for so long
}

// patience is the time that the next message with descriptors may take.
func (s silence) patience() time.Duration { return min(max(s.pause/4, leastPatience), longestPatience) }

// sharedMapping is a mapping that several hold: the directory, and symmetric
// ranges in it. It goes with the last of them.
type sharedMapping struct {
	io.Closer
	holders atomic.Int32
}

func (m *sharedMapping) hold() { m.holders.Add(1) }

// Close gives up one hold.
func (m *sharedMapping) Close() error {
	if m.holders.Add(-1) > 0 {
		return nil
	}
	return m.Closer.Close()
}

// cannotMap, beside a generation in a page, says that its rank has tried, twice at least.
const cannotMap = 1 << 63

// GPU is the device that a registry's rank runs on.
type GPU struct {
	Driver  cuda.Driver
	Context cuda.Context
	Ordinal int
}

// New makes the registry over a table in the GPU's memory. share is nil in a world of one.
func New(o *diagnosis.Observer, gpu GPU, exec *executor.Device, copies *memory.Staging, share *memory.Share,
	table cuda.Ptr) *Registry {
	t := &Registry{
		Observer: o, gpu: gpu, exec: exec, copies: copies, share: share, table: table,
		imports: make([][plugin.DirectoryExports]imported, o.World), failed: map[allocation]exportFailure{},
		windows: map[uint32][]cuda.Ptr{}, wake: make(chan struct{}, 1), mu: lockorder.Mutex{Level: lockorder.Buffers},
		made: time.Now(), silent: make([]silence, o.World),
	}
	if share != nil {
		t.fetch = share.Fetch
	}
	return t
}

// Group lets a registry agree and exchange bytes with the ranks of its communicator.
type Group interface {
	// Agree returns the same error on all ranks: nil, or one rank's.
	Agree(ctx context.Context, tag string, err error) error
	// AllGather returns what every rank gave, by rank.
	AllGather(ctx context.Context, tag string, payload []byte) ([][]byte, error)
}

// SharePages exchanges the pages in which the ranks of a host describe their users' buffers. It is collective; whether
// there is a registry is alike on all ranks, as regions are. The mappings are the caller's to close.
func (t *Registry) SharePages(ctx context.Context, group memory.Group) ([]io.Closer, error) {
	if t == nil || t.share == nil {
		return nil, nil
	}
	own, err := memory.NewSegment("shunt-directory", pageBytes(t.World))
	if err == nil {
		defer func() { _ = own.CloseFD() }() // the mappings live on
	}
	if err = group.Agree(ctx, "make the table of buffers ("+t.Label+")", err); err != nil {
		return nil, err
	}
	pages := make([]page, t.World)
	mappings, err := memory.MapAll(ctx, group, t.share, "share the table of buffers ("+t.Label+")",
		[]plugin.Region{own.Region()}, func(r plugin.Region, rank int) (io.Closer, error) {
			m, err := memory.MapHandle(r.Handle)
			if err != nil {
				return nil, err
			}
			if m.Bytes() < r.Bytes {
				err = plugin.Errorf(plugin.Protocol, "the mapping has %d bytes, want %d", m.Bytes(), r.Bytes)
				return nil, errors.Join(err, m.Close())
			}
			pages[rank] = page{m.Base()}
			return m, nil
		})
	if err == nil {
		t.pages = pages
	}
	return mappings, err
}

// everyone returns the word of an export that all peers have mapped.
func (t *Registry) everyone() uint64 {
	return (uint64(1)<<t.World - 1) &^ (uint64(1) << t.Rank)
}

// exportTag names an export's descriptor for peers.
func exportTag(label string, export int, generation uint64) string {
	return fmt.Sprintf("buffer %s %d %d", label, export, generation)
}

// find returns the export that holds an address range; -1 if there is none.
func (t *Registry) find(p cuda.Ptr, bytes int64) int {
	for i := range t.exports[:t.high] {
		if t.exports[i].holds(p, bytes) {
			return i
		}
	}
	return -1
}

// holds reports whether an export is in use and has an address range.
func (e *export) holds(p cuda.Ptr, bytes int64) bool {
	return e.bytes > 0 && e.leaving == staying && p >= e.base && int64(p-e.base) <= e.bytes-bytes
}

// add exports what an address range that the user registers lies in, unless it is exported already, and
// returns its place. It is for the call that was given the memory: see take.
func (t *Registry) add(p cuda.Ptr, bytes int64) (int, error) {
	info, err := t.describe(p)
	if err != nil {
		return -1, err
	}
	if at, err := t.exported(info, p, bytes, true); at >= 0 || err != nil {
		return at, err
	}
	return t.adopt(t.take(info, p, bytes), true)
}

// describe looks at memory that is to be exported.
func (t *Registry) describe(p cuda.Ptr) (cuda.PointerInfo, error) {
	info, err := t.gpu.Driver.Pointer(t.gpu.Context, p)
	if err == nil && (info.Kind != cuda.PointerDevice || info.Managed || info.Device != t.gpu.Ordinal) {
		err = plugin.Errorf(plugin.Unsupported, "%#x is not memory of device %d", uint64(p), t.gpu.Ordinal)
	}
	return info, err
}

// exported returns the place of the export that an address range is part of, -1 if
// there is none. What is no longer there is withdrawn. With asked, for the user, it is one of no other pieces than the
// range is in: an allocator may unmap those beside them at any time, and then the export goes.
func (t *Registry) exported(info cuda.PointerInfo, p cuda.Ptr, bytes int64, asked bool) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !info.Shareable || bytes < 1 {
		bytes = 1 // the allocation is exported as a whole
	}
	for i := range t.exports[:t.high] {
		e := &t.exports[i]
		if !e.holds(p, bytes) {
			continue
		}
		if !t.same(e, p, bytes) {
			if err := t.withdraw(i); err != nil {
				return -1, err
			}
			continue
		}
		if from, to := e.spanned(p, bytes); !asked || to-from == len(e.pieces) {
			return i, nil
		}
	}
	return -1, nil
}

// adopt enters memory into the directory, and returns its place. What could not be
// exported lately is tried again at once only if the user asks for it.
func (t *Registry) adopt(m candidate, asked bool) (int, error) {
	defer cuda.CloseChunks(m.chunks) // the share holds copies
	if at, err := t.exported(m.info, m.p, m.bytes, asked); at >= 0 || err != nil {
		return at, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := allocation{m.info.BufferID, m.info.Base}
	before, again := t.failed[key]
	if again && !asked && before.applies(m.bytes) {
		return -1, plugin.Errorf(plugin.Unsupported, "the allocation at %#x cannot be exported", uint64(m.info.Base))
	}
	at, err := t.vacant()
	s := pageEntry{generation: t.next, base: m.info.Base, bytes: m.info.Bytes, ordinal: t.gpu.Ordinal}
	var e export
	if err == nil {
		e, err = t.makeExport(at, &s, m)
	}
	if err != nil {
		t.noteFailure(key, m.bytes)
		if !again {
			t.Logger.Info("a buffer cannot be reached by peers and is staged", "communicator", t.Label, "rank", t.Rank,
				"address", uint64(m.p), "bytes", max(m.bytes, m.info.Bytes), "reason", err)
		}
		return -1, err
	}
	delete(t.failed, key)
	return at, t.enter(at, s, e)
}

// allocation names memory: the driver's id, and as not all memory has one, where
// it is.
type allocation struct {
	buffer uint64
	base   cuda.Ptr
}

// exportFailure is the part of an allocation that could not be exported. It is tried again
// later: descriptors may be free by then, or what was not mapped may be.
type exportFailure struct {
	bytes int64
	until time.Time
}

const (
	failureTime = 5 * time.Second
	maxFailures = 1024 // more are forgotten
)

// applies reports whether an export of so many bytes would fail again.
func (r exportFailure) applies(bytes int64) bool {
	return bytes >= r.bytes && time.Now().Before(r.until)
}

func (t *Registry) noteFailure(what allocation, bytes int64) {
	if len(t.failed) >= maxFailures {
		clear(t.failed)
	}
	t.failed[what] = exportFailure{bytes, time.Now().Add(failureTime)}
}

// vacant returns a free place, with a new generation. t.mu is held.
func (t *Registry) vacant() (int, error) {
	at := slices.IndexFunc(t.exports[:], func(e export) bool { return e.bytes == 0 })
	if at < 0 {
		return -1, plugin.Errorf(plugin.OutOfMemory, "%d buffers are registered already", len(t.exports))
	}
	t.next++
	return at, nil
}

// enter writes an export where kernels and peers look for it. t.mu is held.
func (t *Registry) enter(at int, s pageEntry, e export) error {
	// known is 0, and stays so until the peers have it: no kernel uses the entry
	// while it is written.
	entry := make([]byte, plugin.DirectoryEntryBytes)
	binary.LittleEndian.PutUint64(entry, uint64(s.base))
	binary.LittleEndian.PutUint64(entry[8:], uint64(s.bytes))
	binary.LittleEndian.PutUint64(entry[24:], s.generation)
	if err := t.copies.Put(t.table+cuda.Ptr(plugin.DirectoryEntry(at)), entry); err != nil {
		t.unshare(at, &e)
		return err
	}
	e.entered = time.Now()
	t.exports[at] = e
	t.high = max(t.high, at+1)
	t.count.Add(1)
	if len(t.pages) > 0 {
		t.pages[t.Rank].write(at, s)
	}
	t.hurry()
	return nil
}

// AddWindow enters a window, which all ranks have mapped already, at these
// addresses.
func (t *Registry) AddWindow(region uint32, addresses []cuda.Ptr, bytes int64) {
	if t == nil || len(t.pages) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.windows[region] = addresses
	at, err := t.vacant()
	if err == nil {
		base := addresses[t.Rank]
		err = t.enter(at, pageEntry{generation: t.next, kind: kindWindow, base: base, bytes: bytes, ordinal: int(region)},
			export{base: base, bytes: bytes, window: true, generation: t.next})
	}
	if err != nil {
		t.Logger.Info("messages from and to a window are staged", "communicator", t.Label, "rank", t.Rank, "reason", err)
	}
}

// DropWindow withdraws a window before it is unmapped.
func (t *Registry) DropWindow(region uint32) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	addresses := t.windows[region]
	delete(t.windows, region)
	for i, e := range t.exports {
		// What was at this address before may still be on its way out.
		if addresses != nil && e.window && e.leaving == staying && e.base == addresses[t.Rank] {
			return t.withdraw(i)
		}
	}
	return nil
}

// makeExport makes what peers need to map memory, which unshare takes back, and
// completes the entry of the page that they read.
func (t *Registry) makeExport(at int, s *pageEntry, m candidate) (export, error) {
	switch {
	case m.err != nil:
		return export{}, m.err
	case m.info.Shareable:
		return t.sharePieces(at, s, m.chunks)
	case m.info.LegacyIPC:
		var err error
		s.kind = plugin.HandleKindCudaIpc
		s.ipc, err = t.gpu.Driver.ExportIPC(t.gpu.Context, s.base)
		return export{base: s.base, bytes: s.bytes, pieces: []cuda.Ptr{s.base}, ids: []uint64{m.info.BufferID},
			generation: s.generation}, err
	}
	return export{}, plugin.Errorf(plugin.Unsupported, "the allocation at %#x was not made to be shared", uint64(s.base))
}

// Close unmaps what peers export. The goroutine has ended.
func (t *Registry) Close() error {
	if t == nil {
		return nil
	}
	var errs []error
	for rank := range t.imports {
		for i := range t.imports[rank] {
			if m := t.imports[rank][i].mapping; m != nil {
				errs = append(errs, t.exec.Later(m.Close))
				t.imports[rank][i] = imported{}
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.exports {
		t.unshare(i, &t.exports[i])
		t.exports[i] = export{}
	}
	for _, m := range t.candidates {
		cuda.CloseChunks(m.chunks)
	}
	t.candidates = nil
	return errors.Join(errs...)
}
