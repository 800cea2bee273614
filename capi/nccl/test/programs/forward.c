/*
 * forward.c: SHUNT_NCCL_FORWARD with a list, over the stand-in for the real NCCL, on host memory and in both modes of
 * ranks.h. SCENARIO says what is given and what is called: unsupported, listed, missing, failing, stuck, differing,
 * abort or leave; or all: foreign or latest.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "locks.h"
#include "ranks.h"

static char *log_of_fake;
static ncclResult_t *result_of_fake;
static atomic_bool *held_by_fake; /* ncclCommInitRank does not return */

/* logged counts the calls of the real library that begin with text. Another thread may be writing one more. */
static int logged(const char *text) {
  int found = 0;
  for (const char *at = log_of_fake, *end; at != NULL && (end = strchr(at, '\n')) != NULL; at = end + 1)
    found += strncmp(at, text, strlen(text)) == 0;
  return found;
}

/* before tells whether the first line with one text is above the first with the other. */
static int before(const char *text, const char *other) {
  const char *a = strstr(log_of_fake, text), *b = strstr(log_of_fake, other);
  return a != NULL && b != NULL && a < b;
}

static void open_fake(void) {
  void *fake = dlopen(getenv("SHUNT_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (fake == NULL)
    return;
  log_of_fake = dlsym(fake, "fake_log");
  result_of_fake = dlsym(fake, "fake_result");
  held_by_fake = dlsym(fake, "fake_held");
  *(ncclRedOp_t *)dlsym(fake, "fake_op") = 77;
  memcpy(dlsym(fake, "fake_id"), here > 1 || ranks[0].rank == 0 ? "ID-0\0\0\0" : "ID-else", 8);
}

/* sum checks an all_reduce by Shunt on every local communicator. */
static void sum(ncclComm_t *comms, int size) {
  float values[MOST], got[MOST];
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    values[l] = 1;
    CHECK(ncclAllReduce(&values[l], &got[l], 1, 7, 0, comms[l], NULL));
  }
  CHECK(ncclGroupEnd());
  for (int l = 0; l < here; l++)
    WANT(got[l] == (float)size);
}

/* What the real library's group returns is the result also where Shunt still makes communicators of that group. */
static void group_in_progress(ncclComm_t *comms, ncclRedOp_t *ops) {
  static const ncclResult_t of_theirs[] = {ncclSuccess, ncclInProgress, ncclSystemError, ncclSuccess};
  ncclConfig_t config = {.size = offsetof(ncclConfig_t, netName), .magic = NC_MAGIC, .version = 22809,
                         .blocking = 0, .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT,
                         .maxCTAs = NC_UNDEF_INT};
  ncclComm_t children[MOST];
  float values[2] = {1, 0};
  for (size_t i = 0; i < sizeof of_theirs / sizeof *of_theirs; i++) {
    CHECK(ncclGroupStart());
    for (int l = 0; l < here; l++) {
      log_of_fake[0] = 0;
      if (i % 2 == 0)
        CHECK(ncclReduceScatter(values, values + 1, 1, 7, ops[l], comms[l], NULL));
      CHECK(ncclCommSplit(comms[l], 0, 0, &children[l], &config));
      if (i % 2 != 0) /* beside what makes a communicator too it is the real library's */
        CHECK(ncclReduceScatter(values, values + 1, 1, 7, ops[l], comms[l], NULL));
      WANT(logged("ncclReduceScatter") == 1);
    }
    *result_of_fake = of_theirs[i];
    WANT(ncclGroupEnd() == (of_theirs[i] == ncclSuccess ? ncclInProgress : of_theirs[i]));
    *result_of_fake = ncclSuccess;
    for (int l = 0; l < here; l++) {
      ncclResult_t result;
      do
        CHECK(ncclCommGetAsyncError(children[l], &result));
      while (result == ncclInProgress);
      WANT(result == ncclSuccess);
    }
    for (int l = 0; l < here; l++)
      CHECK(ncclCommDestroy(children[l]));
  }
}

/* What the real library gave it takes back also behind ncclCommFinalize. */
static void give_back(ncclComm_t *comms, bool window) {
  for (int l = 0; l < here; l++) {
    CHECK(ncclCommFinalize(comms[l]));
    WANT(ncclCommMemStats(comms[l], 0, NULL) == ncclInvalidUsage);
    CHECK(window ? ncclCommWindowDeregister(comms[l], (ncclWindow_t)comms) : ncclDevCommDestroy(comms[l], NULL));
    CHECK(ncclCommDestroy(comms[l]));
  }
  WANT(logged(window ? "ncclCommWindowDeregister comm=0xfa4e" : "ncclDevCommDestroy comm=0xfa4e") == here);
  WANT(logged("ncclCommMemStats") == 0);
}

static void split(ncclComm_t *comms, ncclComm_t *children) {
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++)
    CHECK(ncclCommSplit(comms[l], 0, 0, &children[l], NULL));
  CHECK(ncclGroupEnd());
}

static void unsupported(void) {
  ncclComm_t comms[MOST], children[MOST], grown;
  ncclRedOp_t ops[MOST];
  ncclResult_t result;
  uint64_t value;
  float scalar = 2, values[2] = {1, 0};
  void *memory = NULL;
  ncclUniqueId id;
  for (int l = 0; l < here; l++)
    comms[l] = ranks[l].comm;
  sum(comms, world);
  WANT(logged("ncclAllReduce") == 0);
  /* Made with the first call that needs it; with it at once, where one process has several ranks. */
  WANT(logged("ncclCommInitRank ") == (here > 1 ? world : 0));
  for (int l = 0; l < here; l++) {
    char line[128];
    CHECK(ncclCommMemStats(comms[l], 0, &value));
    snprintf(line, sizeof line, "ncclCommInitRank comm=out nranks=%d commId=ID-0 rank=%d", world, ranks[l].rank);
    WANT(logged(line) == 1);
    CHECK(ncclCommMemStats(comms[l], 0, &value));
  }
  WANT(logged("ncclCommInitRank ") == here && logged("ncclCommMemStats comm=0xfa4e") == 2 * here);
  WANT(logged("ncclGetUniqueId") == (ranks[0].rank == 0));
  WANT(ncclCommMemStats(NULL, 0, &value) == ncclInvalidArgument);
  WANT(strstr(ncclGetLastError(NULL), "ncclCommMemStats: the communicator is NULL") != NULL);
  CHECK(ncclMemAlloc(&memory, 64));
  CHECK(ncclMemFree(memory));
  WANT(memory != NULL && logged("ncclMem") == 0); /* windows are Shunt's */
  /* Shunt takes no scalar in device memory: calls with the operation go where it is. */
  for (int l = 0; l < here; l++) {
    CHECK(ncclRedOpCreatePreMulSum(&ops[l], &scalar, 7, NC_SCALAR_DEVICE, comms[l]));
    WANT(ops[l] != 77); /* a number of ours */
  }
  float got[MOST];
  for (int times = 0; times < 2; times++) { /* each group of the program is one of the real library */
    log_of_fake[0] = 0;
    CHECK(ncclGroupStart());
    for (int l = 0; l < here; l++) {
      CHECK(ncclAllReduce(values, &got[l], 1, 7, 0, comms[l], NULL));
      CHECK(ncclReduceScatter(values, values + 1, 1, 7, ops[l], comms[l], NULL));
    }
    WANT(logged("ncclGroupStart") == 1 && logged("ncclGroupEnd") == 0);
    CHECK(ncclGroupEnd());
    for (int l = 0; l < here; l++)
      WANT(got[l] == (float)world);
    WANT(logged("ncclReduceScatter") == here && strstr(log_of_fake, " op=77 ") != NULL && logged("ncclAllReduce") == 0);
    WANT(before("ncclGroupStart", "ncclReduceScatter") && before("ncclReduceScatter", "ncclGroupEnd"));
  }
  group_in_progress(comms, ops);
  for (int l = 0; l < here; l++)
    CHECK(ncclRedOpDestroy(ops[l], comms[l]));
  WANT(logged("ncclRedOpDestroy op=77 comm=0xfa4e") == here);
  WANT(ncclReduceScatter(values, values + 1, 1, 7, ops[0], comms[0], NULL) == ncclInvalidArgument);
  /* Communicators that are made of it have their own; an asynchronous error of either is returned. */
  split(comms, children);
  WANT(logged("ncclCommSplit") == 0);
  log_of_fake[0] = 0;
  for (int l = 0; l < here; l++)
    CHECK(ncclCommMemStats(children[l], 1, &value));
  sum(children, world);
  CHECK(ncclCommGetAsyncError(children[0], &result));
  WANT(result == ncclSuccess && logged("ncclCommGetAsyncError comm=0xfa4e") == 1);
  *result_of_fake = ncclRemoteError;
  WANT(ncclCommMemStats(children[0], 1, &value) == ncclRemoteError);
  WANT(strcmp(ncclGetLastError(children[0]), "fake") == 0 && strcmp(ncclGetLastError(NULL), "fake") == 0);
  *result_of_fake = ncclSuccess;
  /* NULL is this thread's latest failure, whichever library's, also behind calls that do not fail. */
  CHECK(ncclCommGetAsyncError(children[0], &result));
  WANT(strcmp(ncclGetLastError(NULL), "fake") == 0);
  WANT(ncclCommCount(children[0], NULL) == ncclInvalidArgument);
  CHECK(ncclCommGetAsyncError(children[0], &result));
  WANT(strstr(ncclGetLastError(NULL), "count is NULL") != NULL);
  *result_of_fake = ncclSystemError;
  WANT(ncclParamBind(NULL, NULL) == ncclSystemError); /* of no communicator */
  WANT(strcmp(ncclGetLastError(NULL), "fake") == 0);
  *result_of_fake = ncclSuccess;
  sum(comms, world); /* all ranks have come here */
  for (int l = 0; l < here; l++)
    CHECK(ncclCommAbort(children[l]));
  WANT(logged("ncclCommAbort comm=0xfa4e") == here);
  WANT(ncclCommMemStats(children[0], 1, &value) == ncclInvalidArgument);
  split(comms, children);
  for (int l = 0; l < here; l++)
    CHECK(ncclDevCommCreate(children[l], NULL, NULL));
  log_of_fake[0] = 0;
  give_back(children, false);
  CHECK(ncclCommGetUniqueId(comms[0], &id));
  CHECK(ncclCommGrow(comms[0], world + 1, &id, ranks[0].rank, &grown, NULL));
  WANT(logged("ncclCommGrow comm=0xfa4e") == 1);
  CHECK(ncclCommDestroy(grown));
}

static void listed(void) {
  float value = 1, got = 0;
  ncclRedOp_t ops[MOST];
  ncclWindow_t window = NULL;
  ncclComm_t comms[MOST], children[MOST];
  void *memory = NULL;
  WANT(logged("ncclCommInitRank ") == here);
  log_of_fake[0] = 0;
  CHECK(ncclMemAlloc(&memory, 64)); /* windows are given, and want the real library's memory */
  CHECK(ncclMemFree(memory));
  WANT(logged("ncclMemAlloc ") == 1 && logged("ncclMemFree ") == 1);
  for (int l = 0; l < here; l++) {
    ncclComm_t comm = ranks[l].comm;
    CHECK(ncclAllReduce(&value, &got, 1, 7, 0, comm, NULL));
    CHECK(ncclAllReduceConfig(&value, &got, 1, 7, 0, comm, NULL, NULL));
    CHECK(ncclRecv(&got, 1, 7, ranks[l].rank, comm, NULL)); /* given with ncclSend */
    CHECK(ncclRedOpCreatePreMulSum(&ops[l], &value, 7, NC_SCALAR_HOST, comm));
    CHECK(ncclAllReduce(&value, &got, 1, 7, ops[l], comm, NULL));
    CHECK(ncclWinGetUserPtr(comm, window, (void **)&window));
  }
  WANT(logged("ncclAllReduce ") == 2 * here && logged("ncclAllReduceConfig") == here && logged("ncclRecv") == here);
  WANT(logged("ncclWinGetUserPtr comm=0xfa4e") == here && strstr(log_of_fake, "op=77 comm") != NULL);
  WANT(got == 0); /* the stand-in moves nothing */
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++)
    CHECK(ncclReduce(&value, &got, 1, 7, ops[l], 0, ranks[l].comm, NULL));
  CHECK(ncclGroupEnd());
  WANT(ranks[0].rank != 0 || got == (float)world); /* by Shunt, with the same operation */
  WANT(logged("ncclReduce ") == 0);
  WANT(ncclCommMemStats(ranks[0].comm, 0, NULL) == ncclInvalidUsage);
  for (int l = 0; l < here; l++)
    comms[l] = ranks[l].comm;
  split(comms, children);
  give_back(children, true);
}

/* Rank 1 has no library, or one that fails, and the others may be stuck in theirs: every rank gets the error, and Shunt
 * stays usable. No communicator of the real library's is left. */
static void failing(const char *words) {
  ncclComm_t comm = ranks[0].comm;
  uint64_t value;
  for (int times = 0; times < 2; times++) {
    ncclResult_t result = ncclCommMemStats(comm, 0, &value);
    WANT(result != ncclSuccess && result != ncclInProgress);
    WANT(strstr(ncclGetLastError(NULL), words) != NULL && strstr(ncclGetLastError(comm), words) != NULL);
  }
  sum(&comm, world);
  if (ranks[0].rank == 1 || held_by_fake == NULL)
    return;
  bool stuck = atomic_exchange(held_by_fake, false);
  while (stuck && logged("ncclCommAbort ") < 2)
    sched_yield();
  WANT(logged("ncclCommInitRank ") == logged("ncclCommAbort "));
}

static void *call(void *result) {
  *(ncclResult_t *)result = ncclCommMemStats(ranks[0].comm, 0, NULL);
  return NULL;
}

static pthread_t thread;
static ncclResult_t result_of_call;

/* begin_call lets another thread make the call, and returns when that waits for the other ranks. */
static void begin_call(void) {
  CHECK(pthread_create(&thread, NULL, call, &result_of_call));
  while (logged("ncclGetUniqueId ") == 0)
    sched_yield();
}

/* The other ranks do not come. Whoever asks is told at once, also where the call has begun meanwhile, and aborts, as
 * watchdogs do. */
static void abort_making(void) {
  ncclResult_t result = ncclSuccess;
  if (ranks[0].rank != 0) {
    do
      CHECK(ncclCommGetAsyncError(ranks[0].comm, &result));
    while (result == ncclSuccess);
    WANT(result == ncclRemoteError);
    CHECK(ncclCommAbort(ranks[0].comm));
    return;
  }
  before_lock = begin_call;
  locks = 1;
  CHECK(ncclCommGetAsyncError(ranks[0].comm, &result));
  WANT(before_lock == NULL && result == ncclInProgress);
  CHECK(ncclCommAbort(ranks[0].comm));
  pthread_join(thread, NULL);
  WANT(result_of_call == ncclRemoteError);
}

/* Rank 0 is inside the real library when another thread aborts; the others have left it. */
static void abort_inside(void) {
  ncclResult_t result = ncclSuccess;
  *held_by_fake = ranks[0].rank == 0;
  pthread_create(&thread, NULL, call, &result);
  while (ranks[0].rank == 0 && logged("ncclCommInitRank ") == 0)
    sched_yield();
  if (ranks[0].rank == 0)
    CHECK(ncclCommAbort(ranks[0].comm));
  pthread_join(thread, NULL);
  WANT(result == ncclRemoteError);
  if (ranks[0].rank != 0)
    CHECK(ncclCommAbort(ranks[0].comm));
}

/* Ranks whose settings differ: no rank gets a communicator, and all get the error. */
static int differing(char **argv) {
  ncclComm_t comm;
  world = atoi(argv[2]);
  ranks[0].rank = atoi(argv[3]);
  id_file = argv[4];
  WANT(ncclCommInitRank(&comm, world, exchange_id(ranks[0].rank, 0), ranks[0].rank) == ncclInvalidUsage);
  WANT(comm == NULL);
  WANT(strstr(ncclGetLastError(NULL), "SHUNT_NCCL_FORWARD is \"unsupported\" on rank 0 and \"") != NULL);
  WANT(strstr(ncclGetLastError(NULL), "\" on rank 1; it has to be equal") != NULL);
  return 0;
}

/* The real library alone serves this rank, which has rank 0's id of Shunt's. */
static int foreign(void) {
  ncclUniqueId id = {"SHID"};
  ncclComm_t comm;
  WANT(ncclCommInitRank(&comm, 2, id, 1) == ncclInvalidArgument);
  WANT(strstr(ncclGetLastError(NULL), "the unique id is Shunt's") != NULL);
  WANT(ncclCommInitRankConfig(&comm, 2, id, 1, NULL) == ncclInvalidArgument);
  WANT(ncclCommInitRankScalable(&comm, 2, 1, 1, &id, NULL) == ncclInvalidArgument);
  WANT(strstr(ncclGetLastError(NULL), "ncclCommInitRankScalable: the unique id is Shunt's") != NULL);
  return 0;
}

/* The real library alone serves this rank: a failure of its has its text, also behind one that this library has
 * found. */
static int latest(void) {
  ncclUniqueId id = {"theirs"};
  ncclComm_t comm, other;
  void *memory = NULL;
  int version;
  open_fake();
  CHECK(ncclCommInitRank(&comm, 2, id, 1));
#define THEIRS(call)                                                                              \
  do {                                                                                            \
    *result_of_fake = ncclSuccess;                                                                \
    WANT(ncclCommCount(NULL, NULL) == ncclInvalidArgument);                                       \
    CHECK(ncclGetVersion(&version));                                                              \
    WANT(strstr(ncclGetLastError(NULL), "the communicator is NULL") != NULL);                     \
    *result_of_fake = ncclSystemError;                                                            \
    WANT((call) == ncclSystemError && strcmp(ncclGetLastError(NULL), "fake") == 0);               \
  } while (0)
  THEIRS(ncclGetVersion(&version));
  THEIRS(ncclGetUniqueId(&id));
  THEIRS(ncclGroupStart());
  THEIRS(ncclGroupEnd());
  THEIRS(ncclGroupSimulateEnd(NULL));
  THEIRS(ncclMemAlloc(&memory, 64));
  THEIRS(ncclMemFree(memory));
  THEIRS(ncclCommInitAll(&other, 1, NULL));
  THEIRS(ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL));
  THEIRS(ncclCommDestroy(comm));
  return 0;
}

static int refused(const char *words) {
  ncclUniqueId id;
  ncclComm_t comm;
  WANT(ncclGetUniqueId(&id) == ncclInvalidUsage && strstr(ncclGetLastError(NULL), words) != NULL);
  WANT(ncclCommInitRank(&comm, 1, id, 0) == ncclInvalidUsage && strstr(ncclGetLastError(NULL), words) != NULL);
  WANT(ncclCommInitAll(&comm, 1, NULL) == ncclInvalidUsage && strstr(ncclGetLastError(NULL), words) != NULL);
  return 0;
}

int main(int argc, char **argv) {
  const char *scenario = getenv("SCENARIO");
  if (strcmp(scenario, "differing") == 0)
    return differing(argv);
  if (strncmp(scenario, "refused", 7) == 0)
    return refused(getenv("WORDS"));
  if (strcmp(scenario, "foreign") == 0)
    return foreign();
  if (strcmp(scenario, "latest") == 0)
    return latest();
  here = strcmp(argv[1], "thread") == 0 ? atoi(argv[2]) : 1;
  ranks[0].rank = here > 1 ? 0 : atoi(argv[3]);
  open_fake();
  start(argc, argv);
  bool stuck = strcmp(scenario, "stuck") == 0;
  if ((strcmp(scenario, "failing") == 0 || stuck) && ranks[0].rank == 1)
    *result_of_fake = ncclSystemError;
  else if (stuck)
    *held_by_fake = true;
  if (strcmp(scenario, "unsupported") == 0)
    unsupported();
  else if (strcmp(scenario, "listed") == 0)
    listed();
  else if (strcmp(scenario, "abort") == 0)
    abort_making();
  else if (strcmp(scenario, "leave") == 0)
    abort_inside();
  else
    failing(getenv("WORDS"));
  if (strcmp(scenario, "abort") == 0 || strcmp(scenario, "leave") == 0)
    return 0;
  if (log_of_fake != NULL)
    log_of_fake[0] = 0;
  finish();
  WANT(strcmp(scenario, "unsupported") != 0 ||
       (logged("ncclCommFinalize comm=0xfa4e") == here && logged("ncclCommDestroy comm=0xfa4e") == here));
  puts("ok");
  return 0;
}
