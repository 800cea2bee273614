package shm

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// generations tells two memfds apart that got the same descriptor number.
var generations atomic.Uint64

// newMemfd makes zero-filled memory that a descriptor names; pages are taken when they are first touched. Its size is
// sealed: a peer that truncated it would make the loads of all others fault.
func newMemfd(name string, bytes int64) (plugin.Handle, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			err = fmt.Errorf("%w; a filter of system calls (seccomp) may forbid it", err)
		}
		return plugin.Handle{}, plugin.SystemError(err, "memfd_create")
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		return plugin.Handle{}, errors.Join(plugin.SystemError(err, "ftruncate"), unix.Close(fd))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return plugin.Handle{}, errors.Join(plugin.SystemError(err, "sealing a memfd"), unix.Close(fd))
	}
	return plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: generations.Add(1), Bytes: bytes, FD: fd}, nil
}

func closeMemfd(h plugin.Handle) error {
	if err := unix.Close(h.FD); err != nil {
		return plugin.SystemError(err, "closing a memfd")
	}
	return nil
}
