/*
 * peer.c: bytes out of another process's memory, at an address that its rank
 * published, in one copy by the kernel. Nothing here trusts the address: the
 * kernel checks it, on this rank's own memory too, so that a wrong one is an
 * error and not a crash. Ptrace's rules decide what may be read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/uio.h>

#include "engine.h"

/* Pieces between which abort is polled: some 100 us each. */
#define PIECE (INT64_C(1) << 20)

static int refuse(sx_engine *e, const sx_track *t, uint32_t reason, int64_t rank, int64_t x, int64_t y, uint64_t at) {
  sx_fail(e, t, reason);
  e->failure.space = SHUNT_SPACE_PEER;
  e->failure.rank = (uint64_t)rank < (uint64_t)e->world ? (int32_t)rank : -1;
  e->failure.x = x;
  e->failure.y = y;
  e->failure.region = (int64_t)at;
  return -1;
}

/* Whether the kernel finds a byte in the memory of a process. */
static int is_there(int32_t pid, uint64_t at) {
  char byte;
  struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)at, 1};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == 1;
}

int sx_peer_read(sx_engine *e, sx_track *t, const sx_ref *from, char *dst, int64_t n) {
  int64_t rank = t->frame[from->rank];
  if (SX_UNLIKELY((uint64_t)rank >= (uint64_t)e->world)) return refuse(e, t, SX_NO_RANK, rank, rank, n, 0);
  int32_t pid = atomic_load_explicit(&e->processes[rank], memory_order_relaxed);
  /* unsigned: a sum that wraps is an address that the kernel refuses */
  uint64_t at = (uint64_t)t->frame[from->region] + (uint64_t)t->frame[from->offset];
  if (SX_UNLIKELY(pid <= 0)) return refuse(e, t, SX_NO_PROCESS, rank, 0, n, at);
  /* What marks have told already where semaphores carry them: the length is the
   * peer's too. */
  if (!e->mark && SX_UNLIKELY(sx_page_contradicts(e, rank))) return refuse(e, t, SX_DISAGREE, rank, 0, n, at);
  sx_ring(e); /* peers need not wait for this copy to see earlier signals */
  for (int64_t done = 0; done < n;) {
    int64_t bytes = n - done < PIECE ? n - done : PIECE;
    struct iovec here = {dst + done, (size_t)bytes};
    struct iovec there = {(void *)(uintptr_t)(at + (uint64_t)done), (size_t)bytes};
    ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (SX_UNLIKELY(got <= 0)) {
      int error = got < 0 ? errno : EFAULT;
      if (error == EFAULT && is_there(pid, at + (uint64_t)done)) return 1;
      /* A peer whose memory is gone has mostly died, or left a communicator
       * that failed, and word of that is on its way: it is the cause, and what
       * happened here its consequence. */
      if (sx_await_abort(e, t)) return -1;
      return refuse(e, t, SX_PEER_READ, rank, error, n - done, at + (uint64_t)done);
    }
    /* Less than was asked for: the next call finds out why. */
    done += got;
    if (sx_spend(e, t, (int32_t)(got >> 12))) return -1;
  }
  return 0;
}
