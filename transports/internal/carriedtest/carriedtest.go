// Package carriedtest tests the transports' own binaries: it builds each as users
// build it, loads it through its carrier, and compares it with the transport that it
// is made of. Only tests import it; what is special to one transport stays with that
// transport's tests.
package carriedtest

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

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/plugin/shared"
)

// Carrier is a way to load a transport's binary.
type Carrier struct {
	flags []string // of go build
	load  func(t *testing.T, path string) plugin.Transport
	path  string
}

// Process returns the carrier of transports that are programs.
func Process() *Carrier {
	return &Carrier{load: func(t *testing.T, path string) plugin.Transport {
		c, err := process.Start(context.Background(), process.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c.Transport()
	}}
}

// Shared returns the carrier of transports that are shared objects.
func Shared() *Carrier {
	return &Carrier{flags: []string{"-buildmode=c-shared"}, load: func(t *testing.T, path string) plugin.Transport {
		transport, err := shared.Open(path, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return transport
	}}
}

// Main is a TestMain: it builds the main package that is under test, which is that of the
// working directory, and runs the tests.
func (c *Carrier) Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "carried-")
	if err != nil {
		panic(err)
	}
	c.path = filepath.Join(dir, "shunt-transport")
	code := 1
	arguments := append(append([]string{"build"}, c.flags...), "-o", c.path, ".")
	if out, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the transport cannot be built: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// Load returns the transport, loaded from the binary that Main has built.
func (c *Carrier) Load(t *testing.T) plugin.Transport {
	t.Helper()
	return c.load(t, c.path)
}

// Same fails unless both transports say the same of themselves and of every
// collective that request makes a request for.
func Same(t *testing.T, carried, local plugin.Transport, request func(plugin.Collective) plugin.Request) {
	t.Helper()
	require.Equal(t, local.Info(), carried.Info())
	for _, c := range plugin.Collectives() {
		require.Equal(t, local.Supports(request(c)), carried.Supports(request(c)), "%s", c)
	}
}

// SamePlans is Same, and also checks that every plan of every collective on host memory
// is the one that the transport makes when it is linked in.
func SamePlans(t *testing.T, carried, local plugin.Transport) {
	t.Helper()
	const world, rank = 4, 2
	request := func(c plugin.Collective) plugin.Request {
		return plugin.Request{Collective: c, DType: plugin.Bfloat16, Op: plugin.OpPremulSum, World: world, Hosts: 1,
			Rank: rank, Bytes: 1 << 12}
	}
	Same(t, carried, local, request)
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
		for _, a := range local.Supports(request(c)).Algorithms {
			want, err := here.Prepare(context.Background(), request(c), a.Name)
			require.NoError(t, err)
			got, err := there.Prepare(context.Background(), request(c), a.Name)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()), "%s/%s", c, a.Name)
			plans++
		}
	}
	require.Greater(t, plans, 10)
}

// Collectives runs every collective between ranks whose memory, of the host,
// comes through the carrier, and compares the results.
func Collectives(t *testing.T, c *Carrier) {
	for _, world := range []int{1, 3} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			carried := c.Load(t)
			var endpoints []plugin.Endpoint
			for r := range world {
				e, err := carried.Open(context.Background(), plugin.OpenConfig{Rank: r, World: world, Device: -1})
				require.NoError(t, err)
				endpoints = append(endpoints, e)
			}
			w := plantest.Open(t, endpoints, nil)
			ran := 0
			for _, c := range plugin.Collectives() {
				for _, a := range carried.Supports(plugin.Request{Collective: c, World: world, Hosts: 1}).Algorithms {
					var operations []plantest.Operation
					for _, o := range plantest.Matrix(c, a.Name, world) {
						if o.Count < 5000 {
							operations = append(operations, o)
						}
					}
					require.NoError(t, w.Run(operations, nil))
					ran += len(operations)
				}
			}
			require.Greater(t, ran, 10)
		})
	}
}

// OnGPU opens an endpoint of a transport of GPUs through the carrier, which must
// have what regions says and device code; on a machine without a driver it must
// say that there is none.
func OnGPU(t *testing.T, carried plugin.Transport, regions int) {
	t.Helper()
	e, err := carried.Open(context.Background(), plugin.OpenConfig{World: 1, Memory: plugin.MemoryKindCuda})
	if _, missing := cuda.Open(); missing != nil {
		require.ErrorIs(t, err, plugin.Unsupported, "a machine without a GPU loads it all the same")
		require.ErrorContains(t, err, "no CUDA driver")
		return
	}
	require.NoError(t, err)
	defer e.Close()
	require.NotEmpty(t, e.Images())
	require.Len(t, e.Regions(), regions)
}
