/*
 * fake.c: a library with NCCL's functions, for GPUs in memory. What they do is Go's (nccltest.go),
 * which installs itself. FAKE_VERSION is the version that it reports, FAKE_CUDA what it
 * was built for; with LACKING it has no ncclSend, with NO_REGISTER no ncclCommRegister.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "fake.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif

#ifndef FAKE_CUDA
#define FAKE_CUDA "12.4"
#endif

typedef void *comm;

/* As NCCL has it among its constants; nobody calls it. */
const char *nccltest_built(void) { return "NCCL version 2.28.9+cuda" FAKE_CUDA; }

static fake_hooks go;

void nccltest_install(const fake_hooks *hooks) { go = *hooks; }

#define MOST 4096
static __thread fake_op group[MOST];
static __thread int count, depth;

/* Take one operation; without a group it is one of its own. */
static int take(fake_op op) {
  if (count == MOST) return 3;
  group[count++] = op;
  if (depth) return 0;
  count = 0;
  return go.run(group, 1);
}

int ncclGroupStart(void) {
  depth++;
  return 0;
}

int ncclGroupEnd(void) {
  if (--depth || !count) return 0;
  int n = count;
  count = 0;
  return go.run(group, n);
}

int ncclGetVersion(int *version) {
  *version = FAKE_VERSION;
  return 0;
}

int ncclGetUniqueId(fake_id *id) { return go.name(id->bytes); }
const char *ncclGetErrorString(int result) {
  return result == 6 ? "remote process exited or there was a network error" : "internal error";
}
const char *ncclGetLastError(comm c) { return go.words((uintptr_t)c); }

int ncclCommInitRankConfig(comm *c, int world, fake_id id, int rank, const fake_config *config) {
  uint64_t made = 0;
  if (config->magic != 0xcafebeef || config->size != sizeof *config || config->version != 21800 || config->blocking ||
      config->split_share != 1)
    return 5;
  int result = go.begin(id.bytes, rank, world, config->max_ctas, &made);
  *c = (comm)(uintptr_t)made;
  return result;
}

int ncclCommSplit(comm parent, int color, int key, comm *c, const fake_config *config) {
  uint64_t made = 0;
  if (config->magic != 0xcafebeef || config->size != sizeof *config || config->blocking != 1 || color || key < 0)
    return 5;
  int result = go.split((uintptr_t)parent, config->max_ctas, &made);
  *c = (comm)(uintptr_t)made;
  return result;
}

int ncclCommGetAsyncError(comm c, int *state) { return *state = go.state((uintptr_t)c), 0; }
int ncclCommFinalize(comm c) { return go.state((uintptr_t)c); }
int ncclCommDestroy(comm c) { return go.end((uintptr_t)c, 0); }
int ncclCommAbort(comm c) { return go.end((uintptr_t)c, 1); }

#ifndef NO_REGISTER
int ncclCommRegister(comm c, void *at, size_t bytes, void **handle) {
  uint64_t made = 0;
  int result = go.know((uintptr_t)c, (uintptr_t)at, bytes, &made);
  *handle = (void *)(uintptr_t)made;
  return result;
}
int ncclCommDeregister(comm c, void *handle) { return go.forget((uintptr_t)c, (uintptr_t)handle); }
#endif

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int where, comm c) {
  uint64_t bits;
  if (where != 1) return 4;
  memcpy(&bits, scalar, sizeof bits);
  *op = go.scalar((uintptr_t)c, bits, dtype);
  return 0;
}
int ncclRedOpDestroy(int op, comm c) { return op < 100 || !c ? 4 : go.unscalar((uintptr_t)c, op); }

int ncclAllReduce(const void *s, void *r, size_t n, int dtype, int op, comm c, void *stream) {
  return take(
      (fake_op){(uintptr_t)s, (uintptr_t)r, n, FAKE_ALL_REDUCE, dtype, op, -1, (uintptr_t)c, (uintptr_t)stream});
}
int ncclReduce(const void *s, void *r, size_t n, int dtype, int op, int root, comm c, void *stream) {
  return take((fake_op){(uintptr_t)s, (uintptr_t)r, n, FAKE_REDUCE, dtype, op, root, (uintptr_t)c, (uintptr_t)stream});
}
int ncclBroadcast(const void *s, void *r, size_t n, int dtype, int root, comm c, void *stream) {
  return take(
      (fake_op){(uintptr_t)s, (uintptr_t)r, n, FAKE_BROADCAST, dtype, 0, root, (uintptr_t)c, (uintptr_t)stream});
}
int ncclAllGather(const void *s, void *r, size_t n, int dtype, comm c, void *stream) {
  return take((fake_op){(uintptr_t)s, (uintptr_t)r, n, FAKE_ALL_GATHER, dtype, 0, -1, (uintptr_t)c, (uintptr_t)stream});
}
int ncclReduceScatter(const void *s, void *r, size_t n, int dtype, int op, comm c, void *stream) {
  return take(
      (fake_op){(uintptr_t)s, (uintptr_t)r, n, FAKE_REDUCE_SCATTER, dtype, op, -1, (uintptr_t)c, (uintptr_t)stream});
}
#ifndef LACKING
int ncclSend(const void *s, size_t n, int dtype, int peer, comm c, void *stream) {
  return take((fake_op){(uintptr_t)s, 0, n, FAKE_SEND, dtype, 0, peer, (uintptr_t)c, (uintptr_t)stream});
}
#endif
int ncclRecv(void *r, size_t n, int dtype, int peer, comm c, void *stream) {
  return take((fake_op){0, (uintptr_t)r, n, FAKE_RECV, dtype, 0, peer, (uintptr_t)c, (uintptr_t)stream});
}
