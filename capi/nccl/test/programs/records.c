/*
 * records.c abort|fail|goes_on|inside|long|all|TEXT: two ranks over the stand-in for NCCL. Rank 0 is one collective
 * ahead; then both abort, or rank 1's next call fails, with a text of NCCL's, and it aborts at once or goes on before,
 * or both abort while another thread is inside a call, or rank 1 aborts after more calls than are kept. With all they
 * are those of ncclCommInitAll, two times, and abort.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "ranks.h"

static void *broadcast(void *comm) {
  (void)ncclBroadcast(NULL, NULL, 7, 7, 0, comm, NULL);
  return NULL;
}

/* What is wrong with a call's arguments is the caller's mistake: it is no call, and no failure of the communicator. */
static void abort_inside(ncclComm_t comm, ncclResult_t then, ncclResult_t *result, atomic_int *hold) {
  pthread_t thread;
  *result = ncclInvalidArgument;
  WANT(ncclReduce(NULL, NULL, 8, 7, 2, 9, comm, NULL) == ncclInvalidArgument);
  *result = ncclSuccess;
  *hold = 1;
  WANT(pthread_create(&thread, NULL, broadcast, comm) == 0);
  while (*hold != 2)
    sched_yield();
  CHECK(ncclCommAbort(comm));
  *result = then;
  *hold = 0;
  pthread_join(thread, NULL);
}

static int abort_all(void) {
  ncclComm_t comms[2][2];
  for (int i = 0; i < 2; i++)
    CHECK(ncclCommInitAll(comms[i], 2, NULL));
  for (int i = 0; i < 4; i++)
    CHECK(ncclAllReduce(NULL, NULL, 300, 7, 0, comms[i / 2][i % 2], NULL));
  for (int i = 0; i < 4; i++)
    CHECK(ncclCommAbort(comms[i / 2][i % 2]));
  return 0;
}

int main(int argc, char **argv) {
  ncclComm_t comms[2], child;
  ncclUniqueId id = {"an id"};
  if (argc < 2)
    return 2;
  if (strcmp(argv[1], "all") == 0)
    return abort_all();
  for (int rank = 0; rank < 2; rank++) {
    CHECK(ncclCommInitRank(&comms[rank], 2, id, rank));
    CHECK(ncclAllReduce(NULL, NULL, 300, 7, 0, comms[rank], NULL));
    CHECK(ncclSend(NULL, 1, 2, 1 - rank, comms[rank], NULL));
  }
  CHECK(ncclBroadcast(NULL, NULL, 5, 1, 1, comms[0], NULL));
  CHECK(ncclCommSplit(comms[0], 3, 0, &child, NULL));
  void *fake = dlopen(getenv("SHUNT_NCCL_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  ncclResult_t *result = dlsym(fake, "fake_result");
  if (strcmp(argv[1], "inside") == 0) {
    abort_inside(comms[1], ncclSuccess, result, dlsym(fake, "fake_hold"));
    abort_inside(comms[0], ncclRemoteError, result, dlsym(fake, "fake_hold"));
    return 0;
  }
  bool goes_on = strcmp(argv[1], "goes_on") == 0, longer = strcmp(argv[1], "long") == 0;
  if (!longer && strcmp(argv[1], "abort") != 0) {
    if (!goes_on && strcmp(argv[1], "fail") != 0)
      *(const char **)dlsym(fake, "fake_text") = argv[1];
    *result = ncclRemoteError;
    WANT(ncclReduce(NULL, NULL, 8, 7, 2, 1, comms[1], NULL) == ncclRemoteError);
    *result = ncclSuccess;
    if (goes_on)
      CHECK(ncclAllGather(NULL, NULL, 8, 7, comms[1], NULL));
    CHECK(ncclCommAbort(comms[1])); /* the first reason stays, also where it is aborted for it */
    return 0;
  }
  for (int i = 0; longer && i < 1000; i++)
    CHECK(ncclAllReduce(NULL, NULL, (size_t)i, 7, 0, comms[1], NULL));
  for (int rank = longer; rank < 2; rank++)
    CHECK(ncclCommAbort(comms[rank]));
  return 0;
}
