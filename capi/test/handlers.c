/*
 * handlers.c: signal handlers without SA_ONSTACK that use more stack than a goroutine has.
 */
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "check.h"

static volatile sig_atomic_t came;

static void handle(int signal) {
  volatile char used[20000];
  (void)signal;
  for (size_t i = 0; i < sizeof used; i += 64) used[i] = (char)0xa5;
  came++;
}

int main(void) {
  struct sigaction plain = {.sa_handler = handle, .sa_flags = SA_RESTART}, found;
  const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
  shunt_comm comm, part;
  static float x[1 << 18];

  CHECK(sigaction(SIGALRM, &plain, NULL) == 0);
  CHECK(signal(SIGUSR1, handle) != SIG_ERR && signal(SIGUSR2, SIG_IGN) != SIG_ERR);
  CHECK(signal(SIGHUP, SIG_DFL) != SIG_ERR);
  OK(shunt_comm_init_env(&comm));
  CHECK(sigaction(SIGALRM, NULL, &found) == 0 && found.sa_handler == handle);
  CHECK(found.sa_flags & SA_ONSTACK && found.sa_flags & SA_RESTART);
  CHECK(sigaction(SIGUSR1, NULL, &found) == 0 && found.sa_handler == handle && found.sa_flags & SA_ONSTACK);
  CHECK(sigaction(SIGUSR2, NULL, &found) == 0 && found.sa_handler == SIG_IGN);
  CHECK(sigaction(SIGHUP, NULL, &found) == 0 && found.sa_handler == SIG_DFL);

  CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < 4; i++) {
      int n = i ? 1 << 18 : 10;
      for (int k = 0; k < n; k++) x[k] = 1;
      OK(shunt_all_reduce(comm, x, x, n, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
      for (int k = 0; k < n; k++) CHECK(x[k] == 2);
    }
    OK(shunt_split(comm, 0, 0, &part));
    OK(shunt_close(part));
  }
  CHECK(came > 10);
  CHECK(sigaction(SIGUSR1, &plain, NULL) == 0);
  OK(shunt_split(comm, 0, 0, &part));
  CHECK(sigaction(SIGUSR1, NULL, &found) == 0 && found.sa_flags & SA_ONSTACK);
  OK(shunt_close(part));
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  OK(shunt_close(comm));
  return 0;
}
