/* engine.c: an engine's life, its table of regions and its abort word. */
#include "engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "state.h"

int64_t sx_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* All engines, so that a leak detector, which does not look into Go's memory,
 * sees that those which a process ends with are still in reach. */
static struct {
  pthread_mutex_t lock;
  sx_engine *first;
} engines = {PTHREAD_MUTEX_INITIALIZER, NULL};

static void enlist(sx_engine *e) {
  pthread_mutex_lock(&engines.lock);
  e->after = engines.first;
  if (e->after) e->after->before = e;
  engines.first = e;
  pthread_mutex_unlock(&engines.lock);
}

static void delist(sx_engine *e) {
  pthread_mutex_lock(&engines.lock);
  if (e->after) e->after->before = e->before;
  *(e->before ? &e->before->after : &engines.first) = e->after;
  pthread_mutex_unlock(&engines.lock);
}

sx_engine *sx_engine_new(int32_t rank, int32_t world) {
  sx_engine *e = aligned_alloc(64, (sizeof(sx_engine) + 63) / 64 * 64);
  if (!e) return NULL;
  memset(e, 0, sizeof *e);
  enlist(e);
  e->rank = rank;
  e->world = world;
  e->own = &e->private_page;
  e->controls = calloc((size_t)world, sizeof *e->controls);
  e->chunks = calloc(SX_CHUNKS, sizeof *e->chunks);
  e->processes = calloc((size_t)world, sizeof *e->processes);
  e->grace = 1000000000;
  e->ring = calloc((size_t)world, sizeof *e->ring);
  e->ringing = calloc((size_t)world, 1);
  if (!e->controls || !e->chunks || !e->processes || !e->ring || !e->ringing) {
    sx_engine_close(e);
    sx_engine_free(e);
    return NULL;
  }
  return e;
}

void sx_engine_close(sx_engine *e) {
  if (sx_state_close(&e->state) != 0) return;
  sx_worker_dismiss(e);
  if (e->chunks)
    for (int i = 0; i < SX_CHUNKS; i++) free(e->chunks[i]);
  free(e->chunks);
  free(e->controls);
  free(e->processes);
  free(e->ring);
  free(e->ringing);
  free(e->live);
  free(e->flights);
  e->flights = NULL;
  e->count_flights = 0;
  e->chunks = NULL;
  e->controls = NULL;
  e->processes = NULL;
  e->ring = NULL;
  e->ringing = NULL;
  e->live = NULL;
  e->own = &e->private_page;
}

void sx_engine_free(sx_engine *e) {
  delist(e);
  free(e);
}

void sx_engine_set_control(sx_engine *e, int32_t rank, void *page) {
  if (rank == e->rank) {
    e->own = page ? page : &e->private_page;
    return; /* no rank rings its own doorbell through the table */
  }
  e->controls[rank] = page;
}

/* Entries are read by the run in flight while others are set, so a chunk never
 * moves, and an entry's length is published after its base. */
int sx_engine_set_region(sx_engine *e, uint64_t entry, int32_t rank, void *base, int64_t bytes) {
  if (entry >= (uint64_t)SX_CHUNK * SX_CHUNKS) return -1;
  sx_memory *chunk = atomic_load_explicit(&e->chunks[entry / SX_CHUNK], memory_order_acquire);
  if (!chunk) {
    chunk = calloc((size_t)SX_CHUNK * (size_t)e->world, sizeof *chunk);
    if (!chunk) return -1;
    /* release: a reader that finds the chunk finds it zeroed */
    atomic_store_explicit(&e->chunks[entry / SX_CHUNK], chunk, memory_order_release);
  }
  sx_memory *m = &chunk[entry % SX_CHUNK * (uint64_t)e->world + (uint64_t)rank];
  atomic_store_explicit(&m->bytes, 0, memory_order_relaxed);
  m->base = base;
  /* release: a reader of the length reads the base that it belongs to */
  atomic_store_explicit(&m->bytes, bytes, memory_order_release);
  return 0;
}

void sx_engine_clear_region(sx_engine *e, uint64_t entry) {
  if (entry >= (uint64_t)SX_CHUNK * SX_CHUNKS) return;
  sx_memory *chunk = atomic_load_explicit(&e->chunks[entry / SX_CHUNK], memory_order_acquire);
  if (!chunk) return;
  for (int32_t rank = 0; rank < e->world; rank++) {
    sx_memory *m = &chunk[entry % SX_CHUNK * (uint64_t)e->world + (uint64_t)rank];
    atomic_store_explicit(&m->bytes, 0, memory_order_release);
    m->base = NULL;
  }
}

void *sx_engine_region(sx_engine *e, uint64_t base, int64_t region, int64_t rank, int64_t *bytes) {
  uint64_t entry = base + (uint64_t)region;
  if (region < 0 || region >= SX_CHUNK * SX_CHUNKS || entry >= (uint64_t)SX_CHUNK * SX_CHUNKS) return NULL;
  if (rank < 0 || rank >= e->world) return NULL;
  const sx_memory *chunk = atomic_load_explicit(&e->chunks[entry / SX_CHUNK], memory_order_acquire);
  if (!chunk) return NULL;
  const sx_memory *m = &chunk[entry % SX_CHUNK * (uint64_t)e->world + (uint64_t)rank];
  /* acquire: the base belongs to the length */
  *bytes = atomic_load_explicit(&m->bytes, memory_order_acquire);
  return m->base;
}

void sx_engine_set_process(sx_engine *e, int32_t rank, int32_t pid) {
  /* relaxed: a run begins after the host has set it, in the same thread or
   * behind a lock */
  atomic_store_explicit(&e->processes[rank], pid, memory_order_relaxed);
}

void sx_engine_abort(sx_engine *e, uint32_t cause, int32_t rank) {
  uint64_t none = 0, word = UINT64_C(1) << 63 | (uint64_t)(cause & 0xFFFF) << 32 | (uint32_t)rank;
  /* The first cause stays: later ones are its consequences. Sequentially
   * consistent, as are entering a run and going to sleep, so that a run that
   * misses the word is seen here and rung. */
  atomic_compare_exchange_strong(&e->abort, &none, word);
  if (atomic_load(&e->state) != SX_STATE_IDLE) sx_doorbell(e->own);
}

int64_t sx_engine_waiting(sx_engine *e, int32_t *rank, int32_t *step) {
  for (int tries = 0; tries < 1000; tries++) {
    /* acquire: the fields are read after the version that guards them */
    uint32_t before = atomic_load_explicit(&e->looks, memory_order_acquire);
    int64_t since = atomic_load_explicit(&e->waiting, memory_order_relaxed);
    *rank = atomic_load_explicit(&e->waiting_rank, memory_order_relaxed);
    *step = atomic_load_explicit(&e->waiting_step, memory_order_relaxed);
    /* the fence keeps the fields' loads before the version's second load */
    atomic_thread_fence(memory_order_acquire);
    if (before % 2 == 0 && before == atomic_load_explicit(&e->looks, memory_order_relaxed)) {
      if (!since) return -1;
      int64_t now = sx_clock();
      return now > since ? now - since : 0;
    }
  }
  return -1;
}

uint64_t sx_engine_native(sx_engine *e, uint32_t *base, int64_t *deadline) {
  /* relaxed: a call that blocks is looked at again, and says who it is of by then */
  *base = atomic_load_explicit(&e->native_base, memory_order_relaxed);
  *deadline = atomic_load_explicit(&e->native_deadline, memory_order_relaxed);
  uint64_t native = atomic_load_explicit(&e->native, memory_order_relaxed);
  return native % 2 ? native : 0;
}

int sx_engine_unsatisfied(sx_engine *e) {
  /* as in sx_engine_waiting */
  uint32_t before = atomic_load_explicit(&e->looks, memory_order_acquire);
  int64_t since = atomic_load_explicit(&e->waiting, memory_order_relaxed);
  const _Atomic int64_t *word = atomic_load_explicit(&e->waiting_word, memory_order_relaxed);
  int64_t value = atomic_load_explicit(&e->waiting_value, memory_order_relaxed);
  atomic_thread_fence(memory_order_acquire);
  if (before % 2 != 0 || before != atomic_load_explicit(&e->looks, memory_order_relaxed)) return 0;
  if (!since || !word) return 0;
  return !sx_reached(atomic_load_explicit(word, memory_order_acquire), value);
}
