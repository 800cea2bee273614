package main

import (
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
	"github.com/shunt-ccl/shunt/transports/internal/carriedtest"
)

var carrier = carriedtest.Process()

func TestMain(m *testing.M) { carrier.Main(m) }

func TestCarriedTransportIsTheBuiltin(t *testing.T) {
	carried := carrier.Load(t)
	carriedtest.Same(t, carried, cudaipc.Transport{}, func(c plugin.Collective) plugin.Request {
		return plugin.Request{Collective: c, DType: plugin.Bfloat16, World: 4, Hosts: 1, Memory: plugin.MemoryKindCuda}
	})
	carriedtest.Same(t, carried, cudaipc.Transport{}, func(c plugin.Collective) plugin.Request {
		return plugin.Request{Collective: c, DType: plugin.Bfloat16, World: 4, Hosts: 1, Memory: plugin.MemoryKindCuda,
			Symmetric: true}
	})
	carriedtest.OnGPU(t, carried, 2)
}
