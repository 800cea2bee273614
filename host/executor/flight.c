/*
 * flight.c: the flight recorder, a ring of the last operations. The running
 * thread writes an entry for the price of a few stores and a read of the
 * processor's counter; other threads read it whenever they like.
 */
#include <stdlib.h>

#include "engine.h"

int sx_flights_set(sx_engine *e, uint32_t count) {
  sx_flight *ring = calloc(count, sizeof *ring);
  if (!ring) return -1;
  free(e->flights);
  e->flights = ring;
  e->count_flights = count;
  e->next_flight = 0;
  return 0;
}

void sx_flight_begin(sx_engine *e, const uint64_t *record) {
  if (SX_UNLIKELY(!e->count_flights)) return;
  sx_flight *f = e->flight = &e->flights[e->next_flight];
  if (++e->next_flight == e->count_flights) e->next_flight = 0;
  /* number 0 marks an entry in change, as the odd version of a seqlock does */
  atomic_store_explicit(&f->number, 0, memory_order_relaxed);
  /* release fence: the mark is visible before any field changes */
  atomic_thread_fence(memory_order_release);
  atomic_store_explicit(&f->what, record[1], memory_order_relaxed);
  atomic_store_explicit(&f->how, record[2], memory_order_relaxed);
  atomic_store_explicit(&f->count, record[3], memory_order_relaxed);
  atomic_store_explicit(&f->begin, e->began, memory_order_relaxed);
  atomic_store_explicit(&f->end, 0, memory_order_relaxed);
  /* release: a reader that sees the number sees the fields */
  atomic_store_explicit(&f->number, record[4], memory_order_release);
}

void sx_flight_end(sx_engine *e, uint32_t reason) {
  if (!e->flight) return;
  atomic_store_explicit(&e->flight->reason, reason, memory_order_relaxed);
  /* release: a reader that sees the end sees the reason */
  atomic_store_explicit(&e->flight->end, sx_ticks(), memory_order_release);
  e->flight = NULL;
}
