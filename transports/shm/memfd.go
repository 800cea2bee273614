package shm

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// generations tells two memfds apart that got the same descriptor number.
var generations atomic.Uint64

const create = "memfd_create"

// newMemfd makes zero-filled memory that a descriptor names; pages are taken when they are first touched. Its size is
// sealed: a peer that truncated it would make the loads of all others fault.
func newMemfd(name string, bytes int64) (plugin.Handle, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return plugin.Handle{}, systemError(create, err)
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		return plugin.Handle{}, errors.Join(systemError("ftruncate", err), unix.Close(fd))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return plugin.Handle{}, errors.Join(systemError("sealing a memfd", err), unix.Close(fd))
	}
	return plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: generations.Add(1), Bytes: bytes, FD: fd}, nil
}

func closeMemfd(h plugin.Handle) error {
	if err := unix.Close(h.FD); err != nil {
		return systemError("closing a memfd", err)
	}
	return nil
}

// systemError gives a failed system call its code: OutOfMemory for what a
// limit explains.
func systemError(call string, err error) error {
	code, advice := plugin.System, ""
	switch {
	case errors.Is(err, unix.EFBIG):
		code, advice = plugin.OutOfMemory, "; the limit on the size of files holds for shared memory too, raise it (ulimit -f)"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE),
		errors.Is(err, unix.ENOSPC):
		code = plugin.OutOfMemory
	case call == create && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS)):
		advice = "; a filter of system calls (seccomp) may forbid it"
	}
	return plugin.Errorf(code, "%s: %w%s", call, err, advice)
}
