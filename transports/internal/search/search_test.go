package search

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment/environmenttest"
)

func sample() *Library[string] {
	return &Library[string]{Name: "Some", Variable: "SHUNT_SOME_LIBRARY", Soname: "libsome.so.1", Package: "some/lib"}
}

// The loader goes before Python's packages, of which newer versions of Python go first.
func TestPlaces(t *testing.T) {
	conda, home := filepath.Join(t.TempDir(), `[odd*?\`), t.TempDir()
	venv := filepath.Join(t.TempDir(), "a[b]:c")
	var want []string
	for _, folder := range []string{venv + "/lib/python3.13/site-packages", venv + "/lib/python3.12/site-packages",
		conda + "/lib/python3.12/site-packages", home + "/.local/lib/python3.11/dist-packages"} {
		path := filepath.Join(folder, "some", "lib", "libsome.so.1")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		want = append(want, path)
	}
	found := sample().Places(func(name string) string {
		return map[string]string{"VIRTUAL_ENV": venv, "CONDA_PREFIX": conda, "HOME": home}[name]
	})
	assert.Equal(t, append([]string{"libsome.so.1"}, want...), found)
}

// A library is opened once for what names it and what loading depends on; so is an error kept.
func TestOpenOnce(t *testing.T) {
	l, loads := sample(), []string{}
	load := func(path string) (string, error) {
		loads = append(loads, path)
		if path == "bad" {
			return "", errors.New("bad is too old")
		}
		return "opened " + path, nil
	}
	for range 2 {
		for _, key := range []string{"", "12"} {
			got, err := l.Open(key, load)
			assert.NoError(t, err)
			assert.Equal(t, "opened libsome.so.1", got)
		}
	}
	assert.Equal(t, []string{"libsome.so.1", "libsome.so.1"}, loads)
	t.Setenv(l.Variable, "bad")
	for range 2 {
		_, err := l.Open("", load)
		assert.Equal(t, plugin.Unsupported, plugin.CodeOf(err))
		assert.EqualError(t, err, "SHUNT_SOME_LIBRARY: bad is too old")
	}
	assert.Len(t, loads, 3)
	t.Setenv(l.Variable, "/nowhere/libsome.so.1") // is not loaded: it is no file
	_, err := l.Open("", load)
	assert.EqualError(t, err, "SHUNT_SOME_LIBRARY: /nowhere/libsome.so.1: no such file or directory")
	assert.Len(t, loads, 3)
}

// The folders are those that the program in C or Python names when the library is opened.
func TestFoldersOfC(t *testing.T) {
	venv := t.TempDir()
	path := filepath.Join(venv, "lib", "python3.13", "site-packages", "some", "lib", "libsome.so.1")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	environmenttest.Set(t, "VIRTUAL_ENV", venv)
	_, err := sample().Open("", func(path string) (string, error) { return "", Unloadable(path, "cannot open") })
	assert.ErrorContains(t, err, path+": ")
}

// Where none serves, the reason of each is said.
func TestNoneServes(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", t.TempDir())
	_, err := sample().Open("", func(path string) (string, error) { return "", Unloadable(path, "cannot open") })
	assert.EqualError(t, err,
		"no Some library was found (SHUNT_SOME_LIBRARY names one): libsome.so.1: cannot open")
	assert.EqualError(t, Unloadable("x", "x: cannot open"), "x: cannot open")
}
