package executor

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// inspector is a driver that looks at what is submitted instead of doing it.
type inspector struct {
	cuda.Driver
	look func(b *cuda.Batch)
}

func (i *inspector) Submit(_ cuda.Context, b *cuda.Batch) (int, cuda.Capture, error) {
	i.look(b)
	return len(b.Work), cuda.Capture{}, nil
}

// FuzzDevice: whatever a plan that passes Validate does, what reaches the driver
// lies within the caller's memory and the regions.
func FuzzDevice(f *testing.F) {
	for _, seed := range []string{"", "0123456789abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOP"} {
		f.Add([]byte(seed), int64(64), int64(32))
	}
	driver := cudatest.New(cudatest.Options{Kernels: deviceKernels})
	f.Cleanup(driver.Close)
	watcher := &inspector{Driver: driver}
	d, err := NewDevice(watcher, 0, 0, 2)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, d.Close()) })
	require.NoError(f, d.AddImages(0, testImages))
	// Nothing is touched, so the memory need not be there.
	const send, recv, region, each, peerRecv = 0x10000, 0x20000, 0x30000, 0x1000, 0x50000
	for rank := range 2 {
		require.NoError(f, d.SetRegion(0, 0, rank, cuda.Ptr(region+rank*0x10000), each))
	}
	f.Fuzz(func(t *testing.T, data []byte, sendBytes, recvBytes int64) {
		p := planOf(data)
		p.Tracks = append(p.Tracks, p.Tracks...) // more at once
		p.Kernels = []plugin.Kernel{{Image: "image", Name: "add", Shared: plugin.None}}
		for i := range 3 { // 1, below
			p.Kernels[0].Grid[i], p.Kernels[0].Block[i] = uint16(plugin.SlotWindow), uint16(plugin.SlotWindow)
		}
		for i := range p.Refs {
			p.Refs[i].Scale = plugin.None
			if p.Refs[i].Space == plugin.SpacePeer {
				p.Refs[i].Space = []plugin.Space{plugin.SpaceAbort, plugin.SpacePeerRecv}[i%2]
			}
			p.Args = append(p.Args, plugin.Arg{Ref: uint16(i), Value: plugin.None, Bytes: 8})
		}
		p.Kernels[0].CountArgs = uint16(len(p.Args))
		for i := range p.Steps {
			switch s := &p.Steps[i]; s.Kind {
			case plugin.StepSet, plugin.StepIf, plugin.StepLoop, plugin.StepAddress, plugin.StepCopy:
			default:
				*s = plugin.Step{Kind: plugin.StepLaunch, B: uint16(i % 2)}
			}
		}
		program, err := d.Load(p, 0)
		if err != nil {
			return
		}
		defer program.Free()
		inside := func(at, n uint64) bool {
			for _, m := range []struct{ base, bytes uint64 }{
				{send, uint64(sendBytes)}, {recv, uint64(recvBytes)}, {region, each}, {region + 0x10000, each},
				{uint64(d.word.Device), 0},
				{peerRecv, uint64(recvBytes)},
			} {
				if at >= m.base && n <= m.bytes && at-m.base <= m.bytes-n {
					return true
				}
			}
			return false
		}
		watcher.look = func(b *cuda.Batch) {
			if len(b.Work) > maxDeviceWork+2*(maxSides+len(p.Tracks)) {
				t.Errorf("%d pieces of work", len(b.Work))
			}
			for _, w := range b.Work {
				switch w.Kind {
				case cuda.WorkCopy:
					if !inside(uint64(w.To), w.Bytes) || !inside(uint64(w.From), w.Bytes) {
						t.Errorf("copy of %d bytes from %#x to %#x", w.Bytes, w.From, w.To)
					}
				case cuda.WorkLaunch:
					for i := range w.ParamBytes / 8 {
						if at := binary.LittleEndian.Uint64(b.Params[w.Params+uint64(8*i):]); !inside(at, 0) {
							t.Errorf("argument %#x", at)
						}
					}
				}
			}
		}
		a := &Arguments{Send: pointer(send), Recv: pointer(recv), Arrays: []int64{1, 2, 3, 4, 5, 6, 7, 8},
			PeerRecv: []cuda.Ptr{recv, peerRecv}}
		a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 16, sendBytes, recvBytes
		a.Slots[plugin.SlotWindow] = 1
		_ = d.Run(program, a, 0) // it may fail
		// The same again, as it may be known by then.
		a.Arrays, a.PeerRecv = nil, nil
		var first, again cuda.Batch
		look := watcher.look
		keep := func(to *cuda.Batch) {
			watcher.look = func(b *cuda.Batch) {
				look(b)
				*to = cuda.Batch{Work: slices.Clone(b.Work), Params: slices.Clone(b.Params)}
			}
		}
		keep(&first)
		err = d.Run(program, a, 0)
		keep(&again)
		require.Equal(t, err, d.Run(program, a, 0))
		require.Equal(t, first, again)
	})
}
