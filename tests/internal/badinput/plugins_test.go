package badinput

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/plugin"
)

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// refused loads a spec and expects a refusal that gives the reason.
func refused(t *testing.T, spec carrier.Spec, reason string) {
	t.Helper()
	l, err := carrier.Load(t.Context(), spec, silent)
	if err == nil {
		t.Fatalf("%s was loaded; close: %v", spec, l.Close())
	}
	if plugin.CodeOf(err) != plugin.PluginRejected || !strings.Contains(err.Error(), reason) ||
		!strings.Contains(err.Error(), spec.Target) {
		t.Errorf("%s: %v, want %s with the path and %q", plugin.CodeOf(err), err, plugin.PluginRejected, reason)
	}
	t.Logf("%v", err)
}

func TestCorruptLibrariesAreRefused(t *testing.T) {
	for _, flaw := range ctransport.Refused() {
		t.Run(flaw.Name, func(t *testing.T) {
			path, err := ctransport.BuildBad(t.TempDir(), flaw.Name)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, carrier.Spec{Carrier: carrier.Shared, Target: path}, flaw.Wrong)
		})
	}
}

// A file that is no plugin, in every way that a user gets it wrong.
func TestWrongFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		name   string
		spec   carrier.Spec
		reason string
	}{
		{"directory as library", carrier.Spec{Carrier: carrier.Shared, Target: dir}, "not a regular file"},
		{"empty library", carrier.Spec{Carrier: carrier.Shared, Target: file("empty.so", "", 0o755)}, "not a shared object"},
		{"directory as process", carrier.Spec{Carrier: carrier.Process, Target: dir}, "not a regular file"},
		{"not executable", carrier.Spec{Carrier: carrier.Process, Target: file("data", "x", 0o600)}, "not executable"},
		{"says nothing", carrier.Spec{Carrier: carrier.Process, Target: file("mute", "#!/bin/sh\nexit 3\n", 0o755)}, "status 3"},
		{"says something else", carrier.Spec{Carrier: carrier.Process,
			Target: file("babble", "#!/bin/sh\necho hello; sleep 60\n", 0o755)}, "hello"},
		{"wrong checksum", carrier.Spec{Carrier: carrier.Process, Target: file("sum", "#!/bin/sh\n", 0o755),
			SHA256: strings.Repeat("0", 64)}, strings.Repeat("0", 64)},
	} {
		t.Run(test.name, func(t *testing.T) { refused(t, test.spec, test.reason) })
	}
}
