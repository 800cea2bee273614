/*
 * forward.c: SHUNT_NCCL_FORWARD, and the real NCCL's communicator beside Shunt's, which serves the functions that the
 * variable names and those that Shunt does not have.
 *
 * The ranks tell each other NCCL's unique id over Shunt's communicator (shunt_exchange). It is made with Shunt's where
 * every rank surely comes along: when functions are named, which need not be called by all ranks (ncclSend), and when
 * one process has several ranks, whose thread could not wait in one call for the other. Else it is made when a call
 * first needs it, since it takes memory of the GPU.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "library.h"
#include "memory.h"
#include "real.h"
#include "unique_id.h"
#include "watch.h"

static const struct {
  enum nc_kind kind;
  int collective; /* of Shunt, as the flight recorder calls it, or -1 */
} facts[] = {NC_FACTS};

/* ---- the variable ---------------------------------------------------------- */

static const struct {
  const char *name;
  int collective;
} collectives[] = {
    {"all_reduce", SHUNT_COLL_ALL_REDUCE}, {"reduce", SHUNT_COLL_REDUCE},
    {"broadcast", SHUNT_COLL_BROADCAST},   {"all_gather", SHUNT_COLL_ALL_GATHER},
    {"all_to_all", SHUNT_COLL_ALL_TO_ALL}, {"reduce_scatter", SHUNT_COLL_REDUCE_SCATTER},
    {"gather", SHUNT_COLL_GATHER},         {"scatter", SHUNT_COLL_SCATTER},
    {"send", SHUNT_COLL_SEND},             {"recv", SHUNT_COLL_RECV},
};

/* find_collective returns the collective of a name of Shunt's or NCCL's; -1 if Shunt serves none of that name. */
static int find_collective(const char *name) {
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
    if (strcmp(name, collectives[i].name) == 0)
      return collectives[i].collective;
  for (int i = 0; i < NC_SYMBOLS; i++)
    if (facts[i].kind == NC_COLLECTIVE && strcmp(name, nc_name((enum nc_symbol)i)) == 0)
      return facts[i].collective;
  return -1;
}

/* give gives all functions of a kind, or of a collective, to the real NCCL. */
static void give(struct nc_settings *settings, enum nc_kind kind, int collective) {
  for (int i = 0; i < NC_SYMBOLS; i++)
    if (facts[i].kind == kind && (collective < 0 || facts[i].collective == collective))
      settings->given[i] = true;
}

/* read_name takes one name of the list; false: there is no such function. */
static bool read_name(const char *name, struct nc_settings *settings) {
  int collective = find_collective(name);
  if (strcmp(name, "unsupported") == 0) {
    give(settings, NC_LACKING, -1);
    return true;
  }
  settings->listed = true;
  if (collective == SHUNT_COLL_SEND || collective == SHUNT_COLL_RECV) { /* one rank's send meets the other's recv */
    give(settings, NC_COLLECTIVE, SHUNT_COLL_SEND);
    give(settings, NC_COLLECTIVE, SHUNT_COLL_RECV);
    return true;
  }
  if (collective >= 0) {
    give(settings, NC_COLLECTIVE, collective);
    return true;
  }
  for (int i = 0; i < NC_SYMBOLS; i++) {
    if (strcmp(name, nc_name((enum nc_symbol)i)) != 0)
      continue;
    if (facts[i].kind == NC_WINDOWS)
      give(settings, NC_WINDOWS, -1);
    else if (facts[i].kind == NC_LACKING)
      settings->given[i] = true;
    else
      return false;
    return true;
  }
  return false;
}

void nc_read_forward(const char *value, struct nc_settings *settings) {
  char copy[4096], *state, *name;
  snprintf(settings->value, sizeof settings->value, "%s", value);
  if (strcmp(value, "all") == 0) {
    settings->forward = true;
    nc_log("info", "SHUNT_NCCL_FORWARD=all: NVIDIA's NCCL serves every call");
    return;
  }
  if (value[0] == 0 || strcmp(value, "nothing") == 0)
    return;
  if (snprintf(copy, sizeof copy, "%s", value) >= (int)sizeof copy) {
    snprintf(settings->bad, sizeof settings->bad, "the value has more than %zu bytes", sizeof copy - 1);
    return;
  }
  for (name = strtok_r(copy, ", ", &state); name != NULL && settings->bad[0] == 0;
       name = strtok_r(NULL, ", ", &state)) {
    settings->pairs = true;
    if (!read_name(name, settings))
      snprintf(settings->bad, sizeof settings->bad,
               "%.80s cannot be given to NVIDIA's NCCL; want nothing, all, or a list of "
               "unsupported and functions such as ncclAllReduce, all_reduce or ncclCommWindowRegister",
               name);
  }
  if (!settings->pairs && settings->bad[0] == 0)
    snprintf(settings->bad, sizeof settings->bad, "the list is empty; want nothing, all, or a list");
}

/* ---- what the ranks tell each other ---------------------------------------- */

struct word {
  char value[96]; /* SHUNT_NCCL_FORWARD */
  uint64_t given; /* a hash of what it means */
  uint64_t process;
  ncclUniqueId id; /* rank 0's */
  int32_t result;
  char text[160]; /* why it is no success */
};

static uint64_t this_process;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void number_process(void) { this_process = nc_random(); }

/* tell gives every rank's word to all; the array is the caller's to free. */
static ncclResult_t tell(ncclComm_t comm, const struct word *mine, struct word **all) {
  *all = calloc((size_t)comm->world, sizeof **all);
  if (*all == NULL)
    return nc_fail(comm, ncclSystemError, "no memory for the words of %d ranks", comm->world);
  shunt_status status = nc_shunt.exchange_(comm->shunt, mine, sizeof *mine, *all);
  return status == SHUNT_OK ? ncclSuccess : nc_shunt_failed(comm, status);
}

/* agree fails on all ranks if one of them has failed, and is ncclInProgress while one of them is not ready; it returns
 * rank 0's word. */
static ncclResult_t agree(ncclComm_t comm, struct word *word, ncclResult_t mine) {
  struct word *all = NULL;
  word->result = mine;
  if (mine != ncclSuccess && mine != ncclInProgress)
    snprintf(word->text, sizeof word->text, "%s", nc_GetLastError(comm));
  ncclResult_t result = tell(comm, word, &all);
  for (int rank = 0; rank < comm->world && (result == ncclSuccess || result == ncclInProgress); rank++)
    if (all[rank].result == ncclInProgress)
      result = ncclInProgress;
    else if (all[rank].result != ncclSuccess)
      result = nc_fail(comm, all[rank].result, "NVIDIA's NCCL beside Shunt failed on rank %d: %.*s", rank,
                       (int)sizeof all[rank].text - 1, all[rank].text);
  if (result == ncclSuccess)
    *word = all[0];
  free(all);
  return result;
}

/* ---- making it ------------------------------------------------------------- */

/* open_real checks that this rank can take part, and makes the id on rank 0. */
static ncclResult_t open_real(ncclComm_t comm, ncclUniqueId *id) {
  static const enum nc_symbol needed[] = {NC_ncclGetUniqueId, NC_ncclCommInitRank, NC_ncclCommAbort,
                                          NC_ncclGetLastError};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (nc_real(needed[i]) == NULL)
      return nc_lacks(comm, needed[i]);
  if (comm->rank != 0)
    return ncclSuccess;
  ncclResult_t result = NC_REAL(ncclGetUniqueId)(id);
  return result == ncclSuccess ? result : nc_fail(comm, result, "%s", NC_REAL(ncclGetLastError)(NULL));
}

/* A rank's call of ncclCommInitRank, in a thread of its own: the program's may be inside a group of the real library's,
 * and has a device. NCCL also keeps a rank inside for as long as another one does not come, and no call from outside
 * ends that. The thread frees this. */
struct entry {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  int world, rank, device;
  ncclUniqueId id;
  ncclComm_t real;
  ncclResult_t result; /* ncclInProgress: the call has not returned */
  char text[160];
  enum { WAIT, KEEP, DROP } verdict; /* of the ranks, about real */
};

static ncclResult_t init_real(struct entry *e, bool used, ncclComm_t *real, char *text, size_t size) {
  if (!used) {
    snprintf(text, size, "device %d cannot be used in a new thread", e->device);
    return ncclUnhandledCudaError;
  }
  ncclResult_t result = NC_REAL(ncclCommInitRank)(real, e->world, e->id, e->rank);
  if (result != ncclSuccess)
    snprintf(text, size, "%s", NC_REAL(ncclGetLastError)(NULL));
  return result;
}

static void *enter(void *argument) {
  struct entry *e = argument;
  ncclComm_t real = NULL;
  char text[sizeof e->text] = "";
  bool used = nc_use_device(e->device);
  ncclResult_t result = init_real(e, used, &real, text, sizeof text);
  pthread_mutex_lock(&e->lock);
  e->real = real;
  e->result = result;
  memcpy(e->text, text, sizeof text);
  pthread_cond_broadcast(&e->changed);
  while (e->verdict == WAIT)
    pthread_cond_wait(&e->changed, &e->lock);
  bool drop = e->verdict == DROP;
  pthread_mutex_unlock(&e->lock);
  if (drop && real != NULL)
    (void)NC_REAL(ncclCommAbort)(real);
  if (used) /* only now: NCCL would end real on a context that it makes on device 0 */
    nc_leave_device(e->device);
  pthread_cond_destroy(&e->changed);
  pthread_mutex_destroy(&e->lock);
  free(e);
  return NULL;
}

static struct entry *begin_entry(ncclComm_t comm, const ncclUniqueId *id) {
  struct entry *e = calloc(1, sizeof *e);
  if (e == NULL)
    return NULL;
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->changed, NULL);
  e->world = comm->world;
  e->rank = comm->rank;
  e->device = comm->device;
  e->id = *id;
  e->result = ncclInProgress;
  if (pthread_create(&e->thread, NULL, enter, e) == 0)
    return e;
  free(e);
  return NULL;
}

/* await_entry is its result if the call returns within 0.1 s, else ncclInProgress. */
static ncclResult_t await_entry(ncclComm_t comm, struct entry *e) {
  struct timespec until;
  if (e == NULL)
    return nc_fail(comm, ncclSystemError, "no thread can be made");
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 100000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&e->lock);
  while (e->result == ncclInProgress && pthread_cond_timedwait(&e->changed, &e->lock, &until) == 0) {
  }
  ncclResult_t result = e->result;
  pthread_mutex_unlock(&e->lock);
  return result == ncclSuccess || result == ncclInProgress ? result : nc_fail(comm, result, "%s", e->text);
}

/* end_entry returns the communicator if it is kept. A call that has not returned is left behind. */
static ncclComm_t end_entry(struct entry *e, bool keep) {
  pthread_t thread = e->thread;
  pthread_mutex_lock(&e->lock);
  ncclComm_t real = keep ? e->real : NULL;
  bool inside = e->result == ncclInProgress;
  e->verdict = keep ? KEEP : DROP;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->lock);
  if (inside)
    pthread_detach(thread);
  else
    pthread_join(thread, NULL);
  return real;
}

/* make_real makes the communicator on all ranks or on none. When one has failed all leave, also those that NCCL keeps
 * inside. */
static ncclResult_t make_real(ncclComm_t comm) {
  struct word word = {0};
  ncclResult_t result = agree(comm, &word, open_real(comm, &word.id));
  if (result != ncclSuccess)
    return result;
  ncclUniqueId id = word.id;
  struct entry *e = begin_entry(comm, &id);
  do
    result = agree(comm, &word, await_entry(comm, e));
  while (result == ncclInProgress);
  ncclComm_t real = e == NULL ? NULL : end_entry(e, result == ncclSuccess);
  if (result != ncclSuccess)
    return result;
  nc_watch_id(comm, &id);
  __atomic_store_n(&comm->real, real, __ATOMIC_RELEASE);
  return ncclSuccess;
}

ncclResult_t nc_meet(ncclComm_t comm) {
  const struct nc_settings *settings = nc_settings();
  struct word mine = {.given = UINT64_C(14695981039346656037)}, *all = NULL;
  pthread_once(&once, number_process);
  mine.process = this_process;
  memcpy(mine.value, settings->value, sizeof mine.value);
  for (int i = 0; i < NC_SYMBOLS; i++)
    mine.given = (mine.given ^ (uint64_t)(settings->given[i] + 1)) * UINT64_C(1099511628211);
  ncclResult_t result = tell(comm, &mine, &all);
  bool now = settings->listed;
  for (int rank = 1; rank < comm->world && result == ncclSuccess; rank++) {
    for (int other = 0; other < rank; other++)
      now = now || all[rank].process == all[other].process;
    if (all[rank].given != all[0].given)
      result = nc_fail(comm, ncclInvalidUsage,
                       "SHUNT_NCCL_FORWARD is \"%.95s\" on rank 0 and \"%.95s\" on rank %d; it has to "
                       "be equal on all ranks",
                       all[0].value, all[rank].value, rank);
  }
  free(all);
  return result == ncclSuccess && settings->pairs && now ? make_real(comm) : result;
}

static _Thread_local ncclResult_t failure;

ncclResult_t nc_make_failure(void) {
  ncclResult_t last = failure;
  failure = ncclSuccess;
  return last;
}

ncclComm_t nc_real_or_make(ncclComm_t comm, enum nc_symbol symbol) {
  ncclComm_t real = nc_only_real(comm);
  bool wanted = nc_settings()->given[symbol] || (symbol == NC_ncclRedOpCreatePreMulSum && nc_settings()->pairs);
  if (real != NULL || !wanted)
    return real;
  if (nc_any_real(comm) == NULL) {
    if (!nc_is_ready(comm)) /* it is made over Shunt's, which has a job, or has ended */
      return NULL;
    nc_log("info", "%s on rank %d makes a communicator of NVIDIA's NCCL", nc_name(symbol), comm->rank);
    atomic_fetch_add(&comm->jobs, 1); /* it is not closed meanwhile */
    failure = make_real(comm);
    pthread_mutex_lock(&comm->lock);
    atomic_fetch_sub(&comm->jobs, 1);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (failure != ncclSuccess)
      return NULL;
  }
  return facts[symbol].kind == NC_LACKING ? nc_enter_real(comm, symbol) : nc_any_real(comm);
}
