/*
 * fake.c: see fake.h.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ncclResult_t fake_result;
const char *fake_text = "fake";
char fake_log[1 << 16], fake_id[8];
bool fake_late;
ncclRedOp_t fake_op;
atomic_bool fake_held;
atomic_int fake_hold;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The real library calls its own public functions; those have to be its own also when another library with the same
 * names was loaded before. */
nc_type_ncclCommCount ncclCommCount, pncclCommCount;
const void *const fake_in_data[] = {(const void *)ncclCommCount, (const void *)pncclCommCount};

static void *own(const char *name) {
  Dl_info here;
  if (dladdr(&fake_log, &here) == 0)
    return NULL;
  void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return self == NULL ? NULL : dlsym(self, name);
}

const char *fake_calls_another(void) {
  int count = 0;
  void *public = own("ncclCommCount");
  if ((const void *)ncclCommCount != public)
    return "an address that code takes";
  if (fake_in_data[0] != public || fake_in_data[1] != own("pncclCommCount"))
    return "an address in data";
  fake_log[0] = 0;
  (void)ncclCommCount(NULL, &count);
  bool called = strncmp(fake_log, "ncclCommCount", strlen("ncclCommCount")) == 0;
  fake_log[0] = 0;
  return called ? NULL : "a call";
}

void fake_note(const char *format, ...) {
  va_list arguments;
  pthread_mutex_lock(&lock);
  size_t used = strlen(fake_log);
  va_start(arguments, format);
  if (used < sizeof fake_log - 2) { /* a full log keeps what it has */
    vsnprintf(fake_log + used, sizeof fake_log - used - 1, format, arguments);
    strcat(fake_log, "\n");
  }
  va_end(arguments);
  pthread_mutex_unlock(&lock);
  int asked = 1;
  if (atomic_compare_exchange_strong(&fake_hold, &asked, 2))
    while (fake_hold != 0)
      sched_yield();
}

static ncclComm_t *late[8];
static int late_count;

static ncclComm_t new_comm(void) {
  static uintptr_t next = 0xFA4E0000;
  return (ncclComm_t)(next += 16);
}

void fake_make(ncclComm_t *comms, int count) {
  while (fake_held)
    sched_yield();
  pthread_mutex_lock(&lock);
  for (int i = 0; i < count; i++) {
    bool made = fake_result == ncclSuccess || fake_result == ncclInProgress;
    comms[i] = made && !fake_late ? new_comm() : NULL;
    if (made && fake_late && late_count < (int)(sizeof late / sizeof *late))
      late[late_count++] = &comms[i];
  }
  pthread_mutex_unlock(&lock);
}

void fake_write(void) {
  pthread_mutex_lock(&lock);
  while (late_count > 0)
    *late[--late_count] = new_comm();
  pthread_mutex_unlock(&lock);
}

void fake_drop(void) {
  pthread_mutex_lock(&lock);
  late_count = 0;
  pthread_mutex_unlock(&lock);
}

void fake_make_id(ncclUniqueId *id) {
  if (fake_id[0] != 0)
    memcpy(id->internal, fake_id, sizeof fake_id);
}

void fake_make_op(ncclRedOp_t *op) {
  if (fake_op != 0)
    *op = fake_op;
}
