/* load.c: UCX's library, its functions, and the handlers of signals that it would install; see ucx.h. */
#define _GNU_SOURCE
#include "ucx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *const symbols[] = {
#define X(name, result, arguments) #name,
    UX_FUNCTIONS(X)
#undef X
};

int ux_count(void) { return (int)(sizeof symbols / sizeof *symbols); }

const char *ux_symbol(int number) { return symbols[number]; }

/*
 * UCX installs handlers of its own, for SIGSEGV, SIGBUS and others, and a debugger's for SIGHUP. These signals are the
 * program's: Go's runtime and Python's faulthandler live by them.
 */
void ux_keep_handlers(ux_handlers *h) {
  for (int i = 1; i <= UX_SIGNALS; i++)
    if (sigaction(i, NULL, &h->of[i])) h->of[i].sa_handler = SIG_ERR; /* not ours to ask for */
}

/* Whether a handler is of libucs, libucp or another library of UCX's. */
static int of_ucx(const struct sigaction *action) {
  Dl_info info;
  if (!dladdr((void *)(uintptr_t)action->sa_handler, &info) || !info.dli_fname) return 0; /* SIG_DFL and SIG_IGN too */
  const char *slash = strrchr(info.dli_fname, '/');
  return !strncmp(slash ? slash + 1 : info.dli_fname, "libuc", 5);
}

/* What other threads have changed meanwhile stays. */
void ux_restore_handlers(const ux_handlers *h) {
  for (int i = 1; i <= UX_SIGNALS; i++) {
    struct sigaction now;
    if (h->of[i].sa_handler != SIG_ERR && !sigaction(i, NULL, &now) && now.sa_handler != h->of[i].sa_handler &&
        of_ucx(&now))
      sigaction(i, &h->of[i], NULL);
  }
}

int ux_load(const char *path, ux_table *table, char *message, size_t bytes) {
  ux_handlers before;
  ux_keep_handlers(&before);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ux_restore_handlers(&before);
  if (!library) {
    const char *why = dlerror();
    snprintf(message, bytes, "%s", why ? why : "dlopen failed");
    return -1;
  }
  void **slots = (void **)table; /* nothing but function pointers, in the order of symbols */
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
    if (!(slots[i] = dlsym(library, symbols[i]))) {
      snprintf(message, bytes, "it has no %s; UCX 1.11 is the oldest that serves", symbols[i]);
      return -1; /* it stays: a library that hooks memory calls is not unloaded */
    }
  return 0;
}

int ux_version(const ux_table *table) {
  unsigned major, minor, release;
  table->ucp_get_version(&major, &minor, &release);
  return (int)(major * 1000 + minor);
}
