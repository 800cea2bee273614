package executor

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/pinned"
	"github.com/shunt-ccl/shunt/plugin"
)

// Device runs the programs of one rank of one communicator on one GPU. Its
// methods may be called from any goroutine; operations are put into streams in
// the order in which Run and RunBatch are called.
//
// Order: operations of a Device happen one after another whatever streams they
// are put into, within each capture and outside captures. The caller orders
// launches of graphs among themselves and against what was not captured.
//
// Lifetime: a graph that captured operations may be launched until it is
// destroyed, also after Close; what it uses stays until then. See Later.
type Device struct {
	driver         cuda.Driver
	ordinal        int
	rank, world    int
	ctx            cuda.Context
	maxShared      int
	remote         uint32 // flags of every launch: cuda.LaunchRemote, or none
	dependentEager bool   // what LaunchDependent of a plan becomes outside captures
	dependentGraph bool   // and within

	// The abort word has a lock of its own, so that nothing delays Abort.
	abortMu sync.Mutex
	word    cuda.HostMemory // the watch page; its first four bytes are the word
	aborted atomic.Bool

	mu      sync.Mutex // guards what follows
	closed  bool
	regions [][]deviceRegion // by entry / BaseMultiple, then (entry % BaseMultiple) * world + rank
	changes uint64           // of regions, so far
	images  map[imageName]plugin.Image
	modules map[imageName]*loadedModule
	retired []*loadedModule // of images that were replaced; plans may use them

	proxy   *proxy // nil before the first plan with engine steps; changes under abortMu too
	posting bool   // the batch posts commands

	order    order
	marks    uint64 // what was held when the batch was put together
	priority int64  // of the batch's stream, as SlotPriority has it, or unasked
	one      [1]DeviceLaunch
	batch    cuda.Batch
	pieces   []int // of each launch of the batch: where its work begins
	side     forks
	graphed  []*forks

	// Under the lock of the registry, see graph.go.
	live    map[uint64]bool // tokens of graphs that are left
	held    []held
	queued  atomic.Uint64 // held so far; operations read it
	freeing bool          // a goroutine looks through held
	again   bool          // it must look once more
}

// deviceRegion is memory of a rank as this GPU sees it.
type deviceRegion struct {
	address cuda.Ptr
	local   uintptr // where this process has mapped it: of role local
	bytes   int64
	set     bool
}

// NewDevice retains the primary context of a GPU and makes what operations
// need. It also frees what graphs of closed Devices no longer use.
func NewDevice(driver cuda.Driver, ordinal, rank, world int) (*Device, error) {
	if world < 1 || world > plugin.MaxWorld || rank < 0 || rank >= world {
		return nil, plugin.Errorf(plugin.InvalidArgument, "the executor's rank %d is not in a world of %d ranks", rank, world)
	}
	d := &Device{
		driver: driver, ordinal: ordinal, rank: rank, world: world,
		images: map[imageName]plugin.Image{}, modules: map[imageName]*loadedModule{}, live: map[uint64]bool{},
	}
	d.order.captures = map[uint64]*capture{}
	noteErrors(d.collect())
	if err := d.describe(); err != nil {
		return nil, err
	}
	var err error
	if d.ctx, err = driver.Retain(ordinal); err != nil {
		return nil, d.wrap("opening the device", err)
	}
	if d.word, err = pinned.Alloc(driver, d.ctx, plugin.WatchBytes); err == nil {
		if err = d.newEvent(&d.order.tail); err == nil {
			err = d.newEvent(&d.order.cross)
		}
		if err == nil {
			err = d.newEvent(&d.order.mark)
		}
	}
	if err != nil {
		_ = d.free() // what failed is the error
		return nil, d.wrap("opening the device", err)
	}
	register(d)
	return d, nil
}

func (d *Device) describe() error {
	devices, err := d.driver.Devices()
	if err != nil {
		return d.wrap("opening the device", err)
	}
	if d.ordinal < 0 || d.ordinal >= len(devices) {
		return d.refuse(plugin.InvalidArgument, "there are %d CUDA devices", len(devices))
	}
	d.maxShared = devices[d.ordinal].MaxShared
	if devices[d.ordinal].Domains > 1 {
		d.remote = cuda.LaunchRemote
	}
	// Programmatic dependent launch came with compute capability 9.0, and into
	// captures with CUDA 12.3.
	d.dependentEager = devices[d.ordinal].Major >= 9
	d.dependentGraph = d.dependentEager && d.driver.Version() >= 12030
	return nil
}

func (d *Device) newEvent(to *cuda.Event) error {
	e, err := d.driver.NewEvent(d.ctx, false)
	*to = e
	return err
}

func (d *Device) freeEvent(at *cuda.Event) error {
	e := *at
	if *at = 0; e == 0 {
		return nil
	}
	return d.driver.DestroyEvent(d.ctx, e)
}

// Context returns the GPU's primary context. It is valid until Close.
func (d *Device) Context() cuda.Context { return d.ctx }

// SetRegion sets entry base+id of the table of regions for one rank: what a
// plan of the endpoint at that base calls region id, at an address that this
// GPU reaches. base is a multiple of BaseMultiple and base+id below MaxEntries.
// The memory stays its owner's, which must keep it while an operation or a graph may
// use it; see Later.
func (d *Device) SetRegion(base, id uint32, rank int, address cuda.Ptr, bytes int64) error {
	return d.setRegion(base, id, rank, deviceRegion{address: address, bytes: bytes, set: true})
}

func (d *Device) setRegion(base, id uint32, rank int, r deviceRegion) error {
	entry, address, bytes := uint64(base)+uint64(id), r.address, r.bytes
	if rank < 0 || rank >= d.world || base%BaseMultiple != 0 || entry >= MaxEntries {
		return d.refuse(plugin.InvalidArgument, "region %d+%d of rank %d is outside the table", base, id, rank)
	}
	if bytes < 0 || (address == 0 && bytes > 0) || uint64(address) > ^uint64(0)-uint64(bytes) {
		return d.refuse(plugin.InvalidArgument, "region %d+%d of rank %d has %d bytes at %#x", base, id, rank, bytes,
			uint64(address))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.refuse(plugin.Closed, "it is closed")
	}
	chunk := int(entry / BaseMultiple)
	for len(d.regions) <= chunk {
		d.regions = append(d.regions, nil)
	}
	if d.regions[chunk] == nil {
		d.regions[chunk] = make([]deviceRegion, BaseMultiple*d.world)
	}
	d.regions[chunk][int(entry%BaseMultiple)*d.world+rank] = r
	d.changes++
	return nil
}

// ClearRegion removes entry base+id of every rank; operations that need it fail
// from then on. Graphs hold the addresses themselves.
func (d *Device) ClearRegion(base, id uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry := uint64(base) + uint64(id)
	if chunk := entry / BaseMultiple; chunk < uint64(len(d.regions)) && d.regions[chunk] != nil {
		at := int(entry%BaseMultiple) * d.world
		clear(d.regions[chunk][at : at+d.world])
		d.changes++
	}
}

// Abort raises the abort word: kernels that wait end, those of graphs too, and
// every later operation is refused. It takes no lock that an operation holds.
func (d *Device) Abort() {
	d.aborted.Store(true)
	d.watch(func(page unsafe.Pointer) { atomic.StoreUint32(word32(page, plugin.WatchAbort), 1) })
}

// Close ends the use of the Device. It waits at most closeWait for what is
// still in streams, and not for graphs: what they, or work that has not ended by
// then, may use stays and is freed by a later NewDevice or Close for the same GPU,
// or by Collect. The error is that of everything freed meanwhile.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	markClosed(d)
	d.await()
	d.hold(d.free)
	return takeErrors(d.collect())
}

// free releases everything. Nothing may be using it.
func (d *Device) free() error {
	var first error
	note := func(err error) {
		if err != nil && first == nil {
			first = d.wrap("freeing the device's resources", err)
		}
	}
	d.abortMu.Lock()
	word := d.word
	d.word = cuda.HostMemory{}
	proxy := d.proxy
	d.proxy = nil
	d.abortMu.Unlock()
	d.mu.Lock()
	d.order.used, d.order.marking = false, false // idle may still be asked, but the events go
	d.mu.Unlock()
	if d.ctx == 0 {
		return nil
	}
	stuck := proxy.free(d) // before what it looks at
	note(stuck)
	for _, f := range append([]*forks{&d.side}, d.graphed...) {
		note(f.free(d))
	}
	events := []*cuda.Event{&d.order.tail, &d.order.cross, &d.order.mark}
	for _, c := range d.order.captures {
		events = append(events, &c.tail)
	}
	for i := range d.order.spare {
		events = append(events, &d.order.spare[i])
	}
	for _, e := range events {
		note(d.freeEvent(e))
	}
	for _, m := range d.modules {
		note(m.release(d))
	}
	for _, m := range d.retired {
		note(m.release(d))
	}
	if word.Address != 0 && stuck == nil {
		note(pinned.Free(d.driver, d.ctx, word))
	}
	note(d.driver.Release(d.ordinal))
	unregister(d)
	return first
}
