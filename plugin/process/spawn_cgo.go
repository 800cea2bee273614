//go:build cgo

package process

/*
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOEXEC_RANGE 4 // CLOSE_RANGE_CLOEXEC

// Marks the descriptors from first on that /proc lists; false if it does not list them.
static int mark_listed(int first) {
  struct entry { unsigned long ino; long off; unsigned short length; unsigned char type; char name[]; };
  char buffer[4096] __attribute__((aligned(8)));
  int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return 0;
  long n;
  while ((n = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) > 0)
    for (long at = 0; at < n;) {
      struct entry *e = (struct entry *)(buffer + at);
      int fd = 0;
      for (const char *c = e->name; *c >= '0' && *c <= '9'; c++) fd = 10 * fd + *c - '0';
      if (fd >= first) fcntl(fd, F_SETFD, FD_CLOEXEC);
      at += e->length;
    }
  return n == 0;
}

// Marks the descriptors from first on that poll knows, up to the hard limit: the limit in use may have been higher when
// they were opened. Where a container's limit is a thousand million, a second would not do for all; those above MOST
// are taken to be unused, since the kernel gives the lowest number that is free.
static void mark_each(int first) {
  enum { BATCH = 256, MOST = 1 << 20 };
  struct rlimit limit;
  int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < MOST ? (int)limit.rlim_max : MOST;
  struct pollfd some[BATCH];
  for (int from = first; from < end; from += BATCH) {
    int count = end - from < BATCH ? end - from : BATCH;
    for (int i = 0; i < count; i++) some[i] = (struct pollfd){.fd = from + i};
    int known = poll(some, (nfds_t)count, 0) >= 0; // else the limit in use is less than a batch
    for (int i = 0; i < count; i++)
      if (!known || !(some[i].revents & POLLNVAL)) fcntl(from + i, F_SETFD, FD_CLOEXEC);
  }
}

// Descriptors from first on close at exec. Nothing here allocates or locks: it runs
// between vfork and exec. Kernels before 5.11 have no such close_range, filters may forbid it, and /proc may be
// missing.
static void close_from(int first) {
  if (syscall(SYS_close_range, first, ~0U, CLOEXEC_RANGE) == 0) return;
  if (!mark_listed(first)) mark_each(first);
}

// Start a process that has the four descriptors as 0 to 3 and no others, in a process
// group of its own, which the kernel kills when this thread ends. The pid, or -errno.
static __attribute__((noinline)) int shunt_spawn(const char *path, char **argv, char **envp, const int *from) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  volatile int failed = 0;
  int parent = getpid();
  int pid = vfork(); // memory is shared until exec, and this thread waits
  if (pid == 0) {
    int moved[4];
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    for (int i = 0; i < 4; i++)
      if ((moved[i] = fcntl(from[i], F_DUPFD, 4)) < 0) goto fail;
    for (int i = 0; i < 4; i++)
      if (dup2(moved[i], i) < 0) goto fail;
    for (int i = 0; i < 4; i++) close(moved[i]); // room to open /proc
    close_from(4);
    // No handler of this process may run in its child.
    for (int s = 1; s < NSIG; s++) {
      struct sigaction action;
      if (sigaction(s, NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
        action.sa_handler = SIG_DFL;
        action.sa_flags = 0;
        sigaction(s, &action, NULL);
      }
    }
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); // libshunt's threads block signals
    execve(path, argv, envp);
  fail:
    failed = errno ? errno : EIO;
    _exit(127);
  }
  if (pid < 0) failed = errno;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (pid > 0 && failed) syscall(SYS_waitid, 1, pid, NULL, 4, NULL); // P_PID, WEXITED
  return failed ? -failed : pid;
}
*/
import "C"

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

// startProcess starts cmd with its standard descriptors and its first extra file, and
// with none of the others that this process has: a library that opened one without
// O_CLOEXEC has not given it to a plugin.
func startProcess(cmd *exec.Cmd) (pid int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	out, _ := cmd.Stdout.(*os.File)
	errors, _ := cmd.Stderr.(*os.File)
	files := []*os.File{null, out, errors, cmd.ExtraFiles[0]}
	var from [4]C.int
	for i, f := range files {
		from[i] = C.int(f.Fd())
	}
	path := C.CString(cmd.Path)
	defer C.free(unsafe.Pointer(path))
	argv, freeArgs := cStrings(cmd.Args)
	defer freeArgs()
	envp, freeEnv := cStrings(cmd.Env)
	defer freeEnv()
	result := C.shunt_spawn(path, argv, envp, &from[0])
	runtime.KeepAlive(files)
	if result < 0 {
		return 0, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(-result)}
	}
	return int(result), nil
}

// cStrings puts strings into C memory, with a null behind them, until free is called.
func cStrings(list []string) (array **C.char, free func()) {
	array = (**C.char)(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	all := unsafe.Slice(array, len(list))
	for i, s := range list {
		all[i] = C.CString(s)
	}
	return array, func() {
		for _, s := range all {
			C.free(unsafe.Pointer(s))
		}
		C.free(unsafe.Pointer(array))
	}
}
