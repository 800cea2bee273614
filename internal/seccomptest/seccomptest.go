// Package seccomptest forbids system calls to a process of a test, as a container's filter does.
package seccomptest

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// Deny makes a system call fail with an error number, in every thread of this process and in all processes that it
// starts from now on. Nothing takes it back.
func Deny(call uint32, number unix.Errno) error { return deny(call, number) }

// DenyLess does so where an argument of the call, of which the first is 0, is less than a number.
func DenyLess(call uint32, argument int, least uint32, number unix.Errno) error {
	low := 16 + 8*argument // the lower half of a number of 64 bits
	if cpu.IsBigEndian {
		low += 4
	}
	return deny(call, number,
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(low)},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: least, Jt: 1})
}

// deny takes what decides, behind the number of the call, whether the next instruction refuses or the one after it
// allows.
func deny(call uint32, number unix.Errno, more ...unix.SockFilter) error {
	runtime.LockOSThread() // both calls are made by one thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: uint8(len(more) + 1)},
	}
	filter = append(append(filter, more...),
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(number)},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return failed
	}
	if thread != 0 {
		return fmt.Errorf("seccomp: thread %d has a filter of its own", thread)
	}
	return nil
}
