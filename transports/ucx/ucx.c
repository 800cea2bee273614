/* ucx.c: calls of UCX; see ucx.h. */
#define _GNU_SOURCE
#include "ucx.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* A connection. */
typedef struct {
  ux_worker *worker;
  void *endpoint; /* null: none yet, or closed */
  void *closing;  /* the request that closes it; null: none is under way */
  ux_status status; /* why it is lost */
  int64_t since;    /* in milliseconds, when that was */
  int32_t heard;  /* a message has come from the rank */
} ux_peer;

struct ux_worker {
  const ux_table *f;
  void *context, *worker;
  int rank, world;
  char *memory;
  ux_peer *peers;
  /* Guards everything of UCX: the worker is used by one thread at a time. */
  pthread_mutex_t lock;
  int32_t requests; /* in flight */
  int32_t closing;  /* connections that are being closed */
  int32_t forced;   /* all connections were cut */
  _Atomic int32_t aborted;
  _Atomic uint32_t calls; /* of start and poll */
  _Atomic int32_t stop;
  int wake, events;
  int has_thread;
  pthread_t thread;
};

/* A message in flight. */
typedef struct ux_part {
  struct ux_request *of;
  void *handle; /* null once it has ended */
  int32_t over; /* it has ended */
  int32_t rank;
  int32_t incoming;
  uint64_t tag; /* that an incoming message must have */
  int64_t bytes;
} ux_part;

typedef struct ux_request {
  ux_worker *worker;
  const ux_order *order;
  int32_t left;    /* parts in flight */
  int32_t count;   /* parts */
  int32_t stopped; /* cancelled */
  int32_t failed;  /* 1 + the rank of the first failure, whose code and text follow */
  shunt_status code;
  char message[SHUNT_NATIVE_TEXT];
  ux_part parts[];
} ux_request;

/*
 * A tag: the sender's rank (16 bits), the kind of message (4), the call (28), the root (16). A receive takes what
 * comes from its rank and is of its kind; messages of one sender come in their order. What the message is of is
 * compared afterwards, so that ranks in different calls find out.
 */
#define OF_MESSAGES 1
#define MATCHED 0xFFFFF00000000000ull

static uint64_t tag_of(const ux_order *o, int32_t sender, int64_t root) {
  if (o->kind != UX_EXCHANGE) return (uint64_t)sender << 48 | (uint64_t)OF_MESSAGES << 44;
  return (uint64_t)sender << 48 | (o->call & 0xFFFFFFF) << 16 | ((uint64_t)root & 0xFFFF);
}

static int is_error(const void *handle) { return (uintptr_t)handle >= (uintptr_t)(intptr_t)UX_ERR_LAST; }

static const char *text(const ux_worker *w, ux_status status) { return w->f->ucs_status_string(status); }

static shunt_status wrong(const ux_worker *w, shunt_native_report *report, const char *what, ux_status status) {
  snprintf(report->message, sizeof report->message, "ucx: %s: %s", what, text(w, status));
  return status == UX_ERR_NO_MEMORY ? SHUNT_OUT_OF_MEMORY : status == UX_ERR_UNREACHABLE ? SHUNT_UNSUPPORTED
                                                                                          : SHUNT_SYSTEM;
}

/* ---- The worker. */

/*
 * Messages that a rank has sent leave, and those for it arrive, also while it is in no call: a thread sees to it. While
 * calls poll, it leaves that to them and looks once a millisecond.
 */
static void *background(void *argument) {
  ux_worker *w = argument;
  uint32_t seen = atomic_load(&w->calls);
  while (!atomic_load(&w->stop)) {
    uint32_t calls = atomic_load(&w->calls);
    struct pollfd fds[2] = {{.fd = w->wake, .events = POLLIN}, {.fd = w->events, .events = POLLIN}};
    int busy = calls != seen, left = 64; /* then a call that has begun may have the lock */
    seen = calls;
    if (!busy) {
      pthread_mutex_lock(&w->lock);
      while (left && w->f->ucp_worker_progress(w->worker)) left--;
      busy = !left || w->f->ucp_worker_arm(w->worker) != UX_OK; /* something has come meanwhile */
      pthread_mutex_unlock(&w->lock);
    }
    poll(fds, busy ? 1 : 2, !left ? 0 : busy ? 1 : -1);
  }
  return NULL;
}

static void destroy(ux_worker *w) {
  if (w->has_thread) {
    atomic_store(&w->stop, 1);
    uint64_t one = 1;
    while (write(w->wake, &one, sizeof one) < 0) {} /* interrupted */
    pthread_join(w->thread, NULL);
  }
  if (w->worker) w->f->ucp_worker_destroy(w->worker);
  if (w->context) w->f->ucp_cleanup(w->context);
  if (w->wake >= 0) close(w->wake);
  pthread_mutex_destroy(&w->lock);
  free(w->peers);
  free(w);
}

/* Whether UCX may use TCP, as far as UCX_TLS says. */
static int over_tcp(void) {
  const char *list = getenv("UCX_TLS");
  if (!list) return 1;
  return *list == '^' ? !strstr(list, "tcp") : strstr(list, "tcp") || strstr(list, "all");
}

/*
 * UCX as its variables say, but with the network devices that are given, and that TCP connects without blocking: while
 * a peer's host is out of reach, a connect that blocks holds the worker for minutes, and a call could not be given up.
 */
static ux_status init(ux_worker *w, const char *devices) {
  ux_params params = {.mask = UX_PARAM_FEATURES, .features = UX_FEATURE_TAG | UX_FEATURE_WAKEUP};
  /* UCX warns of the other name and, before 1.14, where no TCP is used. */
  const char *name = ux_version(w->f) < 1014 ? "CONN_NB" : "TCP_CONN_NB";
  void *config;
  ux_status status = w->f->ucp_config_read(NULL, NULL, &config);
  if (status != UX_OK) return status;
  if (over_tcp() && !getenv("UCX_TCP_CONN_NB")) w->f->ucp_config_modify(config, name, "y"); /* at worst it blocks */
  if (*devices && over_tcp()) w->f->ucp_config_modify(config, "NET_DEVICES", devices); /* at worst it uses all */
  status = w->f->ucp_init_version(1, 11, &params, config, &w->context);
  w->f->ucp_config_release(config);
  return status;
}

static shunt_status make(const ux_table *table, int rank, int world, char *memory, const char *devices,
                         ux_worker **out, shunt_native_report *report) {
  ux_worker *w = calloc(1, sizeof *w);
  ux_peer *peers = calloc((size_t)world, sizeof *peers);
  if (!w || !peers) {
    free(w);
    free(peers);
    snprintf(report->message, sizeof report->message, "ucx: no memory for a worker");
    return SHUNT_OUT_OF_MEMORY;
  }
  w->f = table;
  w->rank = rank;
  w->world = world;
  w->memory = memory;
  w->peers = peers;
  for (int i = 0; i < world; i++) peers[i].worker = w;
  pthread_mutex_init(&w->lock, NULL);
  w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ux_status status = w->wake < 0 ? UX_ERR_NO_MEMORY : UX_OK;
  const char *what = "a descriptor";
  if (status == UX_OK) {
    what = "ucp_init";
    status = init(w, devices);
  }
  if (status == UX_OK) {
    ux_worker_params worker = {.mask = UX_WORKER_THREAD_MODE, .thread_mode = UX_THREAD_SERIALIZED};
    what = "ucp_worker_create";
    status = table->ucp_worker_create(w->context, &worker, &w->worker);
  }
  if (status == UX_OK) {
    what = "ucp_worker_get_efd";
    status = table->ucp_worker_get_efd(w->worker, &w->events);
  }
  if (status == UX_OK) {
    what = "a thread";
    if (pthread_create(&w->thread, NULL, background, w) == 0) w->has_thread = 1;
    else status = UX_ERR_NO_MEMORY;
  }
  if (status == UX_OK) {
    *out = w;
    return SHUNT_OK;
  }
  shunt_status code = wrong(w, report, what, status);
  destroy(w);
  return code;
}

/* Signals are the program's: neither UCX's threads nor this one's take any. */
shunt_status ux_open(const ux_table *table, int rank, int world, char *memory, const char *devices, ux_worker **out,
                     shunt_native_report *report) {
  sigset_t all, before;
  ux_handlers kept;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  ux_keep_handlers(&kept);
  shunt_status status = make(table, rank, world, memory, devices, out, report);
  ux_restore_handlers(&kept);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

shunt_status ux_address(ux_worker *w, void **address, size_t *bytes, shunt_native_report *report) {
  pthread_mutex_lock(&w->lock);
  ux_status status = w->f->ucp_worker_get_address(w->worker, address, bytes);
  pthread_mutex_unlock(&w->lock);
  return status == UX_OK ? SHUNT_OK : wrong(w, report, "ucp_worker_get_address", status);
}

void ux_free_address(ux_worker *w, void *address) {
  pthread_mutex_lock(&w->lock);
  w->f->ucp_worker_release_address(w->worker, address);
  pthread_mutex_unlock(&w->lock);
}

static int64_t milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A connection is lost. Called by progress. */
static void lost(void *argument, void *endpoint, ux_status status) {
  (void)endpoint;
  ux_peer *peer = argument;
  peer->status = status;
  peer->since = milliseconds();
}

shunt_status ux_connect(ux_worker *w, int rank, const void *address, shunt_native_report *report) {
  ux_peer *peer = &w->peers[rank];
  ux_ep_params params = {.mask = UX_EP_ADDRESS | UX_EP_ERROR_MODE | UX_EP_ERROR_HANDLER,
                         .address = address,
                         .error_mode = UX_ERROR_MODE_PEER,
                         .error_handler = {lost, peer}};
  if (peer->endpoint) return SHUNT_OK; /* made before another rank's connection failed */
  pthread_mutex_lock(&w->lock);
  ux_status status = w->f->ucp_ep_create(w->worker, &params, &peer->endpoint);
  pthread_mutex_unlock(&w->lock);
  if (status == UX_OK) return SHUNT_OK;
  report->peer = rank + 1;
  return wrong(w, report, "ucp_ep_create", status);
}

/* ---- Requests. The caller of what follows holds the lock. */

__attribute__((format(printf, 4, 5))) static void fail(ux_request *r, int32_t rank, shunt_status code,
                                                       const char *format, ...) {
  va_list values;
  if (r->failed || r->stopped) return; /* the first failure counts */
  r->failed = rank + 1;
  r->code = code;
  int n = snprintf(r->message, sizeof r->message, "rank %d ", rank);
  va_start(values, format);
  vsnprintf(r->message + n, sizeof r->message - (size_t)n, format, values);
  va_end(values);
}

/* The cause is most often the network, where no message ever came from a rank. */
#define UNREACHED                                                                                               \
  ", and no message has come from it yet: if it still runs, its host and this one must reach each other on all " \
  "ports, and by the interfaces that UCX uses"

static void unreached(const ux_part *p, ux_status status) {
  int heard = p->of->worker->peers[p->rank].heard;
  fail(p->of, p->rank, SHUNT_PEER_DIED, "is not reached%s: %s%s", heard ? " any more" : "", text(p->of->worker, status),
       heard ? "" : UNREACHED);
}

/* A message has ended. */
static void ended(ux_part *p, ux_status status, const ux_tag_info *info) {
  ux_request *r = p->of;
  const char *name = r->order->name;
  p->handle = NULL;
  p->over = 1;
  r->left--;
  if (status == UX_ERR_CANCELED && (r->stopped || r->worker->forced)) {
    r->stopped = 1;
    return;
  }
  ux_peer *peer = &r->worker->peers[p->rank];
  int longer = p->incoming && status == UX_ERR_MESSAGE_TRUNCATED;
  if (p->incoming && (status == UX_OK || longer)) peer->heard = 1;
  if (status != UX_OK && !longer) {
    unreached(p, status);
  } else if (p->incoming && info->tag != p->tag) {
    fail(r, p->rank, SHUNT_MISMATCH, "is in another call than %s, or has another root", name);
  } else if (longer || (p->incoming && (int64_t)info->length != p->bytes)) {
    fail(r, p->rank, SHUNT_MISMATCH, "sends %lld bytes to rank %d, which expects %lld", (long long)info->length,
         r->worker->rank, (long long)p->bytes);
  }
}

/* UCX ends what is sent over a lost connection, but nothing that is received. What its rank had sent before, also over
 * another connection, has this long to come. */
#define LAST_MESSAGES 2000 /* milliseconds */

/* Fail where a message will not come any more. */
static void missed(ux_request *r) {
  for (int32_t i = 0; i < r->count; i++) {
    const ux_part *p = &r->parts[i];
    const ux_peer *peer = &r->worker->peers[p->rank];
    if (p->handle && p->incoming && peer->status != UX_OK && milliseconds() - peer->since > LAST_MESSAGES)
      unreached(p, peer->status);
  }
}

static void received(void *handle, ux_status status, const ux_tag_info *info, void *user) {
  ux_part *p = user;
  const ux_table *f = p->of->worker->f;
  ended(p, status, info);
  f->ucp_request_free(handle);
}

static void sent(void *handle, ux_status status, void *user) { received(handle, status, NULL, user); }

/* Begin a message. */
static void begin(ux_request *r, int32_t rank, int incoming, void *at, int64_t bytes, int64_t root) {
  ux_worker *w = r->worker;
  ux_part *p = &r->parts[r->count++];
  *p = (ux_part){.of = r, .rank = rank, .incoming = incoming, .bytes = bytes};
  r->left++;
  ux_request_param param = {.mask = UX_OP_CALLBACK | UX_OP_USER, .user = p};
  void *handle;
  if (incoming) {
    p->tag = tag_of(r->order, rank, root);
    param.mask |= UX_OP_NO_IMMEDIATE; /* the callback is told what came */
    param.done.recv = received;
    handle = w->f->ucp_tag_recv_nbx(w->worker, at, (size_t)bytes, p->tag, MATCHED, &param);
  } else if (w->peers[rank].status != UX_OK || !w->peers[rank].endpoint) {
    handle = (void *)(intptr_t)(w->peers[rank].status ? w->peers[rank].status : UX_ERR_UNREACHABLE);
  } else {
    param.done.send = sent;
    uint64_t tag = tag_of(r->order, w->rank, root);
    handle = w->f->ucp_tag_send_nbx(w->peers[rank].endpoint, at, (size_t)bytes, tag, &param);
  }
  if (p->over) return; /* within the call */
  if (handle == NULL) ended(p, UX_OK, NULL);
  else if (is_error(handle)) ended(p, (ux_status)(intptr_t)handle, NULL);
  else p->handle = handle;
}

static char *place(const ux_worker *w, int32_t of, const void *send, void *recv) {
  return of == UX_SEND ? (char *)send : of == UX_RECV ? recv : w->memory;
}

/* The rank of a message that has not ended. */
static int32_t awaited(const ux_request *r) {
  for (int32_t i = 0; i < r->count; i++)
    if (r->parts[i].handle && r->parts[i].incoming) return r->parts[i].rank + 1;
  for (int32_t i = 0; i < r->count; i++)
    if (r->parts[i].handle) return r->parts[i].rank + 1;
  return 0;
}

static void cut_done(void *handle, ux_status status, void *user) {
  (void)status;
  ux_peer *peer = user;
  if (!peer->closing) return; /* abandoned: UCX frees it */
  peer->closing = NULL;
  peer->worker->closing--;
  peer->worker->f->ucp_request_free(handle);
}

/* Close a connection; with force what is in flight over it ends. */
static void cut(ux_worker *w, ux_peer *peer, int force) {
  if (!peer->endpoint) return;
  ux_request_param param = {.mask = UX_OP_CALLBACK | UX_OP_USER | UX_OP_FLAGS,
                            .flags = force ? UX_CLOSE_FORCE : 0, .done.send = cut_done, .user = peer};
  void *handle = w->f->ucp_ep_close_nbx(peer->endpoint, &param);
  peer->endpoint = NULL;
  if (!handle || is_error(handle)) return;
  peer->closing = handle;
  w->closing++;
}

/* Leave the connections that are still being closed to the end of the worker, which aborts the process if they have an
 * owner. */
static void abandon(ux_worker *w) {
  for (int32_t i = 0; i < w->world; i++) {
    void *handle = w->peers[i].closing;
    w->peers[i].closing = NULL;
    if (handle) w->f->ucp_request_free(handle);
  }
}

/* What a request has come to: SHUNT_PENDING while messages hold the caller's memory. One that has failed lets go of
 * the others: their ranks may never come. */
static shunt_status outcome(ux_request *r, int32_t stop, shunt_native_report *report) {
  ux_worker *w = r->worker;
  missed(r);
  if (r->left && (stop || r->failed || atomic_load(&w->aborted)) && !r->stopped) {
    r->stopped = 1;
    for (int32_t i = 0; i < r->count; i++)
      if (r->parts[i].handle && r->parts[i].incoming) w->f->ucp_request_cancel(w->worker, r->parts[i].handle);
    /* What has begun to move cannot be cancelled. The communicator is over with this call, and its connections too. */
    if (r->left && !w->forced) {
      w->forced = 1;
      for (int32_t i = 0; i < w->world; i++) cut(w, &w->peers[i], 1);
    }
    w->f->ucp_worker_progress(w->worker);
  }
  if (r->left) {
    report->peer = awaited(r);
    return SHUNT_PENDING;
  }
  shunt_status code = SHUNT_OK;
  if (r->failed) {
    code = r->code;
    report->peer = r->failed;
    memcpy(report->message, r->message, sizeof report->message);
  } else if (r->stopped) {
    code = SHUNT_ABORTED;
    snprintf(report->message, sizeof report->message, "the call was given up");
  }
  w->requests--;
  free(r);
  return code;
}

shunt_status ux_start(void *context, const int64_t *args, uint32_t count, const void *send, void *recv, void **request,
                      shunt_native_report *report) {
  const ux_order *o = context;
  ux_worker *w = o->worker;
  (void)count;
  int32_t parts = o->kind == UX_EXCHANGE ? 2 * w->world : 1;
  ux_request *r = malloc(sizeof *r + (size_t)parts * sizeof *r->parts);
  if (!r) {
    snprintf(report->message, sizeof report->message, "ucx: no memory for a request");
    return SHUNT_OUT_OF_MEMORY;
  }
  memset(r, 0, sizeof *r);
  r->worker = w;
  r->order = o;
  pthread_mutex_lock(&w->lock);
  atomic_fetch_add_explicit(&w->calls, 1, memory_order_relaxed);
  w->requests++;
  char *out = place(w, o->out, send, recv), *in = place(w, o->in, send, recv);
  if (o->kind == UX_EXCHANGE) {
    const ux_entry *table = (const ux_entry *)(w->memory + args[0]);
    /* Receives first: what arrives early finds its place. Ranks begin with different peers. */
    for (int32_t i = 1; i < w->world; i++) {
      int32_t rank = (w->rank + w->world - i) % w->world;
      if (table[rank].in_bytes >= 0) begin(r, rank, 1, in + table[rank].in_at, table[rank].in_bytes, args[1]);
    }
    for (int32_t i = 1; i < w->world; i++) {
      int32_t rank = (w->rank + i) % w->world;
      if (table[rank].out_bytes >= 0) begin(r, rank, 0, out + table[rank].out_at, table[rank].out_bytes, args[1]);
    }
  } else if (args[0] < 0 || args[0] >= w->world || args[0] == w->rank || args[1] < 0) {
    fail(r, w->rank, SHUNT_INVALID_ARGUMENT, "has no connection for %s", o->name);
  } else {
    begin(r, (int32_t)args[0], o->kind == UX_MESSAGE_IN, o->kind == UX_MESSAGE_IN ? in : out, args[1], 0);
  }
  if (r->left) w->f->ucp_worker_progress(w->worker);
  shunt_status status = outcome(r, 0, report);
  pthread_mutex_unlock(&w->lock);
  if (status == SHUNT_PENDING) *request = r;
  return status;
}

shunt_status ux_poll(void *context, void *request, int32_t stop, shunt_native_report *report) {
  ux_worker *w = ((const ux_order *)context)->worker;
  ux_request *r = request;
  if (stop) pthread_mutex_lock(&w->lock);
  else if (pthread_mutex_trylock(&w->lock)) return SHUNT_PENDING; /* another thread makes progress */
  atomic_fetch_add_explicit(&w->calls, 1, memory_order_relaxed);
  w->f->ucp_worker_progress(w->worker);
  shunt_status status = outcome(r, stop, report);
  pthread_mutex_unlock(&w->lock);
  return status;
}

void ux_abort(ux_worker *w) { atomic_store(&w->aborted, 1); }

shunt_status ux_close(ux_worker *w, int timeout) {
  int64_t begun = milliseconds();
  pthread_mutex_lock(&w->lock);
  for (int32_t i = 0; i < w->world; i++) cut(w, &w->peers[i], atomic_load(&w->aborted) || w->peers[i].status);
  while (w->closing && milliseconds() - begun < timeout) {
    int busy = w->f->ucp_worker_progress(w->worker) != 0;
    pthread_mutex_unlock(&w->lock);
    if (!busy) usleep(20);
    pthread_mutex_lock(&w->lock);
  }
  int32_t requests = w->requests;
  if (!requests) abandon(w);
  pthread_mutex_unlock(&w->lock);
  if (requests) return SHUNT_TIMEOUT;
  destroy(w);
  return SHUNT_OK;
}
