package cudatest

import (
	"os"
	"sort"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
)

const granularity = 2 << 20

// block is an allocation: a mapping of a memfd.
type block struct {
	data   []byte
	kind   cuda.PointerKind
	device int
	id     uint64 // buffer id
	handle uint64 // of shareable memory
	ipc    bool   // opened with OpenIPC
	chunk  bool   // of a Range or Segment: what follows it may be its neighbour

	lent     bool // of RegisterHost: the caller's mapping
	reserved bool // of a Segment or a range of ReserveRange, whose addresses stay reserved
	made     bool // by CreateMemory
	owner    int  // the goroutine that mapped it
}

// shared is the memory behind a handle.
type shared struct {
	fd       int
	uses     int  // mappings
	imported bool // and cannot be exported again, as in CUDA
}

type memory struct {
	blocks  map[uint64]*block // by address
	sorted  []uint64
	handles map[uint64]*shared

	segments []*Segment       // not freed yet
	reserved map[uint64]space // ranges of ReserveRange, by address
}

func newMemory() memory {
	return memory{blocks: map[uint64]*block{}, handles: map[uint64]*shared{}, reserved: map[uint64]space{}}
}

func (m *memory) openHandles() int { return len(m.handles) }

// unreserve gives the addresses of a range back.
func (m *memory) unreserve(address uint64) {
	s := m.reserved[address]
	_ = unix.MunmapPtr(s.start, uintptr(s.bytes))
	delete(m.reserved, address)
}

// space is reserved addresses.
type space struct {
	start unsafe.Pointer
	bytes int64
}

// find returns the block that an address lies in.
func (m *memory) find(p uint64) (uint64, *block) {
	i := sort.Search(len(m.sorted), func(i int) bool { return m.sorted[i] > p })
	if i == 0 {
		return 0, nil
	}
	base := m.sorted[i-1]
	b := m.blocks[base]
	if p >= base+uint64(len(b.data)) {
		return 0, nil
	}
	return base, b
}

func (m *memory) add(b *block) cuda.Ptr {
	base := uint64(uintptr(unsafe.Pointer(&b.data[0])))
	m.blocks[base] = b
	i := sort.Search(len(m.sorted), func(i int) bool { return m.sorted[i] > base })
	m.sorted = append(m.sorted[:i], append([]uint64{base}, m.sorted[i:]...)...)
	return cuda.Ptr(base)
}

func (m *memory) remove(base uint64) {
	b := m.blocks[base]
	delete(m.blocks, base)
	i := sort.Search(len(m.sorted), func(i int) bool { return m.sorted[i] >= base })
	m.sorted = append(m.sorted[:i], m.sorted[i+1:]...)
	unmap(b)
}

func (m *memory) release(handle uint64) {
	s := m.handles[handle]
	if s.uses--; s.uses == 0 {
		_ = unix.Close(s.fd)
		delete(m.handles, handle)
	}
}

func (m *memory) close() {
	for base := range m.blocks {
		unmap(m.blocks[base])
	}
	for _, s := range m.segments {
		s.free()
	}
	for address := range m.reserved {
		m.unreserve(address)
	}
	for _, s := range m.handles {
		_ = unix.Close(s.fd)
	}
}

// mapFD maps a memfd; bytes is its length.
func mapFD(fd int, bytes int64) ([]byte, error) {
	return unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func newFD(bytes int64) (int, error) {
	fd, err := unix.MemfdCreate("cudatest", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Bytes returns device or host memory as a slice, for a test to look into. It panics
// if the range is not all within one allocation.
func (d *Driver) Bytes(p cuda.Ptr, n int64) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.slice(p, n)
	if b == nil {
		panic("cudatest: address is not of an allocation of this driver")
	}
	return b
}

func (d *Driver) slice(p cuda.Ptr, n int64) []byte {
	base, b := d.memory.find(uint64(p))
	if b == nil || n < 0 {
		return nil
	}
	end := base + uint64(len(b.data))
	for next := b; next != nil && next.chunk && end < uint64(p)+uint64(n); {
		if next = d.memory.blocks[end]; next != nil && next.chunk {
			end += uint64(len(next.data))
		}
	}
	if uint64(n) > end-uint64(p) {
		return nil
	}
	at := uint64(p) - base
	return unsafe.Slice(&b.data[0], end-base)[at : at+uint64(n) : at+uint64(n)]
}

// opened are the allocations that can be opened by IPC handle, of all drivers
// of this process; the value is a duplicate of the exporter's memfd.
var opened struct {
	sync.Mutex
	fds map[uint64]exported
}

type exported struct {
	driver *Driver
	fd     int
	bytes  int64
}

// anonymous makes memory that is not shareable by handle but has a memfd of its
// own, kept in handles under the block's id, so that IPC can map it again.
func (d *Driver) anonymous(bytes int64, kind cuda.PointerKind, device int) (cuda.Ptr, error) {
	fd, err := newFD(bytes)
	if err != nil {
		return 0, err
	}
	data, err := mapFD(fd, bytes)
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	b := &block{data: data, kind: kind, device: device, id: d.id()}
	b.handle = b.id
	d.memory.handles[b.handle] = &shared{fd: fd, uses: 1}
	return d.memory.add(b), nil
}

func (d *Driver) drop(p cuda.Ptr, want func(*block) bool) bool {
	b := d.memory.blocks[uint64(p)]
	if b == nil || !want(b) {
		return false
	}
	handle := b.handle
	opened.Lock()
	delete(opened.fds, b.id) // its handle cannot be opened any more
	opened.Unlock()
	d.memory.remove(uint64(p))
	if handle != 0 {
		d.memory.release(handle)
	}
	return true
}

// Alloc returns host memory at its own address. It is filled with 0xCD, because the
// driver's is not zeroed either.
func (d *Driver) Alloc(ctx cuda.Context, bytes int64) (cuda.Ptr, error) {
	if err := d.in(ctx, "Alloc", "cuMemAlloc of %d bytes", bytes); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if bytes <= 0 {
		return 0, failed(cuda.InvalidValue, "cuMemAlloc of %d bytes", bytes)
	}
	p, err := d.anonymous(bytes, cuda.PointerDevice, int(ctx)-1)
	if err != nil {
		return 0, failed(cuda.OutOfMemory, "cuMemAlloc of %d bytes", bytes)
	}
	poison(d.memory.blocks[uint64(p)].data)
	return p, nil
}

func fill(b []byte, v byte) {
	if v == 0 {
		zero(b)
		return
	}
	if len(b) > 0 {
		b[0] = v
		for n := 1; n < len(b); n *= 2 {
			copy(b[n:], b[:n])
		}
	}
}

// poison fills an allocation that nobody knows yet, which begins at a page. The race detector need not look on: that
// would take four times the memory, and most of the time of a communicator's life.
//
//go:norace
func poison(b []byte) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
	for i := range words {
		words[i] = 0xCDCDCDCDCDCDCDCD
	}
	for i := len(b) / 8 * 8; i < len(b); i++ {
		b[i] = 0xCD
	}
}

// poisonEnds is poison of the first granule, and of the first and the last page of each other one: to touch all pages
// of large memory would take most of the time of a communicator's life.
func poisonEnds(b []byte) {
	const page = 4096
	poison(b[:granularity])
	for at := granularity; at < len(b); at += granularity {
		poison(b[at : at+page])
		poison(b[at+granularity-page : at+granularity])
	}
}

// zero clears memory of the driver. Whole pages go back to the system, which hands out
// zeroes where they are used next: most of what is cleared never is, and to touch it would
// take most of the time of a communicator's life.
func zero(b []byte) {
	page := os.Getpagesize()
	head := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (page - 1)
	whole := (len(b) - head) / page * page
	if whole <= 0 || unix.Madvise(b[head:head+whole], unix.MADV_REMOVE) != nil {
		clear(b)
		return
	}
	clear(b[:head])
	clear(b[head+whole:])
}

// Free frees memory of Alloc. It waits for no kernel; see FreesWait.
func (d *Driver) Free(ctx cuda.Context, p cuda.Ptr) error {
	if err := d.in(ctx, "Free", "cuMemFree of %#x", uint64(p)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	d.waitToFree()
	if !d.drop(p, func(b *block) bool { return b.kind == cuda.PointerDevice && b.handle == b.id && !b.ipc }) {
		return failed(cuda.InvalidValue, "cuMemFree of %#x", uint64(p))
	}
	return nil
}

// MemoryInfo says that there is one GiB, all of it free.
func (d *Driver) MemoryInfo(ctx cuda.Context) (available, total int64, err error) {
	if err := d.in(ctx, "MemoryInfo", "cuMemGetInfo"); err != nil {
		return 0, 0, err
	}
	defer d.mu.Unlock()
	return 1 << 30, 1 << 30, nil
}

// AllocHost returns memory whose device address equals its host address.
func (d *Driver) AllocHost(ctx cuda.Context, bytes int64) (cuda.HostMemory, error) {
	if err := d.in(ctx, "AllocHost", "cuMemHostAlloc of %d bytes", bytes); err != nil {
		return cuda.HostMemory{}, err
	}
	defer d.mu.Unlock()
	if bytes <= 0 {
		return cuda.HostMemory{}, failed(cuda.InvalidValue, "cuMemHostAlloc of %d bytes", bytes)
	}
	p, err := d.anonymous(bytes, cuda.PointerHost, int(ctx)-1)
	if err != nil {
		return cuda.HostMemory{}, failed(cuda.OutOfMemory, "cuMemHostAlloc of %d bytes", bytes)
	}
	return cuda.HostMemory{Address: uintptr(p), Device: p, Bytes: bytes}, nil
}

// FreeHost frees memory of AllocHost.
func (d *Driver) FreeHost(ctx cuda.Context, m cuda.HostMemory) error {
	if err := d.in(ctx, "FreeHost", "cuMemFreeHost of %#x", m.Address); err != nil {
		return err
	}
	if d.options.HostFreesWait {
		d.drainAll()
	}
	defer d.mu.Unlock()
	if !d.drop(m.Device, func(b *block) bool { return b.kind == cuda.PointerHost && !b.lent }) {
		return failed(cuda.InvalidValue, "cuMemFreeHost of %#x", m.Address)
	}
	return nil
}

// RegisterHost notes memory that the caller has mapped; its device address is its address.
func (d *Driver) RegisterHost(ctx cuda.Context, p unsafe.Pointer, bytes int64) (cuda.Ptr, error) {
	if err := d.in(ctx, "RegisterHost", "cuMemHostRegister of %d bytes at %p", bytes, p); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if _, b := d.memory.find(uint64(uintptr(p))); b != nil || p == nil || bytes <= 0 {
		return 0, failed(cuda.InvalidValue, "cuMemHostRegister of %d bytes at %p", bytes, p)
	}
	return d.memory.add(&block{data: unsafe.Slice((*byte)(p), bytes), kind: cuda.PointerHost, device: int(ctx) - 1,
		id: d.id(), lent: true}), nil
}

// UnregisterHost forgets memory of RegisterHost.
func (d *Driver) UnregisterHost(ctx cuda.Context, p unsafe.Pointer) error {
	if err := d.in(ctx, "UnregisterHost", "cuMemHostUnregister of %p", p); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if !d.drop(cuda.Ptr(uintptr(p)), func(b *block) bool { return b.lent }) {
		return failed(cuda.InvalidValue, "cuMemHostUnregister of %p", p)
	}
	return nil
}

// Pointer describes a block.
func (d *Driver) Pointer(ctx cuda.Context, p cuda.Ptr) (cuda.PointerInfo, error) {
	if err := d.in(ctx, "Pointer", "cuPointerGetAttribute of %#x", uint64(p)); err != nil {
		return cuda.PointerInfo{}, err
	}
	defer d.mu.Unlock()
	base, b := d.memory.find(uint64(p))
	if b == nil {
		return cuda.PointerInfo{Device: -1}, nil
	}
	return cuda.PointerInfo{
		Kind: b.kind, Device: b.device, Base: cuda.Ptr(base), Bytes: int64(len(b.data)), BufferID: b.id,
		LegacyIPC: b.kind == cuda.PointerDevice && b.handle == b.id, Shareable: b.handle != b.id,
	}, nil
}

// Write copies into memory.
func (d *Driver) Write(ctx cuda.Context, to cuda.Ptr, from []byte) error {
	if err := d.in(ctx, "Write", "cuMemcpyHtoD of %d bytes to %#x", len(from), uint64(to)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	b := d.slice(to, int64(len(from)))
	if b == nil && len(from) > 0 {
		return failed(cuda.InvalidValue, "cuMemcpyHtoD of %d bytes to %#x", len(from), uint64(to))
	}
	copy(b, from)
	return nil
}

// Read copies from memory.
func (d *Driver) Read(ctx cuda.Context, to []byte, from cuda.Ptr) error {
	if err := d.in(ctx, "Read", "cuMemcpyDtoH of %d bytes from %#x", len(to), uint64(from)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	b := d.slice(from, int64(len(to)))
	if b == nil && len(to) > 0 {
		return failed(cuda.InvalidValue, "cuMemcpyDtoH of %d bytes from %#x", len(to), uint64(from))
	}
	copy(to, b)
	return nil
}
