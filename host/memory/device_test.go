package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// device returns a driver of its own, as a process has, with its context.
func device(t *testing.T) (*cudatest.Driver, cuda.Context) {
	d := cudatest.New(cudatest.Options{})
	t.Cleanup(d.Close)
	ctx, err := d.Retain(0)
	require.NoError(t, err)
	return d, ctx
}

func TestDeviceMemoryIsMappedByDescriptor(t *testing.T) {
	a, actx := device(t)
	b, bctx := device(t)
	made, err := a.CreateMemory(actx, 0, 1<<20)
	require.NoError(t, err)
	fd, err := a.ExportMemory(actx, made.Handle)
	require.NoError(t, err)
	defer unix.Close(fd)
	r := plugin.Region{ID: 3, Memory: plugin.MemoryKindCuda, Bytes: 100,
		Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: 1, Offset: 4096, Bytes: made.Bytes, FD: fd}}
	m, err := MapDevice(b, bctx, 0, r)
	require.NoError(t, err)
	require.Equal(t, int64(100), m.Bytes())
	require.NoError(t, a.Write(actx, made.Address+4096, []byte("here")))
	require.Equal(t, "here", string(b.Bytes(m.Address(), 4)))
	require.NoError(t, m.Close())
	require.NoError(t, m.Close(), "twice")
	require.Zero(t, m.Address())
	require.Equal(t, []string{"1 retained contexts"}, b.Leaks())
}

func TestDeviceMemoryIsMappedByIPCHandle(t *testing.T) {
	a, actx := device(t)
	b, bctx := device(t)
	p, err := a.Alloc(actx, 1000)
	require.NoError(t, err)
	h, err := a.ExportIPC(actx, p)
	require.NoError(t, err)
	r := plugin.Region{Memory: plugin.MemoryKindCuda, Bytes: 500,
		Handle: plugin.Handle{Kind: plugin.HandleKindCudaIpc, Generation: 1, Offset: 8, Bytes: 1000, Data: h[:], FD: -1}}
	m, err := MapDevice(b, bctx, 0, r)
	require.NoError(t, err)
	require.NoError(t, a.Write(actx, p+8, []byte("here")))
	require.Equal(t, "here", string(b.Bytes(m.Address(), 4)))
	require.NoError(t, m.Close())
	require.Equal(t, []string{"1 retained contexts"}, b.Leaks())
}

func TestDeviceHandlesAreChecked(t *testing.T) {
	d, ctx := device(t)
	made, err := d.CreateMemory(ctx, 0, 1<<20)
	require.NoError(t, err)
	fd, err := d.ExportMemory(ctx, made.Handle)
	require.NoError(t, err)
	defer unix.Close(fd)
	for want, change := range map[string]func(*plugin.Region){
		"host memory is not a device's":           func(r *plugin.Region) { r.Memory = plugin.MemoryKindHost },
		"was not exported":                        func(r *plugin.Region) { r.Handle.Kind = plugin.HandleKindNone },
		"a memfd handle of cuda memory":           func(r *plugin.Region) { r.Handle.Kind = plugin.HandleKindMemfd },
		"cannot hold 100 bytes at offset 2097152": func(r *plugin.Region) { r.Handle.Offset = made.Bytes },
		"cannot hold 100 bytes at offset -8":      func(r *plugin.Region) { r.Handle.Offset = -8 },
		"has no generation":                       func(r *plugin.Region) { r.Handle.Generation = 0 },
		"the memory is on another host":           func(r *plugin.Region) { r.Handle.FD = -1 },
		"a cuda_ipc handle of 3 bytes, want 64": func(r *plugin.Region) {
			r.Handle.Kind,
				r.Handle.Data = plugin.HandleKindCudaIpc, []byte("abc")
		},
		"mapping region 9: ": func(r *plugin.Region) { r.ID, r.Handle.Bytes = 9, 1<<30 },
		"a handle has 300 bytes of data, want at most 256": func(r *plugin.Region) { r.Handle.Data = make([]byte, 300) },
	} {
		r := plugin.Region{Memory: plugin.MemoryKindCuda, Bytes: 100,
			Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: 1, Bytes: made.Bytes, FD: fd}}
		change(&r)
		_, err := MapDevice(d, ctx, 0, r)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, []string{"1 allocations", "1 memory handles", "1 retained contexts"}, d.Leaks())
}

func TestDescriptorsAreFetchedByName(t *testing.T) {
	s := shares(t, 2)
	fd, err := unix.MemfdCreate("published", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, s[0].Publish("mine", []int{fd}))
	require.ErrorIs(t, s[0].Publish("mine", []int{fd}), plugin.InvalidArgument, "twice")
	require.NoError(t, unix.Close(fd), "the share has a copy")
	got, err := s[1].Fetch(t.Context(), 0, "mine", 1)
	require.NoError(t, err)
	require.NoError(t, unix.Close(got[0]))
	s[0].Withdraw("mine")
	_, err = s[1].Fetch(t.Context(), 0, "mine", 1)
	require.ErrorIs(t, err, plugin.Protocol)
	_, err = s[1].Fetch(t.Context(), 2, "mine", 1)
	require.ErrorIs(t, err, plugin.InvalidArgument)
}
