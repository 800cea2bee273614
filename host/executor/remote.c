/*
 * remote.c: the host's side of command rings, see shunt_ring.h. The memory is also the
 * plugin's, which may write anything there at any time: nothing that is read from it
 * is an index or a length here before it was bounded.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine.h"

int64_t sx_remote_bytes(int64_t slots) {
  return slots < 1 || slots > SHUNT_RING_SLOTS ? -1 : (int64_t)shunt_ring_bytes((uint32_t)slots);
}

static int is_free(shunt_ring_command *c) {
  /* acquire: the plugin has read and written the command before it was done */
  return __atomic_load_n(&c->done, __ATOMIC_ACQUIRE) == __atomic_load_n(&c->number, __ATOMIC_RELAXED);
}

shunt_ring_command *sx_ring_post(shunt_ring *ring, uint32_t slots, int64_t operation, const int64_t *args,
                                 uint32_t count, int64_t *number, sx_unread unread, const void *of) {
  shunt_ring_command *commands = shunt_ring_commands(ring), *c = NULL;
  int64_t posted = __atomic_load_n(&ring->posted, __ATOMIC_RELAXED);
  uint32_t first = (uint32_t)((uint64_t)posted % slots);
  for (uint32_t i = 0; i < slots && !c; i++) {
    uint32_t at = first + i < slots ? first + i : first + i - slots;
    if (!is_free(&commands[at]) || unread(of, &commands[at])) continue;
    c = &commands[at];
    __atomic_store_n(&shunt_ring_queue(ring, slots)[first], at, __ATOMIC_RELAXED);
  }
  if (!c) return NULL;
  *number = posted + 1;
  c->operation = operation;
  c->count = count;
  memcpy(c->args, args, count * sizeof *c->args);
  c->status = SHUNT_OK;
  __atomic_store_n(&c->peer, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&c->number, *number, __ATOMIC_RELAXED);
  /* release: a plugin that sees it posted sees the command, its place in the queue, and what
   * the plan has copied for it */
  __atomic_store_n(&ring->posted, *number, __ATOMIC_RELEASE);
  /* The fence of the protocol in shunt_ring_next. */
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (__atomic_load_n(&ring->sleeping, __ATOMIC_RELAXED)) {
    __atomic_fetch_add(&ring->doorbell, 1, __ATOMIC_SEQ_CST);
    sx_futex_wake(&ring->doorbell);
  }
  return c;
}

/* Whether a track has yet to see how its command ended. */
static int awaited(const void *of, const shunt_ring_command *c) {
  const sx_engine *e = of;
  for (uint32_t i = 0; i < e->count_live; i++) {
    const sx_track *t = e->live[i];
    if (t->remote == SX_OF_COMMAND && t->command == c && t->at->code == SX_WAIT_REMOTE) return 1;
  }
  return 0;
}

int sx_remote_post(sx_engine *e, sx_track *t, shunt_ring *ring, uint32_t slots, int64_t operation, uint32_t count) {
  uint32_t oldest = (uint32_t)((uint64_t)__atomic_load_n(&ring->posted, __ATOMIC_RELAXED) % slots);
  shunt_ring_command *c = sx_ring_post(ring, slots, operation, e->args, count, &t->number, awaited, e);
  t->ring = ring;
  t->command = c ? c : &shunt_ring_commands(ring)[oldest];
  return c != NULL;
}

int32_t sx_remote_peer(const sx_engine *e, const sx_track *t) {
  int32_t peer = __atomic_load_n(&t->command->peer, __ATOMIC_RELAXED) - 1;
  return peer >= 0 && peer < e->world ? peer : -1;
}

int sx_remote_end(sx_engine *e, sx_track *t) {
  int32_t status = __atomic_load_n(&t->command->status, __ATOMIC_RELAXED);
  if (SX_LIKELY(status == SHUNT_OK)) return 0;
  int32_t peer = sx_remote_peer(e, t);
  memcpy(e->message, t->command->message, SHUNT_RING_TEXT);
  e->message[SHUNT_RING_TEXT - 1] = 0;
  /* The rank that aborts a peer knows the cause better than one that lost its connection. */
  if (status == SHUNT_PEER_DIED && sx_await_abort(e, t)) return -1;
  sx_fail(e, t, SX_REMOTE_FAILED);
  e->failure.x = status;
  e->failure.rank = peer;
  return -1;
}

/* Linux 5.16 and newer wait for several words at once. */
struct waiter {
  uint64_t value, address;
  uint32_t flags, reserved;
};
#define FUTEX_SIZE_32 2
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define MOST_RINGS 15

int sx_remote_sleep(sx_engine *e, uint32_t seen, int64_t nanoseconds, int (*ready)(sx_engine *)) {
  struct waiter words[1 + MOST_RINGS] = {{seen, (uint64_t)(uintptr_t)&e->own->doorbell, FUTEX_SIZE_32, 0}};
  shunt_ring *rings[MOST_RINGS];
  uint32_t count = 0;
  for (uint32_t i = 0; i < e->count_live && count < MOST_RINGS; i++) {
    if (e->live[i]->remote != SX_OF_COMMAND) continue;
    shunt_ring *ring = e->live[i]->ring;
    uint32_t k = 0;
    while (k < count && rings[k] != ring) k++;
    if (k < count) continue;
    rings[count++] = ring;
    words[count] = (struct waiter){__atomic_load_n(&ring->completed, __ATOMIC_ACQUIRE),
                                   (uint64_t)(uintptr_t)&ring->completed, FUTEX_SIZE_32, 0};
    __atomic_store_n(&ring->waiting, 1, __ATOMIC_RELAXED);
  }
  if (!count) return 0;
  /* Either this look sees that a command is done, or the plugin that this side waits. */
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (!ready(e)) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t at = until.tv_sec * INT64_C(1000000000) + until.tv_nsec + nanoseconds;
    until = (struct timespec){at / 1000000000, at % 1000000000};
    if (syscall(SYS_futex_waitv, words, count + 1, 0, &until, CLOCK_MONOTONIC) < 0 && errno != EAGAIN &&
        errno != ETIMEDOUT && errno != EINTR) { /* an older kernel has no such call, and a filter may refuse it */
      struct timespec limit = {0, nanoseconds < 100000 ? nanoseconds : 100000};
      nanosleep(&limit, NULL);
    }
  }
  for (uint32_t k = 0; k < count; k++) __atomic_store_n(&rings[k]->waiting, 0, __ATOMIC_RELAXED);
  return 1;
}
