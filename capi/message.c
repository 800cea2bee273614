/*
 * message.c: messages of failures, and the names of status codes.
 *
 * Each thread has a buffer for what failed last on it and one for what it
 * asked about a communicator. They are made on the first failure and freed
 * with the thread. In a forked child neither is touched: the text is static.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct messages {
  char thread[SHUNT_MESSAGE_BYTES];
  char comm[SHUNT_MESSAGE_BYTES];
};

static pthread_key_t key;
static int have_key;

__attribute__((constructor)) static void make_key(void) { have_key = pthread_key_create(&key, free) == 0; }

static struct messages *mine(int make) {
  struct messages *m;
  if (!have_key)
    return NULL;
  m = pthread_getspecific(key);
  if (m == NULL && make) {
    m = calloc(1, sizeof *m);
    if (m != NULL && pthread_setspecific(key, m) != 0) {
      free(m);
      m = NULL;
    }
  }
  return m;
}

/* whole is the longest length up to limit that does not cut a UTF-8 sequence. */
static size_t whole(const char *text, size_t bytes, size_t limit) {
  if (bytes <= limit)
    return bytes;
  while (limit > 0 && ((unsigned char)text[limit] & 0xC0) == 0x80)
    limit--;
  return limit;
}

void shunt_set_message(const char *text, size_t bytes) {
  struct messages *m = mine(1);
  if (m == NULL)
    return;
  bytes = whole(text, bytes, sizeof m->thread - 1);
  memcpy(m->thread, text, bytes);
  m->thread[bytes] = 0;
}

static void fail(shunt_comm comm, shunt_status status, const char *call, const char *format, va_list arguments) {
  char text[SHUNT_MESSAGE_BYTES];
  int bytes = vsnprintf(text, sizeof text, format, arguments);
  if (bytes < 0)
    bytes = 0;
  if ((size_t)bytes >= sizeof text)
    bytes = sizeof text - 1;
  shunt_set_message(text, (size_t)bytes);
  if (comm != NULL)
    go_set_error(SHUNT_NUMBER(comm), status, (char *)(uintptr_t)call, text, (size_t)bytes);
}

shunt_status shunt_fail(shunt_comm comm, shunt_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fail(comm, status, NULL, format, arguments);
  va_end(arguments);
  return status;
}

shunt_status shunt_refuse(shunt_comm comm, const char *call, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fail(comm, SHUNT_INVALID_ARGUMENT, call, format, arguments);
  va_end(arguments);
  return SHUNT_INVALID_ARGUMENT;
}

const char *shunt_last_error(shunt_comm comm) {
  struct messages *m;
  if (shunt_forked())
    return "this process was forked after libshunt was loaded and cannot use it: start ranks with exec, or in Python "
           "with the multiprocessing method spawn or forkserver";
  m = mine(comm != NULL);
  if (m == NULL)
    return comm == NULL ? "" : "out of memory";
  if (comm == NULL)
    return m->thread;
  if (go_last_error(SHUNT_NUMBER(comm), m->comm, sizeof m->comm) != SHUNT_OK)
    return m->thread;
  return m->comm;
}

const char *shunt_status_string(shunt_status status) {
  switch (status) {
  case SHUNT_OK: return "ok";
  case SHUNT_INVALID_ARGUMENT: return "invalid_argument";
  case SHUNT_UNSUPPORTED: return "unsupported";
  case SHUNT_MISMATCH: return "mismatch";
  case SHUNT_TIMEOUT: return "timeout";
  case SHUNT_PEER_DIED: return "peer_died";
  case SHUNT_PLUGIN_DIED: return "plugin_died";
  case SHUNT_ABORTED: return "aborted";
  case SHUNT_CLOSED: return "closed";
  case SHUNT_OUT_OF_MEMORY: return "out_of_memory";
  case SHUNT_SYSTEM: return "system";
  case SHUNT_PROTOCOL: return "protocol";
  case SHUNT_PLUGIN_REJECTED: return "plugin_rejected";
  case SHUNT_FORKED: return "forked";
  case SHUNT_DEVICE: return "device";
  case SHUNT_INTERNAL: return "internal";
  }
  return "unknown";
}

shunt_status shunt_version(int32_t *major, int32_t *minor, int32_t *patch) {
  if (major != NULL)
    *major = SHUNT_API_MAJOR;
  if (minor != NULL)
    *minor = SHUNT_API_MINOR;
  if (patch != NULL)
    *patch = SHUNT_API_PATCH;
  return SHUNT_OK;
}
