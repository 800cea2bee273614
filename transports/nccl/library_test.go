package nccl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// Whatever is named or found, the reason says what is wrong with it, and nothing crashes.
func TestLibrariesThatDoNotServe(t *testing.T) {
	build := func(t *testing.T, flags ...string) string {
		path, err := nccltest.Build(t.TempDir(), flags...)
		require.NoError(t, err)
		return path
	}
	truncated := func(t *testing.T) string {
		whole, err := os.ReadFile(build(t))
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "cut.so")
		require.NoError(t, os.WriteFile(path, whole[:len(whole)/2], 0o600))
		return path
	}
	for name, c := range map[string]struct {
		path func(t *testing.T) string
		want string
	}{
		"missing":     {func(*testing.T) string { return "/nowhere/libnccl.so.2" }, "no such file or directory"},
		"a folder":    {func(t *testing.T) string { return t.TempDir() }, "is a directory"},
		"a text":      {func(*testing.T) string { return "/etc/passwd" }, "it is not a shared object: it begins with"},
		"truncated":   {truncated, "it is cut off"},
		"another one": {func(*testing.T) string { return "libm.so.6" }, "it has no ncclGetVersion; NCCL 2.18 is the oldest that serves"},
		"no send": {func(t *testing.T) string { return build(t, "-DLACKING") },
			"it has no ncclSend; NCCL 2.18 is the oldest that serves"},
		"Shunt's own of that name": {func(t *testing.T) string { return build(t, "-Dnccltest_install=shunt_nccl_compatible") },
			"is Shunt's NCCL-compatible library, not NVIDIA's"},
		"old": {func(t *testing.T) string { return build(t, "-DFAKE_VERSION=21700") },
			"is NCCL 2.17.0; 2.18 is the oldest that serves"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.path(t)
			t.Setenv(Variable, path)
			r := plugin.Request{Collective: plugin.AllReduce, World: 2, Memory: plugin.MemoryKindCuda}
			support := Transport{}.Supports(r)
			assert.Empty(t, support.Algorithms)
			assert.Contains(t, support.Reason, Variable)
			assert.Contains(t, support.Reason, c.want)
			_, err := Transport{}.Open(t.Context(), plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda})
			require.ErrorIs(t, err, plugin.Unsupported)
			assert.Contains(t, err.Error(), c.want)
		})
	}
}

// A library for a newer major version of CUDA than the driver's fails only when a communicator is made; here it is a
// reason before. One for an older major serves, and one that does not say what it is for.
func TestLibrariesForAnotherCUDA(t *testing.T) {
	driver := cudatest.New(cudatest.Options{Devices: 1}) // of CUDA 12.8
	defer driver.Close()
	over := Transport{Drivers: func(int) cuda.Driver { return driver }}
	for version, want := range map[string]string{
		"13.0": "is NCCL 2.28.9 for CUDA 13.0, and the driver has CUDA 12.8; one for CUDA 12 serves, such as pip's nvidia-nccl-cu12",
		"12.9": "",
		"11.0": "",
		"?":    "",
	} {
		path, err := nccltest.Build(t.TempDir(), `-DFAKE_CUDA="`+version+`"`)
		require.NoError(t, err)
		t.Setenv(Variable, path)
		e, err := over.Open(t.Context(), plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda})
		if want == "" {
			require.NoError(t, err)
			require.NoError(t, e.Close())
			continue
		}
		require.ErrorIs(t, err, plugin.Unsupported)
		assert.Contains(t, err.Error(), path+" "+want)
	}
	require.Empty(t, driver.Leaks())
	// As libnccl 2.28.9 has it.
	m := built.FindStringSubmatch("x\x00NCCL version 2.28.9+cuda13.0\x00%s\x00NCCL version detected : rank %d")
	assert.Equal(t, []string{"13", "0"}, m[1:])
	assert.Zero(t, builtFor("/etc/passwd"))
	assert.Zero(t, builtFor(""))
}

// What a version lacks is a reason.
func TestWhatVersionsLack(t *testing.T) {
	r := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float8E5m2, World: 2, Memory: plugin.MemoryKindCuda}
	assert.Equal(t, "NCCL 2.23.4 reduces no 8-bit floats; 2.24 is the oldest that does", unsupported(r, 22304))
	assert.Empty(t, unsupported(r, 22400))
	for _, op := range []plugin.Op{plugin.OpAvg, plugin.OpPremulSum} { // 2.28 returns "invalid argument"
		r.Op = op
		assert.Equal(t, "NCCL has no "+op.String()+" of 8-bit floats", unsupported(r, 23200))
	}
	r.Op = plugin.OpSum
	r.Collective = plugin.AllGather // only moves
	assert.Empty(t, unsupported(r, 21800))
}

// Alone NCCL leaves elements unwritten, so there is a reason instead; with other ranks it does the same operations.
func TestWorldOfOneLeavesOutWhatScales(t *testing.T) {
	for _, c := range []plugin.Collective{plugin.AllReduce, plugin.Reduce, plugin.ReduceScatter, plugin.ReduceScatterV} {
		for _, op := range []plugin.Op{plugin.OpSum, plugin.OpMax, plugin.OpAvg, plugin.OpPremulSum} {
			r := plugin.Request{Collective: c, DType: plugin.Float64, Op: op, World: 1, Memory: plugin.MemoryKindCuda}
			scales := op == plugin.OpAvg || op == plugin.OpPremulSum
			assert.Equal(t, scales, strings.Contains(unsupported(r, 22809), "in a world of one"), "%s %s", c, op)
			r.World = 2
			assert.Empty(t, unsupported(r, 22809), "%s %s", c, op)
		}
	}
}
