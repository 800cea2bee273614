/* locks.h: what another thread may do in the moment before this one takes a lock. */
#ifndef SHUNT_NCCL_TEST_LOCKS_H
#define SHUNT_NCCL_TEST_LOCKS_H

#include <dlfcn.h>
#include <pthread.h>

/* before_lock is called once, before the given lock of this thread, counted from 1. */
static _Thread_local void (*before_lock)(void);
static _Thread_local int locks;

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  static int (*lock)(pthread_mutex_t *);
  if (lock == NULL)
    *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
  if (before_lock != NULL && --locks == 0) {
    void (*call)(void) = before_lock;
    before_lock = NULL;
    call();
  }
  return lock(mutex);
}

#endif
