/*
 * group.c: ncclGroupStart and ncclGroupEnd. What a thread calls in between is kept, and run together at the end: first
 * what makes communicators, each in a thread of its own since they wait for each other, then the operations.
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
  bool real; /* the real NCCL has a group of this thread too */
  bool kept; /* the key's destructor frees the arrays at the end of the thread */
};

static _Thread_local struct group mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_arrays(void *group) {
  struct group *g = group;
  free(g->comms);
  free(g->operations);
  g->comms = NULL;
  g->operations = NULL;
  g->capacity = 0;
}

static void make_key(void) { (void)pthread_key_create(&key, free_arrays); }

void nc_group_failed(ncclResult_t result, const char *text) {
  if (mine.depth == 0 || mine.failed != ncclSuccess || result == ncclInProgress)
    return;
  mine.failed = result;
  snprintf(mine.why, sizeof mine.why, "%s", text);
}

bool nc_group_registers(ncclComm_t comm) {
  int count = 0;
  for (struct nc_job *job = mine.jobs; job != NULL; job = job->next) {
    if (job->parent != comm)
      continue;
    if (job->window == NULL)
      return false;
    count++;
  }
  return count > 0 && atomic_load(&comm->jobs) == count;
}

static bool grow(void) {
  int64_t capacity = mine.capacity == 0 ? 16 : 2 * mine.capacity;
  ncclComm_t *comms = realloc(mine.comms, (size_t)capacity * sizeof *comms);
  if (comms != NULL)
    mine.comms = comms;
  shunt_operation *operations = realloc(mine.operations, (size_t)capacity * sizeof *operations);
  if (operations != NULL)
    mine.operations = operations;
  if (comms == NULL || operations == NULL)
    return false;
  mine.capacity = capacity;
  if (!mine.kept) {
    pthread_once(&once, make_key);
    mine.kept = pthread_setspecific(key, &mine) == 0;
  }
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
  if (job->parent != NULL) {
    pthread_mutex_lock(&job->parent->lock);
    atomic_fetch_sub(&job->parent->jobs, 1);
    pthread_cond_broadcast(&job->parent->changed);
    pthread_mutex_unlock(&job->parent->lock);
    job->parent = NULL;
  }
}

/* settle returns the status that the caller of a blocking call gets. */
static ncclResult_t settle(struct nc_job *job) {
  ncclResult_t result = job->result;
  if (result != ncclSuccess && job->comm != NULL) {
    if (job->out != NULL)
      *job->out = NULL;
    nc_release(job->comm);
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
    nc_leave_parent(job);
  }
  return NULL;
}

static void *run_and_free(void *argument) {
  struct nc_job *job = argument;
  (void)job->run(job); /* the communicator has the result */
  nc_leave_parent(job);
  free(job);
  return NULL;
}

static bool begin_detached(struct nc_job *job) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_and_free, job) != 0)
    return false;
  pthread_detach(thread);
  return true;
}

ncclResult_t nc_submit(struct nc_job *job) {
  if (mine.depth > 0) {
    if (mine.jobs == NULL)
      mine.last = &mine.jobs;
    *mine.last = job;
    mine.last = &job->next;
    return ncclSuccess;
  }
  if (!job->blocking && begin_detached(job))
    return ncclInProgress;
  job->result = job->run(job);
  nc_leave_parent(job);
  return settle(job);
}

/* line_up has the registrations of one communicator follow each other, as all its ranks make them in one order. It
 * returns the number of jobs that follow none. */
static int line_up(struct nc_job *jobs) {
  int heads = 0;
  for (struct nc_job *job = jobs; job != NULL; job = job->next) {
    heads += !job->follows;
    for (struct nc_job *later = job->next; job->window != NULL && job->then == NULL && later != NULL;
         later = later->next)
      if (later->window != NULL && later->parent == job->parent) {
        job->then = later;
        later->follows = true;
      }
  }
  return heads;
}

/* run_jobs runs what the group has to make; ncclInProgress if some of it goes on. */
static ncclResult_t run_jobs(struct nc_job *jobs) {
  ncclResult_t result = ncclSuccess;
  bool going = false, alone = line_up(jobs) == 1;
  struct nc_job *next;
  for (struct nc_job **at = &jobs; *at != NULL;) {
    struct nc_job *job = *at;
    next = job->next;
    if (job->follows) {
      at = &job->next;
      continue;
    }
    if (!job->blocking && begin_detached(job)) { /* its memory is its own now */
      *at = next;
      going = true;
      continue;
    }
    if (alone) { /* in this thread */
      run_and_keep(job);
      job->thread = 0;
    } else if (pthread_create(&job->thread, NULL, run_and_keep, job) != 0) {
      job->thread = 0;
      run_and_keep(job);
    }
    at = &job->next;
  }
  for (struct nc_job *job = jobs; job != NULL; job = next) {
    next = job->next;
    if (job->thread != 0)
      pthread_join(job->thread, NULL);
    if (job->result != ncclSuccess && result == ncclSuccess)
      result = nc_fail(NULL, job->result, "%s", job->text);
    (void)settle(job);
  }
  return result == ncclSuccess && going ? ncclInProgress : result;
}

static void drop_jobs(struct nc_job *jobs, ncclResult_t result) {
  struct nc_job *next;
  for (struct nc_job *job = jobs; job != NULL; job = next) {
    next = job->next;
    job->result = result;
    nc_leave_parent(job);
    free(job->ranks);
    (void)settle(job);
  }
}

/* run_operations runs the operations of the group. */
static ncclResult_t run_operations(void) {
  ncclResult_t result = ncclSuccess;
  for (int64_t i = 0; i < mine.count && result == ncclSuccess; i++)
    if (!nc_is_ready(mine.comms[i]))
      result = nc_reject(mine.comms[i], "ncclGroupEnd");
  if (mine.count > 0 && result == ncclSuccess) {
    ncclComm_t first = mine.comms[0];
    shunt_status status;
    if (mine.count == 1) {
      status = nc_shunt.run_(first->shunt, mine.operations);
    } else {
      shunt_comm *comms = (shunt_comm *)mine.comms; /* in place: as large, and not needed any more */
      _Static_assert(sizeof(shunt_comm) == sizeof(ncclComm_t), "handles are pointers");
      bool one = true;
      for (int64_t i = 0; i < mine.count; i++) {
        shunt_comm theirs = mine.comms[i]->shunt;
        one = one && mine.comms[i] == first;
        memcpy(&comms[i], &theirs, sizeof theirs);
      }
      status = nc_shunt.run_together_(comms, mine.operations, mine.count);
      if (!one)
        first = NULL;
    }
    if (status != SHUNT_OK)
      result = nc_shunt_failed(first, status);
  }
  mine.count = 0;
  return result;
}

ncclComm_t nc_enter_real(ncclComm_t comm, enum nc_symbol symbol) {
  return nc_settings()->given[symbol] && nc_is_ready(comm) ? nc_group_enters(comm) : NULL;
}

ncclComm_t nc_group_enters(ncclComm_t comm) {
  if (mine.depth > 0 && !mine.real && nc_real(NC_ncclGroupStart) != NULL && nc_real(NC_ncclGroupEnd) != NULL)
    mine.real = NC_REAL(ncclGroupStart)() == ncclSuccess;
  return comm->real;
}

ncclResult_t nc_GroupStart(void) {
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGroupStart) == NULL)
      return nc_lacks(NULL, NC_ncclGroupStart);
    return NC_REAL(ncclGroupStart)();
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
  if (!run || result != ncclSuccess) {
    drop_jobs(jobs, result == ncclSuccess ? ncclInvalidUsage : result);
  } else {
    result = run_jobs(jobs);
    if (result == ncclSuccess)
      result = run_operations();
  }
  if (failed != ncclSuccess) /* its text, and not that of a later failure */
    (void)nc_fail(NULL, failed, "%s", mine.why);
  mine.count = 0;
  if (mine.real) { /* it has to end, and cannot end without running */
    mine.real = false;
    ncclResult_t theirs = NC_REAL(ncclGroupEnd)();
    if (result == ncclSuccess && theirs != ncclSuccess)
      result = nc_came(NULL, theirs);
  }
  return result;
}

ncclResult_t nc_GroupEnd(void) {
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGroupEnd) == NULL)
      return nc_lacks(NULL, NC_ncclGroupEnd);
    return NC_REAL(ncclGroupEnd)();
  }
  if (mine.depth == 0)
    return nc_fail(NULL, ncclInvalidUsage, "ncclGroupEnd: this thread has no open group");
  return --mine.depth > 0 ? ncclSuccess : close_group(true);
}

ncclResult_t nc_GroupSimulateEnd(ncclSimInfo_t *info) {
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGroupSimulateEnd) == NULL)
      return nc_lacks(NULL, NC_ncclGroupSimulateEnd);
    return NC_REAL(ncclGroupSimulateEnd)(info);
  }
  if (mine.depth == 0)
    return nc_fail(NULL, ncclInvalidUsage, "ncclGroupSimulateEnd: this thread has no open group");
  if (--mine.depth > 0)
    return ncclSuccess;
  (void)close_group(false);
  return nc_fail(NULL, ncclInvalidUsage, "ncclGroupSimulateEnd: Shunt has no estimate of a group; nothing was run");
}
