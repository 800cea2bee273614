package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/shm"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "shm-process-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "shunt-transport-shm")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func load(t *testing.T) plugin.Transport {
	t.Helper()
	c, err := process.Start(context.Background(), process.Config{Path: binary, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c.Transport()
}

// The carrier changes nothing: every plan of every collective is the one that
// the transport makes when it is linked in.
func TestPlansAreThoseOfTheBuiltin(t *testing.T) {
	carried := load(t)
	local := shm.Transport{}
	require.Equal(t, local.Info(), carried.Info())
	const world, rank = 4, 2
	config := plugin.OpenConfig{Communicator: 1, Rank: rank, World: world, Device: -1}
	there, err := carried.Open(context.Background(), config)
	require.NoError(t, err)
	defer there.Close()
	here, err := local.Open(context.Background(), config)
	require.NoError(t, err)
	defer here.Close()
	require.Len(t, there.Regions(), len(here.Regions()))
	plans := 0
	for _, c := range plugin.Collectives() {
		req := plugin.Request{Collective: c, DType: plugin.Bfloat16, Op: plugin.OpPremulSum, World: world, Hosts: 1, Rank: rank, Bytes: 1 << 12}
		s := local.Supports(req)
		require.Equal(t, s, carried.Supports(req))
		for _, a := range s.Algorithms {
			want, err := here.Prepare(context.Background(), req, a.Name)
			require.NoError(t, err)
			got, err := there.Prepare(context.Background(), req, a.Name)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()), "%s/%s", c, a.Name)
			plans++
		}
	}
	require.Greater(t, plans, 10)
}

// Ranks whose memory comes through the carrier compute what they should.
func TestCollectivesRun(t *testing.T) {
	for _, world := range []int{1, 3} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			carried := load(t)
			var endpoints []plugin.Endpoint
			for r := range world {
				e, err := carried.Open(context.Background(), plugin.OpenConfig{Rank: r, World: world, Device: -1})
				require.NoError(t, err)
				endpoints = append(endpoints, e)
			}
			w := plantest.Open(t, endpoints, nil)
			for _, c := range plugin.Collectives() {
				for _, a := range carried.Supports(plugin.Request{Collective: c, World: world, Hosts: 1}).Algorithms {
					var operations []plantest.Operation
					for _, o := range plantest.Matrix(c, a.Name, world) {
						if o.Count < 5000 {
							operations = append(operations, o)
						}
					}
					require.NoError(t, w.Run(operations, nil))
				}
			}
		})
	}
}
