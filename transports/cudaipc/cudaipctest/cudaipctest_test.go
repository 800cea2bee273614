package cudaipctest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

func TestEveryKernelOfEveryPlanIsHere(t *testing.T) {
	kernels := cudaipctest.Kernels()
	for _, world := range []int{1, 2, 4} {
		d := cudatest.New(cudatest.Options{})
		defer d.Close()
		transport := cudaipctest.Transport{Transport: cudaipc.Transport{Driver: d}}
		e, err := transport.Open(context.Background(), plugin.OpenConfig{World: world, Memory: plugin.MemoryKindCuda})
		require.NoError(t, err)
		images := map[string]bool{}
		for _, i := range e.Images() {
			images[i.Name] = true
		}
		for _, c := range plugin.Collectives() {
			for dtype := plugin.Int8; dtype.Valid(); dtype++ {
				r := plugin.Request{Collective: c, DType: dtype, World: world, Hosts: 1, Memory: plugin.MemoryKindCuda,
					Symmetric: true}
				for _, a := range transport.Supports(r).Algorithms {
					p, err := e.Prepare(context.Background(), r, a.Name)
					require.NoError(t, err)
					for _, k := range p.Kernels {
						require.Contains(t, kernels, k.Name)
						require.True(t, images[k.Image], k.Image)
					}
				}
			}
		}
		require.NoError(t, e.Close())
	}
}
