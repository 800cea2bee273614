package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/internal/ctransport"
)

// installation is a folder as a wheel or an archive has it: the command, and plugins that run it. It returns their
// specs by name.
func installation(t *testing.T, names ...string) map[string]string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no Go toolchain to build cmd/shunt-transport with: the command go is not installed")
	}
	root, specs := t.TempDir(), map[string]string{}
	plugins := filepath.Join(root, "lib", "shunt", "plugins")
	for _, folder := range []string{plugins, filepath.Join(root, "bin")} {
		require.NoError(t, os.MkdirAll(folder, 0o700))
	}
	commandIn(t, filepath.Join(root, "bin"))
	for _, name := range names {
		path := filepath.Join(plugins, "shunt-transport-"+name)
		build := builttest.Command("go", "build", "-o", path, "../shunt-transport")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		text, err := build.CombinedOutput()
		require.NoError(t, err, "%s", text)
		specs[name] = "process:" + path
	}
	return specs
}

// The plugins of an installation are the command, under their names: the same transports that it has built in.
func TestInstalledPlugins(t *testing.T) {
	specs := installation(t, "shm", "cudaipc", "nccl", "nonesuch")
	for _, inner := range processes {
		name := inner.Info().Name
		require.NotEmpty(t, specs[name], "%s is not in the installation", name)
		out, errs, code := shunt(t, "transports", "--json", specs[name])
		require.Zero(t, code, errs)
		var loaded []struct{ Name, Version string }
		require.NoError(t, json.Unmarshal([]byte(out), &loaded), out)
		require.Len(t, loaded, 1)
		require.Equal(t, [2]string{name, inner.Info().Version}, [2]string{loaded[0].Name, loaded[0].Version})
	}
	out, _, _ := shunt(t, "transports", specs["nonesuch"])
	require.Contains(t, out, `the command shunt has no transport "nonesuch" for a process of its own`)

	out, errs, code := shunt(t, "bench", "--json", "-n", "2", "--transport", specs["shm"], "--memory", "host",
		"--collective", "all_reduce", "--max", "64", "--budget", "1ms")
	require.Zero(t, code, errs)
	require.Contains(t, out, `"wrong": 0`)
}

// A checksum does not cover the command, so a plugin that runs it does not start under one.
func TestInstalledPluginsTakeNoPin(t *testing.T) {
	spec := installation(t, "shm")["shm"]
	text, err := os.ReadFile(strings.TrimPrefix(spec, "process:"))
	require.NoError(t, err)
	out, _, _ := shunt(t, "transports", fmt.Sprintf("%s#sha256=%x", spec, sha256.Sum256(text)))
	require.Contains(t, out, "rejected")
	require.Contains(t, out, "which the checksum does not cover")
}

// SHUNT_PLUGIN_START_TIMEOUT bounds the start of a plugin, for what looks at it and for ranks.
func TestPluginStartTimeout(t *testing.T) {
	script := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700)) //nolint:gosec // a program
	t.Setenv("SHUNT_PLUGIN_START_TIMEOUT", "50ms")
	t.Setenv("SHUNT_TRANSPORTS", "process:"+script)
	for _, line := range []string{"transports", "explain -n 1 --memory host"} {
		stdout, stderr, code := shunt(t, strings.Fields(line)...)
		require.NotZero(t, code)
		require.Contains(t, stdout+stderr, "did not finish its start within 50ms", line)
	}
}

// A library that does not return from being loaded is rejected in time, whatever else is to be opened in the same
// process, and the command ends. It is a process of its own, as nothing unloads such a library.
func TestLibrariesThatHangAreRejected(t *testing.T) {
	hanging, err := ctransport.BuildHanging(t.TempDir())
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, self, "transports", "--json")
	c.Env = append(os.Environ(), "SHUNT_TIMEOUT=100ms", "SHUNT_TRANSPORTS=shared:"+hanging+",nccl")
	out, _ := c.Output()
	require.Equal(t, exitWrong, c.ProcessState.ExitCode())
	var reports []transportReport
	require.NoError(t, json.Unmarshal(out, &reports))
	require.Len(t, reports, 2)
	require.Contains(t, reports[0].Rejected, hanging+" did not return from load within")
	require.Equal(t, "nccl", reports[1].Name)

	here, plugin := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "plugin")
	text := "#!/bin/sh\ngrep -q SHUNT_RANK= /proc/$PPID/environ && touch " + here + " && exec sleep 60\n"
	require.NoError(t, os.WriteFile(plugin, []byte(text), 0o700)) //nolint:gosec // a program
	var stdout bytes.Buffer
	c = exec.CommandContext(ctx, self, "doctor", "--json")
	c.Env = append(os.Environ(), "SHUNT_TIMEOUT=100ms", "SHUNT_TRANSPORTS=process:"+plugin+",shared:"+hanging)
	c.Stdout = &stdout
	require.NoError(t, c.Start())
	appears(t, here) // the ranks of its trial have begun
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Error(t, c.Wait())
	require.Equal(t, exitFailure, c.ProcessState.ExitCode())
	var findings []finding
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &findings))
	at := slices.IndexFunc(findings, func(f finding) bool { return strings.Contains(f.Detail, "hanging.so is rejected") })
	require.Positive(t, at, "%v", findings)
	require.Equal(t, "transports", findings[at].Check)
	require.Contains(t, findings[at].Detail, "hanging.so did not return from load within")
}
