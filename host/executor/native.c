/*
 * native.c: native steps. A transport's function may never return, and nothing can
 * stop it; so it runs on a thread of the engine's own, and when the run's time is up
 * the run ends without it. That thread is lost then, with the registers that the
 * function still uses. Code that starts requests and polls them never blocks, so it runs
 * on the caller's thread: while it waits, the run polls.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

/* How often a request is asked, at least, before it counts as one that does not stop. */
#define STOP_POLLS 20

/* Polls before either side sleeps: as long as a sleeper takes to wake. */
#define SPINS 2000

enum { IDLE, POSTED, RETURNED, LOST, QUIT };

struct sx_worker {
  _Atomic uint32_t state; /* futex word */
  shunt_native native;
  const int64_t *registers;
  const void *send;
  void *recv;
  shunt_status status;
  shunt_native_report report;
};

static void change(sx_worker *w, uint32_t state) {
  /* release: a thread that sees the state sees what was written before */
  atomic_store_explicit(&w->state, state, memory_order_release);
  syscall(SYS_futex, &w->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Wait while the state is as given, at most so many nanoseconds (< 0: any number). */
static void await(sx_worker *w, uint32_t state, int64_t limit) {
  for (int i = 0; i < SPINS; i++)
    if (atomic_load_explicit(&w->state, memory_order_acquire) != state) return;
  struct timespec t = {limit / 1000000000, limit % 1000000000};
  syscall(SYS_futex, &w->state, FUTEX_WAIT_PRIVATE, state, limit < 0 ? NULL : &t, NULL, 0);
}

static void *work(void *of) {
  sx_worker *w = of;
  for (;;) {
    uint32_t state = atomic_load_explicit(&w->state, memory_order_acquire);
    if (state == QUIT) break;
    if (state != POSTED) {
      await(w, state, -1);
      continue;
    }
    w->status = w->native.function(w->native.context, w->registers, w->send, w->recv, NULL, &w->report);
    /* acquire and release: the run sees the status, and this thread that it is lost */
    if (!atomic_compare_exchange_strong(&w->state, &state, RETURNED)) break;
    syscall(SYS_futex, &w->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  }
  free(w);
  return NULL;
}

static sx_worker *hire(void) {
  sx_worker *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  /* Signals are for the application's threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes)) {
    free(w);
    return NULL;
  }
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&thread, &attributes, work, w);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (failed) {
    free(w);
    return NULL;
  }
  return w;
}

void sx_worker_dismiss(sx_engine *e) {
  if (e->worker) change(e->worker, QUIT);
  e->worker = NULL;
}

/* Give the function up, unless it has returned just now. */
static int lose(sx_engine *e, sx_track *t) {
  uint32_t posted = POSTED;
  if (!atomic_compare_exchange_strong(&e->worker->state, &posted, LOST)) return 0;
  e->worker = NULL; /* its thread frees it, should it ever return */
  t->launch->lost = 1;
  return 1;
}

/* Note which rank native code waits for. */
static void note(sx_engine *e, sx_track *t, const shunt_native_report *report) {
  t->rank = report->peer > 0 && report->peer <= e->world ? report->peer - 1 : -1;
}

/* Take what native code has come to. */
static void end(sx_engine *e, sx_track *t, shunt_status status, const shunt_native_report *report) {
  note(e, t, report);
  if (t->native) e->polled--;
  t->native = NULL;
  t->status = status;
  if (status != SHUNT_OK && !e->said) {
    e->said = t;
    memcpy(e->message, report->message, SHUNT_NATIVE_TEXT);
    e->message[SHUNT_NATIVE_TEXT - 1] = 0;
  }
  /* relaxed: the same thread reads it */
  atomic_store_explicit(&t->ended, 1, memory_order_relaxed);
}

int sx_native(sx_engine *e, sx_track *t, const shunt_native *native) {
  sx_ring(e);
  if (!e->worker && !(e->worker = hire())) {
    sx_fail(e, t, SX_MEMORY);
    e->failure.y = sizeof *e->worker;
    return -1;
  }
  sx_worker *w = e->worker;
  w->native = *native;
  w->registers = t->frame;
  w->send = t->launch->send;
  w->recv = t->launch->recv;
  w->report = (shunt_native_report){0};
  int64_t begun = sx_clock(), aborted = 0;
  change(w, POSTED);
  uint32_t reason = SX_FINE;
  for (;;) {
    await(w, POSTED, 20000000);
    if (atomic_load_explicit(&w->state, memory_order_acquire) == RETURNED) break;
    if (!reason) reason = sx_look(e, t);
    if (reason == SX_ABORTED && !aborted) aborted = sx_clock();
    /* An aborted function has a moment to return by itself: its memory is in use. */
    if (reason == SX_FINE || (reason == SX_ABORTED && sx_clock() - aborted < e->grace)) continue;
    if (!lose(e, t)) break;
    sx_fail(e, t, SX_NATIVE_STUCK);
    e->failure.y = sx_clock() - begun;
    return -1;
  }
  /* relaxed: no other thread looks until the next call is posted */
  atomic_store_explicit(&w->state, IDLE, memory_order_relaxed);
  if (reason) return -1; /* aborted while it ran: sx_look has told why */
  end(e, t, w->status, &w->report);
  return 0;
}

/* Take what a request has come to, if it is done. */
static void take(sx_engine *e, sx_track *t, shunt_status status, const shunt_native_report *report) {
  if (status == SHUNT_PENDING) note(e, t, report);
  else end(e, t, status, report);
}

/* Tell the watchdog that the run enters native code of a track, or has left it. */
static void cross(sx_engine *e, const sx_track *t) {
  atomic_store_explicit(&e->native_base, t->launch->program->base, memory_order_relaxed);
  atomic_store_explicit(&e->native_deadline, e->deadline, memory_order_relaxed);
  /* relaxed: only the thread of the run writes it */
  uint64_t native = atomic_load_explicit(&e->native, memory_order_relaxed);
  atomic_store_explicit(&e->native, native + 1, memory_order_relaxed);
}

int sx_native_start(sx_engine *e, sx_track *t, const shunt_native *native, uint32_t count) {
  sx_ring(e);
  shunt_native_report report = {0};
  t->request = NULL;
  atomic_store_explicit(&t->ended, 0, memory_order_relaxed);
  cross(e, t);
  shunt_status status =
      native->start(native->context, e->args, count, t->launch->send, t->launch->recv, &t->request, &report);
  cross(e, t);
  take(e, t, status, &report);
  if (status != SHUNT_PENDING) return 0;
  t->native = native;
  e->polled++;
  return 1;
}

static void poll(sx_engine *e, sx_track *t, int32_t stop) {
  shunt_native_report report = {.peer = t->rank + 1};
  cross(e, t);
  shunt_status status = t->native->poll(t->native->context, t->request, stop, &report);
  cross(e, t);
  if (stop && status != SHUNT_PENDING) status = SHUNT_OK; /* why the run has failed is known */
  take(e, t, status, &report);
}

void sx_native_poll(sx_engine *e) {
  for (uint32_t i = 0; i < e->count_live; i++)
    if (e->live[i]->native) poll(e, e->live[i], 0);
}

int sx_native_end(sx_engine *e, sx_track *t) {
  if (SX_LIKELY(t->status == SHUNT_OK)) return 0;
  /* The rank that aborts a peer knows the cause better than one that lost its connection. */
  if (t->status == SHUNT_PEER_DIED && t->rank >= 0 && sx_await_abort(e, t)) return -1;
  if (e->said != t) e->message[0] = 0;
  sx_fail(e, t, SX_NATIVE_FAILED);
  e->failure.x = t->status;
  e->failure.rank = t->rank;
  return -1;
}

uint32_t sx_native_stop(sx_engine *e) {
  int64_t begun = sx_clock(), now = begun;
  /* Time alone says nothing where the machine gives this thread none. */
  for (int polls = 0;; polls++) {
    sx_track *stuck = NULL;
    for (uint32_t i = 0; i < e->count_live; i++) {
      sx_track *t = e->live[i];
      if (t->native) poll(e, t, 1);
      if (t->native) stuck = t;
    }
    if (!stuck) return SX_FINE;
    if ((now = sx_clock()) - begun >= e->grace && polls >= STOP_POLLS) {
      sx_fail(e, stuck, SX_NATIVE_STUCK);
      e->failure.x = 1;
      e->failure.y = now - begun;
      e->polled = 0;
      return SX_NATIVE_STUCK;
    }
    struct timespec moment = {0, 50000};
    nanosleep(&moment, NULL);
  }
}
