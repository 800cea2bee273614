/*
 * sigurg.h: sharing SIGURG between several Go runtimes in one process.
 */
#ifndef SHUNT_SHARED_SIGURG_H
#define SHUNT_SHARED_SIGURG_H

/* More Go runtimes than this in one process are refused. */
#define SHUNT_MAX_RUNTIMES 128

/* What shunt_sigurg_load found out. */
typedef struct shunt_sigurg_load_result {
  void *handle;  /* from dlopen, or null */
  int took_over; /* the object took SIGURG: it holds a Go runtime */
  int full;      /* it was not loaded: there are too many runtimes */
} shunt_sigurg_load_result;

/* dlopen, without letting a new runtime take SIGURG from those that have it.
 * Callers take turns. On failure dlerror says why, in this thread. */
shunt_sigurg_load_result shunt_sigurg_load(const char *path);

/* To be called after the new runtime is up: lets it have SIGURG too, and has
 * every thread handle one, because some may have been lost meanwhile. */
void shunt_sigurg_join(void);

#endif
