/*
 * bad_input.c: calls that are wrong get the result that NCCL names, and a text; nothing crashes. A world of one.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "locks.h"
#include "ranks.h"

static ncclComm_t comm;

static ncclComm_t ended;
static void finalize(void) { CHECK(ncclCommFinalize(ended)); }

#define REJECTED(call, result, words)                                                                   \
  do {                                                                                                  \
    int returned = (call);                                                                                   \
    if (returned != (result) || strstr(ncclGetLastError(NULL), words) == NULL) {                             \
      fprintf(stderr, "line %d: %s returned %d (%s); want %d and \"%s\"\n", __LINE__, #call, returned,  \
              ncclGetLastError(NULL), result, words);                                                   \
      exit(1);                                                                                          \
    }                                                                                                   \
  } while (0)

static void communicators(ncclUniqueId id) {
  ncclComm_t other;
  char stranger[512] = {0};
  ncclConfig_t config = {.size = sizeof config, .magic = 7, .version = 22809};
  ncclUniqueId foreign = {"not Shunt's"};
  REJECTED(ncclGetUniqueId(NULL), ncclInvalidArgument, "uniqueId is NULL");
  REJECTED(ncclGetVersion(NULL), ncclInvalidArgument, "version is NULL");
  REJECTED(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "comm is NULL");
  REJECTED(ncclCommInitRank(&other, 0, id, 0), ncclInvalidArgument, "rank 0 of 0");
  REJECTED(ncclCommInitRank(&other, 2, id, 2), ncclInvalidArgument, "rank 2 of 2");
  REJECTED(ncclCommInitRank(&other, 2, id, -1), ncclInvalidArgument, "rank -1 of 2");
  REJECTED(ncclCommInitRank(&other, 2, foreign, 1), ncclInvalidArgument, "not one of Shunt's");
  WANT(other == NULL);
  REJECTED(ncclCommInitRankConfig(&other, 1, id, 0, &config), ncclInvalidArgument, "config.magic");
  config.magic = NC_MAGIC;
  config.size = 3;
  REJECTED(ncclCommInitRankConfig(&other, 1, id, 0, &config), ncclInvalidArgument, "config.size");
  config.size = sizeof config;
  config.blocking = 2;
  REJECTED(ncclCommInitRankConfig(&other, 1, id, 0, &config), ncclInvalidArgument, "config.blocking");
  config.blocking = config.cgaClusterSize = config.splitShare = NC_UNDEF_INT;
  config.minCTAs = 3;
  config.maxCTAs = 2;
  REJECTED(ncclCommSplit(comm, 0, 0, &other, &config), ncclInvalidArgument, "config.minCTAs is 3; want 1 to 2");
  config.maxCTAs = 0;
  REJECTED(ncclCommSplit(comm, 0, 0, &other, &config), ncclInvalidArgument, "config.maxCTAs");
  config.minCTAs = config.maxCTAs = NC_UNDEF_INT;
  config.cgaClusterSize = -1;
  REJECTED(ncclCommSplit(comm, 0, 0, &other, &config), ncclInvalidArgument, "config.cgaClusterSize");
  config.cgaClusterSize = 4;
  config.splitShare = 2;
  REJECTED(ncclCommSplit(comm, 0, 0, &other, &config), ncclInvalidArgument, "config.splitShare is 2; want 0 to 1");
  REJECTED(ncclCommInitRankScalable(&other, 1, 0, 0, &id, NULL), ncclInvalidArgument, "nId is 0");
  REJECTED(ncclCommInitRankScalable(&other, 1, 0, 2, &id, NULL), ncclInvalidArgument, "nId is 2; want 1 to the 1");
  REJECTED(ncclCommInitRankScalable(&other, 1, 0, 1, NULL, NULL), ncclInvalidArgument, "id is NULL");
  REJECTED(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "ncclCommInitAll");
  REJECTED(ncclCommInitAll(&other, 0, NULL), ncclInvalidArgument, "ndev is 0");
  REJECTED(ncclCommInitAll(&other, 1, (int[]){-1}), ncclInvalidArgument, "device -1 of rank 0");
  REJECTED(ncclCommSplit(NULL, 0, 0, &other, NULL), ncclInvalidArgument, "NULL");
  REJECTED(ncclCommSplit(comm, 0, 0, NULL, NULL), ncclInvalidArgument, "newcomm is NULL");
  REJECTED(ncclCommSplit(comm, -2, 0, &other, NULL), ncclInvalidArgument, "color -2");
  int excluded[] = {0, 5};
  REJECTED(ncclCommShrink(comm, excluded, 1, &other, NULL, 0), ncclInvalidArgument, "excludes itself");
  REJECTED(ncclCommShrink(comm, excluded + 1, 1, &other, NULL, 0), ncclInvalidArgument, "excluded rank 5");
  REJECTED(ncclCommShrink(comm, NULL, 1, &other, NULL, 0), ncclInvalidArgument, "list");
  REJECTED(ncclCommShrink(comm, excluded, 0, &other, NULL, 0), ncclInvalidArgument, "list of 0");
  REJECTED(ncclCommShrink(comm, excluded + 1, 1, &other, NULL, 6), ncclInvalidArgument, "flags 0x6");
  REJECTED(ncclCommCount((ncclComm_t)(void *)stranger, &excluded[0]), ncclInvalidArgument, "not a communicator");
  REJECTED(ncclCommCount((ncclComm_t)((char *)comm + 1), &excluded[0]), ncclInvalidArgument, "not a communicator");
  REJECTED(ncclCommCount(comm, NULL), ncclInvalidArgument, "count is NULL");
  REJECTED(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument, "asyncError is NULL");
  REJECTED(ncclCommDestroy((ncclComm_t)(void *)stranger), ncclInvalidArgument, "not a communicator");
  REJECTED(ncclCommRevoke(comm, 1), ncclInvalidArgument, "revokeFlags");
  CHECK(ncclCommDestroy(NULL));
  CHECK(ncclCommRevoke(NULL, 0));
  CHECK(ncclCommWindowDeregister(comm, NULL));
}

/* What is behind the size that a program names is not the config's, and may not be there. */
static void sizes(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), known = 24; /* of 2.14 to 2.16: blocking, and 4 bytes of padding */
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ncclComm_t other;
  ncclConfig_t *longer = (void *)pages, config = {.size = known, .magic = NC_MAGIC, .version = 21602};
  config.blocking = 1;
  config.cgaClusterSize = config.minCTAs = config.maxCTAs = config.splitShare = -7;
  CHECK(ncclCommSplit(comm, 0, 0, &other, &config));
  CHECK(ncclCommDestroy(other));
  WANT(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
  char *end = pages + page - known;
  memcpy(end, &config, known);
  CHECK(ncclCommSplit(comm, 0, 0, &other, (ncclConfig_t *)(void *)end));
  CHECK(ncclCommDestroy(other));
  config.version = 21300; /* what is younger than a program's version is not read */
  config.size = sizeof config;
  config.blocking = -7;
  CHECK(ncclCommSplit(comm, 0, 0, &other, &config));
  CHECK(ncclCommDestroy(other));
  *longer = (ncclConfig_t){.size = 4096, .magic = NC_MAGIC, .version = 23203, .blocking = 1,
                           .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT,
                           .maxCTAs = NC_UNDEF_INT, .splitShare = NC_UNDEF_INT};
  CHECK(ncclCommSplit(comm, 0, 0, &other, longer)); /* of a later version */
  CHECK(ncclCommDestroy(other));
  longer->size = SIZE_MAX;
  REJECTED(ncclCommSplit(comm, 0, 0, &other, longer), ncclInvalidArgument, "config.size");
  ncclCollConfig_t tuning = {.size = sizeof tuning, .magic = 7};
  REJECTED(ncclAllReduceConfig(NULL, NULL, 0, 7, 0, comm, NULL, &tuning), ncclInvalidArgument, "config.magic");
  tuning = (ncclCollConfig_t){.size = sizeof tuning - 1, .magic = NC_MAGIC};
  REJECTED(ncclAllReduceConfig(NULL, NULL, 0, 7, 0, comm, NULL, &tuning), ncclInvalidArgument, "its size");
  munmap(pages, 2 * page);
}

/* A communicator that has ended is not taken for one that was made after it. */
static void stale(void) {
  ncclComm_t old, other;
  CHECK(ncclCommSplit(comm, 0, 0, &old, NULL));
  CHECK(ncclCommDestroy(old));
  CHECK(ncclCommSplit(comm, 0, 0, &other, NULL));
  int rank;
  REJECTED(ncclCommUserRank(old, &rank), ncclInvalidArgument, "destroyed");
  REJECTED(ncclCommAbort(old), ncclInvalidArgument, "destroyed");
  CHECK(ncclCommDestroy(other));
}

static void calls(void) {
  float *memory = device_alloc(4096);
  ncclRedOp_t op;
  double scalar = 2;
  void *handle;
  ncclWindow_t window;
  REJECTED(ncclAllReduce(memory, memory, 1, 7, 0, NULL, NULL), ncclInvalidArgument, "NULL");
  REJECTED(ncclAllReduce(NULL, memory, 1, 7, 0, comm, NULL), ncclInvalidArgument, "send");
  REJECTED(ncclAllReduce(memory, memory, 1, 12, 0, comm, NULL), ncclInvalidArgument, "data type 12");
  REJECTED(ncclAllReduce(memory, memory, 1, -1, 0, comm, NULL), ncclInvalidArgument, "data type -1");
  REJECTED(ncclAllReduce(memory, memory, 1, 7, 5, comm, NULL), ncclInvalidArgument,
           "ncclAllReduce on rank 0: reduction operation 5");
  REJECTED(ncclAllReduce(memory, memory, 1, 7, -1, comm, NULL), ncclInvalidArgument, "operation -1");
  REJECTED(ncclAllReduce(memory, memory, SIZE_MAX, 7, 0, comm, NULL), ncclInvalidArgument, "overflow");
  REJECTED(ncclAllReduce(memory, memory, (size_t)INT64_MAX, 8, 0, comm, NULL), ncclInvalidArgument, "");
  REJECTED(ncclBroadcast(memory, memory, 1, 7, 1, comm, NULL), ncclInvalidArgument, "root 1");
  REJECTED(ncclReduce(memory, memory, 1, 7, 0, -1, comm, NULL), ncclInvalidArgument, "root -1");
  REJECTED(ncclSend(memory, 1, 7, 3, comm, NULL), ncclInvalidArgument, "3");
  REJECTED(ncclRedOpCreatePreMulSum(NULL, &scalar, 8, 1, comm), ncclInvalidArgument, "op is NULL");
  REJECTED(ncclRedOpCreatePreMulSum(&op, &scalar, 12, 1, comm), ncclInvalidArgument, "data type 12");
  REJECTED(ncclRedOpCreatePreMulSum(&op, &scalar, 8, 2, comm), ncclInvalidArgument, "residence 2");
  REJECTED(ncclRedOpCreatePreMulSum(&op, &scalar, 8, 0, comm), ncclInvalidUsage, "device memory");
  int64_t large = (INT64_C(1) << 53) + 1;
  REJECTED(ncclRedOpCreatePreMulSum(&op, &large, 4, 1, comm), ncclInvalidUsage, "2^53");
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, 8, 1, comm));
  REJECTED(ncclAllReduce(memory, memory, 1, 7, op, comm, NULL), ncclInvalidArgument,
           "ncclAllReduce on rank 0: reduction operation 5 is one of data type 8");
  CHECK(ncclRedOpDestroy(op, comm));
  REJECTED(ncclRedOpDestroy(op, comm), ncclInvalidArgument, "no operation");
  REJECTED(ncclAllReduce(memory, memory, 1, 8, op, comm, NULL), ncclInvalidArgument, "unknown");
  ncclComm_t other;
  ncclRedOp_t theirs;
  CHECK(ncclCommSplit(comm, 0, 0, &other, NULL));
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, 8, 1, comm));
  CHECK(ncclRedOpCreatePreMulSum(&theirs, &scalar, 8, 1, other));
  REJECTED(ncclAllReduce(memory, memory, 1, 8, theirs, comm, NULL), ncclInvalidArgument, "unknown");
  REJECTED(ncclRedOpDestroy(op, other), ncclInvalidArgument, "no operation");
  CHECK(ncclAllReduce(memory, memory, 1, 8, theirs, other, NULL));
  CHECK(ncclRedOpDestroy(op, comm));
  CHECK(ncclCommDestroy(other));
  REJECTED(ncclCommRegister(comm, NULL, 8, &handle), ncclInvalidArgument, "buff");
  REJECTED(ncclCommWindowRegister(comm, memory, 0, &window, 0), ncclInvalidArgument, "size 0");
  REJECTED(ncclCommWindowDeregister(comm, (ncclWindow_t)(void *)memory), ncclInvalidArgument, "no such window");
  REJECTED(ncclMemAlloc(NULL, 8), ncclInvalidArgument, "ptr is NULL");
  REJECTED(ncclGroupEnd(), ncclInvalidUsage, "no open group");
  REJECTED(ncclGroupSimulateEnd(NULL), ncclInvalidUsage, "no open group");
  REJECTED(ncclCommMemStats(comm, 0, NULL), ncclInvalidUsage, "not served by Shunt");
  REJECTED(ncclCommGrow(NULL, 2, NULL, 1, &other, NULL), ncclInvalidUsage, "not served by Shunt"); /* a new rank's */
  CHECK(ncclGroupStart());
  REJECTED(ncclGroupSimulateEnd(&(ncclSimInfo_t){.magic = 7}), ncclInvalidArgument, "simInfo.magic is 0x7");
  /* What needs nothing succeeds. */
  CHECK(ncclMemAlloc(&handle, 0));
  CHECK(ncclMemFree(handle));
  CHECK(ncclCommFinalize(NULL));
  /* Of several failures a group tells the first. */
  CHECK(ncclGroupStart());
  REJECTED(ncclAllReduce(memory, memory, 1, 12, 0, comm, NULL), ncclInvalidArgument, "data type 12");
  REJECTED(ncclRedOpDestroy(op, comm), ncclInvalidArgument, "no operation");
  REJECTED(ncclGroupEnd(), ncclInvalidArgument, "data type 12");
  /* A bad call ends its group: nothing of it is run. */
  float value = 1, got = 0;
  device_write(memory, &value, sizeof value);
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(memory, memory + 8, 1, 7, 0, comm, NULL));
  REJECTED(ncclAllReduce(memory, memory, 1, 12, 0, comm, NULL), ncclInvalidArgument, "data type 12");
  WANT(ncclGroupEnd() == ncclInvalidArgument);
  device_read(&got, memory + 8, sizeof got);
  WANT(got == 0);
  CHECK(ncclAllReduce(memory, memory + 8, 1, 7, 0, comm, NULL));
  device_wait(NULL);
  device_read(&got, memory + 8, sizeof got);
  WANT(got == 1);
  /* What is no operation of a communicator's, such as a question, leaves its group as it is. */
  int answer;
  ncclUniqueId foreign = {"not Shunt's"};
  value = 2;
  device_write(memory, &value, sizeof value);
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(memory, memory + 8, 1, 7, 0, comm, NULL));
  WANT(ncclMemAlloc(&handle, (size_t)1 << 60) != ncclSuccess && handle == NULL);
  REJECTED(ncclCommCount(NULL, &answer), ncclInvalidArgument, "NULL");
  REJECTED(ncclCommCuDevice(comm, NULL), ncclInvalidArgument, "device is NULL");
  REJECTED(ncclCommUserRank((ncclComm_t)(void *)&foreign, &answer), ncclInvalidArgument, "not a communicator");
  REJECTED(ncclCommGetAsyncError(NULL, &answer), ncclInvalidArgument, "NULL");
  REJECTED(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument, "asyncError is NULL");
  REJECTED(ncclGetVersion(NULL), ncclInvalidArgument, "version is NULL");
  REJECTED(ncclGetUniqueId(NULL), ncclInvalidArgument, "uniqueId is NULL");
  REJECTED(ncclCommDestroy((ncclComm_t)(void *)&foreign), ncclInvalidArgument, "not a communicator");
  CHECK(ncclGroupEnd());
  device_wait(NULL);
  device_read(&got, memory + 8, sizeof got);
  WANT(got == 2);
  device_free(memory);
}

/* Factors without a number: bits of infinities and NaNs times those of a half. */
static void odd_factors(void) {
  static const struct {
    int dtype, bytes;
    uint16_t factor, half, least, most; /* of the result, without its sign */
  } cases[] = {
      {6, 2, 0x7c00, 0x3800, 0x7c00, 0x7c00}, {6, 2, 0x7e00, 0x3800, 0x7c01, 0x7fff},
      {11, 1, 0x7c, 0x38, 0x7c, 0x7c},        {11, 1, 0x7e, 0x38, 0x7d, 0x7f},
      {10, 1, 0x7f, 0x30, 0x7f, 0x7f},        {10, 1, 0x7e, 0x30, 0x76, 0x76}, /* 448 * 0.5 */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ncclRedOp_t op;
    uint16_t got = 0;
    char *memory = device_alloc(64);
    device_write(memory, &cases[i].half, sizeof got);
    CHECK(ncclRedOpCreatePreMulSum(&op, (void *)&cases[i].factor, cases[i].dtype, 1, comm));
    CHECK(ncclAllReduce(memory, memory + 32, 1, cases[i].dtype, op, comm, NULL));
    device_wait(NULL);
    device_read(&got, memory + 32, sizeof got);
    got &= cases[i].bytes == 2 ? 0x7fff : 0x7f;
    WANT(got >= cases[i].least && got <= cases[i].most);
    CHECK(ncclRedOpDestroy(op, comm));
    device_free(memory);
  }
}

/* The text of a failure in the background is there for who learns of it, in place of an older one. */
static void failed_in_background(void) {
  ncclComm_t other;
  ncclResult_t result;
  ncclUniqueId foreign = {"not Shunt's"};
  ncclConfig_t config = {.size = 24, .magic = NC_MAGIC, .version = 21602, .blocking = 0};
  WANT(ncclCommInitRankConfig(&other, 2, foreign, 1, &config) == ncclInProgress);
  do {
    REJECTED(ncclCommCount(comm, NULL), ncclInvalidArgument, "count is NULL");
    CHECK(ncclCommGetAsyncError(other, &result));
  } while (result == ncclInProgress);
  WANT(result == ncclInvalidArgument && strstr(ncclGetLastError(NULL), "not one of Shunt's") != NULL);
  WANT(strstr(ncclGetLastError(other), "not one of Shunt's") != NULL);
  REJECTED(ncclCommCount(comm, NULL), ncclInvalidArgument, "count is NULL");
  REJECTED(ncclAllReduce(NULL, NULL, 0, 7, 0, other, NULL), ncclInvalidArgument, "not one of Shunt's");
  CHECK(ncclCommAbort(other));
}

/* A communicator that is finalized runs what its group had before, and takes back what it gave. */
static void finalized(void) {
  ncclComm_t other;
  ncclWindow_t window;
  ncclRedOp_t op;
  void *memory, *handle;
  float *value = device_alloc(64), got = 0, factor = 2;
  CHECK(ncclCommSplit(comm, 0, 0, &other, NULL));
  CHECK(ncclMemAlloc(&memory, 64));
  CHECK(ncclCommWindowRegister(other, memory, 64, &window, 0));
  CHECK(ncclCommRegister(other, memory, 64, &handle));
  CHECK(ncclRedOpCreatePreMulSum(&op, &factor, 7, 1, other));
  device_write(value, &factor, sizeof factor);
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(value, value + 8, 1, 7, op, other, NULL));
  CHECK(ncclCommFinalize(other));
  CHECK(ncclGroupEnd());
  device_wait(NULL);
  device_read(&got, value + 8, sizeof got);
  WANT(got == 4);
  CHECK(ncclRedOpDestroy(op, other));
  CHECK(ncclCommWindowDeregister(other, window));
  CHECK(ncclCommDeregister(other, handle));
  REJECTED(ncclAllReduce(value, value, 1, 7, 0, other, NULL), ncclInvalidUsage, "finalized");
  REJECTED(ncclRedOpCreatePreMulSum(&op, &factor, 7, 1, other), ncclInvalidUsage, "finalized");
  CHECK(ncclCommDestroy(other));
  CHECK(ncclMemFree(memory));
  device_free(value);
}

/* The failure of a group is one of each communicator in it. */
static void failed_together(void) {
  ncclComm_t others[2];
  for (int i = 0; i < 2; i++)
    CHECK(ncclCommSplit(comm, 0, 0, &others[i], NULL));
  CHECK(ncclGroupStart());
  for (int i = 0; i < 2; i++)
    CHECK(ncclBroadcast(NULL, NULL, 0, 7, 1, others[i], NULL));
  REJECTED(ncclGroupEnd(), ncclInvalidArgument, "root 1");
  for (int i = 0; i < 2; i++) {
    WANT(strstr(ncclGetLastError(others[i]), "root 1") != NULL);
    CHECK(ncclCommDestroy(others[i]));
  }
}

/* A communicator that another thread finalizes in the middle of a call: the result is that of the text. */
static void finalized_in_call(void) {
  int times = 0;
  float value = 1;
  for (bool over = false; !over;) {
    CHECK(ncclCommSplit(comm, 0, 0, &ended, NULL));
    before_lock = finalize;
    locks = ++times;
    ncclResult_t result = ncclAllReduce(&value, &value, 1, 7, 5, ended, NULL); /* 5 is no operation of its */
    over = before_lock != NULL;
    before_lock = NULL;
    bool early = strstr(ncclGetLastError(NULL), "finalized") != NULL;
    WANT(early || strstr(ncclGetLastError(NULL), "operation 5 is unknown") != NULL);
    WANT(result == (early ? ncclInvalidUsage : ncclInvalidArgument));
    CHECK(ncclCommDestroy(ended));
  }
  WANT(times > 2);
}

/* What this thread's open group makes, or changes, is there after the group's end, and the text says so. */
static void used_in_group(void) {
  ncclUniqueId id;
  ncclComm_t other;
  ncclConfig_t config = {.size = 24, .magic = NC_MAGIC, .version = 21602, .blocking = 0};
  for (config.blocking = 0; config.blocking < 2; config.blocking++) {
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclGroupStart());
    CHECK(ncclCommInitRankConfig(&other, 1, id, 0, &config));
    REJECTED(ncclAllReduce(NULL, NULL, 0, 7, 0, other, NULL), ncclInvalidArgument, "end the group before");
    WANT(ncclGroupEnd() == ncclInvalidArgument);
  }
  CHECK(ncclGroupStart());
  CHECK(ncclCommSplit(comm, 0, 0, &other, NULL));
  REJECTED(ncclCommWindowDeregister(comm, NULL), ncclInvalidArgument, "end the group before");
  WANT(ncclGroupEnd() == ncclInvalidArgument);
}

/* A communicator that another thread destroys in the middle of a group. */
static void destroyed_in_group(void) {
  ncclComm_t other;
  float value[2] = {1, 0};
  CHECK(ncclCommInitAll(&other, 1, (int[]){0}));
  CHECK(ncclGroupStart());
  CHECK(ncclAllReduce(value, value, 1, 7, 0, other, NULL));
  CHECK(ncclCommDestroy(other));
  REJECTED(ncclGroupEnd(), ncclInvalidArgument, "destroyed");
  REJECTED(ncclCommDestroy(other), ncclInvalidArgument, "destroyed");
}


int main(int argc, char **argv) {
  ncclUniqueId id;
  int version = 0;
  /* Before the first communicator there are no threads of Go's: a child may use the library. */
  CHECK(ncclGetVersion(&version));
  WANT(version == 22809);
  if (argc > 1 && strcmp(argv[1], "fork") == 0) {
    pid_t child = fork();
    int status = 0;
    if (child != 0) {
      waitpid(child, &status, 0);
      WANT(status == 0);
    }
  }
  device_open(1);
  device_use(0);
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclCommInitRank(&comm, 1, id, 0));
  communicators(id);
  sizes();
  stale();
  calls();
  odd_factors();
  failed_in_background();
  failed_together();
  finalized();
  destroyed_in_group();
  finalized_in_call();
  used_in_group();
  CHECK(ncclCommFinalize(comm));
  REJECTED(ncclCommFinalize(comm), ncclInvalidArgument, "finalized");
  REJECTED(ncclCommRevoke(comm, 0), ncclInvalidArgument, "finalized");
  CHECK(ncclCommDestroy(comm));
  puts("ok");
  return 0;
}
