/* proxy.c: see proxy.h. The proxy never blocks in what it runs: an engine waits for peers that
 * may wait for another of its commands. */
#define _GNU_SOURCE
#include "proxy.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long the proxy looks without a pause after something has happened; then it sleeps
 * for a sixteenth of the time since, within limits: a command that comes then is late by no
 * more than that. With commands in progress it looks at least so often as runs on the CPU. */
#define SPIN_NS 300000
#define NAP_NS 50000
#define LONG_NAP_NS 1000000

/* In so many commands, a divisor of 2^32, the flags of all words are renewed. */
#define RENEWAL (1u << 24)

enum { FAULT_TIMEOUT = 2, FAULT_ENGINE = 6 }; /* plugin.Fault */

/* A command that has begun. */
typedef struct running {
  uint64_t number, base;
  int64_t begun, stopped; /* clock; stopped: when it was asked to stop, or 0 */
  int32_t peer;           /* 1 + the rank waited for; 0: none in particular */
  shunt_native native;    /* poll is null for a command of a ring */
  void *request;
  shunt_ring *ring;
  shunt_ring_command *command;
  int64_t expected; /* number of command */
} running;

struct sx_proxy {
  shunt_command_slot *slots;
  shunt_watch_page *watch;
  int32_t world;
  int64_t grace;
  pthread_t thread;

  /* The thread's alone. */
  uint64_t next; /* number of the command to begin next */
  running all[SHUNT_COMMANDS];
  uint32_t count;

  _Alignas(64) _Atomic uint32_t bell; /* futex word */
  _Atomic uint32_t sleeping, quit, exited;
  _Atomic uint32_t busy; /* in native code, or commands are in progress */
  _Atomic uint32_t failed;
  _Atomic uint64_t stuck;
  sx_proxy_failure failure; /* before failed */
};

/* Sequentially consistent, as are the store of busy before it and the host's two the other way round (AwaitEngines):
 * either this side sees the abort and begins nothing, or the host sees it busy and waits. */
static int aborted(const sx_proxy *p) { return __atomic_load_n(&p->watch->abort, __ATOMIC_SEQ_CST) != 0; }

static int over(sx_proxy *p) {
  return aborted(p) || atomic_load_explicit(&p->failed, memory_order_relaxed) ||
         atomic_load_explicit(&p->quit, memory_order_relaxed);
}

static int32_t bounded(const sx_proxy *p, int32_t peer) { return peer > 0 && peer <= p->world ? peer : 0; }

/* Tell the host and the kernels that the operations are over; the first fault stays. */
static void fault(sx_proxy *p, uint32_t kind, int32_t rank, uint64_t number) {
  shunt_watch_page *w = p->watch;
  if (__atomic_load_n(&w->fault, __ATOMIC_ACQUIRE)) return;
  w->fault_peer = rank;
  w->fault_epoch = number;
  uint32_t none = 0;
  /* release: who sees the fault sees the rest */
  __atomic_compare_exchange_n(&w->fault, &none, kind, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static void fail(sx_proxy *p, const running *r, int32_t status, const char *message) {
  if (atomic_load_explicit(&p->failed, memory_order_relaxed)) return;
  p->failure =
      (sx_proxy_failure){.native = r->native.poll != NULL, .status = status, .rank = r->peer - 1, .base = r->base};
  memcpy(p->failure.message, message, SHUNT_RING_TEXT);
  p->failure.message[SHUNT_RING_TEXT - 1] = 0;
  /* release: who sees that a command has failed reads why */
  atomic_store_explicit(&p->failed, 1, memory_order_release);
  fault(p, FAULT_ENGINE, r->peer - 1, r->number);
}

static void done(sx_proxy *p, uint64_t number) {
  /* release: the kernel that sees it sees what the engine has written */
  __atomic_store_n(&p->slots[number % SHUNT_COMMANDS].done, number + 1, __ATOMIC_RELEASE);
}

/* Whether it has yet to be seen how a command ended. */
static int awaited(const void *of, const shunt_ring_command *c) {
  const sx_proxy *p = of;
  for (uint32_t i = 0; i < p->count; i++)
    if (p->all[i].command == c) return 1;
  return 0;
}

/* Begin a command: 1 when it is in progress or done, 0 when the ring of its plugin has no room yet. */
static int begin(sx_proxy *p, const shunt_order *o, int64_t now) {
  running *r = &p->all[p->count];
  *r = (running){.number = p->next, .base = o->base, .begun = now};
  int64_t args[SHUNT_COMMAND_ARGS];
  uint32_t count = o->count < SHUNT_COMMAND_ARGS ? (uint32_t)o->count : SHUNT_COMMAND_ARGS;
  for (uint32_t i = 0; i < count; i++) args[i] = (int64_t)o->args[i];
  if (!o->start) {
    r->ring = (shunt_ring *)(uintptr_t)o->poll;
    r->command = sx_ring_post(r->ring, (uint32_t)o->context, (int64_t)o->operation, args, count, &r->expected, awaited,
                              p);
    p->count += r->command != NULL;
    return r->command != NULL;
  }
  r->native = (shunt_native){.context = (void *)(uintptr_t)o->context, .start = (shunt_start_fn)(uintptr_t)o->start,
                             .poll = (shunt_poll_fn)(uintptr_t)o->poll};
  shunt_native_report report = {0};
  shunt_status status = r->native.start(r->native.context, args, count, (const void *)(uintptr_t)o->send,
                                        (void *)(uintptr_t)o->recv, &r->request, &report);
  r->peer = bounded(p, report.peer);
  if (status == SHUNT_PENDING) {
    p->count++;
    return 1;
  }
  if (status != SHUNT_OK) fail(p, r, status, report.message);
  done(p, r->number);
  return 1;
}

/* Take the order of the next command out of its slot: 1 when all of it has arrived. */
static int arrived(const sx_proxy *p, shunt_order *o) {
  const shunt_word *from = p->slots[p->next % SHUNT_COMMANDS].order;
  shunt_word *to = (shunt_word *)o;
  for (size_t i = 0; i < SHUNT_ORDER_WORDS; i++) {
    if (i >= SHUNT_ORDER_FIXED && i - SHUNT_ORDER_FIXED >= o->count) break;
    shunt_word low = __atomic_load_n(&from[2 * i], __ATOMIC_RELAXED);
    shunt_word high = __atomic_load_n(&from[2 * i + 1], __ATOMIC_RELAXED);
    if (low >> 32 != (uint32_t)(p->next + 1) || high >> 32 != (uint32_t)(p->next + 1)) return 0;
    to[i] = high << 32 | (uint32_t)low;
  }
  atomic_thread_fence(memory_order_acquire); /* what was written for it */
  return 1;
}

/*
 * Flags have 32 bits, which come round, and a word of an argument keeps its own for as long as the orders of its slot
 * have fewer arguments; one that was never written has 0. So words that an order lacks get its flag, once in RENEWAL
 * commands for each slot: none is so old that its flag is that of the order which is arriving. The GPU writes to the
 * slot again only after it has seen this command's end, or a later one's.
 */
static void renew(sx_proxy *p, const shunt_order *o) {
  if (p->next % RENEWAL >= SHUNT_COMMANDS) return;
  shunt_word *words = p->slots[p->next % SHUNT_COMMANDS].order, flag = (shunt_word)(p->next + 1) << 32;
  for (size_t i = SHUNT_ORDER_FIXED; i < SHUNT_ORDER_WORDS; i++) {
    if (i - SHUNT_ORDER_FIXED < o->count) continue;
    __atomic_store_n(&words[2 * i], flag, __ATOMIC_RELAXED);
    __atomic_store_n(&words[2 * i + 1], flag, __ATOMIC_RELAXED);
  }
}

/* Whether the command that had the slot of the next one before is in progress. */
static int taken(const sx_proxy *p) {
  for (uint32_t i = 0; i < p->count; i++)
    if (p->all[i].number + SHUNT_COMMANDS == p->next) return 1;
  return 0;
}

/* Begin what was posted, in order. After a failure nothing is begun: what comes would send what has not been
 * received. */
static int begin_posted(sx_proxy *p, int64_t now) {
  int begun = 0;
  for (;; begun = 1) {
    shunt_order order;
    if (!arrived(p, &order) || taken(p)) return begun;
    renew(p, &order);
    atomic_store_explicit(&p->busy, 1, memory_order_seq_cst); /* before the look at abort */
    if (over(p)) done(p, p->next);
    else if (!begin(p, &order, now)) return begun;
    p->next++;
  }
}

/* Look at a native request: 1 if it has ended. */
static int poll_native(sx_proxy *p, running *r, int64_t now) {
  shunt_native_report report = {.peer = r->peer};
  shunt_status status = r->native.poll(r->native.context, r->request, r->stopped != 0, &report);
  r->peer = bounded(p, report.peer);
  if (status == SHUNT_PENDING) {
    if (!r->stopped || now - r->stopped < p->grace) return 0;
    atomic_store_explicit(&p->stuck, r->base + 1, memory_order_release);
    return 1;
  }
  if (status != SHUNT_OK && !r->stopped) fail(p, r, status, report.message);
  return 1;
}

static int poll_ring(sx_proxy *p, running *r) {
  r->peer = bounded(p, __atomic_load_n(&r->command->peer, __ATOMIC_RELAXED));
  /* acquire: what the plugin wrote before */
  if (__atomic_load_n(&r->command->done, __ATOMIC_ACQUIRE) != r->expected) return r->stopped != 0;
  int32_t status = __atomic_load_n(&r->command->status, __ATOMIC_RELAXED); /* once: the plugin may still write there */
  if (status == SHUNT_OK) return 1;
  char message[SHUNT_RING_TEXT];
  memcpy(message, r->command->message, sizeof message);
  message[sizeof message - 1] = 0;
  fail(p, r, status, message);
  return 1;
}

/* Look at everything in progress: 1 if something has ended. */
static int poll_all(sx_proxy *p, int64_t now) {
  int ended = 0;
  uint64_t limit = __atomic_load_n(&p->watch->timeout, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < p->count;) {
    running *r = &p->all[i];
    if (!r->stopped) {
      if (limit && (uint64_t)(now - r->begun) > limit && !over(p)) {
        atomic_store_explicit(&p->failed, 2, memory_order_release); /* the fault says it all */
        fault(p, FAULT_TIMEOUT, r->peer - 1, r->number);
      }
      if (over(p)) r->stopped = now;
    }
    if (!(r->native.poll ? poll_native(p, r, now) : poll_ring(p, r))) {
      i++;
      continue;
    }
    done(p, r->number);
    *r = p->all[--p->count];
    ended = 1;
  }
  return ended;
}

/* Sleep, as nothing has happened for so long. */
static void rest(sx_proxy *p, int64_t idle) {
  uint32_t bell = atomic_load_explicit(&p->bell, memory_order_acquire);
  int64_t nap = idle / 16 < NAP_NS || p->count ? NAP_NS : idle / 16 > LONG_NAP_NS ? LONG_NAP_NS : idle / 16;
  struct timespec limit = {0, nap};
  for (uint32_t i = 0; i < p->count; i++) {
    if (p->all[i].native.poll) continue;
    /* A plugin wakes the waiters of its ring. */
    shunt_ring *ring = p->all[i].ring;
    uint32_t completed = __atomic_load_n(&ring->completed, __ATOMIC_ACQUIRE);
    __atomic_store_n(&ring->waiting, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&p->all[i].command->done, __ATOMIC_SEQ_CST) != p->all[i].expected)
      syscall(SYS_futex, &ring->completed, FUTEX_WAIT, completed, &limit, NULL, 0);
    __atomic_store_n(&ring->waiting, 0, __ATOMIC_RELAXED);
    return;
  }
  atomic_store_explicit(&p->sleeping, 1, memory_order_seq_cst);
  syscall(SYS_futex, &p->bell, FUTEX_WAIT_PRIVATE, bell, &limit, NULL, 0);
  atomic_store_explicit(&p->sleeping, 0, memory_order_relaxed);
}

static void *serve(void *of) {
  sx_proxy *p = of;
  int64_t active = sx_clock();
  uint32_t heard = 0;
  for (uint32_t look = 1;; look++) {
    int64_t now = sx_clock();
    uint32_t bell = atomic_load_explicit(&p->bell, memory_order_relaxed);
    int happened = begin_posted(p, now) | poll_all(p, now);
    atomic_store_explicit(&p->busy, p->count != 0, memory_order_release);
    if (happened || bell != heard) active = now;
    heard = bell;
    if (!p->count && atomic_load_explicit(&p->quit, memory_order_acquire)) break;
    if (now - active >= SPIN_NS) rest(p, now - active);
    else if (look % 64 == 0) sched_yield();
  }
  atomic_store_explicit(&p->exited, 1, memory_order_release);
  return NULL;
}

sx_proxy *sx_proxy_new(uintptr_t slots, uintptr_t watch, int32_t world, int64_t grace) {
  sx_proxy *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
  if (!p) return NULL;
  memset(p, 0, sizeof *p);
  p->slots = (shunt_command_slot *)slots;
  p->watch = (shunt_watch_page *)watch;
  p->world = world;
  p->grace = grace;
  /* Signals are for the application's threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&p->thread, NULL, serve, p);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) {
    free(p);
    return NULL;
  }
  return p;
}

int sx_proxy_free(sx_proxy *p) {
  atomic_store_explicit(&p->quit, 1, memory_order_release);
  sx_proxy_wake(p);
  struct timespec moment = {0, 100000};
  int64_t begun = sx_clock();
  while (!atomic_load_explicit(&p->exited, memory_order_acquire)) {
    if (sx_clock() - begun > 2 * p->grace) {
      pthread_detach(p->thread);
      return -1;
    }
    nanosleep(&moment, NULL);
  }
  pthread_join(p->thread, NULL);
  free(p);
  return 0;
}

void sx_proxy_wake(sx_proxy *p) {
  atomic_fetch_add_explicit(&p->bell, 1, memory_order_seq_cst);
  if (atomic_load_explicit(&p->sleeping, memory_order_seq_cst))
    syscall(SYS_futex, &p->bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

const sx_proxy_failure *sx_proxy_failed(sx_proxy *p) {
  return atomic_load_explicit(&p->failed, memory_order_acquire) == 1 ? &p->failure : NULL;
}

int sx_proxy_busy(sx_proxy *p) { return (int)atomic_load_explicit(&p->busy, memory_order_seq_cst); }

uint64_t sx_proxy_stuck(sx_proxy *p) { return atomic_load_explicit(&p->stuck, memory_order_acquire); }
