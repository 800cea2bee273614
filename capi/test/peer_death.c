/*
 * peer_death.c: the last rank kills itself in the middle of traffic. Every
 * survivor's call ends with peer_died and names it; the survivors shrink and
 * continue.
 */
#include <signal.h>

#include "check.h"

int main(void) {
  enum { COUNT = 5000 };
  static double in[COUNT], out[COUNT];
  shunt_comm comm, rest;
  int32_t rank, world, left;
  char victim[32];
  shunt_status ended;
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  snprintf(victim, sizeof victim, "rank %d", world - 1);
  for (int i = 0; i < COUNT; i++)
    in[i] = 1;
  for (int i = 0; (ended = shunt_all_reduce(comm, in, out, COUNT, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, NULL)) == SHUNT_OK;
       i++) {
    CHECK(out[COUNT - 1] == world);
    if (i == 100 && rank == world - 1)
      raise(SIGKILL);
  }
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
