package carrier

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestInstalledPluginsAreFoundByName(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"shunt-transport-shm": 0o755, "shunt-transport-shm.so": 0o644, "shunt-transport-text": 0o644, "other": 0o755,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	defer installed.Store(installed.Load())

	installed.Store(nil)
	require.Empty(t, Installed())
	SetInstalled(filepath.Join(dir, "absent"))
	require.Empty(t, Installed())
	SetInstalled(dir)
	require.Equal(t, []Spec{{Carrier: Process, Target: "shm"}, {Carrier: Shared, Target: "shm"}}, Installed())

	resolved := func(text string) (Spec, error) {
		spec, err := ParseSpec(text)
		require.NoError(t, err)
		return spec.resolve()
	}
	here := func(name string) string { path, _ := filepath.Abs(name); return path }
	for text, want := range map[string]string{
		"shm":               "builtin:shm",
		"process:shm":       "process:" + filepath.Join(dir, "shunt-transport-shm"),
		"shared:shm":        "shared:" + filepath.Join(dir, "shunt-transport-shm.so"),
		"process:./shm":     "process:" + here("shm"), // a path, whatever is installed
		"shared:/x/shm.so":  "shared:/x/shm.so",
		"process:main.test": "process:" + here("main.test"),
	} {
		spec, err := resolved(text)
		require.NoError(t, err)
		require.Equal(t, want, spec.String())
	}
	pin := "#sha256=0000000000000000000000000000000000000000000000000000000000000000"
	spec, err := resolved("process:shm" + pin)
	require.NoError(t, err)
	require.Equal(t, "process:"+filepath.Join(dir, "shunt-transport-shm")+pin, spec.String())

	_, err = resolved("process:nonesuch")
	require.ErrorIs(t, err, plugin.PluginRejected)
	require.ErrorContains(t, err, "process:nonesuch: no plugin of this name is installed (installed: process:shm, shared:shm)")
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("nonesuch", nil, 0o755))
	spec, err = resolved("process:nonesuch") // but a file of the working directory, as before
	require.NoError(t, err)
	require.Equal(t, "process:"+here("nonesuch"), spec.String())
}
