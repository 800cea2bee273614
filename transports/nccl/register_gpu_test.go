package nccl_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// NVIDIA's own library registers memory in a world of one.
func TestRegistrationOnAGPU(t *testing.T) {
	driver, err := cuda.Open()
	if err != nil {
		t.Skip(err)
	}
	request := plugin.Request{Collective: plugin.AllReduce, World: 1, Hosts: 1, Memory: plugin.MemoryKindCuda}
	if s := (nccl.Transport{}).Supports(request); len(s.Algorithms) == 0 {
		t.Skip(s.Reason)
	}
	registerAlone(t, driver, nccl.Transport{})
}

// The same with NCCL's stand-in, on a GPU in memory, also where NCCL's environment has no communicator block.
func TestRegistrationAlone(t *testing.T) {
	for _, blocking := range []string{"", "0"} {
		t.Run("NCCL_COMM_BLOCKING="+blocking, func(t *testing.T) {
			t.Setenv("NCCL_COMM_BLOCKING", blocking)
			registerOnStandIn(t)
		})
	}
}

// What was aborted has forgotten all memory: no registration waits for NCCL, which may take long to abort.
func TestAnAbortEndsRegistrations(t *testing.T) {
	d := standIn(t)
	defer d.Close()
	e, err := nccl.Transport{Drivers: func(int) cuda.Driver { return d }}.Open(t.Context(), plugin.OpenConfig{World: 1,
		Memory: plugin.MemoryKindCuda, Options: map[string]string{"register": "on"}})
	require.NoError(t, err)
	x := plugin.Exchange{Request: plugin.Request{Collective: plugin.AllReduce, World: 1}, Algorithm: "tuned"}
	published, err := e.(plugin.Exchanger).Publish(t.Context(), x)
	require.NoError(t, err)
	require.NoError(t, e.(plugin.Exchanger).Connect(t.Context(), x, [][]byte{published}))
	ctx, err := d.Retain(0)
	require.NoError(t, err)
	var memory [4]plugin.Memory
	var keys [len(memory)]uint64
	for i := range memory {
		p, err := d.Alloc(ctx, 4096)
		require.NoError(t, err)
		memory[i] = plugin.Memory{Address: uint64(p), Bytes: 4096, Kind: plugin.MemoryKindCuda, Generation: 1}
		keys[i], err = e.(plugin.Registrar).Register(t.Context(), memory[i])
		require.NoError(t, err)
	}
	begun, release := nccltest.HoldAborts()
	defer release()
	e.(plugin.Aborter).Abort("enough")
	<-begun
	asked := time.Now()
	for i, key := range keys {
		require.NoError(t, e.(plugin.Registrar).Deregister(t.Context(), key))
		_, err = e.(plugin.Registrar).Register(t.Context(), memory[i])
		require.ErrorIs(t, err, plugin.Aborted)
	}
	require.Less(t, time.Since(asked), time.Second, "a wait for NCCL is a second")
	release()
	require.NoError(t, e.Close())
	for _, m := range memory {
		require.NoError(t, d.Free(ctx, cuda.Ptr(m.Address)))
	}
	require.NoError(t, d.Release(0))
	require.Empty(t, d.Leaks())
}

// standIn installs the stand-in for NCCL, and returns a device for it. The caller closes that.
func standIn(t *testing.T) *cudatest.Driver {
	t.Helper()
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, nccltest.Install(path))
	t.Setenv(nccl.Variable, path)
	return cudatest.New(cudatest.Options{Devices: 1, Kernels: nccltest.Kernels()})
}

func registerOnStandIn(t *testing.T) {
	t.Helper()
	d := standIn(t)
	defer d.Close()
	nccltest.Violations()
	registerAlone(t, d, nccl.Transport{Drivers: func(int) cuda.Driver { return d }})
	require.Empty(t, d.Leaks())
	require.Empty(t, nccltest.Violations())
}

// registerAlone registers an allocation, memory by handle, what came to the address of freed memory, and one allocation
// again and again, and takes it back before or after the memory goes. Operations on it run.
func registerAlone(t *testing.T, driver cuda.Driver, transport nccl.Transport) {
	t.Helper()
	request := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 1, Hosts: 1,
		Memory: plugin.MemoryKindCuda}
	e, err := transport.Open(t.Context(), plugin.OpenConfig{World: 1, Memory: plugin.MemoryKindCuda,
		Options: map[string]string{"register": "on"}})
	require.NoError(t, err)
	for _, x := range []plugin.Exchange{{}, {Request: request, Algorithm: "tuned"}} {
		published, err := e.(plugin.Exchanger).Publish(t.Context(), x)
		require.NoError(t, err)
		require.NoError(t, e.(plugin.Exchanger).Connect(t.Context(), x, [][]byte{published}))
	}
	plan, err := e.Prepare(t.Context(), request, "tuned")
	require.NoError(t, err)
	device, err := executor.NewDevice(driver, 0, 0, 1)
	require.NoError(t, err)
	program, err := device.Load(plan, 0)
	require.NoError(t, err)
	ctx := device.Context()
	stream, err := driver.NewStream(ctx, 0)
	require.NoError(t, err)

	const count = 1 << 20
	sum := func(send, recv cuda.Ptr) {
		t.Helper()
		b := make([]byte, 0, 4*count)
		for i := range count {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i%1000)))
		}
		require.NoError(t, driver.Write(ctx, send, b))
		a := executor.Arguments{Send: pointer(send), Recv: pointer(recv)}
		a.Slots[plugin.SlotCount], a.Slots[plugin.SlotBytes] = count, 4*count
		a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 4*count, 4*count
		require.NoError(t, device.Run(program, &a, stream))
		require.NoError(t, driver.SynchronizeStream(ctx, stream))
		got := make([]byte, 4*count)
		require.NoError(t, driver.Read(ctx, got, recv))
		require.Equal(t, b, got)
	}
	registrar := e.(plugin.Registrar)
	register := func(p cuda.Ptr) uint64 {
		t.Helper()
		info, err := driver.Pointer(ctx, p)
		require.NoError(t, err)
		key, err := registrar.Register(t.Context(), plugin.Memory{Address: uint64(info.Base), Bytes: info.Bytes,
			Kind: plugin.MemoryKindCuda, Generation: info.BufferID})
		require.NoError(t, err)
		return key
	}
	for round := range 20 {
		send, err := driver.Alloc(ctx, 4*count)
		require.NoError(t, err)
		recv, err := driver.CreateMemory(ctx, 0, 4*count)
		require.NoError(t, err)
		keys := []uint64{register(send), register(recv.Address)}
		sum(send, recv.Address)
		if round%2 == 0 {
			require.NoError(t, registrar.Deregister(t.Context(), keys[0]))
			require.ErrorIs(t, registrar.Deregister(t.Context(), keys[0]), plugin.InvalidArgument)
		}
		require.NoError(t, driver.Free(ctx, send))
		require.NoError(t, driver.Unmap(ctx, recv))
		if round%2 != 0 { // as when the host learns late that memory is gone
			require.NoError(t, registrar.Deregister(t.Context(), keys[0]))
		}
		require.NoError(t, registrar.Deregister(t.Context(), keys[1]))
	}
	p, err := driver.Alloc(ctx, 4*count)
	require.NoError(t, err)
	const cycles = 1000
	began := time.Now()
	for range cycles {
		require.NoError(t, registrar.Deregister(t.Context(), register(p)))
	}
	t.Logf("registering and deregistering 4 MiB took %v", time.Since(began)/cycles)
	require.NoError(t, driver.Free(ctx, p))
	program.Free()
	require.NoError(t, driver.DestroyStream(ctx, stream))
	require.NoError(t, device.Close())
	require.NoError(t, e.Close())
}

func pointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
