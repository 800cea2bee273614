/*
 * group.c: ncclGroupStart and ncclGroupEnd. What a thread calls in between is kept, and run together at the end: first
 * what makes communicators, each parent's in a thread of its own since they wait for each other, then the operations.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "real.h"

struct group {
  int depth;
  ncclResult_t failed;
  char why[512]; /* failed */
  struct nc_job *jobs, **last;
  int64_t count, capacity;
  ncclComm_t *comms; /* of each operation */
  shunt_operation *operations;
  shunt_comm *theirs; /* at the end, and of these: */
  shunt_operation *ordered;
  bool real; /* the real NCCL has a group of this thread too */
  int real_depth; /* or, where it serves everything, so many in one another */
  bool kept; /* the key's destructor ends it with the thread */
};

static _Thread_local struct group mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void drop_jobs(struct nc_job *jobs, ncclResult_t result);
static ncclResult_t begin_jobs(struct nc_job *jobs);

/* forget_group is the end of a thread, which may have left its group open. */
static void forget_group(void *group) {
  struct group *g = group;
  for (struct nc_job *job = g->jobs; job != NULL; job = job->next) {
    job->out = NULL; /* where the program wanted them may be gone */
    job->window = NULL;
  }
  (void)begin_jobs(g->jobs);
  drop_jobs(g->jobs, ncclInvalidUsage);
  free(g->comms);
  free(g->operations);
  free(g->theirs);
  free(g->ordered);
  *g = (struct group){0};
}

static void make_key(void) { (void)pthread_key_create(&key, forget_group); }

/* keep_group sees to the end of this thread. */
static void keep_group(void) {
  pthread_once(&once, make_key);
  mine.kept = mine.kept || pthread_setspecific(key, &mine) == 0;
}

ncclResult_t nc_group_failed(ncclResult_t result, const char *text) {
  if (mine.depth > 0 && mine.failed == ncclSuccess && result != ncclInProgress) {
    mine.failed = result;
    snprintf(mine.why, sizeof mine.why, "%s", text);
  }
  return result;
}

bool nc_group_makes(ncclComm_t comm) {
  for (struct nc_job *job = mine.jobs; job != NULL; job = job->next)
    if (job->comm == comm || job->parent == comm)
      return true;
  return false;
}

bool nc_group_holds(ncclComm_t comm) {
  int count = 0;
  for (struct nc_job *job = mine.jobs; job != NULL; job = job->next)
    count += job->parent == comm;
  return comm != NULL && count > 0 && atomic_load(&comm->state) == NC_READY && atomic_load(&comm->jobs) == count;
}

static bool grow(void) {
  int64_t capacity = mine.capacity == 0 ? 16 : 2 * mine.capacity;
  ncclComm_t *comms = realloc(mine.comms, (size_t)capacity * sizeof *comms);
  if (comms != NULL)
    mine.comms = comms;
  shunt_operation *operations = realloc(mine.operations, (size_t)capacity * sizeof *operations);
  if (operations != NULL)
    mine.operations = operations;
  shunt_comm *theirs = realloc(mine.theirs, (size_t)capacity * sizeof *theirs);
  if (theirs != NULL)
    mine.theirs = theirs;
  shunt_operation *ordered = realloc(mine.ordered, (size_t)capacity * sizeof *ordered);
  if (ordered != NULL)
    mine.ordered = ordered;
  if (comms == NULL || operations == NULL || theirs == NULL || ordered == NULL)
    return false;
  mine.capacity = capacity;
  keep_group();
  return true;
}

ncclResult_t nc_queue(ncclComm_t comm, const shunt_operation *operation) {
  if (mine.depth == 0) {
    shunt_status status = nc_shunt.run_(comm->shunt, operation);
    return __builtin_expect(status == SHUNT_OK, 1) ? ncclSuccess : nc_shunt_failed(comm, status);
  }
  if (mine.count == mine.capacity && !grow())
    return nc_fail(comm, ncclSystemError, "no memory for %lld operations in a group", (long long)mine.count + 1);
  mine.comms[mine.count] = comm;
  mine.operations[mine.count++] = *operation;
  return ncclSuccess;
}

/* ---- jobs ------------------------------------------------------------------ */

void nc_leave_parent(struct nc_job *job) {
  if (job->parent == NULL || job->left)
    return;
  job->left = true;
  pthread_mutex_lock(&job->parent->lock);
  atomic_fetch_sub(&job->parent->jobs, 1);
  pthread_cond_broadcast(&job->parent->changed);
  pthread_mutex_unlock(&job->parent->lock);
}

/* part_from_parent is the end of a job, behind which its parent may go: the child, if it has one, is there or failed.
 * An abort of one child ends all of the same time, as in NCCL, and none of later. */
static void part_from_parent(struct nc_job *job) {
  ncclComm_t parent = job->parent;
  nc_leave_parent(job);
  if (parent == NULL || !job->derives)
    return;
  pthread_mutex_lock(&parent->lock);
  if (atomic_fetch_sub(&parent->children, 1) == 1 && __atomic_load_n(&parent->cancel, __ATOMIC_SEQ_CST) == 0)
    __atomic_store_n(&parent->cancel_children, 0, __ATOMIC_SEQ_CST);
  pthread_cond_broadcast(&parent->changed);
  pthread_mutex_unlock(&parent->lock);
}

/* settle returns the status that the caller of a blocking call gets. */
static ncclResult_t settle(struct nc_job *job) {
  ncclResult_t result = job->result;
  if (result != ncclSuccess && job->comm != NULL) {
    if (job->out != NULL)
      *job->out = NULL;
    nc_drop(job->comm);
  }
  if (result != ncclSuccess && job->window != NULL)
    nc_drop_window(job->window);
  free(job);
  return result;
}

static void *run_and_keep(void *argument) {
  for (struct nc_job *job = argument; job != NULL; job = job->then) {
    job->result = job->run(job);
    if (job->result != ncclSuccess)
      snprintf(job->text, sizeof job->text, "%s", nc_GetLastError(NULL));
    part_from_parent(job);
  }
  return NULL;
}

static void *run_and_free(void *argument) {
  struct nc_job *then;
  for (struct nc_job *job = argument; job != NULL; job = then) {
    then = job->then;
    (void)job->run(job); /* the communicator has the result */
    part_from_parent(job);
    free(job);
  }
  return NULL;
}

static bool begin_detached(struct nc_job *job) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_and_free, job) != 0)
    return false;
  pthread_detach(thread);
  return true;
}

static void count_queued(ncclComm_t comm) {
  if (comm == NULL)
    return;
  pthread_mutex_lock(&comm->lock);
  atomic_fetch_add(&comm->queued, 1);
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->lock);
}

/* begins: whether a communicator that a job makes, or makes something of, is there when the job begins: another thread
 * may have ended it. An abort waits for the job from here on. */
static bool begins(ncclComm_t comm, enum nc_state wanted) {
  if (comm == NULL)
    return true;
  pthread_mutex_lock(&comm->lock);
  atomic_fetch_sub(&comm->queued, 1);
  bool there = atomic_load(&comm->state) == wanted;
  pthread_mutex_unlock(&comm->lock);
  return there;
}

static ncclResult_t begin_jobs(struct nc_job *jobs) {
  ncclComm_t gone = NULL;
  for (struct nc_job *job = jobs; job != NULL; job = job->next) {
    if (!begins(job->comm, NC_PENDING))
      gone = job->comm;
    if (!begins(job->parent, NC_READY))
      gone = job->parent;
  }
  return gone == NULL ? ncclSuccess : nc_reject(gone, "ncclGroupEnd");
}

ncclResult_t nc_submit(struct nc_job *job) {
  if (mine.depth > 0) {
    keep_group();
    count_queued(job->comm);
    count_queued(job->parent);
    if (mine.jobs == NULL)
      mine.last = &mine.jobs;
    *mine.last = job;
    mine.last = &job->next;
    return ncclSuccess;
  }
  if (!job->blocking && begin_detached(job))
    return ncclInProgress;
  job->result = job->run(job);
  part_from_parent(job);
  return settle(job);
}

/* line_up takes the jobs of one parent out of the list, but for the first, behind which they run: all ranks make them
 * in one order. */
static void line_up(struct nc_job *jobs) {
  for (struct nc_job *first = jobs; first != NULL; first = first->next) {
    struct nc_job *last = first, **at = &first->next;
    while (*at != NULL) {
      struct nc_job *job = *at;
      if (first->parent == NULL || job->parent != first->parent) {
        at = &job->next;
        continue;
      }
      *at = job->next;
      last = last->then = job;
    }
  }
}

/* goes_on: whether the group's end need not wait for a job and those behind it. Operations of the group do. */
static bool goes_on(const struct nc_job *job) {
  for (int64_t i = 0; i < mine.count; i++)
    if (mine.comms[i] == job->parent)
      return false;
  for (; job != NULL; job = job->then)
    if (job->blocking)
      return false;
  return true;
}

/* run_jobs runs what the group has to make; ncclInProgress if some of it still runs. */
static ncclResult_t run_jobs(struct nc_job *jobs) {
  ncclResult_t result = ncclSuccess;
  line_up(jobs);
  bool going = false, alone = jobs != NULL && jobs->next == NULL;
  struct nc_job *next;
  for (struct nc_job **at = &jobs; *at != NULL;) {
    struct nc_job *job = *at;
    next = job->next;
    if (goes_on(job) && begin_detached(job)) { /* its memory is its own now */
      *at = next;
      going = true;
      continue;
    }
    if (alone || pthread_create(&job->thread, NULL, run_and_keep, job) != 0) {
      run_and_keep(job); /* in this thread */
      job->thread = 0;
    }
    at = &job->next;
  }
  for (struct nc_job *first = jobs; first != NULL; first = next) {
    next = first->next;
    if (first->thread != 0)
      pthread_join(first->thread, NULL);
    struct nc_job *then;
    for (struct nc_job *job = first; job != NULL; job = then) {
      then = job->then;
      if (job->result != ncclSuccess && result == ncclSuccess)
        result = nc_fail(NULL, job->result, "%s", job->text);
      (void)settle(job);
    }
  }
  return result == ncclSuccess && going ? ncclInProgress : result;
}

static void drop_jobs(struct nc_job *jobs, ncclResult_t result) {
  struct nc_job *next;
  for (struct nc_job *job = jobs; job != NULL; job = next) {
    next = job->next;
    job->result = result;
    part_from_parent(job);
    free(job->ranks);
    (void)settle(job);
  }
}

/* order is that in which operations run: as in NCCL collectives first, so that messages may stand before them on one
 * rank and behind them on another. */
static void order(void) {
  int64_t count = 0;
  for (int message = 0; message <= 1; message++)
    for (int64_t i = 0; i < mine.count; i++) {
      shunt_collective kind = mine.operations[i].collective;
      if ((kind == SHUNT_COLL_SEND || kind == SHUNT_COLL_RECV) != message)
        continue;
      mine.theirs[count] = mine.comms[i]->shunt;
      mine.ordered[count++] = mine.operations[i];
    }
}

/* run_operations runs the operations of the group. */
static ncclResult_t run_operations(void) {
  ncclResult_t result = ncclSuccess;
  for (int64_t i = 0; i < mine.count && result == ncclSuccess; i++)
    if (!nc_is_ready(mine.comms[i]) && !nc_is_finalized(mine.comms[i]))
      result = nc_reject(mine.comms[i], "ncclGroupEnd");
  if (mine.count > 0 && result == ncclSuccess) {
    shunt_status status;
    if (mine.count == 1) {
      status = nc_shunt.run_(mine.comms[0]->shunt, mine.operations);
    } else {
      order();
      status = nc_shunt.run_together_(mine.theirs, mine.ordered, mine.count);
    }
    for (int64_t i = mine.count; status != SHUNT_OK && i-- > 0;)
      if (i == 0 || mine.comms[i] != mine.comms[i - 1])
        result = nc_shunt_failed(mine.comms[i], status);
  }
  mine.count = 0;
  return result;
}

ncclComm_t nc_enter_real(ncclComm_t comm, enum nc_symbol symbol) {
  bool gives_back = symbol == NC_ncclCommWindowDeregister || symbol == NC_ncclDevCommDestroy;
  bool taken = nc_can_queue(comm) || (gives_back && nc_is_finalized(comm)); /* as Shunt takes its windows back */
  return nc_settings()->given[symbol] && taken ? nc_group_enters(comm) : NULL;
}

ncclComm_t nc_group_enters(ncclComm_t comm) {
  if (mine.depth > 0 && !mine.real && nc_real(NC_ncclGroupStart) != NULL && nc_real(NC_ncclGroupEnd) != NULL)
    mine.real = NC_REAL(ncclGroupStart)() == ncclSuccess;
  return nc_any_real(comm);
}

const void *nc_real_group(void) { return mine.real_depth > 0 ? &mine : NULL; }

/* end_real_group is behind a call that ends a group of the real library, where that serves everything. */
static ncclResult_t end_real_group(ncclResult_t ended) {
  if (mine.real_depth == 1)
    (void)nc_hand_out(NULL, ended != ncclSuccess && ended != ncclInProgress);
  mine.real_depth -= mine.real_depth > 0;
  return nc_came(NULL, ended);
}

ncclResult_t nc_GroupStart(void) {
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGroupStart) == NULL)
      return nc_lacks(NULL, NC_ncclGroupStart);
    ncclResult_t started = nc_came(NULL, NC_REAL(ncclGroupStart)());
    mine.real_depth += started == ncclSuccess;
    return started;
  }
  mine.depth++;
  return ncclSuccess;
}

/* close_group ends this thread's group: run says whether what is in it is run. */
static ncclResult_t close_group(bool run) {
  struct nc_job *jobs = mine.jobs;
  ncclResult_t failed = mine.failed, result = failed;
  mine.jobs = NULL;
  mine.failed = ncclSuccess;
  ncclResult_t begun = begin_jobs(jobs);
  result = result == ncclSuccess ? begun : result;
  if (!run || result != ncclSuccess) {
    drop_jobs(jobs, result == ncclSuccess ? ncclInvalidUsage : result);
  } else {
    result = run_jobs(jobs);
    if (result == ncclSuccess || result == ncclInProgress) { /* what still runs is of other communicators */
      ncclResult_t ran = run_operations();
      result = ran == ncclSuccess ? result : ran;
    }
  }
  if (failed != ncclSuccess) /* its text, and not that of a later failure */
    (void)nc_fail(NULL, failed, "%s", mine.why);
  mine.count = 0;
  if (mine.real) { /* it has to end, and cannot end without running */
    mine.real = false;
    ncclResult_t theirs = NC_REAL(ncclGroupEnd)();
    if (theirs != ncclSuccess && (result == ncclSuccess || result == ncclInProgress))
      result = nc_came(NULL, theirs);
  }
  return result;
}

ncclResult_t nc_GroupEnd(void) {
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGroupEnd) == NULL)
      return nc_lacks(NULL, NC_ncclGroupEnd);
    return end_real_group(NC_REAL(ncclGroupEnd)());
  }
  if (mine.depth == 0)
    return nc_fail(NULL, ncclInvalidUsage, "ncclGroupEnd: this thread has no open group");
  return --mine.depth > 0 ? ncclSuccess : close_group(true);
}

ncclResult_t nc_GroupSimulateEnd(ncclSimInfo_t *info) {
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGroupSimulateEnd) == NULL)
      return nc_lacks(NULL, NC_ncclGroupSimulateEnd);
    return end_real_group(NC_REAL(ncclGroupSimulateEnd)(info));
  }
  if (mine.depth == 0)
    return nc_fail(NULL, ncclInvalidUsage, "ncclGroupSimulateEnd: this thread has no open group");
  if (--mine.depth > 0)
    return ncclSuccess;
  (void)close_group(false);
  if (info != NULL && info->magic != NC_SIM_INFO_MAGIC)
    return nc_fail(NULL, ncclInvalidArgument, "ncclGroupSimulateEnd: simInfo.magic is %#x; start from "
                   "NCCL_SIM_INFO_INITIALIZER", info->magic);
  return nc_fail(NULL, ncclInvalidUsage, "ncclGroupSimulateEnd: Shunt has no estimate of a group; nothing was run");
}
