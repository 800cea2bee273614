/*
 * signals.c: the program's signal handlers, while its threads are in Go code.
 *
 * That runs on the stack of a goroutine, which may be of 8 KiB, and so would a handler that comes meanwhile: it would
 * write over what lies below. With SA_ONSTACK it runs on a stack of 32 KiB that Go has set up for the thread, in and
 * outside calls, or on the thread's own from sigaltstack. Go sets that flag too, for the handlers that it finds when
 * its runtime starts.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "internal.h"

static int is_handled(const struct sigaction *a) {
  return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

void shunt_mark_handlers(void) {
  for (int signal = 1; signal <= SIGRTMAX; signal++) {
    struct sigaction action;
    if (sigaction(signal, NULL, &action) || !is_handled(&action) || (action.sa_flags & SA_ONSTACK))
      continue;
    action.sa_flags |= SA_ONSTACK;
    sigaction(signal, &action, NULL);
  }
}
