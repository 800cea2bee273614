// Package noexec recognizes files that no process can run or load because of the place where they lie. The kernel says
// "permission denied" of a program there, and the loader "failed to map segment from shared object".
package noexec

import (
	"errors"

	"golang.org/x/sys/unix"
)

var errNoexec = errors.New("its file system is mounted noexec; copy it to one that is not, or set the option exec")

// Check returns an error if the file system that holds a file is mounted noexec.
func Check(path string) error {
	var system unix.Statfs_t
	if err := unix.Statfs(path, &system); err != nil || system.Flags&unix.ST_NOEXEC == 0 {
		return nil
	}
	return errNoexec
}
