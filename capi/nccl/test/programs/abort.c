/*
 * abort.c: ncclCommAbort at the moment at which a communicator has been made, and its library does not have it yet: for
 * one of two ranks, which are threads of one process. The other rank does not continue before the abort has returned,
 * so the first would wait for it.
 *
 *   PROGRAM init | split
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "nccl_gen.h"

#define WANT(condition)                                                                                    \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      fprintf(stderr, "%s:%d: want %s: %s\n", __FILE__, __LINE__, #condition, ncclGetLastError(NULL));     \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

static sem_t ready, looked, returned; /* rank 0 is made; its abort waits for the end of the making; it has returned */
static atomic_bool stops;
static _Thread_local bool aborting;

/* made is called where a communicator has been made, by late.c. */
void made(int32_t rank);
void made(int32_t rank) {
  if (!atomic_load(&stops))
    return;
  if (rank == 0)
    sem_post(&ready);
  sem_wait(rank == 0 ? &looked : &returned);
}

/* In front of the C library's: an abort that waits has looked for the communicator before. */
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
  struct timespec never = {.tv_sec = INT32_MAX};
  if (aborting) {
    aborting = false;
    sem_post(&looked);
  }
  return pthread_cond_timedwait(condition, mutex, &never);
}

static ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t result;
  do
    WANT(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
  while (result == ncclInProgress);
  return result;
}

int main(int argc, char **argv) {
  bool split = argc > 1 && strcmp(argv[1], "split") == 0;
  ncclComm_t comms[2], children[2];
  ncclUniqueId id;
  ncclConfig_t config = {.size = offsetof(ncclConfig_t, netName), .magic = NC_MAGIC, .version = 22809,
                         .blocking = 0, .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT,
                         .maxCTAs = NC_UNDEF_INT};
  alarm(30); /* an abort that was missed waits for the library's timeout */
  sem_init(&ready, 0, 0);
  sem_init(&looked, 0, 0);
  sem_init(&returned, 0, 0);
  atomic_store(&stops, !split);
  WANT(ncclGetUniqueId(&id) == ncclSuccess);
  for (int rank = 0; rank < 2; rank++)
    WANT(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == ncclInProgress);
  if (split) {
    for (int rank = 0; rank < 2; rank++)
      WANT(settled(comms[rank]) == ncclSuccess);
    atomic_store(&stops, true);
    for (int rank = 0; rank < 2; rank++)
      WANT(ncclCommSplit(comms[rank], 0, rank, &children[rank], NULL) == ncclInProgress);
  }
  ncclComm_t *pending = split ? children : comms;
  sem_wait(&ready);
  aborting = true;
  WANT(ncclCommAbort(pending[0]) == ncclSuccess);
  sem_post(&returned);
  WANT(settled(pending[1]) == ncclRemoteError); /* it learns of the abort */
  WANT(ncclCommAbort(pending[1]) == ncclSuccess);
  if (split)
    for (int rank = 0; rank < 2; rank++)
      WANT(ncclCommAbort(comms[rank]) == ncclSuccess);
  return 0;
}
