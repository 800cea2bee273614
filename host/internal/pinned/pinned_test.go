package pinned_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/internal/pinned"
)

// What is given back is used again, and zero; it is freed with the last piece in use.
func TestMemoryIsKeptWhileSomeIsInUse(t *testing.T) {
	driver := cudatest.New(cudatest.Options{})
	defer driver.Close()
	context, err := driver.Retain(0)
	require.NoError(t, err)
	alloc := func(bytes int64) cuda.HostMemory {
		m, err := pinned.Alloc(driver, context, bytes)
		require.NoError(t, err)
		return m
	}
	free := func(m cuda.HostMemory) { require.NoError(t, pinned.Free(driver, context, m)) }
	bytes := func(m cuda.HostMemory) []byte {
		return unsafe.Slice(*(**byte)(unsafe.Pointer(&m.Address)), m.Bytes)
	}

	stays, first, other := alloc(4096), alloc(4096), alloc(512)
	bytes(first)[17] = 1
	free(first)
	free(other)
	again := alloc(4096)
	require.Equal(t, first.Address, again.Address)
	require.Zero(t, bytes(again)[17])

	driver.Fail("AllocHost", 0, cuda.OutOfMemory)
	_, err = pinned.Alloc(driver, context, 1<<20)
	require.Equal(t, cuda.OutOfMemory, cuda.ResultOf(err))

	free(again)
	free(stays)
	require.Equal(t, []string{"1 retained contexts"}, driver.Leaks())
	driver.Fail("AllocHost", 0, cuda.OutOfMemory)
	_, err = pinned.Alloc(driver, context, 4096)
	require.Equal(t, cuda.OutOfMemory, cuda.ResultOf(err))

	last := alloc(4096)
	driver.Fail("FreeHost", 0, cuda.InvalidValue)
	require.Equal(t, cuda.InvalidValue, cuda.ResultOf(pinned.Free(driver, context, last)))
	require.NoError(t, driver.Release(0))
}
