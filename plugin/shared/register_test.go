package shared

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
)

// The object gets every field of the memory, and the host the object's keys and sentences.
func TestRegistrationCarriesEveryField(t *testing.T) {
	ctx := context.Background()
	e := openWith(t)
	r := e.(plugin.Registrar)
	for _, m := range []plugin.Memory{
		{Address: 1 << 47, Bytes: 1 << 40, Kind: plugin.MemoryKindCuda, Generation: 1 << 63},
		{Address: 4096, Bytes: 1, Kind: plugin.MemoryKindHost, Generation: 7},
	} {
		key, err := r.Register(ctx, m)
		require.NoError(t, err)
		require.Equal(t, probe.Key(m), key)
		require.NoError(t, r.Deregister(ctx, key))
		err = r.Deregister(ctx, key)
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.ErrorContains(t, err, "is of no registration")
	}
	require.NoError(t, e.Close())
	_, err := r.Register(ctx, plugin.Memory{Bytes: 1, Generation: 1})
	require.ErrorIs(t, err, plugin.Closed)
	for how, code := range map[string]plugin.Code{"refused": plugin.OutOfMemory, "never": plugin.Unsupported} {
		e := openWith(t, probe.OptionRegister, how)
		_, err := e.(plugin.Registrar).Register(ctx, plugin.Memory{Address: 4096, Bytes: 8, Generation: 1})
		require.ErrorIs(t, err, code)
		require.ErrorContains(t, err, "probe: register 8 bytes at 0x1000 on rank 1: ")
		require.NoError(t, e.Close())
	}
}

// A transport in C registers by the header alone, and says what is wrong with a key.
func TestRegistrationInC(t *testing.T) {
	ctx := context.Background()
	path, err := ctransport.Build(t.TempDir())
	require.NoError(t, err)
	c, err := Open(path, nil)
	require.NoError(t, err)
	require.NotZero(t, c.Info().Features&plugin.FeatureRegistration)
	e, err := c.Open(ctx, plugin.OpenConfig{World: 1, Device: -1})
	require.NoError(t, err)
	r := e.(plugin.Registrar)
	memory := plugin.Memory{Address: 4096, Bytes: 100, Generation: 1}
	first, err := r.Register(ctx, memory)
	require.NoError(t, err)
	memory.Generation = 2
	_, err = r.Register(ctx, memory)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.ErrorContains(t, err, "0x1000 is registered with generation 1 already")
	require.ErrorContains(t, r.Deregister(ctx, first+100), "is of no registration")
	require.NoError(t, r.Deregister(ctx, first))
	second, err := r.Register(ctx, memory)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.ErrorContains(t, e.Close(), "the host has left a registration")
}
