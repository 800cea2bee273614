package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// A run directory holds the plugin's socket from its start until the host is connected; then it is removed, and the
// connection lives on. So a host that is killed leaves one behind only within the first moments of a plugin, and the
// next start sweeps it. The host holds a lock on it meanwhile, which says that it lives: the kernel releases it when
// the host ends.
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
	return makeRunDirIn(cmp.Or(environment.Get("TMPDIR"), "/tmp"), environment.Get("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp",
		"/dev/shm")
}

// makeRunDirIn makes a run directory below the first of these that can be used.
func makeRunDirIn(bases ...string) (*runDir, error) {
	var reasons []string
	for _, base := range bases {
		if base == "" {
			continue
		}
		d, err := makeRunDirBelow(base)
		if err == nil {
			return d, nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) { // no other directory is better
			return nil, plugin.Errorf(plugin.OutOfMemory,
				"no file descriptor is left for a plugin's socket: %w; raise the limit (ulimit -n)", err)
		}
		if reason := base + ": " + err.Error(); !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return nil, plugin.Errorf(plugin.System, "no directory for the plugin's socket, set TMPDIR to one of at most %d "+
		"characters that can be written: %s", maxBase, strings.Join(reasons, "; "))
}

// makeRunDirBelow makes a run directory, whose path is absolute, as that of a plugin's socket has to be.
func makeRunDirBelow(base string) (*runDir, error) {
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	if len(base) > maxBase {
		return nil, fmt.Errorf("its path has %d characters", len(base))
	}
	sweepRunDirs(base, time.Now())
	path, err := os.MkdirTemp(base, runDirPrefix)
	if err != nil {
		var failed *os.PathError
		if errors.As(err, &failed) {
			err = failed.Err // the name below base is random
		}
		return nil, err
	}
	_ = os.Chmod(path, 0o700) // whatever the umask; if that fails, so does the lock
	lock, err := lockDir(path)
	if err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	return &runDir{path, lock}, nil
}

// remove removes the directory, and then says that it is unused.
func (d *runDir) remove() {
	os.RemoveAll(d.path)
	d.lock.Close()
}

// lockDir takes the lock on a directory, unless a process has it.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, os.NewSyscallError("flock", err)
	}
	return f, nil
}

// sweepRunDirs removes this user's run directories that outlived their host:
// no process holds the lock, and they are old enough for their host to have taken it.
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
