package cudatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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

	chunks, err := d.RetainRange(ctx, s.Address()+1, 5*mib)
	require.NoError(t, err)
	require.Len(t, chunks, 2)
	at, handles := []cuda.Ptr{chunks[0].Address, chunks[1].Address}, []uint64{chunks[0].Handle, chunks[1].Handle}
	same := func() bool {
		is, err := d.StillMapped(ctx, at, handles)
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
	for _, c := range chunks {
		require.NoError(t, d.ReleaseMemory(ctx, c.Handle))
	}
	require.Error(t, s.Unmap(2*mib), "no piece begins there")
	require.Equal(t, []string{"2 allocations", "2 memory handles", "1 segments", "1 retained contexts"}, d.Leaks())
	require.NoError(t, s.Free())
	require.Error(t, s.Free(), "twice")
	require.Equal(t, []string{"1 retained contexts"}, d.Leaks())
}
