package bootstrap

import (
	"errors"
	"os"
	"syscall"

	"github.com/shunt-ccl/shunt/plugin"
)

// Filters of system calls (seccomp), and kernels without a call, refuse it with one of these.
var refusals = []error{syscall.EPERM, syscall.EACCES, syscall.ENOSYS}

// refusedCall returns the name of the system call that was refused, if an error says that one was.
func refusedCall(err error) (name string, is bool) {
	var call *os.SyscallError
	if !errors.As(err, &call) {
		return "", false
	}
	for _, refusal := range refusals {
		if errors.Is(call.Err, refusal) {
			return call.Syscall, true
		}
	}
	return "", false
}

// withFilter returns err, and where a call for sockets was refused that a filter may be the reason.
func withFilter(err error) error {
	switch name, _ := refusedCall(err); name {
	case "socket", "setsockopt", peerCredentials, "listen", "accept4":
		return plugin.Errorf(plugin.System, "%w; a filter of system calls (seccomp) may forbid it", err)
	}
	return err
}

// mostRefused is how often in a row accepting a connection is refused until no other is waited for: a firewall's rules
// refuse one connection, and a filter every one.
const mostRefused = 10

// deafen ends the gathering at the stores of this listener, to which no other process can come, for the reason err.
func (h *hub) deafen(err error) {
	for _, st := range h.stores() {
		st.mu.Lock()
		if st.phase == gathering {
			st.deaf = true
			st.failJoin(rankError(plugin.System, 0, "%v cannot take in the other ranks: %v", st.self.as(0), err))
		}
		st.mu.Unlock()
	}
}
