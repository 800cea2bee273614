/*
 * guard.c: knows a forked child before any Go code runs in it.
 *
 * A child of fork() has one thread; Go's runtime needs its others and would
 * hang. The guard word lies in a page of its own that the kernel wipes in every
 * child (MADV_WIPEONFORK, Linux 4.14), raw clone() included; children that
 * share our memory (vfork) see it unchanged and then call exec. Where the
 * kernel does not know the flag, an atfork handler clears the word instead.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

static volatile uint64_t unprotected;
volatile const uint64_t *shunt_guard_word = &unprotected;

static void in_child(void) { *(volatile uint64_t *)shunt_guard_word = 0; }

__attribute__((constructor)) static void arm(void) {
  volatile uint64_t *word = &unprotected;
#ifdef MADV_WIPEONFORK
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) {
    if (madvise(memory, page, MADV_WIPEONFORK) == 0)
      word = memory;
    else
      munmap(memory, page);
  }
#endif
  *word = SHUNT_GUARD_ALIVE;
  shunt_guard_word = word;
  pthread_atfork(NULL, NULL, in_child);
}
