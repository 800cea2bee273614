/*
 * unique_id.c: a parent makes a unique id, starts itself again as rank 1, and
 * both join by it without any environment of Shunt's.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int join(const char *id, int32_t rank) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm comm;
  int64_t one = rank + 1, sum = 0;
  options.id = id;
  options.rank = rank;
  options.world = 2;
  options.timeout_ms = 20000;
  options.transports = "shm";
  OK(shunt_comm_init(&options, &comm));
  OK(shunt_all_reduce(comm, &one, &sum, 1, SHUNT_DTYPE_INT64, SHUNT_OP_SUM, NULL));
  CHECK(sum == 3);
  OK(shunt_barrier(comm, NULL));
  OK(shunt_close(comm));
  return 0;
}

int main(int argc, char **argv) {
  char id[SHUNT_UNIQUE_ID_BYTES];
  int status;
  if (argc > 1)
    return join(argv[1], 1);
  unsetenv("SHUNT_RANK");
  unsetenv("SHUNT_WORLD");
  unsetenv("SHUNT_ID");
  OK(shunt_get_unique_id(id, sizeof id));
  CHECK(strlen(id) > 16 && strlen(id) < sizeof id);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) { /* between fork and exec nothing of Shunt is called */
    execl("/proc/self/exe", argv[0], id, (char *)NULL);
    _exit(127);
  }
  int ended = join(id, 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return ended;
}
