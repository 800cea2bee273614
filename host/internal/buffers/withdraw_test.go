package buffers

import (
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// aRegistry returns the Registry of rank 0 of two, without a communicator around it.
func aRegistry(t *testing.T) *Registry { return registryOf(t, 0, 2) }

func registryOf(t *testing.T, rank, world int) *Registry {
	driver := cudatest.New(cudatest.Options{})
	t.Cleanup(driver.Close)
	ctx, err := driver.Retain(0)
	require.NoError(t, err)
	copies, err := memory.NewStaging(driver, ctx, 4096)
	require.NoError(t, err)
	table, err := driver.Alloc(ctx, plugin.DirectoryBytes(world))
	require.NoError(t, err)
	require.NoError(t, driver.Write(ctx, table, make([]byte, plugin.DirectoryBytes(world))))
	o := &diagnosis.Observer{Rank: rank, World: world, Logger: slog.New(slog.DiscardHandler)}
	registry := New(o, GPU{Driver: driver, Context: ctx}, nil, copies, nil, table)
	for range world {
		registry.pages = append(registry.pages, testPage(world, nil))
	}
	return registry
}

// export enters memory that is not there.
func (t *Registry) export(test *testing.T) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, err := t.vacant()
	require.NoError(test, err)
	base := cuda.Ptr(at+1) << 32
	s := pageEntry{generation: t.next, kind: plugin.HandleKindCudaIpc, base: base, bytes: 4096}
	require.NoError(test, t.enter(at, s, export{base: base, bytes: 4096, pieces: []cuda.Ptr{base}, ids: []uint64{1},
		generation: t.next}))
	return at
}

// count writes what kernels have counted.
func (t *Registry) count4(test *testing.T, begun, decided, ended, forgotten uint64) {
	b := make([]byte, 32)
	for offset, n := range map[int]uint64{plugin.DirectoryBegun: begun, plugin.DirectoryDecided: decided,
		plugin.DirectoryEnded: ended, plugin.DirectoryForgotten: forgotten} {
		binary.LittleEndian.PutUint64(b[offset:], n)
	}
	require.NoError(test, t.gpu.Driver.Write(t.gpu.Context, t.table+cuda.Ptr(plugin.DirectoryCounts(2)), b))
}

// While kernels may use an export that was withdrawn, peers keep it mapped.
func TestWithdrawnExportsStayWhileKernelsUseThem(t *testing.T) {
	type counted [4]uint64 // begun, decided, ended, forgotten
	const wrapped = ^uint64(0)
	for name, looks := range map[string]struct {
		stays []counted
		goes  counted
	}{
		"idle":                            {nil, counted{64, 2, 64, 2}},
		"never used":                      {nil, counted{}},
		"a block is at work":              {[]counted{{65, 2, 64, 2}, {65, 3, 64, 2}}, counted{65, 3, 65, 3}},
		"blocks have still to begin":      {[]counted{{65, 3, 65, 2}}, counted{128, 3, 128, 3}},
		"its last findings are forgotten": {[]counted{{65, 4, 64, 2}, {128, 4, 65, 4}}, counted{128, 4, 128, 4}},
		"its findings came after a look":  {[]counted{{65, 2, 64, 2}, {128, 4, 127, 4}}, counted{128, 4, 128, 4}},
		"a later kernel is at work":       {[]counted{{65, 3, 64, 2}, {129, 5, 128, 5}}, counted{193, 6, 192, 6}},
		"of two findings, and the sum passes": {[]counted{{wrapped, wrapped, wrapped - 1, wrapped - 1}, {63, 1, 62, 1}},
			counted{127, 3, 126, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			d := aRegistry(t)
			at := d.export(t)
			d.mu.Lock()
			require.NoError(t, d.withdraw(at))
			d.exports[at].left = time.Now().Add(time.Hour) // so that departGrace is not over, however slow the machine
			d.mu.Unlock()
			d.count4(t, 0, 0, 0, 0)
			require.NoError(t, d.depart())
			_, published := d.pages[0].read(at)
			require.True(t, published, "a kernel may have looked and not be counted yet")
			look := func(n counted) bool {
				d.count4(t, n[0], n[1], n[2], n[3])
				d.mu.Lock()
				d.exports[at].left = time.Now().Add(-departGrace)
				d.mu.Unlock()
				require.NoError(t, d.depart())
				_, published := d.pages[0].read(at)
				return published
			}
			for i, n := range looks.stays {
				require.True(t, look(n), "look %d", i)
			}
			require.False(t, look(looks.goes))
			require.Zero(t, d.exports[at].bytes, "its place is free")
		})
	}
}

// An export that kernels may still find, as the driver has not hidden it from them, stays mapped by peers.
func TestExportsThatKernelsFindStay(t *testing.T) {
	d := aRegistry(t)
	at := d.export(t)
	driver, known := d.gpu.Driver.(*cudatest.Driver), make([]byte, 8)
	place := d.table + cuda.Ptr(plugin.DirectoryEntry(at)) + 16
	require.NoError(t, driver.Write(d.gpu.Context, place, []byte{2, 0, 0, 0, 0, 0, 0, 0}))
	d.count4(t, 0, 0, 0, 0)
	driver.Fail("Copy", 0, cuda.OutOfMemory)
	found, err := d.endExports(d.exports[at].base)
	require.True(t, found)
	require.Error(t, err)
	for published := true; published; _, published = d.pages[0].read(at) {
		require.NoError(t, d.depart())
	}
	require.NoError(t, driver.Read(d.gpu.Context, known, place))
	require.Zero(t, binary.LittleEndian.Uint64(known), "a kernel finds what peers unmap")
}

// A window goes although what was at its address before is still on its way out: its entry would be taken for the
// memory that gets that address next.
func TestAWindowGoesBehindWhatWasThereBefore(t *testing.T) {
	d := aRegistry(t)
	before := d.export(t)
	d.mu.Lock()
	base := d.exports[before].base
	require.NoError(t, d.withdraw(before))
	d.mu.Unlock()
	for turn := range 3 { // windows behind each other, none of which has left
		region := uint32(7 + turn)
		d.AddWindow(region, []cuda.Ptr{base, 0}, 8192)
		at := d.find(base, 8192)
		require.GreaterOrEqual(t, at, 0, "window %d is not found", turn)
		require.NoError(t, d.DropWindow(region))
		require.Equal(t, -1, d.find(base, 1), "window %d stays", turn)
	}
}

// A failure of the driver, unlike another buffer at the address, withdraws nothing.
func TestAFailureOfTheDriverIsNoFreedMemory(t *testing.T) {
	for name, look := range map[string]func(d *Registry, at int) bool{
		"audit": func(d *Registry, at int) bool { d.audit(); return d.exports[at].leaving == staying },
		"call": func(d *Registry, at int) bool {
			d.validateRange(d.exports[at].base, 1)
			return d.exports[at].leaving == staying
		},
		"another export": func(d *Registry, at int) bool {
			found, err := d.exported(cuda.PointerInfo{}, d.exports[at].base, 1, false)
			return err == nil && found == at
		},
		"symmetric range": func(d *Registry, at int) bool {
			e := d.exports[at]
			return d.Current(plugin.AllReduce, &Range{export: &Export{}, pieces: e.pieces, ids: e.ids}) == nil
		},
		"engine": func(d *Registry, at int) bool {
			e := &Engines{gpu: d.gpu}
			return e.still(&registration{memory: d.exports[at]}, span{d.exports[at].base, 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := aRegistry(t)
			driver := d.gpu.Driver.(*cudatest.Driver)
			at := d.export(t) // of a buffer that is not there
			driver.Fail("StillMapped", 0, cuda.LaunchFailed)
			require.True(t, look(d, at), "the driver failed")
			require.False(t, driver.Pending("StillMapped"))
			require.False(t, look(d, at), "the driver has no such buffer")
		})
	}
}

// A driver that shuts down with the process ends the keeper, which could only complain from then on.
func TestKeepEndsWithTheDriver(t *testing.T) {
	d := aRegistry(t)
	driver := d.gpu.Driver.(*cudatest.Driver)
	exec, err := executor.NewDevice(driver, 0, 0, 2)
	require.NoError(t, err)
	defer exec.Close()
	d.exec = exec
	at := d.export(t)
	d.mu.Lock()
	require.NoError(t, d.withdraw(at))
	d.exports[at].left = time.Now().Add(-departGrace)
	d.mu.Unlock()
	driver.Fail("Copy", 0, cuda.Deinitialized)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d.Keep(ctx)
	require.NoError(t, ctx.Err(), "it goes on")
}

// When places are scarce, what kernels do not use gives way, longest unused first.
func TestUnusedExportsGiveWay(t *testing.T) {
	d := aRegistry(t)
	for range plugin.DirectoryExports {
		d.export(t)
	}
	_, err := d.vacant()
	require.ErrorIs(t, err, plugin.OutOfMemory)
	d.exports[1].explicit, d.exports[2].window = []cuda.Ptr{1}, true
	used := make([]byte, 8*plugin.DirectoryExports)
	look := func(inUse func(i int) bool) (gone []int) {
		for i := range plugin.DirectoryExports {
			if inUse(i) {
				binary.LittleEndian.PutUint64(used[8*i:], binary.LittleEndian.Uint64(used[8*i:])+1)
			}
		}
		require.NoError(t, d.gpu.Driver.Write(d.gpu.Context, d.table+cuda.Ptr(plugin.DirectoryCounts(2)+plugin.DirectoryUsed),
			used))
		before := d.exports
		d.lookedAt = time.Time{}
		require.NoError(t, d.evict())
		for i := range d.exports {
			if d.exports[i].leaving != before[i].leaving {
				gone = append(gone, i)
			}
		}
		return gone
	}
	all := func(int) bool { return true }
	for range 5 {
		require.Empty(t, look(all), "all are in use")
	}
	require.Empty(t, look(func(i int) bool { return i >= 10 && i != 20 }), "for one look")
	require.ElementsMatch(t, []int{0, 3, 4, 5, 6, 7, 8, 9, 20}, look(func(i int) bool { return i >= 10 && i != 20 }),
		"but those that were registered")
	require.Empty(t, look(all))
	// More are unused than have to go: those which have been so for longer do.
	require.Empty(t, look(func(i int) bool { return i >= 60 }))
	gone := look(func(i int) bool { return i >= 100 })
	require.Len(t, gone, plugin.DirectoryExports-9-(plugin.DirectoryExports-spareExports))
	for _, i := range gone {
		require.Less(t, i, 60)
	}
}
