package nccl

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/executor/commandtest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// The executor takes the longest message of every collective, in as many commands as it has pieces.
func TestTheLongestMessagesFit(t *testing.T) {
	for _, world := range []int{8, stagedMaxWorld} {
		for _, c := range plugin.Collectives() {
			staging := 2 * int64(world) * alignment
			longest := longest(c, world, staging)
			if c.OneSided() || longest == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c, world), func(t *testing.T) {
				pieces := longest / pieceOf(c, world, staging)
				want := pieces
				switch kindOf(c) {
				case wholes:
					if c == plugin.Barrier {
						want = 1
					}
				case gathersBlocks, scattersBlocks:
					want += (int64(world) + 14) / 15
				case exchanges:
					want += (2*int64(world) + 14) / 15
				}
				assert.Equal(t, want, runStaged(t, c, world, staging, longest))
			})
		}
	}
}

// runStaged runs the plan of a collective with blocks of so many bytes, and returns the number of its commands.
func runStaged(t *testing.T, c plugin.Collective, world int, staging, block int64) int64 {
	t.Helper()
	d := cudatest.New(cudatest.Options{Kernels: commandtest.Kernels()})
	defer d.Close()
	device, err := executor.NewDevice(d, 0, 0, world)
	require.NoError(t, err)
	ctx := device.Context()
	commands, err := ring.New(ringRegion, world, 0)
	require.NoError(t, err)
	var posted atomic.Int64
	commands.Serve(func(context.Context, *ring.Command) error {
		posted.Add(1)
		return nil
	})
	at, err := d.RegisterHost(ctx, commands.Memory(), commands.Region().Bytes)
	require.NoError(t, err)
	require.NoError(t, device.SetLocal(0, ringRegion, at, commands.Memory(), commands.Region().Bytes))
	alloc := func(bytes int64) cuda.Ptr {
		p, err := d.Alloc(ctx, bytes)
		require.NoError(t, err)
		return p
	}
	require.NoError(t, device.SetRegion(0, stagingRegion, 0, alloc(staging), staging))
	request := plugin.Request{Collective: c, World: world, Memory: plugin.MemoryKindCuda}
	plan, err := writeStaged(commands, request, stagedName, 1, staging)
	require.NoError(t, err)
	program, err := device.Load(plan, 0)
	require.NoError(t, err)

	total := block * int64(world)
	if k := kindOf(c); k == wholes || k == messages {
		total = block
	}
	a := executor.Arguments{Send: pointer(alloc(total)), Recv: pointer(alloc(total)), Arrays: make([]int64, 4*world)}
	a.Slots[plugin.SlotCount], a.Slots[plugin.SlotBytes] = block, block
	a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = total, total
	for r := range world {
		for array := range 2 {
			a.Arrays[2*array*world+r], a.Arrays[(2*array+1)*world+r] = block, int64(r)*block
		}
	}
	stream, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, device.Run(program, &a, stream))
	require.NoError(t, d.SynchronizeStream(ctx, stream))
	require.NoError(t, device.Close())
	require.NoError(t, commands.Close())
	return posted.Load()
}

func pointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// A caller that asks for registered memory gets the error that there is none.
func TestRegistrationIsNotForStagedMemory(t *testing.T) {
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	t.Setenv(Variable, path)
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	d := cudatest.New(cudatest.Options{})
	defer d.Close()
	over := Staged{Transport: Transport{Drivers: func(int) cuda.Driver { return d }}}
	for _, option := range []string{"off", "on"} {
		require.Empty(t, log.String())
		e, err := over.Open(t.Context(), plugin.OpenConfig{World: 1, Memory: plugin.MemoryKindCuda,
			Options: map[string]string{"register": option}})
		require.NoError(t, err)
		require.NoError(t, e.Close())
	}
	assert.Contains(t, log.String(), "SHUNT_NCCL_REGISTER is on, but in a process of its own")
	assert.Zero(t, over.Info().Features&plugin.FeatureRegistration)
}
