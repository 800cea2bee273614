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

// Whoever exports memory that another goroutine has mapped races with its unmapping.
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
