package cudatest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
)

func TestSegmentsAreMappedInPieces(t *testing.T) {
	const mib = 1 << 20
	d, ctx := machine(t, cudatest.Options{})
	s, err := d.Reserve(ctx, 0, 16*mib)
	require.NoError(t, err)
	require.NoError(t, s.Map(0, 4*mib))
	require.NoError(t, s.Map(4*mib, 2*mib))
	require.Error(t, s.Map(2*mib, 4*mib), "mapped already")
	require.Error(t, s.Map(mib, mib), "not of whole granules")

	// Each piece is described by itself, and both are one stretch of memory.
	for _, piece := range [][2]int64{{0, 4 * mib}, {4 * mib, 2 * mib}} {
		info, err := d.Pointer(ctx, s.Address()+cuda.Ptr(piece[0]+5))
		require.NoError(t, err)
		require.Equal(t, s.Address()+cuda.Ptr(piece[0]), info.Base)
		require.Equal(t, piece[1], info.Bytes)
		require.True(t, info.Shareable)
		require.False(t, info.LegacyIPC)
	}
	require.NoError(t, d.Write(ctx, s.Address()+4*mib-2, []byte("over")))
	require.Equal(t, "over", string(d.Bytes(s.Address()+4*mib-2, 4)))

	chunks, err := d.ExportRange(ctx, s.Address()+1, 5*mib, 2)
	require.NoError(t, err)
	require.Len(t, chunks, 2)
	at, ids := []cuda.Ptr{chunks[0].Address, chunks[1].Address + 5}, []uint64{chunks[0].BufferID, chunks[1].BufferID}
	same := func() bool {
		is, err := d.StillMapped(ctx, at, ids)
		require.NoError(t, err)
		return is
	}
	require.True(t, same())
	require.NoError(t, s.Unmap(4*mib))
	require.False(t, same())
	info, err := d.Pointer(ctx, s.Address()+4*mib)
	require.NoError(t, err)
	require.Equal(t, cuda.PointerUnknown, info.Kind)
	require.NoError(t, s.Map(4*mib, 2*mib))
	require.False(t, same(), "other memory at the same address")
	require.Equal(t, make([]byte, 2), d.Bytes(s.Address()+4*mib, 2))
	cuda.CloseChunks(chunks)
	require.Error(t, s.Unmap(2*mib), "no piece begins there")
	require.Equal(t, []string{"2 allocations", "2 memory handles", "1 segments", "1 retained contexts"}, d.Leaks())
	require.NoError(t, s.Free())
	require.Error(t, s.Free(), "twice")
	require.Equal(t, []string{"1 retained contexts"}, d.Leaks())
}

// Memory that is mapped piece by piece into reserved addresses is one stretch, and goes as one.
func TestReservedRange(t *testing.T) {
	const mib = 1 << 20
	d, ctx := machine(t, cudatest.Options{})
	exported := func(bytes int64, first byte) (fd int) {
		m, err := d.CreateMemory(ctx, 0, bytes)
		require.NoError(t, err)
		require.NoError(t, d.Write(ctx, m.Address, []byte{first}))
		fd, err = d.ExportMemory(ctx, m.Handle)
		require.NoError(t, err)
		require.NoError(t, d.Unmap(ctx, m))
		return fd
	}
	for _, bytes := range []int64{0, -1, mib} {
		_, err := d.ReserveRange(ctx, 0, bytes)
		require.Error(t, err, "%d bytes", bytes)
	}
	r, err := d.ReserveRange(ctx, 0, 8*mib)
	require.NoError(t, err)
	info, err := d.Pointer(ctx, r.Address)
	require.NoError(t, err)
	require.Equal(t, cuda.PointerUnknown, info.Kind, "nothing is there yet")

	two, four := exported(2*mib, 2), exported(4*mib, 4)
	defer func() { require.NoError(t, errors.Join(unix.Close(two), unix.Close(four))) }()
	require.NoError(t, d.MapChunk(ctx, 0, &r, 4*mib, four, 4*mib))
	require.NoError(t, d.MapChunk(ctx, 0, &r, 0, two, 2*mib))
	for name, failing := range map[string]error{
		"over another":     d.MapChunk(ctx, 0, &r, 6*mib, two, 2*mib),
		"beyond":           d.MapChunk(ctx, 0, &r, 6*mib, four, 4*mib),
		"negative":         d.MapChunk(ctx, 0, &r, -2*mib, two, 2*mib),
		"of another size":  d.MapChunk(ctx, 0, &r, 2*mib, four, 2*mib),
		"not whole pages":  d.MapChunk(ctx, 0, &r, mib, two, 2*mib),
		"no such GPU":      d.MapChunk(ctx, 7, &r, 2*mib, two, 2*mib),
		"nothing reserved": d.MapChunk(ctx, 0, &cuda.Range{Address: r.Address + 2*mib, Bytes: 2 * mib}, 0, two, 2*mib),
	} {
		require.Error(t, failing, name)
	}
	require.NoError(t, d.MapChunk(ctx, 0, &r, 2*mib, two, 2*mib), "the same memory again")
	require.Equal(t, []byte{2}, d.Bytes(r.Address+2*mib, 1))
	require.NoError(t, d.Write(ctx, r.Address+4*mib-1, []byte{9, 9}), "across two pieces")
	require.Equal(t, []byte{9, 9}, d.Bytes(r.Address+4*mib-1, 2))
	require.Equal(t, []byte{9}, d.Bytes(r.Address+2*mib-1, 1), "two places of one memory")
	require.Len(t, r.Chunks, 3)
	require.NoError(t, d.UnmapRange(ctx, r))
	require.Error(t, d.UnmapRange(ctx, r), "twice")
	require.Equal(t, []string{"1 retained contexts"}, d.Leaks())
}

// An export of memory that another goroutine has mapped races with its unmapping.
func TestExportsByOtherGoroutinesAreHazards(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{})
	m, err := d.CreateMemory(ctx, 0, 1)
	require.NoError(t, err)
	export := func() {
		chunks, err := d.ExportRange(ctx, m.Address, 1, 1)
		require.NoError(t, err)
		cuda.CloseChunks(chunks)
	}
	export()
	require.Empty(t, d.Hazards())
	done := make(chan struct{})
	go func() {
		defer close(done)
		export()
	}()
	<-done
	require.Len(t, d.Hazards(), 1)
	require.Regexp(t, `^memory at 0x[0-9a-f]+, mapped by goroutine \d+, was exported by goroutine \d+:`, d.Hazards()[0])
	require.NoError(t, d.Unmap(ctx, m))
}
