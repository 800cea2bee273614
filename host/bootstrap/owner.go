package bootstrap

import (
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// ownerOf returns the user a file belongs to, where the system says so.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// SameUser checks, where the kernel knows it, which is for Unix sockets, that a
// connection comes from a process of this user. The error, with code Protocol,
// names the process.
func SameUser(conn net.Conn) error {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if int(cred.Uid) != os.Geteuid() {
		return plugin.Errorf(plugin.Protocol, "process %d belongs to user %d, not to user %d", cred.Pid, cred.Uid,
			os.Geteuid())
	}
	return nil
}
