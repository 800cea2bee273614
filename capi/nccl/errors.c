/*
 * errors.c: results and their texts.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "library.h"
#include "real.h"

static _Thread_local char mine[512];      /* this thread's last failure */
static _Thread_local bool theirs;         /* that failure is the real library's, which has its text */
static _Thread_local char returned[512];  /* what ncclGetLastError has returned */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char latest[512]; /* any thread's */

/* keep makes a text this thread's, the library's and the communicator's last. */
static void keep(ncclComm_t comm, const char *format, va_list arguments) {
  char text[sizeof mine];
  vsnprintf(text, sizeof text, format, arguments);
  memcpy(mine, text, sizeof mine);
  theirs = false;
  pthread_mutex_lock(&lock);
  memcpy(latest, text, sizeof latest);
  pthread_mutex_unlock(&lock);
  if (comm != NULL && nc_is_ours(comm) && atomic_load(&comm->state) != NC_FREE) {
    pthread_mutex_lock(&comm->lock);
    memcpy(comm->text, text, sizeof comm->text);
    pthread_mutex_unlock(&comm->lock);
  }
}

ncclResult_t nc_fail(ncclComm_t comm, ncclResult_t result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  keep(comm, format, arguments);
  va_end(arguments);
  return nc_group_failed(result, mine);
}

ncclResult_t nc_fail_alone(ncclComm_t comm, ncclResult_t result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  keep(comm, format, arguments);
  va_end(arguments);
  return result;
}

ncclResult_t nc_reject(ncclComm_t comm, const char *function) {
  ncclResult_t result = nc_reject_alone(comm, function);
  return nc_group_failed(result, mine);
}

ncclResult_t nc_recall(ncclComm_t comm) {
  pthread_mutex_lock(&comm->lock);
  memcpy(mine, comm->text, sizeof mine);
  theirs = false;
  ncclResult_t result = comm->result;
  pthread_mutex_unlock(&comm->lock);
  return result;
}

ncclResult_t nc_result_of(shunt_status status) {
  switch (status) {
  case SHUNT_OK:
    return ncclSuccess;
  case SHUNT_INVALID_ARGUMENT:
    return ncclInvalidArgument;
  case SHUNT_UNSUPPORTED:
  case SHUNT_MISMATCH:
  case SHUNT_CLOSED:
  case SHUNT_FORKED:
    return ncclInvalidUsage;
  case SHUNT_TIMEOUT:
  case SHUNT_PEER_DIED:
  case SHUNT_ABORTED:
    return ncclRemoteError;
  case SHUNT_DEVICE:
    return ncclUnhandledCudaError;
  case SHUNT_INTERNAL:
    return ncclInternalError;
  default: /* plugins, files, memory, the network */
    return ncclSystemError;
  }
}

ncclResult_t nc_shunt_failed(ncclComm_t comm, shunt_status status) {
  bool own = comm != NULL && status == SHUNT_ABORTED && atomic_load(&comm->revoked);
  return nc_fail(comm, own ? ncclInvalidUsage : nc_result_of(status), "%s", nc_shunt.last_error_(NULL));
}

ncclResult_t nc_not_served(ncclComm_t comm, enum nc_symbol symbol) {
  return nc_fail(comm, ncclInvalidUsage,
                 "%s is not served by Shunt; SHUNT_NCCL_FORWARD=unsupported gives it to NVIDIA's NCCL",
                 nc_name(symbol));
}

ncclResult_t nc_unserved(ncclComm_t comm, enum nc_symbol symbol) {
  ncclResult_t failure = nc_make_failure();
  if (failure != ncclSuccess)
    return failure; /* its text is there */
  return nc_is_ready(comm) ? nc_not_served(comm, symbol) : nc_reject(comm, nc_name(symbol));
}

const char *nc_GetErrorString(ncclResult_t result) {
  static const char *const texts[] = {
      "no error",         "unhandled cuda error", "unhandled system error",
      "internal error",   "invalid argument",     "invalid usage",
      "a remote process exited, a rank waited for too long, or the network failed", "operation in progress",
      "timeout",
  };
  if (nc_settings()->forward && nc_real(NC_ncclGetErrorString) != NULL)
    return NC_REAL(ncclGetErrorString)(result);
  return result >= 0 && result < (int)(sizeof texts / sizeof *texts) ? texts[result] : "unknown result code";
}

ncclResult_t nc_came(ncclComm_t comm, ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress)
    return result;
  mine[0] = 0;
  theirs = true;
  if (comm != NULL) {
    pthread_mutex_lock(&comm->lock);
    comm->text[0] = 0;
    pthread_mutex_unlock(&comm->lock);
  }
  return result;
}

const char *nc_GetLastError(ncclComm_t comm) {
  ncclComm_t real = nc_any_real(comm);
  returned[0] = 0;
  if (nc_is_ours(comm) && atomic_load(&comm->state) != NC_FREE) {
    pthread_mutex_lock(&comm->lock);
    memcpy(returned, comm->text, sizeof returned);
    pthread_mutex_unlock(&comm->lock);
  }
  if (returned[0] == 0)
    memcpy(returned, mine, sizeof returned);
  if (returned[0] == 0 && (theirs || real != NULL || nc_settings()->forward) && nc_real(NC_ncclGetLastError) != NULL)
    return NC_REAL(ncclGetLastError)(real);
  if (returned[0] == 0) {
    pthread_mutex_lock(&lock);
    memcpy(returned, latest, sizeof returned);
    pthread_mutex_unlock(&lock);
  }
  return returned;
}

/* severity is a level's number: debug 0, info 1, warn 2, error 3. */
static int severity(const char *level) {
  static const char *const levels[] = {"debug", "info", "warn", "error"};
  for (int i = 0; level != NULL && i < 4; i++)
    if (strcasecmp(level, levels[i]) == 0)
      return i;
  return 2;
}

void nc_log(const char *level, const char *format, ...) {
  if (severity(level) < severity(getenv("SHUNT_LOG")))
    return;
  char text[1024], when[32];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  time_t now = time(NULL);
  struct tm local;
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", localtime_r(&now, &local));
  fprintf(stderr, "time=%s level=%s msg=\"nccl: %s\"\n", when,
          (const char *const[]){"DEBUG", "INFO", "WARN", "ERROR"}[severity(level)], text);
}

void nc_ResetDebugInit(void) {
  if (nc_settings()->forward && nc_real(NC_ncclResetDebugInit) != NULL)
    NC_REAL(ncclResetDebugInit)();
}

void nc_ResetDebugInitInternal(void) {
  if (nc_settings()->forward && nc_real(NC_ncclResetDebugInitInternal) != NULL)
    NC_REAL(ncclResetDebugInitInternal)();
}
