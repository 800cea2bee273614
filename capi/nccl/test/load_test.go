package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFindsShunt: libshunt.so is found beside the library or above it, by whatever path a program loads that and
// wherever it goes then. A file that is there and cannot be loaded is named with the reason.
func TestFindsShunt(t *testing.T) {
	built, loads := build(t), compile(t, "loads", "programs/loads.c", "-ldl")
	place := func(link func(from, to string) error) string {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "nccl"), 0o700))
		require.NoError(t, link(filepath.Join(built, "libshunt.so.1"), filepath.Join(dir, "libshunt.so")))
		text, err := os.ReadFile(filepath.Join(built, "libnccl.so.2"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nccl", "libnccl.so.2"), text, 0o700))
		return dir
	}
	dir := place(os.Symlink)
	library := filepath.Join(dir, "nccl", "libnccl.so.2")
	linked := filepath.Join(t.TempDir(), "libnccl.so.2")
	require.NoError(t, os.Symlink(library, linked))
	here, err := os.Getwd()
	require.NoError(t, err)
	relative, err := filepath.Rel(here, library)
	require.NoError(t, err)
	farm := t.TempDir() // each file is a link to one that lies elsewhere
	require.NoError(t, os.Symlink(filepath.Join(built, "libshunt.so.1"), filepath.Join(farm, "libshunt.so")))
	alone := place(func(string, string) error { return nil })
	require.NoError(t, os.Symlink(filepath.Join(alone, "nccl", "libnccl.so.2"), filepath.Join(farm, "libnccl.so.2")))
	for name, args := range map[string][]string{"path": {library}, "link": {linked}, "relative": {relative, "/"},
		"farm": {filepath.Join(farm, "libnccl.so.2")}} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, nil, loads, args...)
			require.NoError(t, err, out)
		})
	}
	broken := place(func(_, to string) error { return os.WriteFile(to, []byte("no library"), 0o600) })
	out, err := run(t, nil, loads, filepath.Join(broken, "nccl", "libnccl.so.2"))
	require.Error(t, err)
	require.Contains(t, out, "/nccl/../libshunt.so cannot be loaded: ")
	require.Contains(t, out, "file too short")
	// As in the wheel, where libshunt.so is for linkers: it is not what cannot be loaded.
	require.NoError(t, os.WriteFile(filepath.Join(broken, "libshunt.so.1"), []byte("no library"), 0o600))
	out, err = run(t, nil, loads, filepath.Join(broken, "nccl", "libnccl.so.2"))
	require.Error(t, err)
	require.Contains(t, out, "/nccl/../libshunt.so.1 cannot be loaded: ")
	out, err = run(t, nil, loads, filepath.Join(alone, "nccl", "libnccl.so.2"))
	require.Error(t, err)
	require.Contains(t, out, "SHUNT_LIBRARY names it")
}

// TestFindsNCCLBesideWhatIsLoaded: as pip's NCCL beside torch, or in a virtual environment, in a folder of any name.
func TestFindsNCCLBesideWhatIsLoaded(t *testing.T) {
	binary := program(t, "beside")
	packages := filepath.Join(t.TempDir(), `a[b]:*?\ü`, "site-packages")
	paths := []string{filepath.Join(packages, "torch", "lib"), filepath.Join(packages, "nvidia", "nccl", "lib")}
	for i, built := range []string{compile(t, "driver.so", "programs/driver.c", "-fPIC", "-shared"), stand(t, "fake.so")} {
		text, err := os.ReadFile(built)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(paths[i], 0o700))
		paths[i] = filepath.Join(paths[i], []string{"libtorch.so", "libnccl.so.2"}[i])
		require.NoError(t, os.WriteFile(paths[i], text, 0o700))
	}
	out, err := run(t, []string{"SHUNT_NCCL_FORWARD=all", "SHUNT_NCCL_LIBRARY="}, binary, paths...)
	require.NoError(t, err, out)
}

// TestMemAllocWithoutContext: memory of GPUs needs no context that somebody else has made the thread's, and a failure
// has the driver's name.
func TestMemAllocWithoutContext(t *testing.T) {
	driver := compile(t, "driver.so", "programs/driver.c", "-fPIC", "-shared")
	binary := program(t, "memory")
	_, err := run(t, []string{"SHUNT_NCCL_MEMORY=cuda", "SHUNT_LIBCUDA=" + driver}, binary)
	require.NoError(t, err)
	_, err = run(t, []string{"SHUNT_NCCL_MEMORY=cuda", "SHUNT_LIBCUDA=/nonexistent/libcuda.so.1"}, binary, "none")
	require.NoError(t, err)
}
