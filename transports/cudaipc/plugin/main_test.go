package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cudaipc-process-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "shunt-transport-cudaipc")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestCarriedTransportIsTheBuiltin(t *testing.T) {
	c, err := process.Start(context.Background(), process.Config{Path: binary, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	carried, local := c.Transport(), cudaipc.Transport{}
	require.Equal(t, local.Info(), carried.Info())
	for _, collective := range plugin.Collectives() {
		req := plugin.Request{Collective: collective, DType: plugin.Bfloat16, World: 4, Hosts: 1, Memory: plugin.MemoryKindCuda}
		require.Equal(t, local.Supports(req), carried.Supports(req), "%s", collective)
	}
	config := plugin.OpenConfig{World: 1, Memory: plugin.MemoryKindCuda}
	e, err := carried.Open(context.Background(), config)
	if _, missing := cuda.Open(); missing != nil {
		require.ErrorIs(t, err, plugin.Unsupported, "a machine without a GPU loads it all the same")
		require.ErrorContains(t, err, "no CUDA driver")
		return
	}
	require.NoError(t, err)
	defer e.Close()
	require.NotEmpty(t, e.Images())
	require.Len(t, e.Regions(), 2)
}
