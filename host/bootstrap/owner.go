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

// peerCredentials names the system call that tells whose process is at the other end of a socket.
const peerCredentials = "getsockopt(SO_PEERCRED)"

// SameUser checks, where the kernel knows it, which is for Unix sockets, that a
// connection comes from a process of this user. The error, with code Protocol,
// names the process; one with another code names the system call that does not tell.
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
		return withFilter(plugin.Errorf(plugin.System, "it is not known whose process is at the other end: %w",
			os.NewSyscallError(peerCredentials, credErr)))
	}
	if int(cred.Uid) != os.Geteuid() {
		return plugin.Errorf(plugin.Protocol, "process %d belongs to user %d, not to user %d", cred.Pid, cred.Uid,
			os.Geteuid())
	}
	return nil
}
