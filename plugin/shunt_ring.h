/*
 * shunt_ring.h: the command ring through which the steps "remote" of plans hand
 * commands to the plugin that wrote them, and the plugin's side of it in C. Package
 * ring has the same in Go.
 *
 * A ring lies at the beginning of a region of role local, in zero-filled memory that
 * the plugin and the host both map; how many commands it holds is the plugin's choice
 * and stands in every remote step. Behind the header lie the commands, and behind them
 * the queue:
 *
 *     shunt_ring | slots times shunt_ring_command | slots times uint32_t
 *
 * The host takes a free command, fills it in, writes its place into the queue and
 * raises posted. The n-th command posted, counted from 0, is the one whose place stands
 * in queue[n % slots]. The plugin runs commands in any order and at the same time: one
 * may wait for a peer that waits for another of them. When it has done one it leaves a
 * status, and raises done to the command's number. Either side raises the other's futex
 * word (doorbell, completed) and wakes it, if it says that it sleeps (sleeping, waiting).
 *
 * A plugin's main loop is
 *
 *     int64_t taken = 0;
 *     while (running) {
 *       shunt_ring_command *c = shunt_ring_next(ring, slots, &taken, 100000000);
 *       if (c) ... start it; later: shunt_ring_done(ring, c, SHUNT_OK, -1, NULL);
 *     }
 *
 * It needs C99 or C++11, and a compiler with the __atomic functions of GCC and Clang.
 */
#ifndef SHUNT_RING_H
#define SHUNT_RING_H

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHUNT_RING_ARGS 16
#define SHUNT_RING_TEXT 320
#define SHUNT_RING_SLOTS 4096 /* at most */

typedef struct shunt_ring_command {
  int64_t number;    /* host: of the command that stands here, from 1 */
  int64_t done;      /* plugin: the number of the command that it has done last here */
  int64_t operation; /* host: what is to be done, as the plan says */
  int64_t args[SHUNT_RING_ARGS];
  uint32_t count;    /* of args */
  int32_t status;    /* plugin, before done: SHUNT_OK, or a code of shunt_tables.h */
  int32_t peer;      /* plugin, at any time: 1 + the rank that is waited for or has failed; 0: none */
  uint32_t reserved;
  char message[SHUNT_RING_TEXT]; /* plugin, before done: one sentence, where status is not SHUNT_OK */
  uint8_t pad[24];
} shunt_ring_command;

typedef struct shunt_ring {
  int64_t posted; /* host: commands so far */
  uint8_t pad0[56];
  uint32_t doorbell; /* host: futex word of the plugin */
  uint32_t sleeping; /* plugin: it sleeps on doorbell, or is about to */
  uint8_t pad1[56];
  uint32_t completed; /* plugin: futex word of the host */
  uint32_t waiting;   /* host: it sleeps on completed, or is about to */
  uint8_t pad2[56];
} shunt_ring;

#ifndef __cplusplus
long syscall(long number, ...); /* which unistd.h hides from strict C */
#endif

/* What futex takes, whatever the C library's struct timespec is. */
typedef struct shunt_ring_time {
  long seconds;
  long nanoseconds;
} shunt_ring_time;

/* Size in bytes of a ring for a number of commands. */
static inline size_t shunt_ring_bytes(uint32_t slots) {
  return sizeof(shunt_ring) + slots * (sizeof(shunt_ring_command) + sizeof(uint32_t));
}

static inline shunt_ring_command *shunt_ring_commands(shunt_ring *ring) {
  return (shunt_ring_command *)(void *)(ring + 1);
}

static inline uint32_t *shunt_ring_queue(shunt_ring *ring, uint32_t slots) {
  return (uint32_t *)(void *)(shunt_ring_commands(ring) + slots);
}

/* The next command, or null when none has come in timeout nanoseconds. taken counts
 * those that were taken so far; it is the caller's, and starts at 0. */
static inline shunt_ring_command *shunt_ring_next(shunt_ring *ring, uint32_t slots, int64_t *taken, int64_t timeout) {
  for (int look = 0; look < 2; look++) {
    for (int spin = 0; spin < 1000; spin++) {
      /* acquire: the queue and the command were written before */
      if (__atomic_load_n(&ring->posted, __ATOMIC_ACQUIRE) > *taken) {
        uint32_t at = __atomic_load_n(&shunt_ring_queue(ring, slots)[*taken % slots], __ATOMIC_RELAXED);
        ++*taken;
        return &shunt_ring_commands(ring)[at % slots];
      }
    }
    if (look) break;
    uint32_t bell = __atomic_load_n(&ring->doorbell, __ATOMIC_ACQUIRE);
    /* Either this look sees what was posted, or the host sees that this side sleeps: both are
     * sequentially consistent, and the host fences between its store and its look. No fence
     * here: sanitizers of threads cannot follow one. */
    __atomic_store_n(&ring->sleeping, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&ring->posted, __ATOMIC_SEQ_CST) <= *taken) {
      shunt_ring_time limit = {(long)(timeout / 1000000000), (long)(timeout % 1000000000)};
      syscall(SYS_futex, &ring->doorbell, FUTEX_WAIT, bell, &limit, NULL, 0);
    }
    __atomic_store_n(&ring->sleeping, 0, __ATOMIC_RELAXED);
  }
  return NULL;
}

/* End a command: status is SHUNT_OK, or a code with a sentence that says what failed.
 * peer is the rank that it was about, or -1. */
static inline void shunt_ring_done(shunt_ring *ring, shunt_ring_command *command, int32_t status, int32_t peer,
                                   const char *message) {
  size_t n = 0;
  for (; message && n < SHUNT_RING_TEXT - 1 && message[n]; n++) command->message[n] = message[n];
  if (n == SHUNT_RING_TEXT - 1) /* the last character, in UTF-8, is whole or left out */
    while (n && (message[n] & 0xC0) == 0x80) n--;
  command->message[n] = 0;
  command->status = status;
  __atomic_store_n(&command->peer, peer + 1, __ATOMIC_RELAXED);
  /* release: a reader that sees it done sees the status, and what the command wrote */
  __atomic_store_n(&command->done, command->number, __ATOMIC_RELEASE);
  /* sequentially consistent, so that the host sees it done or this side that it sleeps */
  __atomic_fetch_add(&ring->completed, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&ring->waiting, __ATOMIC_SEQ_CST))
    syscall(SYS_futex, &ring->completed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#ifdef __cplusplus
}
#endif

#endif
