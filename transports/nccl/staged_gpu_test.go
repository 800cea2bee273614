package nccl_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/nccl"
)

// plain is nccl in the rank's process, on the machine's GPU.
type plain struct{ nccl.Transport }

func (p plain) Info() plugin.Info {
	i := p.Transport.Info()
	i.Name = "plain"
	return i
}

// alone makes a world of one over NVIDIA's own library, by default on the machine's GPU, or skips.
func alone(t testing.TB, spec string) *gpu {
	t.Helper()
	driver, err := cuda.Open()
	if err != nil {
		t.Skip(err)
	}
	request := plugin.Request{Collective: plugin.AllReduce, World: 1, Hosts: 1, Memory: plugin.MemoryKindCuda}
	if s := (nccl.Staged{}).Supports(request); len(s.Algorithms) == 0 {
		t.Skip(s.Reason)
	}
	c, err := host.Init(t.Context(), host.Options{World: 1, Transports: []string{spec}, Timeout: 60 * time.Second,
		Memory: plugin.MemoryKindCuda, Driver: driver})
	require.NoError(t, err)
	g := &gpu{Communicator: c, driver: driver}
	g.ctx, err = driver.Retain(0)
	require.NoError(t, err)
	g.stream, err = driver.NewStream(g.ctx, 0)
	require.NoError(t, err)
	return g
}

func (g *gpu) end(t testing.TB) {
	t.Helper()
	require.NoError(t, errors.Join(g.Close(), g.driver.DestroyStream(g.ctx, g.stream), g.driver.Release(0)))
}

// onGPUs lists the ways to NCCL on the machine's GPU. SHUNT_TEST_NCCL_PROCESS names the program of
// transports/nccl/process; in build/device it is found without.
func onGPUs() []string {
	specs := []string{"builtin:plain", "builtin:staged_gpu"}
	for _, path := range []string{os.Getenv("SHUNT_TEST_NCCL_PROCESS"), "../../../bin/shunt-transport-nccl"} {
		if _, err := os.Stat(path); path != "" && err == nil {
			return append(specs, "process:"+path)
		}
	}
	return specs
}

// NVIDIA's own library works in staging memory, in pieces, in calls and in replays of a graph, and closing gives the
// memory back.
func TestStagedOnAGPU(t *testing.T) {
	for _, spec := range onGPUs()[1:] {
		t.Run(spec, func(t *testing.T) {
			cycle := func(more ...int) int64 {
				g := alone(t, spec)
				for _, bytes := range append([]int{4, 4 << 20, 9<<20 + 4}, more...) {
					require.NoError(t, g.sum(bytes/4))
				}
				require.NoError(t, g.replay(100_000))
				g.end(t)
				require.Eventually(t, func() bool { return executor.Collect() == nil && executor.Detached() == 0 },
					10*time.Second, time.Millisecond, "the driver's word that the graph is gone, which comes later")
				ctx, err := g.driver.Retain(0)
				require.NoError(t, err)
				available, _, err := g.driver.MemoryInfo(ctx)
				require.NoError(t, err)
				require.NoError(t, g.driver.Release(0))
				return available
			}
			cycle(150 << 20)
			before := cycle()
			for range 2 {
				require.GreaterOrEqual(t, cycle(), before-2<<20, "bytes of the device that are free")
			}
		})
	}
}

// replay captures a copy by NCCL from one buffer to another, and replays it on changing data.
func (g *gpu) replay(bytes int64) (err error) {
	var p [2]cuda.Ptr
	for i := range p {
		if p[i], err = g.driver.Alloc(g.ctx, bytes); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.driver.Free(g.ctx, p[i])) }()
	}
	call := func() error {
		return g.AllGather(pointer(p[0]), pointer(p[1]), bytes, plugin.Uint8, g)
	}
	runtime.LockOSThread() // which a capture belongs to
	defer runtime.UnlockOSThread()
	if err := errors.Join(call(), g.Synchronize(g), g.driver.BeginCapture(g.ctx, g.stream)); err != nil {
		return err
	}
	err = call()
	graph, ended := g.driver.EndCapture(g.ctx, g.stream)
	if err = errors.Join(err, ended); err != nil {
		return err
	}
	run, err := g.driver.Instantiate(g.ctx, graph)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, g.driver.DestroyGraphExec(run), g.driver.DestroyGraph(graph))
	}()
	for round := range 3 {
		want, got := make([]byte, bytes), make([]byte, bytes)
		for i := range want {
			want[i] = byte(i*7 + round)
		}
		err := errors.Join(g.driver.Write(g.ctx, p[0], want), g.driver.LaunchGraph(g.ctx, run, g.stream), g.Synchronize(g),
			g.driver.Read(g.ctx, got, p[1]))
		if err != nil {
			return err
		}
		for i := range want {
			if got[i] != want[i] {
				return fmt.Errorf("replay %d: byte %d is %#x, want %#x", round, i, got[i], want[i])
			}
		}
	}
	return nil
}

// BenchmarkStagedOnAGPU measures one all_reduce after the other, alone: NCCL in the rank's process, behind staging
// memory and commands there, and in a process of its own.
func BenchmarkStagedOnAGPU(b *testing.B) {
	for _, spec := range onGPUs() {
		for _, bytes := range []int64{8, 64 << 10, 4 << 20, 64 << 20, 256 << 20} {
			b.Run(fmt.Sprintf("%.20s/%dKiB", spec, bytes>>10), func(b *testing.B) {
				g := alone(b, spec)
				p, err := g.driver.Alloc(g.ctx, 2*bytes)
				require.NoError(b, err)
				call := func() {
					require.NoError(b, g.AllReduce(pointer(p), pointer(p+cuda.Ptr(bytes)), bytes/4, plugin.Int32, plugin.OpSum, g))
				}
				call()
				require.NoError(b, g.Synchronize(g))
				b.SetBytes(bytes)
				for b.Loop() {
					call()
					require.NoError(b, g.Synchronize(g))
				}
				require.NoError(b, g.driver.Free(g.ctx, p))
				g.end(b)
			})
		}
	}
}
