/*
 * abort.c: a thread aborts the communicator while the main thread is inside a
 * call that would never return; every rank's call ends and says why, though the reason
 * is longer than the library takes.
 */
#include <pthread.h>

#include "check.h"

static shunt_comm comm;
static char reason[1 << 17] = "enough waiting";

static void *end_it(void *started) {
  shunt_request request = *(shunt_request *)started;
  int32_t done = 0;
  /* The request is in flight and stays so: no rank sends. */
  OK(shunt_request_test(request, 50, &done));
  CHECK(!done);
  memset(reason + strlen(reason), '.', sizeof reason - strlen(reason) - 1);
  OK(shunt_abort(comm, reason));
  return NULL;
}

int main(void) {
  int32_t rank, world;
  float nothing[4];
  shunt_operation operation = SHUNT_OPERATION_INIT;
  shunt_request request;
  pthread_t thread;
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  operation.collective = SHUNT_COLL_RECV;
  operation.dtype = SHUNT_DTYPE_FLOAT32;
  operation.recv = nothing;
  operation.count = 4;
  operation.root = (rank + 1) % world;
  /* Rank 0 may have given up before another rank comes so far. */
  shunt_status begun = shunt_start(comm, &operation, &request);
  CHECK(begun == SHUNT_OK || (rank != 0 && begun == SHUNT_ABORTED));
  if (rank == 0)
    CHECK(pthread_create(&thread, NULL, end_it, &request) == 0);
  shunt_status ended = shunt_recv(comm, nothing, 4, SHUNT_DTYPE_FLOAT32, (rank + 1) % world, NULL);
  CHECK(ended == SHUNT_ABORTED);
  CHECK(strstr(shunt_last_error(NULL), "enough waiting") != NULL);
  if (rank == 0)
    pthread_join(thread, NULL);
  CHECK(begun != SHUNT_OK || shunt_request_wait(request) == SHUNT_ABORTED);
  CHECK(strstr(shunt_last_error(comm), "enough waiting") != NULL);
  CHECK(shunt_barrier(comm, NULL) == SHUNT_ABORTED);
  OK(shunt_close(comm));
  return 0;
}
