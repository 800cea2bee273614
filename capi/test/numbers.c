/*
 * numbers.c: pointers that are none: the streams 1 and 2 (cudaStreamLegacy, cudaStreamPerThread), dangling addresses of
 * empty messages, arrays at addresses where there is no memory. Threads grow their stacks, which are shrunk in calls.
 */
#include <pthread.h>
#include <string.h>

#include "check.h"

static void *call(void *argument) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  char id[512], text[8000];
  shunt_comm comm;
  uint64_t needed;
  (void)argument;
  OK(shunt_get_unique_id(id, sizeof id));
  options.world = 1;
  options.id = id;
  OK(shunt_comm_init(&options, &comm));
  for (int i = 0; i < 1000; i++) {
    const float x = (float)i;
    float y = -1, z = -1;
    shunt_operation op = SHUNT_OPERATION_INIT, empty = SHUNT_OPERATION_INIT;
    shunt_request request;
    op.collective = empty.collective = SHUNT_COLL_ALL_REDUCE;
    op.dtype = empty.dtype = SHUNT_DTYPE_FLOAT32;
    op.send = &x;
    op.recv = &y;
    op.count = 1;
    empty.send = (void *)4;
    empty.recv = (void *)8;
    op.stream = empty.stream = (void *)(uintptr_t)(1 + i % 2);
    OK(shunt_explain(comm, SHUNT_COLL_ALL_REDUCE, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, 100, text, sizeof text, &needed));
    for (int k = 0; k < 20; k++) {
      OK(shunt_start(comm, k % 4 ? &op : &empty, &request));
      OK(shunt_request_wait(request));
    }
    OK(shunt_run_together(&comm, &op, 1));
    OK(shunt_group_start(comm));
    OK(shunt_send(comm, &x, 1, SHUNT_DTYPE_FLOAT32, 0, op.stream));
    OK(shunt_recv(comm, &z, 1, SHUNT_DTYPE_FLOAT32, 0, op.stream));
    OK(shunt_group_end(comm));
    OK(shunt_synchronize(comm, op.stream));
    CHECK(y == x && z == x);
  }
  OK(shunt_close(comm));
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  shunt_comm comm;
  float x = 1, y = 0;
  const int64_t one = 1, zero = 0;

  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, call, NULL) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);

  OK(shunt_comm_init_env(&comm));
  CHECK(shunt_all_to_all_v(comm, &x, &one, &zero, &y, (int64_t *)16, &zero, SHUNT_DTYPE_FLOAT32, NULL) ==
        SHUNT_INVALID_ARGUMENT);
  OK(shunt_all_to_all_v(comm, &x, &one, &zero, &y, &one, &zero, SHUNT_DTYPE_FLOAT32, NULL));
  CHECK(y == 1);
  OK(shunt_close(comm));
  return 0;
}
