package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestClosingTellsOnlyWhatIsNew(t *testing.T) {
	dead := plugin.Errorf(plugin.PluginDied, "the plugin exited with signal 9")
	failure := &plugin.Error{Code: plugin.PluginDied, Rank: 1, Message: "rank 1 lost its transport", Cause: dead}
	again := plugin.Errorf(plugin.PluginDied, "close: %w", dead)
	another := plugin.Errorf(plugin.PluginDied, "another plugin exited with signal 11")
	unmap := plugin.Errorf(plugin.System, "munmap: no")
	closing := errors.Join(errors.Join(nil, again), unmap, errors.Join(another, again))

	require.NoError(t, news(nil, failure))
	require.Equal(t, closing, news(closing, nil), "nobody was told")
	require.NoError(t, news(errors.Join(again, errors.Join(again)), failure))
	require.NoError(t, news(again, failure))
	require.EqualError(t, news(closing, failure), "munmap: no\nanother plugin exited with signal 11")
	require.Equal(t, plugin.System, plugin.CodeOf(news(closing, failure)))

	// A failure without a cause stands for itself alone.
	timeout := &plugin.Error{Code: plugin.Timeout, Rank: 2, Message: "no answer from rank 2"}
	require.EqualError(t, news(errors.Join(unmap, timeout), timeout), "munmap: no")
	require.EqualError(t, news(closing, timeout), closing.Error())
}

// The death of a plugin is answered once, by whoever is asked first.
func TestDeathOfAPluginIsToldOnce(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no Go toolchain to build a plugin with: the command go is not installed")
	}
	path := filepath.Join(t.TempDir(), "shunt-transport-shm")
	output, err := exec.Command("go", "build", "-o", path, "../transports/shm/plugin").CombinedOutput()
	require.NoError(t, err, string(output))
	t.Setenv("SHUNT_TRANSPORTS", "process:"+path)
	binary := program(t, "test/plugin_death.c")
	for _, told := range []string{"by a call", "by asking", "by closing"} {
		t.Run(told, func(t *testing.T) { succeed(t, 1, binary, told) })
	}
}
