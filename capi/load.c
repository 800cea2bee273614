/*
 * load.c: loading the library waits until its Go side is up.
 *
 * The Go runtime starts on a thread of its own, beside the program's main. Its
 * poller takes two file descriptors, and it ends the process where there are
 * none, so that must be over before the program continues and can use them up. The
 * wait is bounded because the loader's lock is held meanwhile.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { wait_s = 2 };

static atomic_int up;

/* shunt_is_up is called by the Go side at the end of its initialization. */
void shunt_is_up(int32_t state) {
  atomic_store(&up, state);
  syscall(SYS_futex, &up, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Returns whether this code is linked into the program itself, as in the tests of this
 * package: Go then waits for the end of the program's constructors. */
static int is_program(void) { return (uintptr_t)&__ehdr_start + __ehdr_start.e_phoff == getauxval(AT_PHDR); }

/* crash ends the process by its signal, where that came: what is at fault stands in the core dump. */
static void crash(int signal, siginfo_t *info, void *context) {
  (void)context;
  struct sigaction plain = {.sa_handler = SIG_DFL};
  sigaction(signal, &plain, NULL);
  if (info->si_code <= 0) raise(signal); /* sent: nothing is repeated on return; it is blocked until then */
}

/* Faults in C code, as of a call with memory that is not there or of a transport, come to Go's handlers, which hand
 * them to those that were there before. With none, Go prints its goroutines and asks its threads for theirs by SIGQUIT,
 * which ends the program by that signal or, where all block it, after 10 seconds. */
static void end_by_faults(void) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    struct sigaction before, ours = {.sa_sigaction = crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(faults[i], NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL)
      sigaction(faults[i], &ours, NULL);
  }
}

/* fill_streams opens what is closed of standard input, output and error. Descriptors of Go and Shunt would be there,
 * and a program that puts a log in their place would replace them; Go ends the process if its poller's is replaced. */
static void fill_streams(void) {
  for (int fd = 0; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)open("/dev/null", O_RDWR); /* the lowest that is free: fd */
}

static sigset_t mask; /* of the thread that loads the library */

/* Go's threads take over the mask of the thread that starts its runtime. They block all signals that they do not need,
 * so that the program's threads get those that it blocks in them and waits for, as with sigwait. */
__attribute__((constructor(101))) static void before_go(void) {
  end_by_faults();
  fill_streams();
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
}

/* Go's own constructor, which starts that thread, is linked before this one. */
__attribute__((constructor)) static void wait_for_go(void) {
  struct timespec limit = {wait_s, 0};
  while (!is_program() && atomic_load(&up) == 0)
    if (syscall(SYS_futex, &up, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0) != 0 && errno == ETIMEDOUT)
      break; /* the first call waits for it */
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* note_file stops at the object that has this code. */
static int note_file(struct dl_phdr_info *info, size_t size, void *file) {
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_LOAD &&
        (uintptr_t)&up - info->dlpi_addr - info->dlpi_phdr[i].p_vaddr < info->dlpi_phdr[i].p_memsz) {
      *(const char **)file = info->dlpi_name;
      return 1;
    }
  return 0;
}

/* The file that this library was loaded from, or NULL. Not by dladdr: it waits for the loader's lock, which the thread
 * that waits above for Go, and so for this, holds. */
const char *shunt_file(void) {
  const char *file = NULL;
  (void)dl_iterate_phdr(note_file, &file);
  return file;
}
