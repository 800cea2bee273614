/*
 * memory.c: registration, windows, and memory that NCCL allocates.
 */
#include <stdlib.h>

#include "library.h"
#include "memory.h"
#include "real.h"

/* A window: memory that all ranks registered. The program holds its address as an ncclWindow_t, which is never
 * followed: those of the real library are addresses of a GPU. */
struct window {
  struct window *next;
  ncclComm_t comm;
  void *memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct window *windows;

static struct window **find(ncclWindow_t handle) {
  struct window **at = &windows;
  while (*at != NULL && (ncclWindow_t)*at != handle)
    at = &(*at)->next;
  return at;
}

bool nc_is_window(ncclWindow_t handle) {
  pthread_mutex_lock(&lock);
  bool found = handle != NULL && *find(handle) != NULL;
  pthread_mutex_unlock(&lock);
  return found;
}

/* nc_drop_window forgets a window that could not be registered. */
void nc_drop_window(ncclWindow_t *handle) {
  pthread_mutex_lock(&lock);
  struct window **at = find(*handle), *w = *at;
  if (w != NULL)
    *at = w->next;
  pthread_mutex_unlock(&lock);
  free(w);
  *handle = NULL;
}

void nc_forget_windows(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  for (struct window **at = &windows; *at != NULL;) {
    struct window *w = *at;
    if (w->comm == comm) {
      *at = w->next;
      free(w);
    } else {
      at = &w->next;
    }
  }
  pthread_mutex_unlock(&lock);
}

/* NCCL's registration is local, Shunt's is collective; but Shunt maps memory that calls use by itself. */
ncclResult_t nc_CommRegister(ncclComm_t comm, void *memory, size_t size, void **handle) {
  if (!nc_can_queue(comm))
    return nc_reject(comm, "ncclCommRegister");
  if (memory == NULL || size == 0 || handle == NULL)
    return nc_fail(comm, ncclInvalidArgument, "ncclCommRegister on rank %d: buff is %p, size %zu and handle %p; "
                   "want memory and a place for its handle", comm->rank, memory, size, (void *)handle);
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t nc_CommDeregister(ncclComm_t comm, void *handle) {
  (void)handle;
  return nc_can_queue(comm) || nc_is_finalized(comm) ? ncclSuccess : nc_reject(comm, "ncclCommDeregister");
}

static ncclResult_t register_window(struct nc_job *job) {
  ncclComm_t comm = job->parent;
  shunt_status status = SHUNT_UNSUPPORTED;
  if (job->abort /* symmetric */)
    status = nc_shunt.register_symmetric_(comm->shunt, job->memory, (int64_t)job->size);
  if (status == SHUNT_UNSUPPORTED) /* NCCL takes windows that overlap others in one way here, in another there */
    status = nc_shunt.register_(comm->shunt, job->memory, (int64_t)job->size);
  return status == SHUNT_OK ? ncclSuccess : nc_shunt_failed(comm, status);
}

ncclResult_t nc_CommWindowRegister(ncclComm_t comm, void *memory, size_t size, ncclWindow_t *out, int flags) {
  static const char name[] = "ncclCommWindowRegister";
  if (!nc_can_queue(comm))
    return nc_reject(comm, name);
  if (memory == NULL || size == 0 || size > INT64_MAX || out == NULL)
    return nc_fail(comm, ncclInvalidArgument, "%s on rank %d: buff is %p, size %zu and win %p; want memory and a place "
                   "for its window", name, comm->rank, memory, size, (void *)out);
  *out = NULL;
  struct window *w = calloc(1, sizeof *w);
  struct nc_job *job = calloc(1, sizeof *job);
  if (w == NULL || job == NULL) {
    free(w);
    free(job);
    return nc_fail(comm, ncclSystemError, "%s: no memory", name);
  }
  *w = (struct window){.comm = comm, .memory = memory};
  *job = (struct nc_job){.run = register_window, .parent = comm, .memory = memory, .size = size,
                         .abort = (flags & NC_WIN_COLL_SYMMETRIC) != 0, .blocking = true,
                         .window = out};
  pthread_mutex_lock(&lock);
  w->next = windows;
  windows = w;
  pthread_mutex_unlock(&lock);
  *out = (ncclWindow_t)w;
  atomic_fetch_add(&comm->jobs, 1);
  return nc_submit(job);
}

ncclResult_t nc_CommWindowDeregister(ncclComm_t comm, ncclWindow_t handle) {
  if (!nc_is_ready(comm) && !nc_is_finalized(comm))
    return nc_reject(comm, "ncclCommWindowDeregister");
  if (handle == NULL) /* as ncclCommWindowRegister gives for memory that NCCL cannot register */
    return ncclSuccess;
  pthread_mutex_lock(&lock);
  struct window **at = find(handle), *w = *at;
  if (w != NULL && w->comm == comm)
    *at = w->next;
  else
    w = NULL;
  pthread_mutex_unlock(&lock);
  if (w == NULL)
    return nc_fail(comm, ncclInvalidArgument,
                   "ncclCommWindowDeregister on rank %d: the communicator has no such window", comm->rank);
  shunt_status status = nc_shunt.deregister_(comm->shunt, w->memory);
  free(w);
  return status == SHUNT_OK ? ncclSuccess : nc_shunt_failed(comm, status);
}

ncclResult_t nc_WinGetUserPtr(ncclComm_t comm, ncclWindow_t handle, void **out) {
  if (!nc_can_queue(comm))
    return nc_reject(comm, "ncclWinGetUserPtr");
  pthread_mutex_lock(&lock);
  struct window *w = handle == NULL ? NULL : *find(handle);
  void *memory = w != NULL && w->comm == comm ? w->memory : NULL;
  pthread_mutex_unlock(&lock);
  if (memory == NULL || out == NULL)
    return nc_fail(comm, ncclInvalidArgument, "ncclWinGetUserPtr on rank %d: %s", comm->rank,
                   out == NULL ? "outUserPtr is NULL" : "the communicator has no such window");
  *out = memory;
  return ncclSuccess;
}

/* from_real: whether memory is the real library's, which registers no other kind as its windows. Else it is plain
 * memory of the device, which Shunt's peers map as any other. */
static bool from_real(void) { return nc_settings()->forward || nc_settings()->given[NC_ncclCommWindowRegister]; }

ncclResult_t nc_MemAlloc(void **memory, size_t size) {
  if (from_real()) {
    if (nc_real(NC_ncclMemAlloc) == NULL)
      return nc_lacks(NULL, NC_ncclMemAlloc);
    return nc_came(NULL, NC_REAL(ncclMemAlloc)(memory, size));
  }
  if (memory == NULL)
    return nc_fail_alone(NULL, ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
  *memory = NULL;
  if (size == 0) /* as cudaMalloc */
    return ncclSuccess;
  if (nc_settings()->memory == SHUNT_MEMORY_HOST)
    return posix_memalign(memory, 4096, size) == 0
               ? ncclSuccess
               : nc_fail_alone(NULL, ncclSystemError, "ncclMemAlloc: no memory for %zu bytes", size);
  int code = nc_device_alloc(memory, size);
  return code == 0
             ? ncclSuccess
             : nc_fail_alone(NULL, ncclUnhandledCudaError, "ncclMemAlloc: %zu bytes cannot be allocated: %s", size,
                             nc_device_error(code));
}

ncclResult_t nc_MemFree(void *memory) {
  if (from_real()) {
    if (nc_real(NC_ncclMemFree) == NULL)
      return nc_lacks(NULL, NC_ncclMemFree);
    return nc_came(NULL, NC_REAL(ncclMemFree)(memory));
  }
  if (nc_settings()->memory == SHUNT_MEMORY_HOST) {
    free(memory);
    return ncclSuccess;
  }
  int code = memory == NULL ? 0 : nc_device_free(memory);
  return code == 0 ? ncclSuccess
                   : nc_fail_alone(NULL, ncclUnhandledCudaError, "ncclMemFree: the memory cannot be freed: %s",
                                   nc_device_error(code));
}
