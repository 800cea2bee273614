/*
 * refused.c: rank 1 makes a call that the library refuses before it comes to the
 * communicator, and closes. Rank 0, which makes the call too, is told why it ends, and
 * prints that. The argument names the call.
 */
#include "check.h"

static shunt_window window;
static float x[4], y[4];
static int64_t counts[2];
static char bytes[1];

static shunt_operation operation(shunt_collective collective) {
  shunt_operation op = SHUNT_OPERATION_INIT;
  op.collective = collective;
  op.send = x;
  op.recv = y;
  op.count = 4;
  op.dtype = SHUNT_DTYPE_FLOAT32;
  return op;
}

/* call is what the argument names, with good is 0 as rank 1 makes it. */
static shunt_status call(shunt_comm comm, const char *name, int good) {
  shunt_operation sum = operation(SHUNT_COLL_ALL_REDUCE), signal = operation(SHUNT_COLL_SIGNAL), counted = sum;
  shunt_op op = good ? SHUNT_OP_SUM : SHUNT_OP_PREMUL_SUM;
  shunt_request request;
  void *memory = good ? x : NULL;
  signal.count = 0;
  signal.window = window;
  if (strcmp(name, "signal") == 0)
    return good ? shunt_wait(comm, window, 1, 1, NULL) : shunt_signal(comm, window, 0, NULL);
  if (strcmp(name, "started signal") == 0)
    return good ? shunt_wait(comm, window, 1, 1, NULL) : shunt_start(comm, &signal, &request);
  if (strcmp(name, "signal in a group") == 0) {
    if (good)
      return shunt_wait(comm, window, 1, 1, NULL);
    OK(shunt_group_start(comm));
    OK(shunt_signal(comm, window, 0, NULL));
    return shunt_group_end(comm);
  }
  if (strcmp(name, "signal together") == 0)
    return good ? shunt_wait(comm, window, 1, 1, NULL) : shunt_run_together(&comm, &signal, 1);
  if (strcmp(name, "premul_sum") == 0)
    return shunt_all_reduce(comm, x, y, 4, SHUNT_DTYPE_FLOAT32, op, NULL);
  if (strcmp(name, "premul_sum of reduce_scatter_v") == 0) {
    counts[0] = 4;
    return shunt_reduce_scatter_v(comm, x, y, counts, NULL, SHUNT_DTYPE_FLOAT32, op, NULL);
  }
  if (strcmp(name, "counts on the device") == 0) {
    counted.counts_on_device = !good;
    return shunt_run(comm, &counted);
  }
  if (strcmp(name, "no operation") == 0)
    return shunt_run(comm, good ? &sum : NULL);
  if (strcmp(name, "no request") == 0)
    return good ? shunt_run(comm, &sum) : shunt_start(comm, &sum, NULL);
  if (strcmp(name, "size") == 0) {
    sum.struct_size = good ? sizeof sum : 3;
    return shunt_run(comm, &sum);
  }
  if (strcmp(name, "reserved") == 0) {
    sum.reserved = !good;
    return shunt_run(comm, &sum);
  }
  if (strcmp(name, "register") == 0)
    return shunt_register_symmetric(comm, memory, sizeof x);
  if (strcmp(name, "window") == 0)
    return shunt_window_create(comm, 64, good ? &window : NULL, &memory);
  if (strcmp(name, "much") == 0)
    return shunt_exchange(comm, bytes, good ? 1 : (int64_t)1 << 40, y);
  CHECK(strcmp(name, "negative") == 0);
  return shunt_exchange(comm, bytes, good ? 1 : -1, y);
}

int main(int argc, char **argv) {
  shunt_comm comm;
  int32_t rank;
  void *base;
  CHECK(argc == 2);
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_window_create(comm, 64, &window, &base));
  OK(shunt_barrier(comm, NULL));
  if (rank == 1) {
    OK(shunt_window_free(window));
    CHECK(call(comm, argv[1], 0) == SHUNT_INVALID_ARGUMENT);
  } else {
    CHECK(call(comm, argv[1], 1) != SHUNT_OK);
    puts(shunt_last_error(comm));
  }
  OK(shunt_close(comm));
  return 0;
}
