/*
 * A Go runtime preempts a goroutine that makes no calls by sending SIGURG to
 * its thread. A Go shared object that is loaded into a Go process installs its
 * own handler and does not forward the signal, which silently ends preemption
 * in the first runtime: a call-free loop then delays every garbage collection
 * until the loop ends.
 *
 * The cure is a handler in C that passes each SIGURG to all runtimes; a
 * runtime ignores signals on threads that are not its own. The order matters:
 *
 *   1. load the object, noting the action before and after;
 *   2. if it changed, install the C handler, which at first knows the earlier
 *      runtimes only: a Go handler that runs before its runtime is up crashes;
 *   3. wait until the new runtime is up (shunt_transport_v1_ready);
 *   4. add its handler;
 *   5. send every thread a SIGURG. A runtime that has sent one sends no second
 *      before the first was handled, and those between 1 and 2 went astray.
 */
#define _GNU_SOURCE
#include "sigurg.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sigaction runtimes[SHUNT_MAX_RUNTIMES];
static atomic_int count_runtimes;
static struct sigaction newcomer; /* between shunt_sigurg_load and _join */

/* A runtime that was loaded after the C handler was installed takes it for its
 * predecessor and may forward to it, which must not go round in circles. The
 * model matters: other kinds of thread-local memory may be allocated at first
 * use, and a signal handler must not allocate. */
static __thread int inside __attribute__((tls_model("initial-exec")));

static void handle(int number, siginfo_t *info, void *context) {
  if (inside) return;
  inside = 1;
  int saved = errno;
  /* Acquire pairs with the release in add: an entry that is counted is whole. */
  int n = atomic_load_explicit(&count_runtimes, memory_order_acquire);
  for (int i = 0; i < n; i++) {
    if (runtimes[i].sa_flags & SA_SIGINFO)
      runtimes[i].sa_sigaction(number, info, context);
    else
      runtimes[i].sa_handler(number);
  }
  errno = saved;
  inside = 0;
}

static int same(const struct sigaction *a, const struct sigaction *b) {
  /* sa_handler and sa_sigaction share their place. */
  return a->sa_sigaction == b->sa_sigaction && a->sa_flags == b->sa_flags;
}

static int is_ours(const struct sigaction *a) { return a->sa_sigaction == handle; }

static int is_function(const struct sigaction *a) {
  return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

static void add(const struct sigaction *action) {
  int n = atomic_load_explicit(&count_runtimes, memory_order_relaxed);
  if (n >= SHUNT_MAX_RUNTIMES || !is_function(action) || is_ours(action)) return;
  for (int i = 0; i < n; i++)
    if (same(&runtimes[i], action)) return;
  runtimes[n] = *action;
  /* Release: a handler on any thread that sees the count sees the entry. */
  atomic_store_explicit(&count_runtimes, n + 1, memory_order_release);
}

static void install(void) {
  struct sigaction ours;
  memset(&ours, 0, sizeof ours);
  ours.sa_sigaction = handle;
  /* As Go installs its own: on the alternate stack, nothing interrupting. */
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&ours.sa_mask);
  sigaction(SIGURG, &ours, NULL);
}

shunt_sigurg_load_result shunt_sigurg_load(const char *path) {
  shunt_sigurg_load_result result = {NULL, 0, 0};
  /* One for the runtime that has the signal now, one for the new one. */
  if (atomic_load_explicit(&count_runtimes, memory_order_relaxed) + 2 > SHUNT_MAX_RUNTIMES) {
    result.full = 1;
    return result;
  }
  struct sigaction before, after;
  sigaction(SIGURG, NULL, &before);
  result.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  /* Also when loading failed: a constructor may have run before. */
  sigaction(SIGURG, NULL, &after);
  if (same(&before, &after)) return result;
  add(&before);
  install();
  newcomer = after;
  result.took_over = 1;
  return result;
}

void shunt_sigurg_join(void) {
  add(&newcomer);
  memset(&newcomer, 0, sizeof newcomer);
  DIR *tasks = opendir("/proc/self/task");
  if (tasks == NULL) return;
  pid_t pid = getpid();
  for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
    long tid = strtol(e->d_name, NULL, 10);
    if (tid > 0) syscall(SYS_tgkill, (long)pid, tid, (long)SIGURG);
  }
  closedir(tasks);
}
