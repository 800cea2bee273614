/*
 * waits.c: what makes a communicator waits for ranks that do not come, and the program ends it. The ranks are
 * communicators of one thread, which are made in the background.
 *
 *   PROGRAM init | split | shrink | "shrink aborts" | parent | group | destroy | "open group" | calls
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

#include "ranks.h"

static ncclConfig_t config = {.size = offsetof(ncclConfig_t, netName), .magic = NC_MAGIC, .version = 22809,
                              .blocking = 0, .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT,
                              .maxCTAs = NC_UNDEF_INT};

static ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t result;
  do
    CHECK(ncclCommGetAsyncError(comm, &result));
  while (result == ncclInProgress);
  return result;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool in_progress(ncclComm_t comm) {
  ncclResult_t result;
  struct timespec a_while = {0, 100000000}; /* until its thread waits for the others, most likely */
  nanosleep(&a_while, NULL);
  CHECK(ncclCommGetAsyncError(comm, &result));
  return result == ncclInProgress;
}

static void abort_soon(ncclComm_t comm) {
  double began = now();
  CHECK(ncclCommAbort(comm));
  WANT(now() - began < 10);
}

static void make(ncclComm_t *comms, int count) {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  for (int rank = 0; rank < count; rank++)
    WANT(ncclCommInitRankConfig(&comms[rank], count, id, rank, &config) == ncclInProgress);
  for (int rank = 0; rank < count; rank++)
    CHECK(settled(comms[rank]));
}

static void init_alone(void) {
  for (int rank = 0; rank < 2; rank++) {
    ncclComm_t comm;
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id));
    WANT(ncclCommInitRankConfig(&comm, 2, id, rank, &config) == ncclInProgress);
    WANT(in_progress(comm));
    abort_soon(comm);
  }
}

/* The other rank, which comes late, learns it. Then both are as good as ever. */
static void split_alone(ncclComm_t *comms) {
  ncclComm_t children[2];
  float values[2] = {1, 2};
  WANT(ncclCommSplit(comms[0], 0, 0, &children[0], NULL) == ncclInProgress);
  WANT(in_progress(comms[0]) && in_progress(children[0]));
  abort_soon(children[0]);
  CHECK(settled(comms[0]));
  WANT(ncclCommSplit(comms[1], 0, 0, &children[1], NULL) == ncclInProgress);
  WANT(settled(children[1]) == ncclRemoteError);
  CHECK(ncclCommAbort(children[1]));
  for (int rank = 0; rank < 2; rank++)
    WANT(ncclCommSplit(comms[rank], 0, 1 - rank, &children[rank], NULL) == ncclInProgress);
  for (int rank = 0; rank < 2; rank++)
    CHECK(settled(comms[rank])); /* the parent: its child is there too */
  CHECK(ncclGroupStart());
  for (int rank = 0; rank < 2; rank++)
    CHECK(ncclAllReduce(&values[rank], &values[rank], 1, 7, 0, children[rank], NULL));
  CHECK(ncclGroupEnd());
  WANT(values[0] == 3 && values[1] == 3);
  for (int rank = 0; rank < 2; rank++)
    CHECK(ncclCommDestroy(children[rank]));
}

static void shrink_alone(ncclComm_t *comms, int flags) {
  ncclComm_t child;
  WANT(ncclCommShrink(comms[0], (int[]){2}, 1, &child, NULL, flags) == ncclInProgress);
  WANT(in_progress(child));
  abort_soon(child);
}

/* A shrink that aborts ends what the other ranks call on the parent; one that does not leaves it as it is. */
static void shrink_aborts(ncclComm_t *comms) {
  ncclComm_t children[2];
  ncclResult_t result = ncclSuccess;
  for (int flags = 0; flags <= NC_SHRINK_ABORT; flags++) {
    WANT(result == ncclSuccess);
    for (int rank = 0; rank < 2; rank++)
      WANT(ncclCommShrink(comms[rank], (int[]){2}, 1, &children[rank], NULL, flags) == ncclInProgress);
    for (int rank = 0; rank < 2; rank++)
      CHECK(settled(children[rank]));
    for (int rank = 0; rank < 2; rank++)
      CHECK(ncclCommDestroy(children[rank]));
    CHECK(ncclCommGetAsyncError(comms[2], &result));
  }
  for (double began = now(); result == ncclSuccess && now() - began < 20;)
    CHECK(ncclCommGetAsyncError(comms[2], &result));
  WANT(result == ncclRemoteError);
}

/* Abort of the parent, while a split, a split without a child, and a shrink of it wait. */
static void parents(ncclComm_t *comms) {
  ncclComm_t child;
  for (int rank = 0; rank < 3; rank++) {
    if (rank == 2)
      WANT(ncclCommShrink(comms[rank], (int[]){0}, 1, &child, NULL, 0) == ncclInProgress);
    else
      WANT(ncclCommSplit(comms[rank], rank == 0 ? 0 : NC_SPLIT_NOCOLOR, 0, &child, NULL) == ncclInProgress);
    WANT((child == NULL) == (rank == 1));
    WANT(rank != 0 || in_progress(comms[rank])); /* the other ranks get to know of the first abort */
    abort_soon(comms[rank]);
    if (child != NULL) {
      WANT(settled(child) != ncclSuccess);
      abort_soon(child);
    }
  }
}

/* Of several splits in a group the last child is aborted, while the first waits. */
static void group_alone(ncclComm_t *comms) {
  ncclComm_t children[3], outside;
  CHECK(ncclGroupStart());
  for (int i = 0; i < 3; i++)
    CHECK(ncclCommSplit(comms[0], i == 1 ? NC_SPLIT_NOCOLOR : 0, 0, &children[i], NULL));
  CHECK(ncclCommGetAsyncError(comms[0], &(ncclResult_t){0}));
  WANT(ncclGroupEnd() == ncclInProgress);
  WANT(in_progress(children[0]));
  abort_soon(children[2]);
  WANT(settled(children[0]) == ncclRemoteError);
  abort_soon(children[0]);
  CHECK(settled(comms[0]));
  CHECK(ncclGroupStart());
  CHECK(ncclCommSplit(comms[0], 0, 0, &outside, NULL));
  WANT(ncclCommAbort(outside) == ncclInvalidUsage);
  WANT(ncclGroupEnd() == ncclInvalidUsage && outside == NULL);
}

/* Only an abort ends what is being made. */
static void destroys(ncclComm_t *comms) {
  ncclComm_t child;
  WANT(ncclCommSplit(comms[0], 0, 0, &child, NULL) == ncclInProgress);
  WANT(ncclCommFinalize(child) == ncclInvalidArgument && ncclCommDestroy(child) == ncclInvalidArgument);
  WANT(ncclCommFinalize(comms[0]) == ncclInvalidArgument && ncclCommDestroy(comms[0]) == ncclInvalidArgument);
  abort_soon(child);
}

struct left { /* a thread's group: a split and a window of comm, and a new communicator */
  ncclComm_t comm, child, made;
  ncclWindow_t window;
  ncclRedOp_t op;
  bool ends; /* the group, when the others have been aborted; else the thread ends in it */
  sem_t open, aborted;
};

static void *leave_open(void *argument) {
  struct left *l = argument;
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclGroupStart());
  CHECK(ncclCommSplit(l->comm, 0, 0, &l->child, &config));
  CHECK(ncclCommWindowRegister(l->comm, l, sizeof *l, &l->window, 0));
  CHECK(ncclCommInitRank(&l->made, 1, id, 0));
  sem_post(&l->open);
  if (!l->ends)
    return NULL;
  sem_wait(&l->aborted);
  WANT(ncclGroupEnd() == ncclInvalidArgument && strstr(ncclGetLastError(NULL), "destroyed") != NULL);
  WANT(l->child == NULL && l->made == NULL && l->window == NULL);
  return NULL;
}

/* An abort does not wait for what has not begun, in another thread's open group, which may never end. */
static void open_group(ncclComm_t comm, bool ends) {
  struct left l = {.comm = comm, .ends = ends};
  pthread_t thread;
  sem_init(&l.open, 0, 0);
  sem_init(&l.aborted, 0, 0);
  WANT(pthread_create(&thread, NULL, leave_open, &l) == 0);
  sem_wait(&l.open);
  if (ends) {
    WANT(ncclCommDestroy(comm) == ncclInvalidArgument); /* only an abort ends it */
    abort_soon(l.made);
    abort_soon(comm);
    abort_soon(l.child);
    sem_post(&l.aborted);
    pthread_join(thread, NULL);
    return;
  }
  pthread_join(thread, NULL);
  WANT(ncclCommAbort(l.made) == ncclInvalidArgument && ncclCommAbort(l.child) == ncclInvalidArgument);
  CHECK(settled(comm)); /* it is as good as ever */
  CHECK(ncclAllReduce(&l, &l, 0, 7, 0, comm, NULL));
}

static sem_t called;

static void *call(void *argument) {
  struct left *l = argument;
  float value = 1;
  ncclResult_t result = ncclAllReduce(&value, &value, 1, 7, l->op, l->comm, NULL);
  sem_post(&called);
  while (result == ncclSuccess)
    result = ncclAllReduce(&value, &value, 0, 7, l->op, l->comm, NULL);
  return NULL;
}

/* An abort while other threads call, with an operation of the program's own. */
static void abort_calls(void) {
  sem_init(&called, 0, 0);
  for (int round = 0; round < 50; round++) {
    struct left l = {0};
    pthread_t threads[3];
    float factor = 2;
    make(&l.comm, 1);
    CHECK(ncclRedOpCreatePreMulSum(&l.op, &factor, 7, 1, l.comm));
    for (int i = 0; i < 3; i++)
      WANT(pthread_create(&threads[i], NULL, call, &l) == 0);
    for (int i = 0; i < 3; i++)
      sem_wait(&called);
    abort_soon(l.comm);
    for (int i = 0; i < 3; i++)
      pthread_join(threads[i], NULL);
  }
}

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  ncclComm_t comms[3];
  alarm(50); /* what is missed waits for the library's timeout */
  device_open(1);
  if (strcmp(how, "init") == 0) {
    init_alone();
    return 0;
  }
  if (strcmp(how, "calls") == 0) {
    abort_calls();
    return 0;
  }
  if (strcmp(how, "open group") == 0) {
    make(comms, 1);
    open_group(comms[0], false);
    open_group(comms[0], true);
    return 0;
  }
  int count = strncmp(how, "shrink", 6) == 0 || strcmp(how, "parent") == 0 ? 3 : 2;
  make(comms, count);
  if (strcmp(how, "split") == 0)
    split_alone(comms);
  else if (strcmp(how, "shrink") == 0)
    for (int flags = 0; flags < 2; flags++)
      shrink_alone(comms, flags);
  else if (strcmp(how, "shrink aborts") == 0)
    shrink_aborts(comms);
  else if (strcmp(how, "parent") == 0)
    parents(comms);
  else if (strcmp(how, "group") == 0)
    group_alone(comms);
  else
    destroys(comms);
  for (int rank = 0; rank < count && strcmp(how, "parent") != 0; rank++)
    CHECK(ncclCommAbort(comms[rank]));
  return 0;
}
