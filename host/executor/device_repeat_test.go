package executor

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// A program that runs the same call again puts the same work into streams as a program
// that was just loaded.
func TestRepeatedLaunchesAreWhatThePlanSays(t *testing.T) {
	g := newGPU(t, 4)
	var work []cuda.Work
	var params []byte
	watcher := &inspector{Driver: g.Driver, look: func(b *cuda.Batch) {
		// What keeps streams in order is not the program's.
		work = slices.DeleteFunc(slices.Clone(b.Work), func(w cuda.Work) bool { return w.Kind != cuda.WorkLaunch })
		params = slices.Clone(b.Params)
	}}
	d := g.newDevice(watcher, 4)
	plan := allReduce(t, 4)
	old, err := d.Load(plan, 0)
	require.NoError(t, err)
	require.True(t, old.last.able)
	run := func(p *DeviceProgram, a *Arguments, s cuda.Stream) ([]cuda.Work, []byte, error) {
		work, params = nil, nil
		err := d.Run(p, a, s)
		return work, params, err
	}
	arguments := func(send, recv uintptr, bytes int64) *Arguments {
		a := &Arguments{Send: pointer(cuda.Ptr(send)), Recv: pointer(cuda.Ptr(recv))}
		a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = bytes, bytes, bytes
		return a
	}
	same := func(name string, a *Arguments, s cuda.Stream, repeated bool) {
		t.Helper()
		fresh, err := d.Load(plan, 0)
		require.NoError(t, err)
		defer fresh.Free()
		require.Equal(t, repeated, old.last.fits(a, d.changes, cuda.LaunchDependent), name)
		wantWork, wantParams, wantErr := run(fresh, a, s)
		for range 2 {
			gotWork, gotParams, gotErr := run(old, a, s)
			require.Equal(t, wantErr, gotErr, name)
			require.Equal(t, wantWork, gotWork, name)
			require.Equal(t, wantParams, gotParams, name)
		}
	}
	one, two := g.stream(), g.stream()
	same("first", arguments(0x1000, 0x2000, 8), one, false)
	same("again", arguments(0x1000, 0x2000, 8), one, true)
	same("other memory", arguments(0x5000, 0x7000, 8), one, true)
	same("in place", arguments(0x5000, 0x5000, 8), one, true)
	same("other stream", arguments(0x1000, 0x2000, 8), two, true)
	same("longer", arguments(0x1000, 0x2000, 8000), two, false)
	same("nothing, nowhere", arguments(0, 0, 0), two, false)
	same("nothing, somewhere", arguments(0x1000, 0x2000, 0), two, false)
	same("null", arguments(0, 0x2000, 8), two, false)
	same("negative", arguments(0x1000, 0x2000, -8), two, false)
	same("after errors", arguments(0x1000, 0x2000, 8), two, false)
	withArrays := arguments(0x1000, 0x2000, 8)
	withArrays.Arrays = make([]int64, 16)
	same("arrays", withArrays, two, false)
	same("after arrays", arguments(0x1000, 0x2000, 8), two, false)
	require.NoError(t, d.SetRegion(0, 0, 1, g.words+64, 256))
	same("another region", arguments(0x1000, 0x2000, 8), two, false)
	d.ClearRegion(0, 0)
	same("no region", arguments(0x1000, 0x2000, 8), two, false)
}

// Where receive memory lies in a symmetric range matters only to plans that ask.
func TestRepeatedLaunchesInSymmetricMemory(t *testing.T) {
	g := newGPU(t, 1)
	d := g.newDevice(&blind{Driver: g.Driver}, 1)
	launches := func(b *plugin.Builder, args ...plugin.KernelArg) {
		b.Track(func() { b.Launch("image", "add", b.Const(1), b.Const(32), args...) })
	}
	for name, test := range map[string]struct {
		build func(b *plugin.Builder)
		asks  bool
	}{
		"nothing": {func(b *plugin.Builder) { launches(b, plugin.Address(b.Recv(b.Const(0)))) }, false},
		"range":   {func(b *plugin.Builder) { launches(b, plugin.Value(b.Slot(plugin.SlotWindow), 8)) }, true},
		"offset":  {func(b *plugin.Builder) { launches(b, plugin.Value(b.Slot(plugin.SlotOffset), 8)) }, true},
		"peers": {func(b *plugin.Builder) {
			launches(b, plugin.Address(b.PeerRecv(b.Const(0), b.Const(0))))
		}, true},
	} {
		b := plugin.NewBuilder(plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 1,
			Symmetric: true}, "test")
		test.build(b)
		plan, err := b.Plan()
		require.NoError(t, err)
		p, err := d.Load(plan, 0)
		require.NoError(t, err)
		require.True(t, p.last.able)
		for offset := range int64(3) {
			at := g.words + cuda.Ptr(8*offset)
			a := Arguments{Recv: pointer(at), PeerRecv: []cuda.Ptr{at}}
			a.Slots[plugin.SlotRecvBytes], a.Slots[plugin.SlotWindow], a.Slots[plugin.SlotOffset] = 8, 1, 8*offset
			launch := []DeviceLaunch{{p, a}}
			forgetPlace(launch)
			require.Equal(t, !test.asks && offset > 0, p.last.fits(&launch[0].Arguments, d.changes, cuda.LaunchDependent), name)
			require.NoError(t, d.Run(p, &a, 0), name)
		}
	}
}

// A register that an address was made of may be written again behind the launch.
func TestRepeatedLaunchesKeepTheAddressesOfTheLaunch(t *testing.T) {
	g := newGPU(t, 1)
	var at []uint64
	d := g.newDevice(&inspector{Driver: g.Driver, look: func(b *cuda.Batch) {
		at = append(at, binary.NativeEndian.Uint64(b.Params[b.Work[0].Params:]))
	}}, 1)
	plan := devicePlan(t, 1, func(b *plugin.Builder) {
		b.Track(func() {
			offset := b.Add(b.Slot(plugin.SlotBytes), b.Const(8))
			b.Launch("image", "add", b.Const(1), b.Const(32), plugin.Address(b.Send(offset)))
			b.Set(offset, plugin.AluMov, b.Slot(plugin.SlotRoot), 0, 0)
		})
	})
	p, err := d.Load(plan, 0)
	require.NoError(t, err)
	a := &Arguments{Send: pointer(0x1000)}
	a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRoot] = 16, 64, 1000
	require.NoError(t, d.Run(p, a, 0))
	require.True(t, p.last.known)
	a.Send = pointer(0x5000)
	require.NoError(t, d.Run(p, a, 0))
	require.Equal(t, []uint64{0x1018, 0x5018}, at)
}

// Plans that compute with where the caller's memory is are gone through each time.
func TestPlansThatLookAtAddressesAreNotRepeated(t *testing.T) {
	g := newGPU(t, 1)
	for name, build := range map[string]func(b *plugin.Builder){
		"an address": func(b *plugin.Builder) {
			b.Track(func() {
				at := b.Address(b.Send(b.Const(0)))
				b.Launch("image", "add", b.Const(1), b.Const(32), plugin.Value(at, 8))
			})
		},
		"a copy": func(b *plugin.Builder) {
			b.Track(func() { b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(0)), b.Slot(plugin.SlotBytes)) })
		},
		"two tracks": func(b *plugin.Builder) {
			for range 2 {
				b.Track(func() { kernel(b, "increment", place(b, 0)) })
			}
		},
	} {
		require.False(t, g.load(build).last.able, name)
	}
}
