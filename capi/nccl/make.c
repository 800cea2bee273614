/*
 * make.c: makes communicators, of unique ids and of other communicators.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "memory.h"
#include "real.h"
#include "unique_id.h"
#include "watch.h"

/* ended is the end of a job that makes comm: with its result the communicator may be used, or says why not. */
ncclResult_t nc_made(ncclComm_t comm, ncclResult_t result) {
  pthread_mutex_lock(&comm->lock);
  comm->result = result;
  comm->parent = NULL;
  atomic_store(&comm->state, result == ncclSuccess ? NC_READY : NC_FAILED);
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->lock);
  return result;
}

static struct nc_job *new_job(ncclResult_t (*run)(struct nc_job *)) {
  struct nc_job *job = calloc(1, sizeof *job);
  if (job == NULL)
    nc_fail(NULL, ncclSystemError, "no memory for a new communicator");
  else
    job->run = run;
  return job;
}

/* meet is nc_meet at the end of a job, with Shunt's new communicator; one that fails there has none left. It ends when
 * the word is set, which is the one that ends the making.
 *
 * ncclCommAbort sets cancel and then looks at shunt; here shunt is stored and then cancel looked at. In the one order
 * of all these at least one side sees the other's store, so no rank waits in nc_meet for ranks that do not come. */
static ncclResult_t meet(ncclComm_t comm, shunt_comm made, const int32_t *word) {
  (void)nc_shunt.set_cancel_(made, word); /* made is ours alone: it is open */
  atomic_store(&comm->shunt, made);
  if (__atomic_load_n(&comm->cancel, __ATOMIC_SEQ_CST) != 0)
    (void)nc_shunt.abort_(made, "ncclCommAbort"); /* it may have been aborted already */
  ncclResult_t result = nc_meet(comm);
  if (result == ncclSuccess)
    (void)nc_shunt.set_cancel_(made, &comm->cancel_children);
  else
    (void)nc_shunt.close_(atomic_exchange(&comm->shunt, NULL)); /* it has failed as it is */
  return result;
}

/* join makes Shunt's communicator of a unique id. */
static ncclResult_t join(struct nc_job *job) {
  ncclComm_t comm = job->comm;
  char id[SHUNT_UNIQUE_ID_BYTES];
  ncclResult_t result = nc_open_shunt(comm);
  if (result == ncclSuccess)
    result = nc_id_text(comm, &job->id, id, sizeof id);
  if (result != ncclSuccess)
    return nc_made(comm, result);
  shunt_options options = SHUNT_OPTIONS_INIT;
  options.id = id;
  options.rank = comm->rank;
  options.world = comm->world;
  options.device = comm->device;
  options.memory = nc_settings()->memory;
  options.timeout_ms = nc_settings()->timeout_ms;
  options.cancel = &comm->cancel;
  options.max_sms = comm->max_sms;
  shunt_comm made = NULL;
  shunt_status status = nc_shunt.comm_init_(&options, &made);
  if (status != SHUNT_OK)
    return nc_made(comm, nc_shunt_failed(comm, status));
  return nc_made(comm, meet(comm, made, &comm->cancel));
}

static ncclResult_t init(ncclComm_t *out, int world, const ncclUniqueId *id, int rank, const ncclConfig_t *given,
                         int device, const char *function) {
  ncclConfig_t config;
  if (out == NULL)
    return nc_fail(NULL, ncclInvalidArgument, "%s: comm is NULL", function);
  *out = NULL;
  if (id == NULL)
    return nc_fail(NULL, ncclInvalidArgument, "%s: the unique id is NULL", function);
  if (world < 1 || rank < 0 || rank >= world)
    return nc_fail(NULL, ncclInvalidArgument, "%s: rank %d of %d is out of range", function, rank, world);
  ncclResult_t result = nc_read_config(given, &config, function);
  if (result != ncclSuccess)
    return result;
  struct nc_job *job = new_job(join);
  if (job == NULL)
    return ncclSystemError;
  ncclComm_t comm = nc_allocate();
  if (comm == NULL) {
    free(job);
    return ncclInvalidUsage;
  }
  comm->rank = rank;
  comm->world = world;
  comm->device = device;
  comm->blocking = config.blocking != 0;
  comm->max_sms = config.maxCTAs == NC_UNDEF_INT ? 0 : config.maxCTAs;
  job->comm = comm;
  job->out = out;
  job->id = *id;
  job->blocking = comm->blocking;
  *out = comm;
  return nc_submit(job);
}

/* NCCL writes a child when it is made: at the end of the group, or, where that does not block, before its parent is no
 * longer in progress. Until then the program's place of it is NULL, as with NCCL. */
static atomic_int awaited; /* children that the real library has not written */
static pthread_mutex_t awaited_lock = PTHREAD_MUTEX_INITIALIZER;

bool nc_hand_out(ncclComm_t parent, bool failed) {
  bool waits = false;
  if (atomic_load(&awaited) == 0)
    return false;
  pthread_mutex_lock(&awaited_lock);
  for (ncclComm_t comm = nc_comms; comm < nc_comms + NC_COMMUNICATORS; comm++) {
    if (atomic_load(&comm->state) != NC_PENDING || comm->out == NULL)
      continue;
    bool ends = parent == NULL && comm->group != NULL && comm->group == nc_real_group();
    if (ends)
      comm->group = NULL;
    if (__atomic_load_n(&comm->real, __ATOMIC_ACQUIRE) != NULL) {
      ncclComm_t *out = comm->out;
      comm->out = NULL;
      (void)nc_made(comm, ncclSuccess);
      __atomic_store_n(out, comm, __ATOMIC_RELEASE);
    } else if (failed && (ends || comm->parent == parent)) {
      nc_release(comm);
    } else {
      waits = waits || comm->parent == parent;
      continue;
    }
    atomic_fetch_sub(&awaited, 1);
  }
  pthread_mutex_unlock(&awaited_lock);
  return waits;
}

/* wrapped is the end of WRAP, with what the real library returned. It writes a child, one with a parent, later. */
static ncclResult_t wrapped(ncclComm_t made, ncclComm_t *out, ncclComm_t parent, ncclResult_t result) {
  if (__atomic_load_n(&made->real, __ATOMIC_ACQUIRE) != NULL) {
    *out = made;
    (void)nc_made(made, ncclSuccess);
    return result;
  }
  if (parent == NULL || (result != ncclSuccess && result != ncclInProgress)) {
    nc_release(made);
    return result;
  }
  pthread_mutex_lock(&awaited_lock);
  made->parent = parent;
  made->group = nc_real_group();
  made->out = out;
  atomic_fetch_add(&awaited, 1);
  pthread_mutex_unlock(&awaited_lock);
  return result;
}

/* WRAP gives a communicator that the real library makes a place of ours: call writes it to real. */
#define WRAP(out, ranks, my_rank, call, watch, parent)                     \
  do {                                                                     \
    ncclComm_t made = (out) == NULL ? NULL : nc_allocate();                \
    if ((out) == NULL)                                                     \
      return nc_fail(NULL, ncclInvalidArgument, "%s: comm is NULL", name); \
    *(out) = NULL;                                                         \
    if (made == NULL)                                                      \
      return ncclInvalidUsage;                                             \
    made->rank = (my_rank);                                                \
    made->world = (ranks);                                                 \
    watch;                                                                 \
    ncclComm_t *real = &made->real;                                        \
    return wrapped(made, out, parent, nc_came(NULL, call));                \
  } while (0)

/* FORWARD is WRAP where the real library serves everything. */
#define FORWARD(function, out, ranks, my_rank, unique, ...)                            \
  do {                                                                             \
    static const char name[] = #function;                                          \
    ncclResult_t checked = nc_check_settings();                                    \
    if (checked != ncclSuccess)                                                    \
      return checked;                                                              \
    if (nc_settings()->forward) {                                                  \
      if (nc_real(NC_##function) == NULL)                                          \
        return nc_lacks(NULL, NC_##function);                                      \
      WRAP(out, ranks, my_rank, NC_REAL(function)(__VA_ARGS__), nc_watch_id(made, unique), NULL); \
    }                                                                              \
  } while (0)

/* check_id fails where the id is not one of the library that serves everything here. */
static ncclResult_t check_id(const ncclUniqueId *id, const char *function) {
  if (!nc_settings()->forward || !nc_id_is_ours(id))
    return ncclSuccess;
  return nc_fail(NULL, ncclInvalidArgument,
                 "%s: the unique id is Shunt's, and SHUNT_NCCL_FORWARD is all on this rank; it has "
                 "to be equal on all ranks",
                 function);
}

ncclResult_t nc_CommInitRank(ncclComm_t *comm, int world, ncclUniqueId id, int rank) {
  ncclResult_t result = check_id(&id, "ncclCommInitRank");
  if (result != ncclSuccess)
    return result;
  FORWARD(ncclCommInitRank, comm, world, rank, &id, real, world, id, rank);
  return init(comm, world, &id, rank, NULL, nc_current_device(), "ncclCommInitRank");
}

ncclResult_t nc_CommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
  ncclResult_t result = check_id(&id, "ncclCommInitRankConfig");
  if (result != ncclSuccess)
    return result;
  FORWARD(ncclCommInitRankConfig, comm, world, rank, &id, real, world, id, rank, config);
  return init(comm, world, &id, rank, config, nc_current_device(), "ncclCommInitRankConfig");
}

ncclResult_t nc_CommInitRankScalable(ncclComm_t *comm, int world, int rank, int ids, ncclUniqueId *id,
                                     ncclConfig_t *config) {
  ncclResult_t result = check_id(ids > 0 ? id : NULL, "ncclCommInitRankScalable");
  if (result != ncclSuccess)
    return result;
  FORWARD(ncclCommInitRankScalable, comm, world, rank, ids > 0 ? id : NULL, real, world, rank, ids, id, config);
  if (ids < 1 || ids > world)
    return nc_fail(NULL, ncclInvalidArgument, "ncclCommInitRankScalable: nId is %d; want 1 to the %d ranks", ids,
                   world);
  return init(comm, world, id, rank, config, nc_current_device(), "ncclCommInitRankScalable"); /* the first will do */
}

static ncclResult_t forward_all(ncclComm_t *comms, int count, const int *devices) {
  if (nc_real(NC_ncclCommInitAll) == NULL)
    return nc_lacks(NULL, NC_ncclCommInitAll);
  ncclComm_t *real = calloc((size_t)count, sizeof *real);
  if (real == NULL)
    return nc_fail(NULL, ncclSystemError, "ncclCommInitAll: no memory for %d communicators", count);
  ncclUniqueId id = {{0}}; /* names them for the flight recorder */
  uint64_t number = nc_random();
  memcpy(id.internal, &number, sizeof number);
  ncclResult_t result = nc_came(NULL, NC_REAL(ncclCommInitAll)(real, count, devices));
  for (int i = 0; i < count && result == ncclSuccess; i++) {
    ncclComm_t made = nc_allocate();
    if (made == NULL) {
      result = ncclInvalidUsage;
      break;
    }
    made->real = real[i];
    made->rank = i;
    made->world = count;
    atomic_store(&made->state, NC_READY);
    nc_watch_id(made, &id);
    comms[i] = made;
  }
  free(real);
  return result;
}

ncclResult_t nc_CommInitAll(ncclComm_t *comms, int count, const int *devices) {
  if (comms == NULL || count < 1)
    return nc_fail(NULL, ncclInvalidArgument, "ncclCommInitAll: comm is %s and ndev is %d; want an array and 1 or more",
                   comms == NULL ? "NULL" : "given", count);
  if (nc_settings()->forward)
    return forward_all(comms, count, devices);
  for (int i = 0; i < count && devices != NULL; i++)
    if (devices[i] < 0)
      return nc_fail(NULL, ncclInvalidArgument, "ncclCommInitAll: device %d of rank %d is negative", devices[i], i);
  ncclUniqueId id;
  ncclResult_t result = nc_GetUniqueId(&id); /* also checks the settings */
  if (result != ncclSuccess)
    return result;
  result = nc_GroupStart();
  for (int i = 0; i < count && result == ncclSuccess; i++)
    result = init(&comms[i], count, &id, i, NULL, devices == NULL ? i : devices[i], "ncclCommInitAll");
  ncclResult_t end = nc_GroupEnd();
  return result == ncclSuccess ? end : result;
}

/* adopt gives comm the communicator that Shunt has made of its parent's. */
static ncclResult_t adopt(ncclComm_t comm, ncclComm_t parent, shunt_comm made) {
  shunt_status status = nc_shunt.rank_(made, &comm->rank);
  if (status == SHUNT_OK)
    status = nc_shunt.world_(made, &comm->world);
  if (status == SHUNT_OK)
    return meet(comm, made, &parent->cancel_children);
  atomic_store(&comm->shunt, made);
  return nc_shunt_failed(comm, status);
}

/* derived is the end of a split or a shrink. */
static ncclResult_t derived(struct nc_job *job, shunt_status status, shunt_comm made) {
  ncclComm_t comm = job->comm;
  ncclResult_t result = ncclSuccess;
  if (status != SHUNT_OK)
    result = nc_shunt_failed(job->parent, status);
  if (comm != NULL)
    result = status == SHUNT_OK ? adopt(comm, job->parent, made) : nc_shunt_failed(comm, status);
  nc_leave_parent(job); /* before the child is there, or has failed: who sees it may use both */
  return comm == NULL ? result : nc_made(comm, result);
}

/* split_revoked is a split of a communicator that has failed, by way of a new one of all its ranks. */
static shunt_status split_revoked(struct nc_job *job, shunt_comm *made) {
  ncclComm_t parent = job->parent;
  shunt_comm whole = NULL;
  int32_t *all = calloc((size_t)parent->world, sizeof *all);
  for (int rank = 0; all != NULL && rank < parent->world; rank++)
    all[rank] = rank;
  shunt_status status = nc_shunt.subset_(parent->shunt, all, parent->world, &whole); /* NULL is an error of its */
  free(all);
  if (status != SHUNT_OK)
    return status;
  (void)nc_shunt.set_cancel_(whole, &parent->cancel_children); /* whole is ours alone: it is open */
  status = nc_shunt.split_(whole, job->color, job->key, made);
  (void)nc_shunt.close_(whole); /* after the split it is not needed */
  return status;
}

static ncclResult_t split(struct nc_job *job) {
  shunt_comm made = NULL;
  shunt_status status = atomic_load(&job->parent->revoked)
                            ? split_revoked(job, &made)
                            : nc_shunt.split_(job->parent->shunt, job->color, job->key, &made);
  return derived(job, status, made);
}

static ncclResult_t shrink(struct nc_job *job) {
  shunt_comm made = NULL;
  if (job->abort)
    (void)nc_shunt.abort_(job->parent->shunt, "ncclCommShrink"); /* it may have failed already */
  shunt_status status = nc_shunt.subset_(job->parent->shunt, job->ranks, job->count, &made);
  free(job->ranks);
  job->ranks = NULL;
  shunt_status failure = SHUNT_OK;
  if (status == SHUNT_OK && nc_shunt.get_async_error_(job->parent->shunt, &failure) == SHUNT_OK && failure != SHUNT_OK)
    atomic_store(&job->parent->settled, true); /* programs wait for the parent, and take a failure for the shrink's */
  return derived(job, status, made);
}

/* derive starts a job on parent; with no comm to make *out stays NULL. */
static ncclResult_t derive(struct nc_job *job, ncclComm_t parent, ncclComm_t *out, const ncclConfig_t *config,
                           bool member) {
  job->parent = parent;
  job->blocking = config->blocking == NC_UNDEF_INT ? parent->blocking : config->blocking != 0;
  if (member) {
    job->comm = nc_allocate();
    if (job->comm == NULL) {
      free(job->ranks);
      free(job);
      return ncclInvalidUsage;
    }
    job->comm->device = parent->device;
    job->comm->blocking = job->blocking;
    job->comm->max_sms = parent->max_sms;
    if (config->maxCTAs != NC_UNDEF_INT && config->maxCTAs != parent->max_sms)
      nc_log("warn", "maxCTAs is %d in the config of a split or shrink on rank %d, which keeps its parent's",
             config->maxCTAs, parent->rank);
    job->comm->parent = parent;
    job->out = out;
    *out = job->comm;
  }
  if (atomic_load(&parent->jobs) == 0)
    nc_settle(parent); /* an abort of earlier children is none of these */
  job->derives = true;
  atomic_fetch_add(&parent->children, 1);
  atomic_fetch_add(&parent->jobs, 1);
  return nc_submit(job);
}

ncclResult_t nc_CommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out, ncclConfig_t *given) {
  static const char name[] = "ncclCommSplit";
  ncclComm_t theirs = nc_only_real(parent);
  if (theirs != NULL) {
    if (nc_real(NC_ncclCommSplit) == NULL)
      return nc_lacks(parent, NC_ncclCommSplit);
    WRAP(out, -1, -1, NC_REAL(ncclCommSplit)(theirs, color, key, real, given),
         nc_watch_child(made, parent, color), color == NC_SPLIT_NOCOLOR ? NULL : parent);
  }
  ncclConfig_t config;
  if (out == NULL)
    return nc_fail(NULL, ncclInvalidArgument, "%s: newcomm is NULL", name);
  *out = NULL;
  if (!nc_can_queue(parent))
    return nc_reject(parent, name);
  if (color < 0 && color != NC_SPLIT_NOCOLOR)
    return nc_fail(parent, ncclInvalidArgument, "%s on rank %d: color %d is negative", name, parent->rank, color);
  ncclResult_t result = nc_read_config(given, &config, name);
  struct nc_job *job = result == ncclSuccess ? new_job(split) : NULL;
  if (job == NULL)
    return result == ncclSuccess ? ncclSystemError : result;
  job->color = color;
  job->key = key;
  return derive(job, parent, out, &config, color != NC_SPLIT_NOCOLOR);
}

/* remaining lists the ranks that are not excluded; it fails when the list is wrong. */
static ncclResult_t remaining(ncclComm_t parent, const int *excluded, int count, struct nc_job *job) {
  bool *out = calloc((size_t)parent->world, sizeof *out);
  job->ranks = calloc((size_t)parent->world, sizeof *job->ranks);
  ncclResult_t result = ncclSuccess;
  if (out == NULL || job->ranks == NULL)
    result = nc_fail(parent, ncclSystemError, "ncclCommShrink: no memory for %d ranks", parent->world);
  for (int i = 0; i < count && result == ncclSuccess; i++)
    if (excluded[i] < 0 || excluded[i] >= parent->world || out[excluded[i]])
      result = nc_fail(parent, ncclInvalidArgument,
                       "ncclCommShrink on rank %d: excluded rank %d is out of range or named twice: the world is %d",
                       parent->rank, excluded[i], parent->world);
    else if (excluded[i] == parent->rank)
      result = nc_fail(parent, ncclInvalidArgument,
                       "ncclCommShrink on rank %d: it excludes itself; only the ranks that stay call it",
                       parent->rank);
    else
      out[excluded[i]] = true;
  for (int rank = 0; rank < parent->world && result == ncclSuccess; rank++)
    if (!out[rank])
      job->ranks[job->count++] = rank;
  free(out);
  return result;
}

ncclResult_t nc_CommShrink(ncclComm_t parent, int *excluded, int count, ncclComm_t *out, ncclConfig_t *given,
                           int flags) {
  static const char name[] = "ncclCommShrink";
  ncclComm_t theirs = nc_only_real(parent);
  if (theirs != NULL) {
    if (nc_real(NC_ncclCommShrink) == NULL)
      return nc_lacks(parent, NC_ncclCommShrink);
    WRAP(out, -1, -1, NC_REAL(ncclCommShrink)(theirs, excluded, count, real, given, flags),
         nc_watch_child(made, parent, 0), parent);
  }
  ncclConfig_t config;
  if (out == NULL)
    return nc_fail(NULL, ncclInvalidArgument, "%s: newcomm is NULL", name);
  *out = NULL;
  if (!nc_can_queue(parent))
    return nc_reject(parent, name);
  if (excluded == NULL || count < 1 || (flags & ~NC_SHRINK_ABORT) != 0)
    return nc_fail(parent, ncclInvalidArgument,
                   "%s on rank %d: a list of %d excluded ranks and flags %#x; want a list of 1 or more, and "
                   "NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT",
                   name, parent->rank, count, (unsigned)flags);
  ncclResult_t result = nc_read_config(given, &config, name);
  struct nc_job *job = result == ncclSuccess ? new_job(shrink) : NULL;
  if (job == NULL)
    return result == ncclSuccess ? ncclSystemError : result;
  job->abort = flags == NC_SHRINK_ABORT;
  result = remaining(parent, excluded, count, job);
  if (result != ncclSuccess) {
    free(job->ranks);
    free(job);
    return result;
  }
  return derive(job, parent, out, &config, true);
}

ncclResult_t nc_CommGrow(ncclComm_t parent, int world, const ncclUniqueId *id, int rank, ncclComm_t *out,
                         ncclConfig_t *config) {
  static const char name[] = "ncclCommGrow";
  ncclComm_t theirs = parent == NULL ? NULL : nc_real_or_make(parent, NC_ncclCommGrow);
  if (theirs == NULL && (parent != NULL || !(nc_settings()->forward || nc_settings()->given[NC_ncclCommGrow])))
    return parent == NULL ? nc_not_served(NULL, NC_ncclCommGrow) : nc_unserved(parent, NC_ncclCommGrow);
  if (nc_real(NC_ncclCommGrow) == NULL)
    return nc_lacks(parent, NC_ncclCommGrow);
  WRAP(out, world, rank, NC_REAL(ncclCommGrow)(theirs, world, id, rank, real, config), nc_watch_child(made, parent, 0),
       NULL);
}
