/*
 * mark.c: ranks that call different collectives find out in the words that they
 * wait for anyway.
 *
 * Every collective has a mark: its number in the low 40 bits, and above them a
 * hash of this call and all before it (host/internal/diagnosis/calls.go). Once two
 * ranks have called something different their marks differ for good: what 24 bits
 * of a hash do not show of one call, they show of the next. A rank leaves its
 * mark in the word behind each semaphore that it raises, in the same line; a rank that
 * has waited for the semaphore compares it with its own before it touches anything that
 * the semaphore admits it to. That is a store and a load per signal and wait.
 *
 * The mark need not be of the same call. A peer may already be further on, and a
 * semaphore that no call has used for a million others still has the mark of then:
 * so numbers have as many bits as fill in days of calls (2^40 of 0.2 us take 60
 * hours). A number that differs proves nothing, so each rank also keeps its latest
 * calls in its control page, where lines move only when a peer looks.
 */
#include "engine.h"

void sx_call_publish(sx_control *own, const uint64_t *record) {
  sx_call *c = &own->calls[record[5] % SX_CALLS];
  atomic_store_explicit(&c->mark, 0, memory_order_relaxed);
  /* release fence: 0 is visible before any field changes */
  atomic_thread_fence(memory_order_release);
  atomic_store_explicit(&c->what, record[1], memory_order_relaxed);
  atomic_store_explicit(&c->how, record[2], memory_order_relaxed);
  atomic_store_explicit(&c->count, record[3], memory_order_relaxed);
  /* release: a reader that sees the mark sees these fields */
  atomic_store_explicit(&c->mark, record[5], memory_order_release);
}

/* Returns by how much the number of a mark is larger than that of another. */
static int64_t ahead_of(uint64_t mark, uint64_t other) {
  const int hash = 64 - SX_NUMBER_BITS;
  return (int64_t)((mark - other) << hash) >> hash;
}

/* Returns the mark that a page has for the call with the number of a mark, or 0. */
static uint64_t noted(const sx_control *page, uint64_t mark) {
  /* relaxed: nothing is concluded from it but that it differs */
  uint64_t of = atomic_load_explicit(&page->calls[mark % SX_CALLS].mark, memory_order_relaxed);
  return ahead_of(of, mark) == 0 ? of : 0;
}

static const sx_control *page_of(const sx_engine *e, int64_t rank) {
  return (uint64_t)rank < (uint64_t)e->world ? e->controls[rank] : NULL;
}

int sx_contradicts(const sx_engine *e, int64_t rank, uint64_t theirs) {
  if (!theirs) return 0; /* no rank has raised this semaphore yet */
  int64_t ahead = ahead_of(theirs, e->mark);
  if (ahead == 0) return theirs != e->mark;
  if (ahead > 0) return sx_page_contradicts(e, rank);
  uint64_t mine = noted(e->own, theirs);
  return mine && mine != theirs;
}

int sx_page_contradicts(const sx_engine *e, int64_t rank) {
  const sx_control *page = page_of(e, rank);
  if (!e->call || !page) return 0;
  uint64_t theirs = noted(page, e->call);
  return theirs && theirs != e->call;
}
