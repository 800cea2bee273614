package ctransport

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/algorithm"
	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/shared"
)

var dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "ctransport-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var built = sync.OnceValues(func() (string, error) { return Build(dir) })

func load(t testing.TB) plugin.Transport {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	transport, err := shared.Open(path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return transport
}

func openAll(t testing.TB, world int) []plugin.Endpoint {
	t.Helper()
	transport := load(t)
	var endpoints []plugin.Endpoint
	for r := range world {
		e, err := transport.Open(context.Background(), plugin.OpenConfig{Rank: r, World: world, Device: -1})
		require.NoError(t, err)
		endpoints = append(endpoints, e)
	}
	return endpoints
}

func TestDescription(t *testing.T) {
	require.Equal(t, plugin.Info{
		Name: "c99", Version: "1.0.0", Doc: "host memory, written in C99",
		Features: plugin.FeatureMemory | plugin.FeaturePlans | plugin.FeatureBuffers |
			plugin.FeatureRegistration,
		Memory: []plugin.MemoryKind{plugin.MemoryKindHost},
	}, load(t).Info())
}

// What the object offers to the loader is one symbol.
func TestOneSymbolIsExported(t *testing.T) {
	path, err := built()
	require.NoError(t, err)
	out, err := exec.Command("nm", "-D", "--defined-only", path).Output()
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
	require.Contains(t, string(out), "shunt_transport_v1_table")
}

// The plan that is written down as arrays computes what it should, for every
// dtype, op and size it takes.
func TestOwnPlan(t *testing.T) {
	for _, world := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			s := load(t).Supports(plugin.Request{Collective: plugin.AllReduce, World: world, Hosts: 1})
			require.Len(t, s.Algorithms, 1, s.Reason)
			limit := s.Algorithms[0].MaxBytes
			var operations []plantest.Operation
			for _, o := range plantest.Matrix(plugin.AllReduce, "one_shot", world) {
				if o.Count*o.DType.Bytes() <= limit {
					operations = append(operations, o)
				}
			}
			require.Greater(t, len(operations), 100)
			operations = append(operations, plantest.Operation{
				Collective: plugin.AllReduce, Algorithm: "one_shot", DType: plugin.Uint8, Count: limit,
			})
			require.NoError(t, plantest.Open(t, openAll(t, world), nil).Run(operations, nil))
		})
	}
}

func TestRule01AlwaysSignalAlwaysWait(t *testing.T) {
	w := plantest.Open(t, openAll(t, 3), nil)
	operations := make([]plantest.Operation, 12)
	for i := range operations {
		operations[i] = plantest.Operation{Collective: plugin.AllReduce, Algorithm: "one_shot", DType: plugin.Int32}
	}
	saw, err := w.RunHeld(operations, 1)
	require.NoError(t, err)
	require.False(t, saw.Ended[0] || saw.Ended[2], "a rank ran ahead of one that had not begun")
}

// Everything else is the host's, over scratch that a C file allocated.
func TestGenericAlgorithmsOverItsScratch(t *testing.T) {
	const world = 3
	endpoints := openAll(t, world)
	scratch := endpoints[0].Regions()[1]
	require.Equal(t, plugin.RegionRoleScratch, scratch.Role)
	w := plantest.Open(t, endpoints, func(req plugin.Request, name string) (*plugin.Plan, error) {
		return algorithm.Plan(req, name, scratch.ID, scratch.Bytes)
	})
	for _, c := range plugin.Collectives() {
		if c == plugin.Recv || c == plugin.Put || c == plugin.Get || c == plugin.Signal || c == plugin.Wait {
			continue // the first is the other half of send, the others need windows
		}
		s := algorithm.Supports(plugin.Request{Collective: c, World: world, Hosts: 1}, scratch.Bytes)
		require.NotEmpty(t, s.Algorithms, "%s: %s", c, s.Reason)
		for _, a := range s.Algorithms {
			var operations []plantest.Operation
			for _, o := range plantest.Matrix(c, a.Name, world) {
				if o.Count < 20000 {
					operations = append(operations, o)
				}
			}
			require.NoError(t, w.Run(operations, nil))
		}
	}
}

func TestEndpointRefusesWithReasons(t *testing.T) {
	transport := load(t)
	for want, config := range map[string]plugin.OpenConfig{
		"rank 2 of a world of 2":  {Rank: 2, World: 2},
		"c99 moves host memory":   {World: 1, Memory: plugin.MemoryKindCuda},
		"unknown option tea; c99": {World: 1, Options: map[string]string{"tea": "hot"}},
	} {
		_, err := transport.Open(context.Background(), config)
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.ErrorContains(t, err, want)
	}
	require.Contains(t, transport.Supports(plugin.Request{Collective: plugin.AllReduce, World: 65, Hosts: 1}).Reason,
		"1 to 64 ranks")
	require.Contains(t, transport.Supports(plugin.Request{Collective: plugin.Send, World: 2, Hosts: 1}).Reason,
		"generic algorithms")

	e := openAll(t, 1)[0]
	defer e.Close()
	ctx := context.Background()
	b, err := e.Allocate(ctx, 7, 10)
	require.NoError(t, err)
	require.Equal(t, int64(os.Getpagesize()), b.Bytes)
	_, err = e.Allocate(ctx, 7, 10)
	require.ErrorContains(t, err, "buffer 7 exists")
	_, err = e.Allocate(ctx, 8, 0)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.ErrorContains(t, err, "a buffer of 0 bytes")
	require.NoError(t, e.Free(ctx, 7))
	require.ErrorContains(t, e.Free(ctx, 7), "there is no buffer 7")
	req := plugin.Request{Collective: plugin.AllReduce, World: 1, Hosts: 1}
	_, err = e.Prepare(ctx, req, "ring")
	require.ErrorIs(t, err, plugin.Unsupported)
	req.World, req.Rank = 3, 1
	_, err = e.Prepare(ctx, req, "one_shot")
	require.ErrorContains(t, err, "the endpoint is rank 0 of 1, the request is of rank 1 of 3")
}

func TestBadPluginsAreBuilt(t *testing.T) {
	for _, flaw := range append(Refused(), Misbehaving()...) {
		path, err := BuildBad(dir, flaw.Name)
		require.NoError(t, err)
		require.FileExists(t, path)
	}
}
