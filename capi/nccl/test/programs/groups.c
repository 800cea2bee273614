/*
 * groups.c: what a group may have side by side, in both modes of ranks.h: several splits of one communicator, splits of
 * several in any order, registrations and operations.
 */
#include "ranks.h"

enum { FLOAT = 7, SUM = 0 };

static float *memory[MOST]; /* of each local rank: what it gives, and behind it what it gets */

static void queue(ncclComm_t *comms) {
  for (int l = 0; l < here; l++) {
    float one = (float)ranks[l].rank + 1;
    device_use(device_of(&ranks[l]));
    device_write(memory[l], &one, sizeof one);
    CHECK(ncclAllReduce(memory[l], memory[l] + 1, 1, FLOAT, SUM, comms[l], ranks[l].stream));
  }
}

static void expect(float want) {
  for (int l = 0; l < here; l++) {
    float got = 0, none = 0;
    device_use(device_of(&ranks[l]));
    device_wait(ranks[l].stream);
    device_read(&got, memory[l] + 1, sizeof got);
    WANT(got == want);
    device_write(memory[l] + 1, &none, sizeof none);
  }
}

static void sum(ncclComm_t *comms, float want) {
  CHECK(ncclGroupStart());
  queue(comms);
  CHECK(ncclGroupEnd());
  expect(want);
}

static void destroy(ncclComm_t *comms) {
  for (int l = 0; l < here; l++)
    if (comms[l] != NULL)
      CHECK(ncclCommDestroy(comms[l]));
}

/* end is ncclGroupEnd, and waits for what still runs after it. */
static void end(ncclComm_t *comms) {
  ncclResult_t result = ncclGroupEnd();
  WANT(result == ncclSuccess || result == ncclInProgress);
  for (int l = 0; l < here; l++) {
    do
      CHECK(ncclCommGetAsyncError(comms[l], &result));
    while (result == ncclInProgress);
    CHECK(result);
  }
}

/* Two splits of each communicator, the first of which leaves out the last rank, and an operation of it. */
static void splits_of_one(ncclComm_t *comms, float whole, ncclConfig_t *config) {
  ncclComm_t first[MOST], second[MOST];
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    CHECK(ncclCommSplit(comms[l], ranks[l].rank == world - 1 ? NC_SPLIT_NOCOLOR : 0, 0, &first[l], config));
    CHECK(ncclCommSplit(comms[l], 0, -ranks[l].rank, &second[l], config));
  }
  queue(comms);
  end(comms);
  expect(whole);
  for (int l = 0; l < here; l++) {
    int count, rank;
    WANT((first[l] == NULL) == (ranks[l].rank == world - 1));
    if (first[l] != NULL) {
      CHECK(ncclCommCount(first[l], &count));
      WANT(count == world - 1);
    }
    CHECK(ncclCommUserRank(second[l], &rank));
    WANT(rank == world - 1 - ranks[l].rank);
  }
  sum(second, whole);
  destroy(first);
  destroy(second);
}

/* Splits of two communicators, in another order on every second rank, in nested groups. */
static void splits_of_two(ncclComm_t *one, ncclComm_t *other, float whole) {
  ncclComm_t made[2][MOST];
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    CHECK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
      int which = (i + ranks[l].rank) % 2;
      CHECK(ncclCommSplit(which == 0 ? one[l] : other[l], 0, ranks[l].rank, &made[which][l], NULL));
    }
    CHECK(ncclGroupEnd());
  }
  CHECK(ncclGroupEnd());
  for (int which = 0; which < 2; which++) {
    sum(made[which], whole);
    destroy(made[which]);
  }
}

/* Registrations, operations with memory of them, an operation of the program's, and a split, in one group. */
static void registrations(ncclComm_t *comms, float whole) {
  enum { BYTES = 1 << 16 };
  ncclWindow_t windows[MOST];
  ncclComm_t children[MOST];
  void *handles[MOST], *registered[MOST];
  float *kept[MOST], factor = 1;
  ncclRedOp_t op;
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    ncclResult_t state;
    device_use(device_of(&ranks[l]));
    CHECK(ncclMemAlloc(&registered[l], BYTES));
    kept[l] = memory[l];
    memory[l] = registered[l];
    CHECK(ncclCommWindowRegister(comms[l], memory[l], BYTES, &windows[l], NC_WIN_COLL_SYMMETRIC));
    CHECK(ncclCommRegister(comms[l], memory[l], BYTES, &handles[l]));
    CHECK(ncclCommGetAsyncError(comms[l], &state));
    CHECK(state);
  }
  queue(comms);
  for (int l = 0; l < here; l++) {
    CHECK(ncclRedOpCreatePreMulSum(&op, &factor, FLOAT, NC_SCALAR_HOST, comms[l]));
    CHECK(ncclAllReduce(memory[l], memory[l] + 1, 1, FLOAT, op, comms[l], ranks[l].stream));
    CHECK(ncclRedOpDestroy(op, comms[l]));
    CHECK(ncclCommSplit(comms[l], 0, 0, &children[l], NULL));
  }
  CHECK(ncclGroupEnd());
  expect(whole);
  destroy(children);
  for (int l = 0; l < here; l++) {
    device_use(device_of(&ranks[l]));
    CHECK(ncclCommDeregister(comms[l], handles[l]));
    CHECK(ncclCommWindowDeregister(comms[l], windows[l]));
    CHECK(ncclMemFree(registered[l]));
    memory[l] = kept[l];
  }
}

/* Messages around a ring: before two collectives on one rank, between or behind them on others, in one group. */
static void messages(ncclComm_t *comms, float whole) {
  float *ring[MOST]; /* what is sent, what comes, and what rank 0 has broadcast */
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    int rank = ranks[l].rank;
    float own = (float)rank + 10, first = (float)rank + 1;
    device_use(device_of(&ranks[l]));
    ring[l] = device_alloc(3 * sizeof own);
    device_write(ring[l], &own, sizeof own);
    device_write(memory[l], &first, sizeof first);
    for (int i = 0; i < 3; i++) {
      if (rank % 3 == i) {
        CHECK(ncclSend(ring[l], 1, FLOAT, (rank + 1) % world, comms[l], ranks[l].stream));
        CHECK(ncclRecv(ring[l] + 1, 1, FLOAT, (rank + world - 1) % world, comms[l], ranks[l].stream));
      }
      if (i == 0)
        CHECK(ncclAllReduce(memory[l], memory[l] + 1, 1, FLOAT, SUM, comms[l], ranks[l].stream));
      if (i == 1)
        CHECK(ncclBroadcast(ring[l], ring[l] + 2, 1, FLOAT, 0, comms[l], ranks[l].stream));
    }
  }
  CHECK(ncclGroupEnd());
  expect(whole);
  for (int l = 0; l < here; l++) {
    float got[3];
    device_use(device_of(&ranks[l]));
    device_read(got, ring[l], sizeof got);
    WANT(got[1] == (float)((ranks[l].rank + world - 1) % world) + 10 && got[2] == 10);
    device_free(ring[l]);
  }
}

int main(int argc, char **argv) {
  ncclComm_t comms[MOST], other[MOST];
  ncclConfig_t config = {.size = offsetof(ncclConfig_t, netName), .magic = NC_MAGIC, .version = 22809,
                         .blocking = 0, .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT,
                         .maxCTAs = NC_UNDEF_INT};
  start(argc, argv);
  float whole = (float)(world * (world + 1)) / 2;
  for (int l = 0; l < here; l++) {
    device_use(device_of(&ranks[l]));
    comms[l] = ranks[l].comm;
    memory[l] = device_alloc(2 * sizeof *memory[l]);
  }
  const char *forward = getenv("SHUNT_NCCL_FORWARD");
  if (forward == NULL || strcmp(forward, "all") != 0) { /* NVIDIA's NCCL 2.28.9 can hang in them */
    splits_of_one(comms, whole, NULL);
    splits_of_one(comms, whole, &config);
  }
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++)
    CHECK(ncclCommSplit(comms[l], 0, 0, &other[l], NULL));
  CHECK(ncclGroupEnd());
  splits_of_two(comms, other, whole);
  registrations(comms, whole);
  messages(comms, whole);
  /* An operation runs also while something of another communicator runs. */
  ncclComm_t children[MOST];
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++)
    CHECK(ncclCommSplit(other[l], 0, 0, &children[l], &config));
  queue(comms);
  end(other);
  expect(whole);
  destroy(children);
  destroy(other);
  finish();
  puts("ok");
  return 0;
}
