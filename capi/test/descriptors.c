/*
 * descriptors.c: the program takes every file descriptor but argv[1] before its
 * first call, which must say so and not end the process; once they are free the
 * same call works.
 */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

static shunt_status join(shunt_comm *comm) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  options.world = 1;
  options.transports = "shm";
  options.timeout_ms = 20000;
  return shunt_comm_init(&options, comm);
}

int main(int argc, char **argv) {
  struct rlimit limit = {64, 64};
  int taken[64], count = 0, fd, spare = argc > 1 ? atoi(argv[1]) : 0;
  char id[SHUNT_UNIQUE_ID_BYTES];
  shunt_comm comm;
  int64_t one = 1, sum = 0;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  while ((fd = dup(0)) >= 0)
    taken[count++] = fd;
  CHECK(errno == EMFILE && count > spare);
  while (spare-- > 0)
    close(taken[--count]);
  CHECK(join(&comm) == SHUNT_OUT_OF_MEMORY);
  CHECK(strstr(shunt_last_error(NULL), "too many open files") != NULL);
  if (shunt_get_unique_id(id, sizeof id) != SHUNT_OK)
    CHECK(strstr(shunt_last_error(NULL), "too many open files") != NULL);
  while (count > 0)
    close(taken[--count]);
  OK(join(&comm));
  OK(shunt_all_reduce(comm, &one, &sum, 1, SHUNT_DTYPE_INT64, SHUNT_OP_SUM, NULL));
  CHECK(sum == 1);
  OK(shunt_close(comm));
  return 0;
}
