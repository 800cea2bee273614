package carrier

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// infoEnv makes the test's program a plugin. It names a file that holds what the plugin says of itself.
const infoEnv = "SHUNT_TEST_CARRIER_INFO"

func TestMain(m *testing.M) {
	if path := os.Getenv(infoEnv); path != "" {
		serve(path)
		return
	}
	os.Exit(m.Run())
}

// serve runs a plugin, which notes its process beside the file.
func serve(path string) {
	var t posing
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &t.info)
	}
	if err == nil {
		var noted *os.File
		if noted, err = os.OpenFile(path+".pids", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			err = json.NewEncoder(noted).Encode(os.Getpid())
		}
	}
	if err != nil {
		panic(err)
	}
	process.Serve(t)
}

// posing is a transport that says of itself what a test wants.
type posing struct {
	shm.Transport
	info plugin.Info
}

func (p posing) Info() plugin.Info { return p.info }

// registers makes a transport a builtin one for the time of a test.
func registers(t *testing.T, transport plugin.Transport) {
	Register(transport)
	t.Cleanup(func() {
		registry.Lock()
		defer registry.Unlock()
		delete(registry.builtin, transport.Info().Name)
	})
}

var quiet = slog.New(slog.DiscardHandler)

// poser is a plugin whose info a test changes.
type poser struct {
	t    *testing.T
	path string
	spec string
}

func newPoser(t *testing.T) poser {
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	p := poser{t, filepath.Join(dir, "info"), "process:" + filepath.Join(dir, "poser")}
	script := fmt.Sprintf("#!/bin/sh\n%s='%s' GORACE=atexit_sleep_ms=0 exec '%s'\n", infoEnv, p.path, self)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "poser"), []byte(script), 0o755))
	p.says(func(*plugin.Info) {})
	return p
}

// says makes the next processes say what change makes of the same info.
func (p poser) says(change func(*plugin.Info)) {
	info := shm.Transport{}.Info()
	change(&info)
	b, err := json.Marshal(info)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(p.path, b, 0o600))
}

// started returns the processes that the plugin has had.
func (p poser) started() (pids []int) {
	f, err := os.Open(p.path + ".pids")
	require.NoError(p.t, err)
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var pid int
		require.NoError(p.t, d.Decode(&pid))
		pids = append(pids, pid)
	}
	return pids
}

// allGone requires that so many processes were started, and that none is left.
func (p poser) allGone(count int) {
	p.t.Helper()
	pids := p.started()
	require.Len(p.t, pids, count)
	for _, pid := range pids {
		require.ErrorIs(p.t, unix.Kill(pid, 0), unix.ESRCH, "process %d runs on", pid)
	}
}

// A plugin whose process has died is started again, unless its binary is another by now. What is of no use is ended.
func TestPluginsThatAreStartedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*plugin.Info)
		want   string
	}{
		"the same":         {func(*plugin.Info) {}, ""},
		"another name":     {func(i *plugin.Info) { i.Name = "other" }, "and is other version"},
		"another version":  {func(i *plugin.Info) { i.Version += ".1" }, ".1 now"},
		"another features": {func(i *plugin.Info) { i.Features ^= plugin.FeatureBuffers }, "its binary has changed since"},
		"no plugin":        {func(i *plugin.Info) { i.Memory = nil }, "could not be started again"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPoser(t)
			loaded, err := LoadAll(t.Context(), []string{p.spec}, 0, quiet)
			require.NoError(t, err)
			l := loaded[0]
			require.NoError(t, l.Err())
			require.NoError(t, unix.Kill(l.PID(), unix.SIGKILL))
			<-l.Died()
			require.Error(t, l.Err())
			p.says(c.change)
			again, err := l.Again(t.Context())
			if c.want == "" {
				require.NoError(t, err)
				require.NoError(t, again.Err())
				require.NotEqual(t, l.PID(), again.PID())
				require.NoError(t, again.Close())
			} else {
				require.ErrorContains(t, err, "transport shm died")
				require.ErrorContains(t, err, c.want)
			}
			_ = l.Close() // which has died
			p.allGone(2)
		})
	}
}

// All transports of a list are loaded, or none: no process stays of those before one that cannot be.
func TestAllTransportsOrNone(t *testing.T) {
	registers(t, posing{info: plugin.Info{Name: "carrier_test", Memory: []plugin.MemoryKind{plugin.MemoryKindHost}}})
	silent := filepath.Join(t.TempDir(), "silent")
	require.NoError(t, os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755))
	for name, c := range map[string]struct {
		behind    []string // the plugin
		processes int      // of the plugin
		code      plugin.Code
		want      string
	}{
		"no carrier":        {[]string{"network:x"}, 1, plugin.InvalidArgument, "unknown carrier"},
		"no such transport": {[]string{"carrier_test", "nonesuch"}, 1, plugin.PluginRejected, `no builtin transport "nonesuch"`},
		"no such file":      {[]string{"process:/none/such"}, 1, plugin.PluginRejected, "/none/such"},
		"twice":             {[]string{"carrier_test", "shm"}, 2, plugin.PluginRejected, "shm is named twice: process:"},
		"it says nothing":   {[]string{"process:" + silent}, 1, plugin.PluginRejected, "200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPoser(t)
			for i, spec := range c.behind {
				if spec == "shm" {
					c.behind[i] = p.spec
				}
			}
			began := time.Now()
			start := 20 * time.Second
			if strings.Contains(c.want, "ms") {
				start = 200 * time.Millisecond
			}
			_, err := LoadAll(t.Context(), append([]string{p.spec}, c.behind...), start, quiet)
			require.ErrorIs(t, err, c.code)
			require.ErrorContains(t, err, c.want)
			require.Less(t, time.Since(began), 8*time.Second)
			p.allGone(c.processes)
		})
	}
	_, err := LoadAll(t.Context(), nil, 0, quiet)
	require.ErrorIs(t, err, plugin.Unsupported)
}

// What a transport says of itself is checked when it is registered, and when a plugin is loaded.
func TestInfosThatBreakTheContract(t *testing.T) {
	host := []plugin.MemoryKind{plugin.MemoryKindHost}
	for name, info := range map[string]plugin.Info{
		"no name":       {Memory: host},
		"capitals":      {Name: "Shm", Memory: host},
		"a dash":        {Name: "a-b", Memory: host},
		"a dash before": {Name: "-ab", Memory: host},
		"too long":      {Name: strings.Repeat("a", plugin.MaxName+1), Memory: host},
		"no memory":     {Name: "memoryless"},
		"an odd kind":   {Name: "odd", Memory: []plugin.MemoryKind{9}},
		"not UTF-8":     {Name: "odd", Version: "1\n2\xff", Memory: host},
		"a long line":   {Name: "odd", Doc: strings.Repeat("x", plugin.MaxText+1), Memory: host},
		"two lines":     {Name: "odd", Doc: "x\nx", Memory: host},
		"negative":      {Name: "odd", MaxWorld: -5, Memory: host},
	} {
		t.Run(name, func(t *testing.T) {
			require.Panics(t, func() { Register(posing{info: info}) })
			require.NotContains(t, Registered(), info.Name)
			p := newPoser(t)
			p.says(func(i *plugin.Info) { *i = info })
			_, err := LoadAll(t.Context(), []string{p.spec}, 0, quiet)
			require.ErrorIs(t, err, plugin.PluginRejected)
			p.allGone(1)
		})
	}
	longest := plugin.Info{Name: strings.Repeat("z", plugin.MaxName), Memory: host}
	registers(t, posing{info: longest})
	require.Contains(t, Registered(), longest.Name)
	require.Panics(t, func() { Register(posing{info: longest}) }, "it is there already")
}

// Only of a list of builtin transports is known what they say of themselves before they are loaded.
func TestInfosOfBuiltinTransports(t *testing.T) {
	one := plugin.Info{Name: "infos_one", Memory: []plugin.MemoryKind{plugin.MemoryKindHost}}
	two := plugin.Info{Name: "infos_two", Memory: []plugin.MemoryKind{plugin.MemoryKindCuda}}
	registers(t, posing{info: two})
	registers(t, posing{info: one})
	require.IsIncreasing(t, Registered())
	require.Equal(t, []plugin.Info{two, one}, BuiltinInfos([]string{"infos_two", "builtin:infos_one"}))
	for _, other := range []string{"process:infos_one", "shared:infos_one", "nonesuch", "network:x", ""} {
		require.Nil(t, BuiltinInfos([]string{"infos_one", other}), other)
	}
}

// panicking is a transport whose code breaks down.
type panicking struct{ posing }

func (panicking) Open(context.Context, plugin.OpenConfig) (plugin.Endpoint, error) {
	panic("out of order")
}

// A builtin transport that breaks down is an error of its call.
func TestBuiltinTransportsThatPanic(t *testing.T) {
	host := []plugin.MemoryKind{plugin.MemoryKindHost}
	var log bytes.Buffer
	registers(t, panicking{posing{info: plugin.Info{Name: "panicking", Memory: host}}})
	l, err := Load(t.Context(), Spec{Carrier: Builtin, Target: "panicking"}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	_, err = l.Transport.Open(t.Context(), plugin.OpenConfig{})
	require.ErrorContains(t, err, "out of order")
	require.Contains(t, log.String(), "panicking.Open", "the stack")
	require.Zero(t, l.PID())
	require.Nil(t, l.Died())
	require.NoError(t, l.Err())
	require.NoError(t, l.Close())
}

// Files in a directory of plugins are what their names and modes say; what else lies there is none.
func TestPluginsInADirectory(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"b": 0o755, "a": 0o711, "c.so": 0o600, "d.so": 0o755, "text": 0o644} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, pluginPrefix+name), nil, mode))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, pluginPrefix+"directory"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(dir, "other"), filepath.Join(dir, pluginPrefix+"link")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, pluginPrefix+"broken")))
	found, err := Discover(dir)
	require.NoError(t, err)
	var specs []string
	for _, spec := range found {
		specs = append(specs, strings.Replace(spec.String(), filepath.Join(dir, pluginPrefix), "", 1))
	}
	require.Equal(t, []string{"process:a", "process:b", "shared:c.so", "shared:d.so", "process:link"}, specs)
	_, err = Discover(filepath.Join(dir, "other"))
	require.ErrorIs(t, err, plugin.System)
}
