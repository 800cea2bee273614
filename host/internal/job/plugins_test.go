package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
)

// ownPlugin returns the spec of a plugin that the test's program is.
func ownPlugin(t *testing.T) string {
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "plugin")
	script := fmt.Sprintf("#!/bin/sh\nSHUNT_TEST_JOB_PLUGIN=1 GORACE=atexit_sleep_ms=0 exec '%s'\n", self)
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	return "process:" + path
}

// A plugin that dies is lost to the communicators that have it, each time. It is started again once, when it is asked
// for, and no process outlives the job.
func TestPluginsThatDieAreStartedAgain(t *testing.T) {
	jobs, errs := join(t, 1, func(c *Config) { c.Transports = []string{"shm", ownPlugin(t)} })
	require.ErrorContains(t, errs[0], "transport shm is named twice")
	require.Empty(t, jobs[0].loaded)

	jobs, errs = join(t, 1, func(c *Config) { c.Transports = []string{ownPlugin(t)} })
	require.NoError(t, errs[0])
	j := jobs[0]
	unused := watch(t, j, "without a plugin", 0)
	var pids []int
	for generation := range 3 {
		loaded, err := j.Revive(t.Context())
		require.NoError(t, err)
		same, err := j.Revive(t.Context())
		require.NoError(t, err)
		require.Equal(t, loaded, same, "a plugin that runs is started again")
		w := watch(t, j, fmt.Sprint("generation ", generation), 0)
		w.Loaded = loaded
		j.Watch(&w.Member)
		require.NotContains(t, pids, loaded[0].PID())
		pids = append(pids, loaded[0].PID())
		require.NoError(t, unix.Kill(loaded[0].PID(), unix.SIGKILL))
		select {
		case reason := <-w.failed:
			require.Equal(t, plugin.PluginDied, reason.Code)
			require.Equal(t, 0, reason.Rank)
		case <-time.After(20 * time.Second):
			t.Fatal("nobody has noticed the end of process ", loaded[0].PID())
		}
		j.Forget(&w.Member)
	}
	loaded, err := j.Revive(t.Context())
	require.NoError(t, err)
	pids = append(pids, loaded[0].PID())
	require.Empty(t, unused.failed)
	_ = j.end() // some have died
	for _, pid := range pids {
		require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH, "process %d is left", pid)
	}
}

// A plugin whose path is relative is the one in the directory where it was started first, wherever the program is by
// now.
func TestPluginsAreStartedAgainFromAnotherDirectory(t *testing.T) {
	dir := filepath.Dir(strings.TrimPrefix(ownPlugin(t), "process:"))
	require.NoError(t, os.Rename(filepath.Join(dir, "plugin"), filepath.Join(dir, "shunt-transport-own")))
	for name, config := range map[string]func(c *Config){
		"a path": func(c *Config) { c.Transports = []string{"process:./shunt-transport-own"} },
		"a name": func(c *Config) { c.Transports = []string{"process:shunt-transport-own"} },
		"a directory's": func(c *Config) {
			found, err := carrier.Discover(".")
			require.NoError(t, err)
			c.Transports = []string{found[0].String()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(dir)
			jobs, errs := join(t, 1, config)
			require.NoError(t, errs[0])
			defer func() { _ = jobs[0].end() }() // a plugin has died
			loaded, err := jobs[0].Revive(t.Context())
			require.NoError(t, err)
			t.Chdir("/")
			require.NoError(t, unix.Kill(loaded[0].PID(), unix.SIGKILL))
			<-loaded[0].Died()
			_, err = jobs[0].Revive(t.Context())
			require.NoError(t, err)
		})
	}
}

// What one rank cannot use, of its options or its transports, is every rank's error, and nothing stays.
func TestWhatOneRankCannotUseIsEveryRanks(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"rank 1: no builtin transport": func(c *Config) { c.Transports = []string{"nonesuch"} },
		"rank 1: SHUNT_ALGO":           func(c *Config) { c.Algo = "nonsense=shm" },
		"nonsense":                     func(c *Config) { c.Algo, c.Transports = "nonsense=shm", []string{"nonesuch"} },
	} {
		jobs, errs := join(t, 3, func(c *Config) {
			if c.Rank == 1 {
				change(c)
			}
		})
		for rank, err := range errs {
			require.ErrorContains(t, err, want, "rank %d", rank)
			require.ErrorContains(t, err, "rank 1: ")
			require.Error(t, jobs[rank].Context.Err())
		}
	}
	require.Equal(t, []string{"shm"}, carrier.Registered())
}
