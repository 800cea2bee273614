/*
 * lifecycle.c: how communicators are made of others, fail and end, in both modes of ranks.h.
 */
#include "ranks.h"

/* sum checks an all_reduce of one float over local communicators; each rank brings its number in the world plus one. */
static ncclResult_t sum(ncclComm_t *comms, float want) {
  float *memory[MOST], one, got;
  ncclResult_t result = ncclSuccess;
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    if (comms[l] == NULL)
      continue;
    device_use(device_of(&ranks[l]));
    memory[l] = device_alloc(sizeof one);
    one = (float)ranks[l].rank + 1;
    device_write(memory[l], &one, sizeof one);
    WANT(ncclAllReduce(memory[l], memory[l], 1, 7, 0, comms[l], ranks[l].stream) == ncclSuccess);
  }
  result = ncclGroupEnd();
  for (int l = 0; l < here; l++) {
    if (comms[l] == NULL)
      continue;
    device_use(device_of(&ranks[l]));
    if (result == ncclSuccess)
      device_wait(ranks[l].stream);
    device_read(&got, memory[l], sizeof got);
    WANT(result != ncclSuccess || got == want);
    device_free(memory[l]);
  }
  return result;
}

static void destroy(ncclComm_t *comms) {
  for (int l = 0; l < here; l++)
    if (comms[l] != NULL)
      CHECK(ncclCommDestroy(comms[l]));
}

static void all(ncclComm_t *comms) {
  for (int l = 0; l < here; l++)
    comms[l] = ranks[l].comm;
}

/* Memory of each rank registered twice in one group, as nccl-tests does with what it sends and receives. */
static void windows(void) {
  enum { BYTES = 1 << 16, EACH = 2 };
  void *memory[MOST][EACH];
  ncclWindow_t made[MOST][EACH];
  for (int l = 0; l < here; l++)
    for (int i = 0; i < EACH; i++) {
      device_use(device_of(&ranks[l]));
      CHECK(ncclMemAlloc(&memory[l][i], BYTES));
    }
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++)
    for (int i = 0; i < EACH; i++)
      CHECK(ncclCommWindowRegister(ranks[l].comm, memory[l][i], BYTES, &made[l][i], 0));
  CHECK(ncclGroupEnd());
  for (int l = 0; l < here; l++)
    for (int i = 0; i < EACH; i++) {
      void *at = NULL;
      CHECK(ncclWinGetUserPtr(ranks[l].comm, made[l][i], &at));
      WANT(at == memory[l][i]);
    }
  ncclComm_t comms[MOST];
  all(comms);
  CHECK(sum(comms, (float)(world * (world + 1)) / 2));
  for (int l = 0; l < here; l++)
    for (int i = 0; i < EACH; i++) {
      device_use(device_of(&ranks[l]));
      CHECK(ncclCommWindowDeregister(ranks[l].comm, made[l][i]));
      CHECK(ncclMemFree(memory[l][i]));
    }
  /* In a group that fails nothing is registered. */
  ncclWindow_t none = (ncclWindow_t)(void *)&comms;
  float value;
  CHECK(ncclGroupStart());
  CHECK(ncclCommWindowRegister(ranks[0].comm, &value, sizeof value, &none, 0));
  WANT(ncclAllReduce(&value, &value, 1, 99, 0, ranks[0].comm, NULL) != ncclSuccess);
  WANT(ncclGroupEnd() != ncclSuccess && none == NULL);
}

/* Windows in one another, as JAX makes them: alike on all ranks, or elsewhere on every second one. */
static void windows_overlap(void) {
  enum { BYTES = 1 << 16, EACH = 4 };
  char *memory[MOST];
  ncclWindow_t made[MOST][EACH];
  for (int l = 0; l < here; l++) {
    device_use(device_of(&ranks[l]));
    CHECK(ncclMemAlloc((void **)&memory[l], BYTES));
  }
  for (int i = 0; i < EACH; i++) {
    CHECK(ncclGroupStart());
    for (int l = 0; l < here; l++) {
      int at = i < EACH - 1 ? i * BYTES / EACH : ranks[l].rank % 2 * BYTES / 2, bytes = i == 2 ? BYTES / 4 : BYTES / 2;
      CHECK(ncclCommWindowRegister(ranks[l].comm, memory[l] + at, bytes, &made[l][i], 1 /* symmetric */));
    }
    CHECK(ncclGroupEnd());
  }
  ncclComm_t comms[MOST];
  all(comms);
  CHECK(sum(comms, (float)(world * (world + 1)) / 2));
  for (int l = 0; l < here; l++) {
    device_use(device_of(&ranks[l]));
    for (int i = 0; i < EACH; i++)
      CHECK(ncclCommWindowDeregister(ranks[l].comm, made[l][(i + 2) % EACH]));
    CHECK(ncclMemFree(memory[l]));
  }
}

/* Two halves by parity, each backwards; the last rank of a world of three or more takes no part. */
static void splits(void) {
  ncclComm_t comms[MOST], left[MOST];
  int sitting = world > 2 ? world - 1 : -1;
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    int rank = ranks[l].rank;
    comms[l] = (ncclComm_t)(void *)&comms; /* neither NULL nor a communicator */
    CHECK(ncclCommSplit(ranks[l].comm, rank == sitting ? -1 : rank % 2, -rank, &comms[l], NULL));
  }
  CHECK(ncclGroupEnd());
  for (int parity = 0; parity < 2; parity++) {
    float want = 0;
    int members = 0, mine = 0;
    for (int rank = parity; rank < world; rank += 2)
      if (rank != sitting) {
        want += (float)rank + 1;
        members++;
      }
    for (int l = 0; l < here; l++) {
      int rank = ranks[l].rank, count = -1, place = -1, higher = 0;
      left[l] = NULL;
      if (rank == sitting) {
        WANT(comms[l] == NULL);
        continue;
      }
      if (rank % 2 != parity)
        continue;
      left[l] = comms[l];
      for (int other = rank + 2; other < world; other += 2)
        higher += other != sitting;
      CHECK(ncclCommCount(comms[l], &count));
      CHECK(ncclCommUserRank(comms[l], &place));
      WANT(count == members && place == higher);
      mine++;
    }
    if (mine > 0)
      CHECK(sum(left, want));
  }
  destroy(comms);
}

/* A communicator that is made in the background, with the config of an older version of NCCL. */
static void non_blocking(ncclUniqueId id) {
  ncclComm_t comms[MOST];
  ncclConfig_t config = {.size = offsetof(ncclConfig_t, netName), .magic = NC_MAGIC, .version = 22809,
                         .blocking = 0, .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT,
                         .maxCTAs = NC_UNDEF_INT};
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    device_use(device_of(&ranks[l]));
    CHECK(ncclCommInitRankConfig(&comms[l], world, id, ranks[l].rank, &config));
  }
  ncclResult_t result = ncclGroupEnd();
  WANT(result == ncclInProgress || result == ncclSuccess);
  for (int l = 0; l < here; l++)
    do
      CHECK(ncclCommGetAsyncError(comms[l], &result));
    while (result == ncclInProgress);
  WANT(result == ncclSuccess);
  CHECK(sum(comms, (float)(world * (world + 1) / 2)));
  destroy(comms);
  for (int l = 0; l < here; l++) {
    int count;
    WANT(ncclCommCount(comms[l], &count) == ncclInvalidArgument); /* it was destroyed */
    WANT(strstr(ncclGetLastError(NULL), "destroyed") != NULL);
  }
}

/* Without the last rank, which does not call; twice, as the parent stays usable. */
static void shrinks(void) {
  ncclComm_t comms[MOST] = {0}, parents[MOST];
  int excluded[] = {world - 1};
  for (int l = 0; l < here; l++) { /* no rank waits for another one */
    int twice[] = {(ranks[l].rank + 1) % world, (ranks[l].rank + 1) % world};
    WANT(ncclCommShrink(ranks[l].comm, twice, 2, &comms[l], NULL, 0) == ncclInvalidArgument);
    WANT(strstr(ncclGetLastError(ranks[l].comm), "named twice") != NULL && comms[l] == NULL);
  }
  for (int times = 0; times < 2; times++) {
    int staying = 0;
    CHECK(ncclGroupStart());
    for (int l = 0; l < here; l++)
      if (ranks[l].rank != world - 1) {
        CHECK(ncclCommShrink(ranks[l].comm, excluded, 1, &comms[l], NULL, 0));
        staying++;
      }
    CHECK(ncclGroupEnd());
    if (staying > 0)
      CHECK(sum(comms, (float)(world * (world - 1) / 2)));
    destroy(comms);
    memset(comms, 0, sizeof comms);
    all(parents);
    CHECK(sum(parents, (float)(world * (world + 1) / 2)));
  }
}

/* The last rank aborts while the others wait for it; they learn it from their calls, or from the asynchronous error. */
static void aborts(ncclUniqueId id) {
  ncclComm_t comm, comms[MOST];
  ncclResult_t result = ncclSuccess;
  CHECK(ncclCommInitRank(&comm, world, id, ranks[0].rank));
  comms[0] = comm;
  CHECK(sum(comms, (float)(world * (world + 1) / 2)));
  if (ranks[0].rank == world - 1) {
    CHECK(ncclCommAbort(comm));
    return;
  }
  float *memory = device_alloc(sizeof *memory);
  result = ncclAllReduce(memory, memory, 1, 7, 0, comm, ranks[0].stream);
  WANT(result == ncclSuccess || result == ncclRemoteError);
  do
    CHECK(ncclCommGetAsyncError(comm, &result));
  while (result == ncclSuccess);
  WANT(result == ncclRemoteError);
  WANT(strstr(ncclGetLastError(comm), "ncclCommAbort") != NULL);
  WANT(ncclAllReduce(memory, memory, 1, 7, 0, comm, ranks[0].stream) == ncclRemoteError);
  CHECK(ncclCommAbort(comm));
  WANT(ncclCommAbort(comm) == ncclInvalidArgument);
}

/* All ranks end what one of them waits for, and continue with a split and a shrink of the communicator. */
static void revokes(ncclUniqueId id) {
  ncclComm_t comm, comms[MOST];
  ncclResult_t result = ncclSuccess;
  CHECK(ncclCommInitRank(&comm, world, id, ranks[0].rank));
  comms[0] = comm;
  CHECK(sum(comms, (float)(world * (world + 1) / 2)));
  float *memory = device_alloc(sizeof *memory);
  if (ranks[0].rank == 0) {
    result = ncclAllReduce(memory, memory, 1, 7, 0, comm, ranks[0].stream);
    WANT(result == ncclSuccess || result == ncclRemoteError);
    while (result == ncclSuccess)
      CHECK(ncclCommGetAsyncError(comm, &result));
  }
  CHECK(ncclCommRevoke(comm, 0));
  WANT(ncclCommRevoke(comm, 0) == ncclInvalidArgument && ncclCommFinalize(comm) == ncclInvalidArgument);
  CHECK(ncclCommGetAsyncError(comm, &result));
  CHECK(result);
  WANT(ncclAllReduce(memory, memory, 1, 7, 0, comm, ranks[0].stream) == ncclInvalidUsage);
  WANT(strstr(ncclGetLastError(comm), "ncclCommRevoke") != NULL);
  CHECK(ncclCommSplit(comm, 0, 0, &comms[0], NULL));
  CHECK(sum(comms, (float)(world * (world + 1) / 2)));
  destroy(comms);
  if (ranks[0].rank != world - 1 && world > 1) {
    CHECK(ncclCommShrink(comm, (int[]){world - 1}, 1, &comms[0], NULL, 0));
    CHECK(sum(comms, (float)(world * (world - 1) / 2)));
    destroy(comms);
  }
  CHECK(ncclCommDestroy(comm));
  device_free(memory);
}

/* The last rank fails; the others shrink the communicator, and see by its state that the new one is there. */
static void shrinks_failed(ncclUniqueId id) {
  ncclComm_t comm, comms[MOST];
  ncclResult_t result = ncclSuccess;
  ncclConfig_t config = {.size = offsetof(ncclConfig_t, netName), .magic = NC_MAGIC, .version = 22809,
                         .blocking = 0, .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT,
                         .maxCTAs = NC_UNDEF_INT};
  CHECK(ncclCommInitRank(&comm, world, id, ranks[0].rank));
  if (ranks[0].rank == world - 1) {
    CHECK(ncclCommAbort(comm));
    return;
  }
  while (result == ncclSuccess)
    CHECK(ncclCommGetAsyncError(comm, &result));
  WANT(result == ncclRemoteError);
  WANT(ncclCommShrink(comm, (int[]){world - 1}, 1, &comms[0], &config, NC_SHRINK_ABORT) == ncclInProgress);
  do
    CHECK(ncclCommGetAsyncError(comm, &result));
  while (result == ncclInProgress);
  CHECK(result);
  CHECK(sum(comms, (float)(world * (world - 1) / 2)));
  destroy(comms);
  CHECK(ncclCommFinalize(comm));
  CHECK(ncclCommDestroy(comm));
}

/* Ranks that call differently return an error and do not hang. */
static void mismatch(ncclUniqueId id) {
  ncclComm_t comm;
  ncclResult_t result;
  CHECK(ncclCommInitRank(&comm, world, id, ranks[0].rank));
  float *memory = device_alloc(16 * sizeof *memory);
  result = ncclAllReduce(memory, memory, ranks[0].rank == 0 ? 8 : 16, 7, 0, comm, ranks[0].stream);
  while (result == ncclSuccess)
    CHECK(ncclCommGetAsyncError(comm, &result));
  WANT(result == ncclInvalidUsage);
  CHECK(ncclCommAbort(comm));
  device_free(memory);
}

int main(int argc, char **argv) {
  ncclComm_t comms[MOST];
  start(argc, argv);
  int threads = here == world, device = -1;
  for (int l = 0; l < here; l++) {
    CHECK(ncclCommCuDevice(ranks[l].comm, &device));
    WANT(on_host || device == ranks[l].rank % device_count);
  }
  windows();
  windows_overlap();
  splits();
  if (world > 2)
    shrinks();
  ncclUniqueId id;
  if (threads)
    CHECK(ncclGetUniqueId(&id));
  else
    id = exchange_id(ranks[0].rank, 1);
  non_blocking(id);
  if (!threads) {
    aborts(exchange_id(ranks[0].rank, 2));
    mismatch(exchange_id(ranks[0].rank, 3));
    revokes(exchange_id(ranks[0].rank, 4));
    if (world > 1)
      shrinks_failed(exchange_id(ranks[0].rank, 5));
  }
  all(comms);
  for (int l = 0; l < here; l++)
    CHECK(ncclCommFinalize(comms[l]));
  WANT(ncclAllReduce(NULL, NULL, 0, 7, 0, comms[0], NULL) == ncclInvalidUsage);
  destroy(comms);
  puts("ok");
  return 0;
}
