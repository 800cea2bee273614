/*
 * run.c: launches. A launch gets an instance of its program (frames, tracks);
 * the tracks of all launches that may run now take turns in this thread.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "state.h"

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static sx_instance *instance_of(sx_program *p) {
  sx_instance *i = p->idle;
  if (SX_LIKELY(i != NULL)) {
    p->idle = i->next;
    return i;
  }
  size_t head = aligned(sizeof *i), tracks = aligned(p->count_tracks * sizeof(sx_track));
  size_t sources = aligned(p->max_sources * sizeof(sx_source));
  size_t registers = aligned(p->count_registers * sizeof(int64_t));
  char *block = aligned_alloc(64, head + tracks + sources + registers);
  if (!block) return NULL;
  i = (sx_instance *)block;
  i->next = NULL;
  i->tracks = (sx_track *)(block + head);
  i->sources = (sx_source *)(block + head + tracks);
  i->registers = (int64_t *)(block + head + tracks + sources);
  if (p->count_registers) memcpy(i->registers, p->registers, p->count_registers * sizeof(int64_t));
  memset(i->tracks, 0, p->count_tracks * sizeof(sx_track));
  for (uint32_t t = 0; t < p->count_tracks; t++) {
    i->tracks[t].steps = p->steps + p->tracks[t].first_step;
    i->tracks[t].frame = i->registers + p->tracks[t].frame;
  }
  return i;
}

void sx_program_free(sx_program *p) {
  for (sx_instance *i = p->idle, *next; i; i = next) {
    next = i->next;
    free(i);
  }
  free(p); /* one block with everything it points to */
}

static void release(sx_launch *l) {
  l->instance->next = l->program->idle;
  l->program->idle = l->instance;
  l->instance = NULL;
}

/* Start a launch: its tracks become live. */
static uint32_t start(sx_engine *e, sx_launch *l) {
  sx_program *p = l->program;
  l->send_bytes = l->slots[SHUNT_SLOT_SEND_BYTES];
  l->recv_bytes = l->slots[SHUNT_SLOT_RECV_BYTES];
  if (SX_UNLIKELY(l->send_bytes < 0 || l->recv_bytes < 0)) {
    sx_fail(e, NULL, SX_ARGUMENT);
    e->failure.launch = (int32_t)l->index;
    e->failure.x = l->send_bytes;
    e->failure.y = l->recv_bytes;
    return SX_ARGUMENT;
  }
  sx_instance *instance = l->instance = instance_of(p);
  if (SX_UNLIKELY(!instance)) {
    sx_fail(e, NULL, SX_MEMORY);
    e->failure.launch = (int32_t)l->index;
    e->failure.y = (int64_t)p->count_registers * 8;
    return SX_MEMORY;
  }
  if (SX_UNLIKELY(e->notes != NULL) && e->notes[l->index].word) {
    /* relaxed: the first signal of the operation releases it */
    atomic_store_explicit(e->notes[l->index].word, e->notes[l->index].value, memory_order_relaxed);
  }
  for (uint32_t i = 0; i < p->count_tracks; i++) {
    const sx_code *code = &p->tracks[i];
    sx_track *t = &instance->tracks[i];
    int64_t *frame = t->frame;
    for (uint32_t r = 0; r < code->clear; r++) frame[r] = 0;
    const sx_fill *fill = p->fills + code->first_fill;
    for (const sx_fill *end = fill + code->count_fills; fill < end; fill++)
      frame[fill->to] = fill->slot < SHUNT_SLOT_ARRAYS           ? l->slots[fill->slot]
                        : l->arrays && fill->slot != SX_ABSENT ? l->arrays[fill->slot - SHUNT_SLOT_ARRAYS]
                                                               : 0;
    t->at = t->steps;
    t->launch = l;
    t->word = NULL;
    t->rank = -1;
    t->remote = 0;
    t->native = NULL;
    e->live[e->count_live++] = t;
  }
  l->live = p->count_tracks;
  return SX_FINE;
}

/* Start the first launch of a chain that has tracks. */
static uint32_t start_chain(sx_engine *e, sx_launch *l) {
  for (; l; l = l->next) {
    uint32_t reason = start(e, l);
    if (reason) return reason;
    if (l->live) return SX_FINE;
    release(l);
  }
  return SX_FINE;
}

/* Let live tracks take turns until none is left. */
static uint32_t schedule(sx_engine *e) {
  while (e->count_live) {
    int progress = 0;
    for (uint32_t i = 0; i < e->count_live;) {
      sx_track *t = e->live[i];
      if (t->word) {
        /* acquire: what the semaphore's writer wrote before is visible to the
         * steps that follow */
        int64_t seen = atomic_load_explicit(t->word, memory_order_acquire);
        if (!sx_reached(seen, t->value)) {
          i++;
          continue;
        }
        if (!t->remote && sx_stray(e, t->word, t->rank)) {
          uint32_t reason = sx_fail(e, t, SX_DISAGREE);
          e->failure.rank = t->rank;
          return reason;
        }
        t->word = NULL;
        t->remote = 0;
      }
      progress = 1;
      switch (SX_UNLIKELY(e->delayed) ? sx_interpret_delayed(e, t) : sx_interpret(e, t)) {
      case SX_TRACK_BLOCKED:
        i++;
        break;
      case SX_TRACK_FAILED:
        return e->failure.reason;
      default: {
        e->live[i] = e->live[--e->count_live];
        sx_launch *l = t->launch;
        if (--l->live == 0) {
          release(l);
          uint32_t reason = start_chain(e, l->next);
          if (reason) return reason;
        }
      }
      }
    }
    if (!progress) {
      uint32_t reason = sx_wait(e);
      if (reason) return reason;
    }
  }
  return SX_FINE;
}

static void publish(sx_engine *e, const uint64_t *record) {
  sx_record *r = &e->own->record;
  uint64_t version = atomic_load_explicit(&r->version, memory_order_relaxed);
  atomic_store_explicit(&r->version, version | 1, memory_order_relaxed);
  /* release fence: the odd version is visible before any field changes */
  atomic_thread_fence(memory_order_release);
  atomic_store_explicit(&r->seq, record[0], memory_order_relaxed);
  atomic_store_explicit(&r->what, record[1], memory_order_relaxed);
  atomic_store_explicit(&r->how, record[2], memory_order_relaxed);
  atomic_store_explicit(&r->count, record[3], memory_order_relaxed);
  /* release: a reader that sees the even version sees these fields */
  atomic_store_explicit(&r->version, (version | 1) + 1, memory_order_release);
}

static uint32_t enter(sx_engine *e, int64_t deadline, int64_t block_limit, const uint64_t *record) {
  uint32_t state = sx_state_enter(&e->state);
  /* e->failure belongs to the run in flight: these two leave it alone */
  if (SX_UNLIKELY(state)) return state == SX_STATE_CLOSED ? SX_CLOSED : SX_BUSY;
  e->deadline = deadline;
  e->block_limit = block_limit;
  e->started = 0;
  e->began = sx_ticks();
  e->budget = SX_BUDGET;
  e->count_live = 0;
  sx_here(e);
  e->flight = NULL;
  e->call = e->mark = 0;
  if (record) {
    publish(e, record);
    if ((e->call = record[5])) sx_call_publish(e->own, record);
    sx_flight_begin(e, record);
  }
  return SX_FINE;
}

static uint32_t leave(sx_engine *e, uint32_t reason, const uint64_t *record) {
  sx_ring(e);
  sx_flight_end(e, reason);
  if (SX_UNLIKELY(reason)) return reason;
  /* release: a peer that sees the end sees what the operation wrote */
  if (record) atomic_store_explicit(&e->own->record.ended, record[0], memory_order_release);
  if (SX_LIKELY(e->began - e->turn < SX_TURN)) return SX_FINE;
  e->turn = e->began;
  return SX_FINE_TURN;
}

static uint32_t aborted_before(sx_engine *e) {
  /* sequentially consistent, as is entering the run: an abort that found the engine idle is seen here */
  return atomic_load_explicit(&e->abort, memory_order_seq_cst) ? sx_look(e, NULL) : SX_FINE;
}

static int room_for(sx_engine *e, uint64_t tracks) {
  if (SX_LIKELY(tracks <= e->max_live)) return 0;
  if (tracks > UINT32_MAX / 2) return -1;
  sx_track **live = realloc(e->live, tracks * sizeof *live);
  if (!live) return -1;
  e->live = live;
  e->max_live = (uint32_t)tracks;
  return 0;
}

/* After a failure, launches that were running keep their instances. */
static void reclaim(sx_launch *l) {
  for (; l; l = l->next)
    if (l->instance && !l->lost) release(l);
}

/* What remains once the tracks have ended, failed, or paused. */
static uint32_t finish(sx_engine *e, uint32_t reason, const uint64_t *record) {
  if (SX_UNLIKELY(reason)) {
    if (reason == SX_PAUSED) return reason;
    if (e->polled && sx_native_stop(e)) reason = SX_NATIVE_STUCK;
    e->said = NULL;
    for (uint32_t i = 0; i < e->count_lanes; i++) reclaim(e->lanes[i]);
  }
  e->notes = NULL;
  reason = leave(e, reason, record);
  sx_state_leave(&e->state);
  return reason;
}

uint32_t sx_run(uintptr_t engine, uintptr_t of, uintptr_t send, uintptr_t recv, const int64_t *slots,
                const int64_t *arrays, int64_t deadline, int64_t block_limit, const uint64_t *record) {
  sx_engine *e = (sx_engine *)engine;
  sx_program *program = (sx_program *)of;
  uint32_t reason = enter(e, deadline, block_limit, record);
  if (SX_UNLIKELY(reason)) return reason;
  if (program->marked) e->mark = e->call;
  sx_launch *l = e->only = &e->single;
  e->lanes = &e->only;
  e->count_lanes = 1;
  l->program = program;
  l->instance = NULL;
  l->lost = 0;
  l->send = (char *)send;
  l->recv = (char *)recv;
  l->slots = slots;
  l->arrays = arrays;
  if (SX_UNLIKELY(room_for(e, program->count_tracks))) {
    reason = sx_fail(e, NULL, SX_MEMORY);
    e->failure.y = (int64_t)program->count_tracks * 8;
  } else if (!(reason = aborted_before(e)) && !(reason = start_chain(e, l))) {
    reason = schedule(e);
  }
  return finish(e, reason, record);
}

uint32_t sx_run_group(sx_engine *e, sx_launch **lanes, uint32_t count, uint64_t tracks, const sx_note *notes,
                      int64_t deadline, int64_t block_limit, const uint64_t *record) {
  uint32_t reason = enter(e, deadline, block_limit, record);
  if (SX_UNLIKELY(reason)) return reason;
  e->notes = notes;
  e->lanes = lanes;
  e->count_lanes = count;
  if (room_for(e, tracks)) {
    reason = sx_fail(e, NULL, SX_MEMORY);
    e->failure.y = (int64_t)tracks * 8;
  } else {
    reason = aborted_before(e);
    for (uint32_t i = 0; i < count && !reason; i++) reason = start_chain(e, lanes[i]);
    if (!reason) reason = schedule(e);
  }
  return finish(e, reason, record);
}

uint32_t sx_resume(sx_engine *e, const uint64_t *record) {
  /* The state is running since sx_run, so no other thread is in here. What the
   * pausing thread wrote is visible: its caller handed the run over. */
  e->block_limit = 0;
  sx_here(e);
  uint32_t reason = aborted_before(e);
  return finish(e, reason ? reason : schedule(e), record);
}
