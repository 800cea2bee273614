/*
 * signals.c: a program that blocks signals in its threads, and waits for them with sigwait, gets all of them.
 */
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

int main(void) {
  const int numbers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE,   SIGALRM,     SIGTERM,
                         SIGUSR1, SIGUSR2, SIGTSTP, SIGVTALRM, SIGRTMIN + 1};
  const struct timespec limit = {10, 0};
  sigset_t before, set;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    CHECK(!sigismember(&before, numbers[i])); /* the library was loaded, and has changed nothing here */
    sigaddset(&set, numbers[i]);
  }
  CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);

  shunt_comm comm;
  float x = 1;
  OK(shunt_comm_init_env(&comm));
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    OK(shunt_all_reduce(comm, &x, &x, 1, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
    CHECK(kill(getpid(), numbers[i]) == 0); /* some other thread would end the process */
    CHECK(sigtimedwait(&set, NULL, &limit) == numbers[i]);
  }
  OK(shunt_close(comm));
  return 0;
}
