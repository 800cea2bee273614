/*
 * delay.c: delays between the steps of plans, for tests. Where a rank is late is
 * decided by the seed and by what the rank does, never by a clock, so a run that is
 * repeated is late at the same steps. How long it is late is decided by the others:
 * a delay is over once every other rank sleeps in a wait, as nothing more can come
 * before this rank continues. So whatever may happen before the step does happen,
 * and it costs little.
 */
#include "engine.h"

/* Nanoseconds between two looks at the other ranks. */
#define SLICE 30000

static inline uint64_t mix(uint64_t h) {
  h = (h ^ h >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  h = (h ^ h >> 27) * UINT64_C(0x94D049BB133111EB);
  return h ^ h >> 31;
}

static inline uint64_t with(uint64_t h, uint64_t v) { return mix(h + UINT64_C(0x9E3779B97F4A7C15) + v); }

/* Returns whether every other rank sleeps, and none has been woken since: it looks
 * twice, because a rank that was asleep at first may have been woken by one that has
 * fallen asleep since. A rank whose page is not mapped may do anything. */
static int all_asleep(const sx_engine *e) {
  uint32_t rung[2] = {0, 0};
  for (int look = 0; look < 2; look++)
    for (int32_t rank = 0; rank < e->world; rank++) {
      if (rank == e->rank) continue;
      const sx_control *c = e->controls[rank];
      if (!c || !atomic_load_explicit(&c->sleeping, memory_order_acquire)) return 0;
      uint32_t doorbell = atomic_load_explicit(&c->doorbell, memory_order_acquire);
      if (doorbell != atomic_load_explicit(&c->slept, memory_order_acquire)) return 0;
      rung[look] += doorbell;
    }
  return rung[0] == rung[1];
}

uint32_t sx_delay(sx_engine *e, sx_track *t, const sx_step *s) {
  sx_delays *d = &e->delays;
  if (s == t->steps) { /* no jump leads here */
    t->taken = 0;
    if (t->launch->index == 0 && t == t->launch->instance->tracks) d->operation++;
  }
  if (!(d->steps >> s->code & 1)) return SX_FINE;
  if (s->code == SX_GATHER && t->frame[s->c] != 0) return SX_FINE; /* begun before: how often depends on the others */
  uint64_t track = (uint64_t)t->launch->index << 32 | (uint64_t)(t - t->launch->instance->tracks);
  uint64_t h = with(with(with(with(d->seed, (uint64_t)e->rank), d->operation), track), t->taken++);
  if ((uint32_t)h >= d->chance) return SX_FINE;
  d->count++;
  t->at = s;
  sx_ring(e); /* the others run meanwhile */
  int64_t longest = d->longest - (int64_t)((h >> 32) % (uint64_t)(d->longest / 2 + 1));
  int64_t begin = sx_clock();
  for (;;) {
    uint32_t reason = sx_look(e, t);
    if (reason || all_asleep(e)) return reason;
    int64_t left = longest - (sx_clock() - begin);
    if (left <= 0) return SX_FINE;
    sx_rest(e, left < SLICE ? left : SLICE);
  }
}
