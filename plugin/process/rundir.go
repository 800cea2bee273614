package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// A run directory holds the plugin's socket from its start until the host is
// connected; then it is removed, and the connection lives on. So a host that is
// killed leaves one behind only within the first moments of a plugin, and the
// next start sweeps it. The host holds a lock on it meanwhile, which says that it
// lives: the kernel lets go of it with the host.
const (
	runDirPrefix = "shunt-plugin-"
	runDirStale  = 10 * time.Minute // longer than any plugin may take to start
)

// maxBase leaves room for the names that are added below the base directory in
// the 107 bytes of a socket path.
const maxBase = 40

// runDir is a run directory and the lock on it.
type runDir struct {
	path string
	lock *os.File
}

func makeRunDir() (*runDir, error) {
	var last error
	for _, base := range []string{os.TempDir(), os.Getenv("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp", "/dev/shm"} {
		if base == "" || len(base) > maxBase {
			continue
		}
		sweepRunDirs(base, time.Now())
		path, err := os.MkdirTemp(base, runDirPrefix) // mode 0700
		if err == nil {
			var lock *os.File
			if lock, err = lockDir(path); err == nil {
				return &runDir{path, lock}, nil
			}
			os.RemoveAll(path)
		}
		last = err
	}
	return nil, plugin.Errorf(plugin.System, "no directory for the plugin's socket: %w", last)
}

// remove removes the directory, and then says that it is unused.
func (d *runDir) remove() {
	os.RemoveAll(d.path)
	d.lock.Close()
}

// lockDir takes the lock on a directory, unless somebody has it.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweepRunDirs removes this user's run directories that outlived their host:
// no process holds the lock, and they are old enough for somebody to have taken it.
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
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		path := filepath.Join(base, e.Name())
		if lock, err := lockDir(path); err == nil {
			os.RemoveAll(path)
			lock.Close()
		}
	}
}
