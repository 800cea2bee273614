// Command process is the nccl transport as a plugin's process over nccltest's library and GPUs in memory, for tests of
// processes without a GPU. The library is the one in NCCL_FAKE, as a plugin inherits what is called NCCL_*, and
// NCCL_FAKE_STAGING the bytes of staging memory. An endpoint whose Close leaves something on its device says so.
package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

func main() {
	staging, _ := strconv.ParseInt(os.Getenv("NCCL_FAKE_STAGING"), 10, 64) // 0: as always
	if path := os.Getenv("NCCL_FAKE"); path != "" {
		if err := nccltest.Install(path); err != nil {
			panic(err)
		}
	}
	nccltest.Apart()
	process.Serve(&transport{nccl.Staged{Transport: nccl.Transport{Drivers: driver}, Bytes: staging}, sync.Mutex{}, 0})
}

var gpu = sync.OnceValue(func() *cudatest.Driver {
	return cudatest.New(cudatest.Options{Devices: 8, Kernels: nccltest.Kernels()})
})

func driver(int) cuda.Driver { return gpu() }

// transport counts its endpoints.
type transport struct {
	nccl.Staged
	mu   sync.Mutex
	open int
}

func (t *transport) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, err := t.Staged.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	t.open++
	return endpoint{e, e.(plugin.Exchanger), e.(plugin.Aborter), t}, nil
}

type endpoint struct {
	plugin.Endpoint
	plugin.Exchanger
	plugin.Aborter
	of *transport
}

func (e endpoint) Close() error {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	err := e.Endpoint.Close()
	if e.of.open--; e.of.open > 0 {
		return err
	}
	if leaks := gpu().Leaks(); len(leaks) > 0 {
		err = errors.Join(err, plugin.Errorf(plugin.Internal, "the plugin left on its device: %v", leaks))
	}
	return err
}
