/*
 * comms.c: the table of communicators, and how they are asked about and end.
 */
#include <string.h>

#include "library.h"
#include "memory.h"
#include "real.h"
#include "watch.h"

struct ncclComm nc_comms[NC_COMMUNICATORS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int next; /* places are reused as late as possible, so that a stale handle differs from a new one for long */

ncclComm_t nc_allocate(void) {
  ncclComm_t found = NULL;
  nc_report_use();
  pthread_mutex_lock(&lock);
  for (int i = 0; i < NC_COMMUNICATORS && found == NULL; i++) {
    ncclComm_t at = &nc_comms[(next + i) % NC_COMMUNICATORS];
    if (atomic_load(&at->state) != NC_FREE || atomic_load(&at->queued) > 0 || atomic_load(&at->jobs) > 0 ||
        atomic_load(&at->children) > 0)
      continue;
    next = (next + i + 1) % NC_COMMUNICATORS;
    nc_forget_ring(at); /* not before: a call that an abort has ended may still write to it */
    memset(at, 0, sizeof *at);
    pthread_mutex_init(&at->lock, NULL);
    pthread_cond_init(&at->changed, NULL);
    at->rank = at->world = at->device = -1;
    at->blocking = true;
    atomic_store(&at->state, NC_PENDING);
    found = at;
  }
  pthread_mutex_unlock(&lock);
  if (found == NULL)
    nc_fail(NULL, ncclInvalidUsage, "there are %d communicators already; destroy some", NC_COMMUNICATORS);
  return found;
}

void nc_release(ncclComm_t comm) {
  nc_forget_windows(comm);
  nc_forget_ops(comm);
  __atomic_store_n(&comm->real, NULL, __ATOMIC_RELEASE); /* first: nc_only_real */
  atomic_store(&comm->shunt, NULL);
  atomic_store(&comm->state, NC_FREE);
}

void nc_drop(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  enum nc_state state = atomic_load(&comm->state);
  while (state != NC_FREE && state != NC_CLOSING && !atomic_compare_exchange_weak(&comm->state, &state, NC_CLOSING)) {
  }
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->lock);
  if (state != NC_FREE && state != NC_CLOSING)
    nc_release(comm);
}

/* lock_settled is nc_settle, and returns with the communicator locked, so that nothing begins. */
static void lock_settled(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  for (;;) {
    int queued = atomic_load(&comm->queued);
    bool made = atomic_load(&comm->state) != NC_PENDING || queued > 0;
    if (made && atomic_load(&comm->children) <= queued && atomic_load(&comm->jobs) <= queued)
      return;
    pthread_cond_wait(&comm->changed, &comm->lock);
  }
}

void nc_settle(ncclComm_t comm) {
  lock_settled(comm);
  pthread_mutex_unlock(&comm->lock);
}

/* is_quiet tells whether no thread makes anything of the communicator. It waits for a job only that has ended for its
 * parent, a moment: a caller that waits for the parent of a split then uses the child. */
static bool is_quiet(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  while (atomic_load(&comm->jobs) == 0 && atomic_load(&comm->children) > atomic_load(&comm->queued))
    pthread_cond_wait(&comm->changed, &comm->lock);
  bool quiet = atomic_load(&comm->jobs) == 0;
  pthread_mutex_unlock(&comm->lock);
  return quiet;
}

static const char in_group[] = "%s: a call of this thread's open group makes the communicator, or waits to change it; "
                               "end the group before";

ncclResult_t nc_reject_alone(ncclComm_t comm, const char *function) {
  if (comm == NULL)
    return nc_fail_alone(NULL, ncclInvalidArgument, "%s: the communicator is NULL", function);
  if (!nc_is_ours(comm))
    return nc_fail_alone(NULL, ncclInvalidArgument, "%s: %p is not a communicator of this library", function,
                         (void *)comm);
  switch (atomic_load(&comm->state)) {
  case NC_FREE:
  case NC_CLOSING:
    return nc_fail_alone(NULL, ncclInvalidArgument, "%s: the communicator was destroyed", function);
  case NC_PENDING:
    return nc_fail_alone(comm, ncclInvalidArgument, nc_group_makes(comm) ? in_group :
                         "%s: the communicator is being made; poll ncclCommGetAsyncError until it is not "
                         "ncclInProgress", function);
  case NC_FINALIZED:
    return nc_fail_alone(comm, ncclInvalidUsage, "%s: the communicator was finalized", function);
  case NC_FAILED:
    return nc_recall(comm);
  case NC_READY:
    break;
  }
  return nc_fail_alone(comm, ncclInvalidArgument, nc_group_makes(comm) ? in_group :
                       "%s: a split, shrink or registration of the communicator has not ended", function);
}

/* is_known: whether the program may ask about it. */
static bool is_known(ncclComm_t comm) {
  enum nc_state state = nc_is_ours(comm) ? atomic_load(&comm->state) : NC_FREE;
  return state == NC_READY || state == NC_FINALIZED;
}

/* ask writes the int at an offset of the communicator. */
static ncclResult_t ask(ncclComm_t comm, int *into, size_t offset, const char *function, const char *what) {
  if (!is_known(comm))
    return nc_reject_alone(comm, function);
  if (into == NULL)
    return nc_fail_alone(comm, ncclInvalidArgument, "%s: %s is NULL", function, what);
  memcpy(into, (const char *)comm + offset, sizeof *into);
  return ncclSuccess;
}

ncclResult_t nc_CommCount(ncclComm_t comm, int *count) {
  return ask(comm, count, offsetof(struct ncclComm, world), "ncclCommCount", "count");
}

ncclResult_t nc_CommCuDevice(ncclComm_t comm, int *device) {
  return ask(comm, device, offsetof(struct ncclComm, device), "ncclCommCuDevice", "device");
}

ncclResult_t nc_CommUserRank(ncclComm_t comm, int *rank) {
  return ask(comm, rank, offsetof(struct ncclComm, rank), "ncclCommUserRank", "rank");
}

static ncclResult_t ask_real(ncclComm_t comm, ncclResult_t *async_error) {
  if (nc_real(NC_ncclCommGetAsyncError) == NULL)
    return nc_lacks(comm, NC_ncclCommGetAsyncError);
  ncclResult_t result = nc_came(NULL, NC_REAL(ncclCommGetAsyncError)(nc_any_real(comm), async_error));
  if (nc_hand_out(comm, false) && *async_error == ncclSuccess)
    *async_error = ncclInProgress;
  if (result == ncclSuccess && *async_error != ncclSuccess && *async_error != ncclInProgress) {
    (void)nc_came(comm, *async_error);
    nc_watch_failure(comm, *async_error);
  }
  return result;
}

ncclResult_t nc_CommGetAsyncError(ncclComm_t comm, ncclResult_t *async_error) {
  if (!nc_is_ours(comm) || atomic_load(&comm->state) == NC_FREE || atomic_load(&comm->state) == NC_CLOSING)
    return nc_reject_alone(comm, "ncclCommGetAsyncError");
  if (async_error == NULL)
    return nc_fail_alone(comm, ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
  *async_error = ncclSuccess;
  if (nc_only_real(comm) != NULL)
    return ask_real(comm, async_error);
  switch (atomic_load(&comm->state)) {
  case NC_PENDING:
    *async_error = ncclInProgress;
    return ncclSuccess;
  case NC_FAILED:
    *async_error = nc_recall(comm);
    return ncclSuccess;
  default:
    break;
  }
  if (!is_quiet(comm) && !nc_group_holds(comm)) {
    *async_error = ncclInProgress;
    return ncclSuccess;
  }
  if (comm->shunt == NULL)
    return ncclSuccess;
  if (atomic_load(&comm->revoked) || atomic_load(&comm->settled)) /* all there is to tell */
    return ncclSuccess;
  shunt_status failure = SHUNT_OK, status = nc_shunt.get_async_error_(comm->shunt, &failure);
  if (status != SHUNT_OK)
    return nc_shunt_failed(comm, status);
  if (failure != SHUNT_OK)
    *async_error = nc_fail_alone(comm, nc_result_of(failure), "%s", nc_shunt.last_error_(comm->shunt));
  else if (nc_any_real(comm) != NULL)
    return ask_real(comm, async_error);
  return ncclSuccess;
}

/* give_up ends what other threads do to make comm, and what they make or register of it, which may wait for ranks that
 * do not come. */
static void give_up(ncclComm_t comm, const char *function) {
  __atomic_store_n(&comm->cancel, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&comm->cancel_children, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_lock(&comm->lock);
  if (comm->parent != NULL)
    __atomic_store_n(&comm->parent->cancel_children, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&comm->lock);
  shunt_comm pending = atomic_load(&comm->shunt); /* none yet: who stores it looks at cancel */
  if (pending != NULL && (atomic_load(&comm->state) == NC_PENDING || atomic_load(&comm->jobs) > 0))
    (void)nc_shunt.abort_(pending, function); /* it may have been aborted already */
}

/* leave ends a communicator: one thread gets to do it. */
static ncclResult_t leave(ncclComm_t comm, const char *function, enum nc_symbol symbol, bool abort) {
  bool pending = nc_is_ours(comm) && atomic_load(&comm->state) == NC_PENDING;
  if (!nc_is_ours(comm) || atomic_load(&comm->state) == NC_FREE)
    return nc_reject_alone(comm, function);
  if (nc_group_makes(comm))
    return nc_fail(comm, ncclInvalidUsage, in_group, function);
  if (abort)
    give_up(comm, function);
  else if (atomic_load(&comm->state) == NC_PENDING || atomic_load(&comm->jobs) > 0)
    return nc_reject_alone(comm, function);
  lock_settled(comm);
  enum nc_state state = atomic_load(&comm->state);
  while (state != NC_FREE && state != NC_CLOSING && !atomic_compare_exchange_weak(&comm->state, &state, NC_CLOSING)) {
  }
  pthread_mutex_unlock(&comm->lock);
  if (state == NC_FREE || state == NC_CLOSING)
    return abort && pending ? ncclSuccess : nc_reject_alone(comm, function); /* who made it has released it */
  ncclResult_t result = ncclSuccess;
  if (comm->real != NULL) {
    nc_watch_end(comm, abort);
    ncclResult_t (*end)(ncclComm_t) = (ncclResult_t(*)(ncclComm_t))nc_real(symbol);
    result = end == NULL ? nc_lacks(NULL, symbol) : nc_came(NULL, end(comm->real));
    (void)nc_hand_out(comm, true); /* children that are not made by now never are */
  }
  if (comm->shunt != NULL) {
    if (abort)
      (void)nc_shunt.abort_(comm->shunt, function); /* it may have failed already */
    shunt_status status = nc_shunt.close_(comm->shunt);
    if (status != SHUNT_OK && !abort && result == ncclSuccess)
      result = nc_shunt_failed(NULL, status);
  }
  nc_release(comm);
  return result;
}

ncclResult_t nc_CommDestroy(ncclComm_t comm) {
  return comm == NULL ? ncclSuccess : leave(comm, "ncclCommDestroy", NC_ncclCommDestroy, false);
}

ncclResult_t nc_CommAbort(ncclComm_t comm) {
  return comm == NULL ? ncclSuccess : leave(comm, "ncclCommAbort", NC_ncclCommAbort, true);
}

static const char finalized[] = "%s on rank %d: the communicator was finalized or revoked before";

ncclResult_t nc_CommFinalize(ncclComm_t comm) {
  if (comm == NULL)
    return ncclSuccess;
  if (!nc_is_ours(comm))
    return nc_reject(comm, "ncclCommFinalize");
  if (nc_only_real(comm) == NULL) {
    enum nc_state ready = NC_READY;
    if (atomic_load(&comm->revoked) || atomic_load(&comm->state) == NC_FINALIZED)
      return nc_fail(comm, ncclInvalidArgument, finalized, "ncclCommFinalize", comm->rank);
    if (atomic_load(&comm->jobs) > 0 || !atomic_compare_exchange_strong(&comm->state, &ready, NC_FINALIZED))
      return nc_reject(comm, "ncclCommFinalize");
    if (comm->real == NULL)
      return ncclSuccess;
  }
  if (nc_real(NC_ncclCommFinalize) == NULL)
    return nc_lacks(comm, NC_ncclCommFinalize);
  return nc_came(comm, NC_REAL(ncclCommFinalize)(comm->real));
}

/* Shunt's abort is of all ranks. Where the communicator was revoked it is good for what makes others of it. */
ncclResult_t nc_CommRevoke(ncclComm_t comm, int flags) {
  static const char name[] = "ncclCommRevoke";
  if (flags != 0)
    return nc_fail(comm, ncclInvalidArgument, "%s: revokeFlags is %d; want NCCL_REVOKE_DEFAULT (0)", name, flags);
  if (comm == NULL)
    return ncclSuccess;
  if (!is_known(comm) || comm->shunt == NULL)
    return nc_reject(comm, name);
  if (nc_group_makes(comm))
    return nc_fail(comm, ncclInvalidUsage, in_group, name);
  if (atomic_load(&comm->state) == NC_FINALIZED || atomic_exchange(&comm->revoked, true))
    return nc_fail(comm, ncclInvalidArgument, finalized, name, comm->rank);
  if (comm->real != NULL && nc_real(NC_ncclCommRevoke) != NULL)
    (void)NC_REAL(ncclCommRevoke)(comm->real, flags); /* Shunt's failure is the one that is returned */
  __atomic_store_n(&comm->cancel_children, 1, __ATOMIC_SEQ_CST);
  shunt_status status = nc_shunt.abort_(comm->shunt, name);
  nc_settle(comm);
  __atomic_store_n(&comm->cancel_children, 0, __ATOMIC_SEQ_CST);
  return status == SHUNT_OK ? ncclSuccess : nc_shunt_failed(comm, status);
}
