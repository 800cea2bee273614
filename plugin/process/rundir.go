package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// A run directory holds the plugin's socket from its start until the host is
// connected; then it is removed, and the connection lives on. So a host that is
// killed leaves one behind only within the first moments of a plugin, and the
// next start sweeps it.
const (
	runDirPrefix = "shunt-run-"
	runDirStale  = 10 * time.Minute // longer than any plugin may take to start
)

// maxBase leaves room for the names that are added below the base directory in
// the 107 bytes of a socket path.
const maxBase = 40

func makeRunDir() (string, error) {
	var last error
	for _, base := range []string{os.TempDir(), os.Getenv("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp", "/dev/shm"} {
		if base == "" || len(base) > maxBase {
			continue
		}
		sweepRunDirs(base, time.Now())
		dir, err := os.MkdirTemp(base, runDirPrefix) // mode 0700
		if err == nil {
			return dir, nil
		}
		last = err
	}
	return "", plugin.Errorf(plugin.System, "no directory for the plugin's socket: %w", last)
}

// sweepRunDirs removes this user's run directories that outlived their host.
func sweepRunDirs(base string, now time.Time) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), runDirPrefix) {
			continue
		}
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < runDirStale {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			os.RemoveAll(filepath.Join(base, e.Name()))
		}
	}
}
