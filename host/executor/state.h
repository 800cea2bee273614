/*
 * state.h: which thread may run an engine. One word: idle, running, running with a
 * closer that waits for the end, or closed. A second run is refused, not queued.
 */
#ifndef SHUNT_EXECUTOR_STATE_H
#define SHUNT_EXECUTOR_STATE_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SX_STATE_IDLE, SX_STATE_RUNNING, SX_STATE_AWAITED, SX_STATE_CLOSED };

/* Enter a run: 0, or the state that forbids it. */
static inline uint32_t sx_state_enter(_Atomic uint32_t *state) {
  uint32_t seen = SX_STATE_IDLE;
  /* acquire: this run sees what the one before left in the engine; sequentially
   * consistent, so that it sees the abort word of a thread that saw it idle */
  if (atomic_compare_exchange_strong(state, &seen, SX_STATE_RUNNING)) return 0;
  return seen;
}

static inline void sx_state_leave(_Atomic uint32_t *state) {
  uint32_t seen = SX_STATE_RUNNING;
  /* release: the next run, or the closer, sees what this one wrote */
  if (atomic_compare_exchange_strong_explicit(state, &seen, SX_STATE_IDLE, memory_order_release,
                                              memory_order_relaxed))
    return;
  atomic_store_explicit(state, SX_STATE_IDLE, memory_order_release);
  syscall(SYS_futex, state, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Close, after the run in flight: 0, or -1 when it was closed before. */
static inline int sx_state_close(_Atomic uint32_t *state) {
  for (;;) {
    uint32_t seen = SX_STATE_IDLE;
    if (atomic_compare_exchange_strong(state, &seen, SX_STATE_CLOSED)) return 0;
    if (seen == SX_STATE_CLOSED) return -1;
    if (seen == SX_STATE_RUNNING && !atomic_compare_exchange_strong(state, &seen, SX_STATE_AWAITED)) continue;
    syscall(SYS_futex, state, FUTEX_WAIT_PRIVATE, SX_STATE_AWAITED, NULL, NULL, 0);
  }
}

#endif
