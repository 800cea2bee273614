package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// machine is the driver of every rank of a world, by device.
var machine struct {
	sync.Mutex
	drivers []*cudatest.Driver
}

func init() {
	host.Register(cudaipctest.Transport{Drivers: func(device int) cuda.Driver {
		machine.Lock()
		defer machine.Unlock()
		return machine.drivers[device]
	}})
}

// ranksOnGPUs runs a body for every rank of a world, as goroutines, with GPUs in
// memory.
func ranksOnGPUs(t *testing.T, c Config, body func(rank int, options host.Options) error) {
	t.Helper()
	kernels := cudaipctest.Kernels()
	maps.Copy(kernels, goKernels)
	drivers := make([]*cudatest.Driver, c.World)
	for i := range drivers {
		drivers[i] = cudatest.New(cudatest.Options{Devices: c.World, Kernels: kernels})
	}
	machine.Lock()
	machine.drivers = drivers
	machine.Unlock()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	errs := make([]error, c.World)
	var group sync.WaitGroup
	for i := range c.World {
		group.Go(func() {
			errs[i] = body(i, host.Options{
				Rank: i, World: c.World, ID: id.String(), Transports: []string{"builtin:cudaipc"}, Memory: c.Memory, Device: i,
				Driver: drivers[i],
			})
		})
	}
	group.Wait()
	for i, err := range errs {
		require.NoError(t, err, "rank %d", i)
		require.Empty(t, drivers[i].Leaks(), "rank %d", i)
		drivers[i].Close()
	}
}

// onGPUs runs a benchmark there and merges what the ranks report.
func onGPUs(t *testing.T, c Config) []Row {
	t.Helper()
	outputs := make([]bytes.Buffer, c.World)
	ranksOnGPUs(t, c, func(rank int, options host.Options) error {
		return serve(context.Background(), c, json.NewEncoder(&outputs[rank]), options, 64<<10)
	})
	var rows []Row
	readers := make([]*json.Decoder, c.World)
	for i := range readers {
		readers[i] = json.NewDecoder(&outputs[i])
	}
	require.NoError(t, mergeReports(c, readers, func(r Row) { rows = append(rows, r) }))
	return rows
}

func gpuConfig(world int, dtype plugin.DType) Config {
	return Config{
		World: world, Min: 8, Max: 8000, Factor: 1000, DType: dtype, Op: plugin.OpSum, Iterations: 3, InPlace: true,
		Memory: plugin.MemoryKindCuda, Modes: []Mode{Graph, Eager},
	}
}

// Every measurement runs, replayed and one by one, with right results.
func TestEveryMeasurementOnGPUs(t *testing.T) {
	// Kernels in Go spin on the CPUs that the ranks' own threads need.
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	for world, dtype := range map[int]plugin.DType{2: plugin.Float32, 3: plugin.Bfloat16} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			c, names := gpuConfig(world, dtype), Names()
			if world > 2 {
				// Those whose ranks have buffers of different sizes.
				names = []string{"all_gather_v", "reduce_scatter_v", "all_to_all_v", "gather", "scatter_v", "barrier"}
				c.Collectives, c.InPlace = names, false
			}
			rows := onGPUs(t, c)
			seen := map[string]int{}
			for _, r := range rows {
				seen[r.Collective+" "+string(r.Mode)]++
				require.Empty(t, r.Skipped, r.Collective)
				require.NotEmpty(t, r.Algorithm, r.Collective)
				require.Zero(t, r.Wrong(), "%s (%s), %d bytes", r.Collective, r.Mode, r.Bytes)
				require.Positive(t, r.OutOfPlace.Microseconds)
				require.GreaterOrEqual(t, r.OutOfPlace.P99, r.OutOfPlace.Microseconds)
			}
			for _, name := range names {
				for _, mode := range []Mode{Graph, Eager} {
					require.Positive(t, seen[name+" "+string(mode)], "%s %s", name, mode)
				}
			}
		})
	}
}

func TestWrongResultsOnGPUsAreCounted(t *testing.T) {
	restore, err := failpoint.Arm("bench.corrupt=corrupt(3)")
	require.NoError(t, err)
	defer restore()
	c := gpuConfig(2, plugin.Float32)
	c.Collectives, c.Min, c.InPlace = []string{"all_reduce"}, 8000, false
	wrong := int64(0)
	for _, r := range onGPUs(t, c) {
		wrong += r.Wrong()
	}
	require.Positive(t, wrong)
}

// halfReplayed is Shunt, and does nothing in some captured calls.
type halfReplayed struct {
	skips func(captured, slots int) bool
}

func (h halfReplayed) candidates(r *rank, p *prepared) ([]candidate, error) {
	d, do, captured := r.space.(*deviceSpace), r.shuntCall(r.comm, p, p.slots), 0
	return []candidate{{name: "half", call: func(slot int) error {
		info, err := d.driver.CaptureInfo(d.ctx, d.own)
		if err != nil {
			return err
		}
		if info.Status != cuda.CaptureNone {
			if captured++; h.skips(captured, len(p.slots)) {
				return nil
			}
		}
		return do(slot)
	}}}, nil
}

func (halfReplayed) close() error { return nil }

// Where replays are timed, results of replays are checked, before timing and after.
func TestReplaysAreChecked(t *testing.T) {
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	c := gpuConfig(2, plugin.Float32)
	c.Collectives, c.Min, c.InPlace = []string{"all_reduce"}, 8000, false
	wrong := func(mode Mode, skips func(captured, slots int) bool) (wrong, slots int) {
		c.Modes = []Mode{mode}
		ranksOnGPUs(t, c, func(rank int, options host.Options) (err error) {
			r, err := join(context.Background(), c, options, 64<<10)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.close()) }()
			r.rivals = append(r.rivals, halfReplayed{skips})
			rep, err := r.run(context.Background(), c.jobs()[0])
			if err != nil {
				return err
			}
			if rep.Wrong != 0 {
				return fmt.Errorf("%d wrong of Shunt", rep.Wrong)
			}
			if rank == 0 {
				wrong, slots = int(rep.Peers[0].Wrong), r.space.slots(8000+2*guard)
			}
			return nil
		})
		return wrong, slots
	}
	for mode, per := range map[Mode]int{Graph: 2000, Eager: 0} {
		have, _ := wrong(mode, func(captured, slots int) bool { return false })
		require.Zero(t, have, mode)
		have, slots := wrong(mode, func(captured, slots int) bool { return captured <= slots })
		require.Equal(t, per*slots, have, "%s, before timing", mode)
		have, _ = wrong(mode, func(captured, slots int) bool { return captured > slots })
		require.Equal(t, per, have, "%s, after timing", mode)
	}
}

// Rows name the algorithm of the call: where ranks' counts differ, that of the largest.
func TestAlgorithmIsThatOfTheLargestCount(t *testing.T) {
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	t.Setenv("SHUNT_ALGO", "reduce_scatter_v:-8K=cudaipc/blocks; reduce_scatter_v:8K-=cudaipc/reduces; *=*")
	c := gpuConfig(3, plugin.Float32)
	c.Collectives, c.InPlace, c.Modes = []string{"reduce_scatter_v"}, false, []Mode{Eager}
	for elements, want := range map[int64]string{1500: "cudaipc/blocks", 6000: "cudaipc/reduces"} { // counts are 1:2:3
		c.Min, c.Max = 4*elements, 4*elements
		rows := onGPUs(t, c)
		require.Len(t, rows, 1)
		require.Equal(t, want, rows[0].Algorithm, "%d elements", elements)
	}
}
