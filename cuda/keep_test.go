package cuda_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestModulesOfPrimaryContextsAreLoadedOnce(t *testing.T) {
	d := driver(t)
	put := func(ctx cuda.Context) string {
		text := make([]byte, 4096)
		require.NoError(t, d.Read(ctx, text, 1))
		return string(bytes.TrimRight(text, "\x00"))
	}
	primary, err := d.Retain(1)
	require.NoError(t, err)
	put(primary)
	first, err := d.LoadModule(primary, []byte("image"))
	require.NoError(t, err)
	require.NoError(t, d.UnloadModule(primary, first))
	second, err := d.LoadModule(primary, []byte("image"))
	require.NoError(t, err)
	other, err := d.LoadModule(primary, []byte("other"))
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.NotEqual(t, first, other)
	require.Equal(t, "load image in 0x1001;load other in 0x1001;", put(primary))

	_, err = d.LoadModule(primary, []byte("broken"))
	require.ErrorIs(t, err, plugin.OutOfMemory)
	_, err = d.LoadModule(primary, []byte("broken"))
	require.ErrorIs(t, err, plugin.OutOfMemory)

	const users cuda.Context = 0x4000 // not from Retain
	m, err := d.LoadModule(users, []byte("image"))
	require.NoError(t, err)
	require.NotEqual(t, first, m)
	require.NoError(t, d.UnloadModule(users, m))
	require.Contains(t, put(users), "load image in 0x4000;unload 0x")
}
