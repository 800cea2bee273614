package executor

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestDeviceRunsLaunchesAndCopies(t *testing.T) {
	g := newGPU(t, 2)
	send, err := g.Alloc(g.ctx, 64)
	require.NoError(t, err)
	recv, err := g.Alloc(g.ctx, 64)
	require.NoError(t, err)
	require.NoError(t, g.Write(g.ctx, send, []byte("0123456789abcdef")))
	p := g.load(func(b *plugin.Builder) {
		b.Track(func() {
			bytes := b.Slot(plugin.SlotBytes)
			half := b.Div(bytes, b.Const(2))
			b.Copy(b.Recv(b.Const(0)), b.Send(half), half)
			b.Copy(b.Recv(half), b.Send(b.Const(0)), half)
			b.If(b.Lt(bytes, b.Const(8)), func() { kernel(b, "add", place(b, 0), plugin.Value(b.Const(1), 8)) })
			b.If(b.Le(b.Const(8), bytes), func() { kernel(b, "add", place(b, 1), plugin.Value(bytes, 8)) })
			b.Loop(b.Const(3), func(i plugin.Reg) {
				b.Loop(b.Const(2), func(j plugin.Reg) {
					offset := b.Mul(b.Const(8), b.Add(b.Const(8), b.Add(b.Mul(i, b.Const(2)), j)))
					kernel(b, "add", plugin.Address(b.Region(b.Const(0), b.Const(1), offset)), plugin.Value(b.Add(i, b.Const(1)), 8))
				})
			})
			b.Loop(b.Const(0), func(plugin.Reg) { kernel(b, "add", place(b, 0), plugin.Value(b.Const(1), 8)) })
		})
	})
	s := g.stream()
	a := &Arguments{Send: pointer(send), Recv: pointer(recv)}
	a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 16, 16, 16
	require.NoError(t, g.device.Run(p, a, s))
	g.synchronize(s)
	require.Equal(t, "89abcdef01234567", string(g.Bytes(recv, 16)))
	require.Zero(t, g.value(0))
	require.Equal(t, uint64(16), g.value(1))
	for i, want := range []uint64{1, 1, 2, 2, 3, 3} {
		require.Equal(t, want, g.value(8+i))
	}
}

// pointer returns a device address as Arguments want it.
func pointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func TestDeviceLaysOutArgumentBlocks(t *testing.T) {
	g := newGPU(t, 2)
	require.NoError(t, g.device.SetRegion(16, 1, 1, g.words+128, 64))
	require.NoError(t, g.device.AddImages(16, testImages))
	plan := devicePlan(t, 2, func(b *plugin.Builder) {
		b.Track(func() {
			root := b.Slot(plugin.SlotRoot)
			b.LaunchDependent("image", "arguments", root, b.Mul(root, b.Const(2)),
				plugin.Address(b.Send(b.Const(0))),
				plugin.Value(root, 1), plugin.Value(b.Const(0x1234), 2), plugin.Value(b.Const(-2), 4),
				plugin.Address(b.Recv(b.Const(8))),
				plugin.Address(b.Region(b.Const(1), b.Const(1), b.Const(64))), // its end
				plugin.Address(b.Abort()), plugin.Value(b.SendCount(1), 8))
		})
	})
	plan.Kernels[0].Shared = plan.Kernels[0].Grid[0]
	p, err := g.device.Load(plan, 16)
	require.NoError(t, err)
	a := &Arguments{Send: pointer(g.words), Recv: pointer(g.words + 256), Arrays: []int64{0, 77, 0, 0, 0, 0, 0, 0}}
	a.Slots[plugin.SlotRoot], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 300, 512, 8
	s := g.stream()
	require.NoError(t, g.device.Run(p, a, s))
	g.synchronize(s)
	b := g.Bytes(g.words, 512)
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[64+at:]) }
	require.Equal(t, []uint32{300, 1, 1, 600, 1, 1, 300, 48, cuda.LaunchDependent | cuda.LaunchRemote},
		[]uint32{u32(0), u32(4), u32(8), u32(12), u32(16), u32(20), u32(24), u32(28), u32(32)})
	require.Equal(t, byte(300&0xFF), b[64+8])
	require.Equal(t, uint16(0x1234), binary.LittleEndian.Uint16(b[64+10:]), "aligned to its size")
	require.Equal(t, int32(-2), int32(u32(64+12)))
	require.Equal(t, uint64(g.words)+256+8, u64(16), "the end of the receive memory")
	require.Equal(t, uint64(g.words)+128+64, u64(24))
	require.Equal(t, uint64(g.device.word.Device), u64(32))
	require.Equal(t, uint64(77), u64(40))

	a.Arrays = nil
	require.NoError(t, g.device.Run(p, a, s))
	g.synchronize(s)
	require.Zero(t, u64(40), "arrays that are absent are zeros, not the last call's")
}

// A kernel belongs to all plans of a GPU that launch it, with as much shared memory as each wants.
func TestPlansOfOneKernelHaveTheSharedMemoryTheyAskFor(t *testing.T) {
	g := newGPU(t, 1)
	load := func(shared int64, constant bool) *DeviceProgram {
		plan := devicePlan(t, 1, func(b *plugin.Builder) {
			b.Track(func() {
				of := b.Const(shared)
				if !constant {
					of = b.Mul(b.Slot(plugin.SlotBytes), of)
				}
				b.Launch("image", "increment", of, b.Const(1), plugin.Address(b.Send(b.Const(0))))
			})
		})
		plan.Kernels[0].Shared, plan.Kernels[0].Grid[0] = plan.Kernels[0].Grid[0], plan.Kernels[0].Block[0]
		p, err := g.device.Load(plan, 0)
		require.NoError(t, err)
		return p
	}
	p := []*DeviceProgram{load(200<<10, true), load(227<<10, false), load(64<<10, true), load(100, true)}
	a := &Arguments{Send: pointer(g.words)}
	a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes] = 1, 8
	s := g.stream()
	for _, p := range p {
		require.NoError(t, g.device.Run(p, a, s))
	}
	g.synchronize(s)
	require.Equal(t, uint64(len(p)), g.value(0))
}

// domains is a driver whose devices have so many memory synchronization domains.
type domains struct {
	cuda.Driver
	n int
}

func (d domains) Devices() ([]cuda.DeviceInfo, error) {
	devices, err := d.Driver.Devices()
	for i := range devices {
		devices[i].Domains = d.n
	}
	return devices, err
}

// Kernels run in the domain for remote traffic wherever the device has one, also those
// that wait for the end of what is before them, and those that come again.
func TestDeviceLaunchesIntoTheRemoteDomain(t *testing.T) {
	g := newGPU(t, 1)
	var flags []uint32
	look := func(b *cuda.Batch) {
		for i := range b.Work {
			if b.Work[i].Kind == cuda.WorkLaunch {
				flags = append(flags, b.Work[i].Flags)
			}
		}
	}
	for n, remote := range []uint32{0, 0, cuda.LaunchRemote, cuda.LaunchRemote} {
		d := g.newDevice(&inspector{domains{g.Driver, n}, look}, 1)
		for _, plain := range []bool{false, true} {
			want := cuda.LaunchDependent | remote
			if plain {
				want = remote
			}
			p, err := d.Load(devicePlan(t, 1, func(b *plugin.Builder) {
				b.Track(func() {
					launch := b.LaunchDependent
					if plain {
						launch = b.Launch
					}
					launch("image", "increment", b.Const(1), b.Const(1), place(b, 0))
				})
			}), 0)
			require.NoError(t, err)
			require.True(t, p.last.able)
			flags = nil
			for range 2 {
				require.NoError(t, d.Run(p, &Arguments{}, g.stream()))
			}
			require.Equal(t, []uint32{want, want}, flags, "%d domains", n)
		}
	}
}
