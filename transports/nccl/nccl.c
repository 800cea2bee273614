/* nccl.c: calls of NCCL; see nccl.h. */
#define _GNU_SOURCE
#include "nccl.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "open.h"

static const char *const symbols[] = {
#define X(name, result, arguments) "nccl" #name,
    NL_FUNCTIONS(X)
#undef X
};

static const char *const newer[] = {
#define X(name, result, arguments) "nccl" #name,
    NL_NEWER(X)
#undef X
};

int nl_load(const char *path, nl_table *table, char *message, size_t bytes) {
  void *library = nl_open(path, message, bytes);
  if (!library) return -1;
  void **slots = (void **)table; /* nothing but function pointers, in the order of symbols */
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
    if (!(slots[i] = dlsym(library, symbols[i]))) {
      snprintf(message, bytes, "it has no %s; NCCL 2.18 is the oldest that serves", symbols[i]);
      dlclose(library);
      return -1;
    }
  slots += sizeof symbols / sizeof *symbols;
  for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) slots[i] = dlsym(library, newer[i]);
  return 0;
}

int nl_version(const nl_table *table) {
  int version;
  return table->GetVersion(&version) ? -1 : version;
}

const char *nl_path(const nl_table *table) {
  Dl_info info;
  return dladdr((void *)table->GetVersion, &info) && info.dli_fname ? info.dli_fname : "";
}

/* One that does not block can be given up while it is made, but NCCL starts a thread for each of its calls, which
 * takes 80 us. So that is the parent, and calls go to a child that blocks: splitting it off is an operation of the
 * parent's. They share resources, and with these the flag that aborts. */
struct nl_comm {
  const nl_table *nccl;
  void *parent, *comm; /* null before they are made and after they are let go of; NCCL's threads write them */
  pthread_mutex_t lock;
  _Atomic int aborted, ready;
  int splitting, rank, world, max_ctas;
  nl_id id;
};

nl_comm *nl_new(const nl_table *table, const void *id, int rank, int world, int max_ctas) {
  nl_comm *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  pthread_mutex_init(&c->lock, NULL);
  c->nccl = table;
  c->rank = rank;
  c->world = world;
  c->max_ctas = max_ctas;
  memcpy(&c->id, id, sizeof c->id);
  return c;
}

/* What a result of NCCL's, not of success, is here. Its words are those of its last error, if it has some. */
static shunt_status failed(const nl_table *nccl, void *comm, int result, shunt_native_report *report) {
  static const shunt_status codes[] = {SHUNT_OK,       SHUNT_DEVICE,           SHUNT_SYSTEM,
                                       SHUNT_INTERNAL, SHUNT_INVALID_ARGUMENT, SHUNT_INVALID_ARGUMENT,
                                       SHUNT_PEER_DIED};
  const char *what = nccl->GetErrorString(result), *why = nccl->GetLastError(comm);
  snprintf(report->message, sizeof report->message, "NCCL says \"%s\"%s%s", what ? what : "?", why && *why ? ": " : "",
           why ? why : "");
  return result > 0 && result < (int)(sizeof codes / sizeof *codes) ? codes[result] : SHUNT_INTERNAL;
}

shunt_status nl_unique_id(const nl_table *table, nl_id *id, shunt_native_report *report) {
  int result = table->GetUniqueId(id);
  return result ? failed(table, NULL, result, report) : SHUNT_OK;
}

static shunt_status gone(shunt_native_report *report) {
  strcpy(report->message, "its communicator of NCCL was aborted");
  return SHUNT_ABORTED;
}

static nl_config configured(const nl_comm *c, int blocking) {
  const int undefined = -2147483647 - 1; /* NCCL_CONFIG_UNDEF_INT */
  nl_config config = {sizeof config, 0xcafebeef, 21800, blocking, undefined, undefined,
                      c->max_ctas > 0 ? c->max_ctas : undefined, NULL, 1};
  if (c->max_ctas > 0) config.min_ctas = 1;
  return config;
}

shunt_status nl_begin(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                      shunt_native_report *report) {
  nl_comm *c = context;
  (void)registers, (void)send, (void)recv, (void)stream;
  nl_config config = configured(c, 0);
  pthread_mutex_lock(&c->lock);
  shunt_status status = SHUNT_OK;
  if (c->aborted) {
    status = gone(report); /* nl_abort has found nothing to end */
  } else {
    int result = c->nccl->CommInitRankConfig(&c->parent, c->world, c->id, c->rank, &config);
    if (result && result != NL_IN_PROGRESS) status = failed(c->nccl, c->parent, result, report);
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

shunt_status nl_split(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                      shunt_native_report *report) {
  nl_comm *c = context;
  (void)registers, (void)send, (void)recv, (void)stream;
  nl_config config = configured(c, 1);
  pthread_mutex_lock(&c->lock);
  shunt_status status = SHUNT_OK;
  if (c->aborted || !c->parent) {
    status = gone(report);
  } else {
    int result = c->nccl->CommSplit(c->parent, 0, c->rank, &c->comm, &config);
    if (result && result != NL_IN_PROGRESS) status = failed(c->nccl, c->parent, result, report);
    c->splitting = 1;
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

shunt_status nl_look(nl_comm *c, shunt_native_report *report) {
  if (c->aborted) return gone(report);
  if (pthread_mutex_trylock(&c->lock)) return SHUNT_PENDING; /* somebody calls NCCL, and is told */
  shunt_status status = SHUNT_PENDING;
  int state = 0, ready = c->ready;
  void *comm = ready ? c->comm : c->parent;
  if (!comm) {
    status = gone(report);
  } else {
    int result = c->nccl->CommGetAsyncError(comm, &state);
    if (!result) result = state;
    if (!result && c->splitting) c->ready = 1;
    if (result != NL_IN_PROGRESS) status = result ? failed(c->nccl, comm, result, report) : SHUNT_OK;
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

/* Take the lock within a second; 0: somebody keeps it. */
static int lock_soon(nl_comm *c) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  return !pthread_mutex_timedlock(&c->lock, &until);
}

/* NCCL lets this variable decide about splitShare: then the child has a flag of its own. */
static int apart(void) {
  const char *share = getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
  return share && *share && strtoll(share, NULL, 0) != 1;
}

/* Take a communicator out of its place; null: somebody else has. */
static void *take(void **place) { return __atomic_exchange_n(place, NULL, __ATOMIC_ACQ_REL); }

static void abort_one(const nl_comm *c, void *comm) {
  if (comm) c->nccl->CommAbort(comm);
}

shunt_status nl_abort(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                      shunt_native_report *report) {
  nl_comm *c = context;
  (void)registers, (void)send, (void)recv, (void)stream, (void)report;
  c->aborted = 1;
  /* The parent first, which nobody uses once both are ready: its flag is the child's, so that calls return and kernels
   * end. Then whoever is inside leaves, unless the driver holds it, behind somebody else's kernels: NCCL would free
   * the child under it, so that is left to nl_destroy. */
  int locked = !c->ready && lock_soon(c);
  abort_one(c, take(&c->parent));
  if (!locked) locked = lock_soon(c);
  if (locked || apart()) abort_one(c, take(&c->comm));
  if (locked) pthread_mutex_unlock(&c->lock);
  return SHUNT_OK;
}

static void let_go(const nl_comm *c, void *comm) {
  if (!comm) return;
  const nl_table *nccl = c->nccl;
  int state = NL_IN_PROGRESS, result = c->aborted ? -1 : nccl->CommFinalize(comm);
  while ((!result || result == NL_IN_PROGRESS) && !(result = nccl->CommGetAsyncError(comm, &state)) &&
         state == NL_IN_PROGRESS) {
    struct timespec moment = {0, 100000};
    nanosleep(&moment, NULL);
  }
  if (result || state) nccl->CommAbort(comm);
  else nccl->CommDestroy(comm);
}

shunt_status nl_destroy(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                        shunt_native_report *report) {
  nl_comm *c = context;
  (void)registers, (void)send, (void)recv, (void)stream, (void)report;
  pthread_mutex_lock(&c->lock);
  void *parent = take(&c->parent), *comm = take(&c->comm);
  pthread_mutex_unlock(&c->lock);
  let_go(c, comm);
  let_go(c, parent);
  return SHUNT_OK;
}

void nl_free(nl_comm *c) {
  pthread_mutex_destroy(&c->lock);
  free(c);
}

/* ---- the caller's memory --------------------------------------------------- */

static shunt_status busy(shunt_native_report *report) {
  strcpy(report->message, "another call of NCCL goes on");
  return SHUNT_TIMEOUT;
}

shunt_status nl_register(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                         shunt_native_report *report) {
  nl_memory *m = context;
  nl_comm *c = m->comm;
  (void)registers, (void)send, (void)recv, (void)stream;
  if (c->aborted) return gone(report); /* without the lock, which nl_abort keeps as long as NCCL takes */
  if (!lock_soon(c)) return busy(report);
  shunt_status status = SHUNT_OK;
  if (c->aborted || !c->comm) {
    status = gone(report);
  } else {
    int result = c->nccl->CommRegister(c->comm, (void *)m->address, m->bytes, &m->handle);
    if (result) status = failed(c->nccl, c->comm, result, report);
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

shunt_status nl_deregister(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                           shunt_native_report *report) {
  nl_memory *m = context;
  nl_comm *c = m->comm;
  (void)registers, (void)send, (void)recv, (void)stream;
  if (c->aborted) return SHUNT_OK; /* likewise */
  if (!lock_soon(c)) return c->aborted ? SHUNT_OK : busy(report);
  shunt_status status = SHUNT_OK;
  if (!c->aborted && c->comm && m->handle) { /* null: NCCL knows it without having done anything */
    int result = c->nccl->CommDeregister(c->comm, m->handle);
    if (result) status = failed(c->nccl, c->comm, result, report);
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

/* ---- collectives ---------------------------------------------------------- */

enum { INT8 = 0 }; /* of ncclDataType_t: what only moves, moves as bytes */

/* x as a float of so many bits of exponent and fraction; without infinity what is too large becomes the largest. */
static uint64_t small(double x, int exponent_bits, int fraction_bits, int infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint64_t sign = (uint64_t)!!signbit(x) << (exponent_bits + fraction_bits),
                 ones = ((uint64_t)1 << exponent_bits) - 1;
  const uint64_t largest =
      infinity ? (ones << fraction_bits) - 1 : ((ones + 1) << fraction_bits) - 2; /* without: all ones is NaN */
  if (isnan(x)) return sign | ((ones + 1) << fraction_bits) - 1;
  if (x == 0) return sign;
  if (isinf(x)) return sign | (infinity ? ones << fraction_bits : largest);
  int exponent;
  frexp(x, &exponent); /* |x| = 0.1… * 2^exponent */
  if (exponent < 2 - bias) exponent = 2 - bias; /* subnormal */
  /* In units of the last place, so that a carry out of the fraction raises the exponent. */
  uint64_t bits = (uint64_t)nearbyint(ldexp(fabs(x), fraction_bits + 1 - exponent));
  bits += (uint64_t)(exponent - 2 + bias) << fraction_bits;
  if (bits > largest) bits = infinity ? ones << fraction_bits : largest;
  return sign | bits;
}

uint64_t nl_round(double x, int dtype) {
  union {
    double f64;
    float f32;
    uint64_t bits;
  } v = {.bits = 0};
  switch (dtype) {
  case SHUNT_DTYPE_FLOAT64: v.f64 = x; return v.bits;
  case SHUNT_DTYPE_FLOAT32: v.f32 = (float)x; return v.bits;
  case SHUNT_DTYPE_FLOAT16: return small(x, 5, 10, 1);
  case SHUNT_DTYPE_BFLOAT16: return small(x, 8, 7, 1);
  case SHUNT_DTYPE_FLOAT8_E4M3: return small(x, 4, 3, 0);
  case SHUNT_DTYPE_FLOAT8_E5M2: return small(x, 5, 2, 1);
  case SHUNT_DTYPE_UINT64: return x >= 9223372036854775808.0 ? (uint64_t)x : (uint64_t)(int64_t)x;
  default: return (uint64_t)(int64_t)x; /* the low bytes are the element */
  }
}

/* Send to and receive from every rank what the arrays say, in bytes. */
static int exchange(const nl_table *n, const nl_call *k, void *comm, const int64_t *arrays, const char *send,
                    char *recv, void *stream) {
  const int64_t *send_bytes = arrays, *send_at = arrays + k->world, *recv_bytes = send_at + k->world,
                *recv_at = recv_bytes + k->world;
  int result = n->GroupStart(), end;
  for (int r = 0; r < k->world && !result; r++) {
    if (send_bytes[r]) result = n->Send(send + send_at[r], (size_t)send_bytes[r], INT8, r, comm, stream);
    if (recv_bytes[r] && (!result || result == NL_IN_PROGRESS))
      result = n->Recv(recv + recv_at[r], (size_t)recv_bytes[r], INT8, r, comm, stream);
    if (result == NL_IN_PROGRESS) result = 0;
  }
  end = n->GroupEnd();
  return result ? result : end;
}

/* A block of every rank: gathered, or reduced to it. */
static int blocks(const nl_table *n, const nl_call *k, int op, void *comm, const int64_t *bytes, const char *send,
                  char *recv, int rank, void *stream) {
  const int64_t *at = bytes + k->world;
  int result = n->GroupStart(), end;
  for (int r = 0; r < k->world && !result; r++) {
    if (!bytes[r]) continue;
    if (k->collective == SHUNT_COLL_ALL_GATHER_V)
      result = n->Broadcast(r == rank ? send : recv + at[r], recv + at[r], (size_t)bytes[r], INT8, r, comm, stream);
    else
      result = n->Reduce(send + at[r], r == rank ? recv : NULL, (size_t)(bytes[r] / k->element), k->dtype, op, r, comm,
                         stream);
    if (result == NL_IN_PROGRESS) result = 0;
  }
  end = n->GroupEnd();
  return result ? result : end;
}

/* Whether all who take part in a collective give the same number of bytes: without any there is nothing to do. */
static int same_bytes(const nl_call *k) {
  switch (k->collective) {
  case SHUNT_COLL_ALL_REDUCE:
  case SHUNT_COLL_REDUCE:
  case SHUNT_COLL_BROADCAST:
  case SHUNT_COLL_ALL_GATHER:
  case SHUNT_COLL_REDUCE_SCATTER:
  case SHUNT_COLL_SEND:
  case SHUNT_COLL_RECV: return 1;
  default: return 0;
  }
}

static int issue(const nl_call *k, const nl_comm *c, const int64_t *registers, const void *send, void *recv,
                 void *stream) {
  const nl_table *n = c->nccl;
  void *comm = c->comm;
  const int64_t *arrays = registers + SHUNT_SLOT_ARRAYS;
  size_t count = (size_t)registers[SHUNT_SLOT_COUNT], bytes = (size_t)registers[SHUNT_SLOT_BYTES];
  int root = (int)registers[SHUNT_SLOT_ROOT], op = k->op, result = 0;
  if (!bytes && same_bytes(k)) return 0;
  if (op == SHUNT_OP_PREMUL_SUM) {
    double factor;
    memcpy(&factor, &registers[SHUNT_SLOT_SCALAR], sizeof factor);
    uint64_t scalar = nl_round(factor, k->dtype);
    result = n->RedOpCreatePreMulSum(&op, &scalar, k->dtype, 1 /* ncclScalarHostImmediate */, comm);
    if (result) return result;
  }
  switch (k->collective) {
  case SHUNT_COLL_ALL_REDUCE: result = n->AllReduce(send, recv, count, k->dtype, op, comm, stream); break;
  case SHUNT_COLL_REDUCE: result = n->Reduce(send, recv, count, k->dtype, op, root, comm, stream); break;
  case SHUNT_COLL_REDUCE_SCATTER: result = n->ReduceScatter(send, recv, count, k->dtype, op, comm, stream); break;
  case SHUNT_COLL_BROADCAST:
    result = n->Broadcast(c->rank == root ? send : recv, recv, bytes, INT8, root, comm, stream);
    break;
  case SHUNT_COLL_ALL_GATHER: result = n->AllGather(send, recv, bytes, INT8, comm, stream); break;
  case SHUNT_COLL_SEND: result = n->Send(send, bytes, INT8, root, comm, stream); break;
  case SHUNT_COLL_RECV: result = n->Recv(recv, bytes, INT8, root, comm, stream); break;
  case SHUNT_COLL_BARRIER:
    result = n->AllReduce((void *)k->word, (void *)k->word, 1, INT8, SHUNT_OP_SUM, comm, stream);
    break;
  case SHUNT_COLL_ALL_GATHER_V:
    result = blocks(n, k, op, comm, arrays + 2 * k->world, send, recv, c->rank, stream);
    break;
  case SHUNT_COLL_REDUCE_SCATTER_V: result = blocks(n, k, op, comm, arrays, send, recv, c->rank, stream); break;
  default: result = exchange(n, k, comm, arrays, send, recv, stream);
  }
  if (k->op == SHUNT_OP_PREMUL_SUM) n->RedOpDestroy(op, comm); /* may go once the call that takes it has returned */
  return result;
}

shunt_status nl_run(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                    shunt_native_report *report) {
  const nl_call *k = context;
  nl_comm *c = k->comm;
  pthread_mutex_lock(&c->lock);
  shunt_status status = SHUNT_OK;
  int result = 0;
  if (!c->aborted && c->comm) result = issue(k, c, registers, send, recv, stream); /* connects to peers at first */
  /* Only where NCCL_COMM_BLOCKING=0 has no communicator block. */
  while (result == NL_IN_PROGRESS && !c->aborted && c->comm) {
    int state = 0;
    sched_yield();
    result = c->nccl->CommGetAsyncError(c->comm, &state);
    if (!result) result = state;
  }
  if (c->aborted || !c->comm) status = gone(report);
  else if (result) status = failed(c->nccl, c->comm, result, report);
  pthread_mutex_unlock(&c->lock);
  return status;
}
