/*
 * pending.c: calls that took longer than their block limit. They are kept here, for
 * each thread, between SHUNT_PENDING and shunt_continue. A signal handler may use Shunt
 * as well before shunt_continue is called, hence a stack.
 */
#include "internal.h"

/* More than this deep calls are waited for to their end. */
#define DEEPEST 8

static __thread struct { uint64_t comm, request; } pending[DEEPEST];
static __thread int depth;

int shunt_keep_pending(uint64_t comm, uint64_t request) {
  if (depth == DEEPEST)
    return 0;
  pending[depth].comm = comm;
  pending[depth].request = request;
  depth++;
  return 1;
}

/* latest is the index of the thread's latest pending call on comm, or -1. */
static int latest(uint64_t comm) {
  int i = depth - 1;
  while (i >= 0 && pending[i].comm != comm)
    i--;
  return i;
}

static void forget(int i) {
  for (depth--; i < depth; i++)
    pending[i] = pending[i + 1];
}

shunt_status shunt_set_block_limit(shunt_comm comm, int64_t block_limit_ms) {
  if (shunt_forked())
    return SHUNT_FORKED;
  if (block_limit_ms < 0)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT, "shunt_set_block_limit: block_limit_ms is %lld; want 0 or more",
                      (long long)block_limit_ms);
  return go_set_block_limit(SHUNT_NUMBER(comm), block_limit_ms);
}

shunt_status shunt_set_cancel(shunt_comm comm, const int32_t *cancel) {
  if (shunt_forked())
    return SHUNT_FORKED;
  return go_set_cancel(SHUNT_NUMBER(comm), (int32_t *)(uintptr_t)cancel);
}

shunt_status shunt_continue(shunt_comm comm) {
  if (shunt_forked())
    return SHUNT_FORKED;
  int i = latest(SHUNT_NUMBER(comm));
  if (i < 0)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT,
                      "shunt_continue: this thread has nothing pending on this communicator");
  shunt_status status = go_continue(pending[i].request);
  if (status != SHUNT_PENDING)
    forget(i);
  return status;
}

shunt_status shunt_cancel(shunt_comm comm, const char *reason) {
  if (shunt_forked())
    return SHUNT_FORKED;
  int i = latest(SHUNT_NUMBER(comm));
  if (i < 0)
    return SHUNT_OK;
  uint64_t request = pending[i].request;
  forget(i);
  /* A communicator that is closed has nothing to abort, and says so below. */
  (void)go_abort(SHUNT_NUMBER(comm), (char *)(uintptr_t)(reason != NULL ? reason : "no reason given"));
  return go_request_wait(request);
}
