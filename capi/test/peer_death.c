/*
 * peer_death.c killed|fault: the last rank ends in the middle of traffic, by
 * SIGKILL or by a call with memory that is not there. Every survivor's call ends
 * with peer_died at once and names it; the survivors shrink and continue.
 */
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "check.h"

int main(int argc, char **argv) {
  enum { COUNT = 5000 };
  static double out[COUNT];
  const size_t bytes = COUNT * sizeof(double);
  double *in = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  time_t start = 0;
  shunt_comm comm, rest;
  int32_t rank, world, left;
  char victim[32];
  shunt_status ended;
  CHECK(argc == 2 && in != MAP_FAILED);
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  snprintf(victim, sizeof victim, "rank %d", world - 1);
  for (int i = 0; i < COUNT; i++)
    in[i] = 1;
  for (int i = 0; (ended = shunt_all_reduce(comm, in, out, COUNT, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, NULL)) == SHUNT_OK;
       i++) {
    CHECK(out[COUNT - 1] == world);
    start = time(NULL);
    if (i < 100 || rank < world - 1) continue;
    if (strcmp(argv[1], "killed") == 0) raise(SIGKILL);
    CHECK(munmap(in, bytes) == 0);
  }
  CHECK(time(NULL) - start < 5);
  if (ended != SHUNT_PEER_DIED || strstr(shunt_last_error(NULL), victim) == NULL) {
    fprintf(stderr, "survivor %d got %s: %s\n", rank, shunt_status_string(ended), shunt_last_error(NULL));
    return 1;
  }
  OK(shunt_shrink(comm, &rest));
  OK(shunt_world(rest, &left));
  CHECK(left == world - 1);
  OK(shunt_all_reduce(rest, in, out, COUNT, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, NULL));
  CHECK(out[0] == left);
  OK(shunt_barrier(rest, NULL));
  OK(shunt_close(rest));
  OK(shunt_close(comm));
  return 0;
}
