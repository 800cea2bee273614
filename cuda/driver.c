/* driver.c: finds libcuda and calls it; see driver.h. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sc_table cu;

enum {
#define X(name, symbol, arguments) I_##name,
  SC_FUNCTIONS(X)
#undef X
  I_IpcOpenMemHandle,
  I_COUNT
};

static const char *const symbols[] = {
#define X(name, symbol, arguments) #symbol,
    SC_FUNCTIONS(X)
#undef X
    "cuIpcOpenMemHandle_v2",
};

const char *sc_symbol(int index) { return index >= 0 && index < I_COUNT ? symbols[index] : NULL; }

int sc_load(const char *path, char *message, size_t bytes) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(message, bytes, "%s", why ? why : "dlopen failed");
    return -1;
  }
  void **slot = (void **)&cu; /* the table is nothing but function pointers, in the order of symbols */
  for (int i = 0; i < I_COUNT; i++) slot[i] = dlsym(library, symbols[i]);
  return 0;
}

#define NEED(name) \
  if (!cu.name) return SC_MISSING - I_##name

#define TRY(call)              \
  do {                         \
    int result_ = (call);      \
    if (result_) return result_; \
  } while (0)

/* Runs body, which sets result, with a context current. */
#define WITH(context, ...)                        \
  do {                                            \
    NEED(CtxPushCurrent);                         \
    NEED(CtxPopCurrent);                          \
    int result = cu.CtxPushCurrent((void *)(context)); \
    if (result) return result;                    \
    do __VA_ARGS__ while (0);                     \
    void *popped_;                                \
    int pop_ = cu.CtxPopCurrent(&popped_);        \
    return result ? result : pop_;                \
  } while (0)

#define P(handle) ((void *)(uintptr_t)(handle))

int sc_version(int *version) {
  NEED(Init);
  NEED(DriverGetVersion);
  TRY(cu.DriverGetVersion(version));
  return cu.Init(0);
}

void sc_error(int result, const char **name, const char **text) {
  *name = *text = NULL;
  if (cu.GetErrorName) cu.GetErrorName(result, name);
  if (cu.GetErrorString) cu.GetErrorString(result, text);
}

/* ---- devices --------------------------------------------------------------- */

int sc_device_count(int *count) {
  NEED(DeviceGetCount);
  return cu.DeviceGetCount(count);
}

int sc_device_info(int ordinal, sc_device *info) {
  int device;
  size_t total;
  NEED(DeviceGet);
  NEED(DeviceGetName);
  NEED(DeviceGetUuid);
  NEED(DeviceTotalMem);
  NEED(DeviceGetPCIBusId);
  NEED(DeviceGetAttribute);
  memset(info, 0, sizeof *info);
  TRY(cu.DeviceGet(&device, ordinal));
  TRY(cu.DeviceGetName(info->name, sizeof info->name, device));
  TRY(cu.DeviceGetUuid(info->uuid, device));
  TRY(cu.DeviceTotalMem(&total, device));
  TRY(cu.DeviceGetPCIBusId(info->bus, sizeof info->bus, device));
  info->total_memory = (int64_t)total;
  const struct {
    int *to, attribute;
  } wanted[] = {
      {&info->major, 75}, {&info->minor, 76}, {&info->multiprocessors, 16}, {&info->virtual_memory, 102}, {&info->posix_handles, 103},
      {&info->cooperative, 95}, {&info->stream_memory_ops, 122}, {&info->max_shared, 97},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (cu.DeviceGetAttribute(wanted[i].to, wanted[i].attribute, device)) *wanted[i].to = 0; /* an older driver does not know it */
  return 0;
}

int sc_can_access(int device, int peer, int *can) {
  NEED(DeviceCanAccessPeer);
  return cu.DeviceCanAccessPeer(can, device, peer);
}

int sc_retain(int ordinal, sc_handle *context) {
  void *c;
  NEED(DevicePrimaryCtxRetain);
  TRY(cu.DevicePrimaryCtxRetain(&c, ordinal));
  *context = (uintptr_t)c;
  return 0;
}

int sc_release(int ordinal) {
  NEED(DevicePrimaryCtxRelease);
  return cu.DevicePrimaryCtxRelease(ordinal);
}

int sc_current(sc_handle *context) {
  void *c = NULL;
  NEED(CtxGetCurrent);
  TRY(cu.CtxGetCurrent(&c));
  *context = (uintptr_t)c;
  return 0;
}

int sc_synchronize(sc_handle context) {
  NEED(CtxSynchronize);
  WITH(context, { result = cu.CtxSynchronize(); });
}

int sc_enable_peer(sc_handle context, sc_handle peer) {
  NEED(CtxEnablePeerAccess);
  WITH(context, {
    result = cu.CtxEnablePeerAccess(P(peer), 0);
    if (result == 704) result = 0; /* already enabled */
  });
}

/* ---- memory ------------------------------------------------------------------ */

int sc_alloc(sc_handle context, uint64_t bytes, sc_ptr *address) {
  NEED(MemAlloc);
  WITH(context, { result = cu.MemAlloc(address, bytes); });
}

int sc_free(sc_handle context, sc_ptr address) {
  NEED(MemFree);
  WITH(context, { result = cu.MemFree(address); });
}

int sc_memory_info(sc_handle context, uint64_t *available, uint64_t *total) {
  NEED(MemGetInfo);
  size_t a = 0, t = 0;
  WITH(context, {
    result = cu.MemGetInfo(&a, &t);
    *available = a;
    *total = t;
  });
}

int sc_host_alloc(sc_handle context, uint64_t bytes, void **host, sc_ptr *device) {
  NEED(MemHostAlloc);
  NEED(MemHostGetDevicePointer);
  NEED(MemFreeHost);
  WITH(context, {
    result = cu.MemHostAlloc(host, bytes, 1 | 2); /* portable, mapped */
    if (!result && (result = cu.MemHostGetDevicePointer(device, *host, 0))) cu.MemFreeHost(*host);
    if (!result) memset(*host, 0, bytes);
  });
}

int sc_host_free(sc_handle context, void *host) {
  NEED(MemFreeHost);
  WITH(context, { result = cu.MemFreeHost(host); });
}

/* CUmemAllocationProp and CUmemAccessDesc. */
typedef struct {
  int type, handle_types;
  struct {
    int type, id;
  } location;
  void *win32;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
} allocation_prop;

typedef struct {
  struct {
    int type, id;
  } location;
  int flags;
} access_desc;

static int map(int device, uint64_t granularity, sc_mapping *m) {
  const access_desc access = {{1, device}, 3}; /* this device, read and write */
  TRY(cu.MemAddressReserve(&m->address, m->bytes, granularity, 0, 0));
  int result = cu.MemMap(m->address, m->bytes, 0, m->handle, 0);
  if (!result) {
    result = cu.MemSetAccess(m->address, m->bytes, &access, 1);
    if (result) cu.MemUnmap(m->address, m->bytes);
  }
  if (result) cu.MemAddressFree(m->address, m->bytes);
  return result;
}

#define NEED_VIRTUAL_MEMORY            \
  NEED(MemGetAllocationGranularity);   \
  NEED(MemCreate);                     \
  NEED(MemRelease);                    \
  NEED(MemAddressReserve);             \
  NEED(MemAddressFree);                \
  NEED(MemMap);                        \
  NEED(MemUnmap);                      \
  NEED(MemSetAccess)

static int granule(int device, allocation_prop *prop, size_t *granularity) {
  memset(prop, 0, sizeof *prop);
  prop->type = 1;         /* pinned */
  prop->handle_types = 1; /* POSIX file descriptor */
  prop->location.type = 1;
  prop->location.id = device;
  return cu.MemGetAllocationGranularity(granularity, prop, 1 /* recommended */);
}

int sc_create(sc_handle context, int device, uint64_t bytes, sc_mapping *m) {
  NEED_VIRTUAL_MEMORY;
  allocation_prop prop;
  size_t granularity;
  WITH(context, {
    result = granule(device, &prop, &granularity);
    if (result) break;
    m->bytes = (bytes + granularity - 1) / granularity * granularity;
    result = cu.MemCreate(&m->handle, m->bytes, &prop, 0);
    if (result) break;
    result = map(device, granularity, m);
    if (result) cu.MemRelease(m->handle);
  });
}

int sc_export(sc_handle context, uint64_t handle, int *fd) {
  NEED(MemExportToShareableHandle);
  WITH(context, { result = cu.MemExportToShareableHandle(fd, handle, 1, 0); });
}

int sc_import(sc_handle context, int device, int fd, uint64_t bytes, sc_mapping *m) {
  NEED_VIRTUAL_MEMORY;
  NEED(MemImportFromShareableHandle);
  allocation_prop prop;
  size_t granularity;
  WITH(context, {
    result = granule(device, &prop, &granularity);
    if (result) break;
    m->bytes = bytes;
    result = cu.MemImportFromShareableHandle(&m->handle, (void *)(intptr_t)fd, 1);
    if (result) break;
    result = map(device, granularity, m);
    if (result) cu.MemRelease(m->handle);
  });
}

int sc_unmap(sc_handle context, const sc_mapping *m) {
  NEED_VIRTUAL_MEMORY;
  WITH(context, {
    /* Every step is tried; the first failure is reported. */
    result = cu.MemUnmap(m->address, m->bytes);
    int r = cu.MemAddressFree(m->address, m->bytes);
    result = result ? result : r;
    r = cu.MemRelease(m->handle);
    result = result ? result : r;
  });
}

int sc_retain_handle(sc_handle context, sc_ptr address, uint64_t *handle) {
  NEED(MemRetainAllocationHandle);
  WITH(context, { result = cu.MemRetainAllocationHandle(handle, P(address)); });
}

int sc_release_handle(sc_handle context, uint64_t handle) {
  NEED(MemRelease);
  WITH(context, { result = cu.MemRelease(handle); });
}

int sc_pointer_info(sc_handle context, sc_ptr address, sc_pointer *info) {
  NEED(PointerGetAttribute);
  memset(info, 0, sizeof *info);
  info->device = -1;
  WITH(context, {
    /* 1 is CU_POINTER_ATTRIBUTE_MEMORY_TYPE's "invalid value": plain host memory. */
    result = cu.PointerGetAttribute(&info->kind, 2, address);
    if (result == 1) {
      result = 0;
      break;
    }
    if (result) break;
    /* These depend on the driver's age and on the kind of memory; what is not
     * known stays zero. */
    unsigned long long id = 0;
    unsigned char managed = 0, legacy = 0;
    sc_ptr base = 0;
    uint64_t size = 0;
    int ordinal = -1;
    unsigned long long handles = 0;
    if (!cu.PointerGetAttribute(&ordinal, 9, address)) info->device = ordinal;
    if (!cu.PointerGetAttribute(&id, 7, address)) info->buffer_id = id;
    if (!cu.PointerGetAttribute(&managed, 8, address)) info->managed = managed;
    if (!cu.PointerGetAttribute(&legacy, 10, address)) info->legacy_ipc = legacy;
    if (!cu.PointerGetAttribute(&base, 11, address)) info->base = base;
    if (!cu.PointerGetAttribute(&size, 12, address)) info->bytes = size;
    if (!cu.PointerGetAttribute(&handles, 14, address)) info->shareable = (handles & 1) != 0;
  });
}

int sc_ipc_export(sc_handle context, sc_ptr address, sc_ipc_handle *handle) {
  NEED(IpcGetMemHandle);
  WITH(context, { result = cu.IpcGetMemHandle(handle, address); });
}

int sc_ipc_open(sc_handle context, const sc_ipc_handle *handle, sc_ptr *address) {
  NEED(IpcOpenMemHandle);
  WITH(context, { result = cu.IpcOpenMemHandle(address, *handle, 1 /* enable peer access lazily */); });
}

int sc_ipc_close(sc_handle context, sc_ptr address) {
  NEED(IpcCloseMemHandle);
  WITH(context, { result = cu.IpcCloseMemHandle(address); });
}

int sc_write(sc_handle context, sc_ptr to, const void *from, uint64_t bytes) {
  NEED(MemcpyHtoD);
  NEED(StreamSynchronize);
  WITH(context, {
    result = cu.MemcpyHtoD(to, from, bytes);
    /* From pageable memory the last part may still be under way, and streams
     * that do not wait for the default stream would not see it. */
    if (!result) result = cu.StreamSynchronize(NULL);
  });
}

int sc_read(sc_handle context, void *to, sc_ptr from, uint64_t bytes) {
  NEED(MemcpyDtoH);
  WITH(context, { result = cu.MemcpyDtoH(to, from, bytes); });
}

/* ---- streams and events ------------------------------------------------------ */

int sc_stream_create(sc_handle context, int priority, sc_handle *stream) {
  NEED(StreamCreateWithPriority);
  void *s = NULL;
  WITH(context, {
    result = cu.StreamCreateWithPriority(&s, 1 /* does not wait for the default stream */, priority);
    *stream = (uintptr_t)s;
  });
}

#define STREAM_CALL(function, call) \
  NEED(function);                   \
  WITH(context, { result = (call); })

int sc_stream_destroy(sc_handle context, sc_handle stream) { STREAM_CALL(StreamDestroy, cu.StreamDestroy(P(stream))); }
int sc_stream_synchronize(sc_handle context, sc_handle stream) { STREAM_CALL(StreamSynchronize, cu.StreamSynchronize(P(stream))); }
int sc_stream_query(sc_handle context, sc_handle stream) { STREAM_CALL(StreamQuery, cu.StreamQuery(P(stream))); }
int sc_copy(sc_handle context, sc_ptr to, sc_ptr from, uint64_t bytes, sc_handle stream) {
  STREAM_CALL(MemcpyAsync, cu.MemcpyAsync(to, from, bytes, P(stream)));
}
int sc_set(sc_handle context, sc_ptr to, unsigned char value, uint64_t bytes, sc_handle stream) {
  STREAM_CALL(MemsetD8Async, cu.MemsetD8Async(to, value, bytes, P(stream)));
}
int sc_write_value(sc_handle context, sc_handle stream, sc_ptr word, uint64_t value) {
  STREAM_CALL(StreamWriteValue64, cu.StreamWriteValue64(P(stream), word, value, 0));
}
int sc_wait_value(sc_handle context, sc_handle stream, sc_ptr word, uint64_t value) {
  STREAM_CALL(StreamWaitValue64, cu.StreamWaitValue64(P(stream), word, value, 0 /* by signed difference */));
}

int sc_event_create(sc_handle context, int timing, sc_handle *event) {
  NEED(EventCreate);
  void *e = NULL;
  WITH(context, {
    result = cu.EventCreate(&e, timing ? 0 : 2);
    *event = (uintptr_t)e;
  });
}

int sc_event_destroy(sc_handle context, sc_handle event) { STREAM_CALL(EventDestroy, cu.EventDestroy(P(event))); }
int sc_event_record(sc_handle context, sc_handle event, sc_handle stream) { STREAM_CALL(EventRecord, cu.EventRecord(P(event), P(stream))); }
int sc_event_query(sc_handle context, sc_handle event) { STREAM_CALL(EventQuery, cu.EventQuery(P(event))); }
int sc_event_elapsed(sc_handle context, sc_handle from, sc_handle to, float *milliseconds) {
  STREAM_CALL(EventElapsedTime, cu.EventElapsedTime(milliseconds, P(from), P(to)));
}
int sc_stream_wait(sc_handle context, sc_handle stream, sc_handle event) {
  STREAM_CALL(StreamWaitEvent, cu.StreamWaitEvent(P(stream), P(event), 0));
}

/* ---- graphs -------------------------------------------------------------------- */

int sc_capture_begin(sc_handle context, sc_handle stream) {
  STREAM_CALL(StreamBeginCapture, cu.StreamBeginCapture(P(stream), 1 /* this thread's calls only */));
}

int sc_capture_end(sc_handle context, sc_handle stream, sc_handle *graph) {
  NEED(StreamEndCapture);
  void *g = NULL;
  WITH(context, {
    result = cu.StreamEndCapture(P(stream), &g);
    *graph = (uintptr_t)g;
  });
}

int sc_capture_info(sc_handle context, sc_handle stream, int *status, uint64_t *id, sc_handle *graph) {
  NEED(StreamGetCaptureInfo);
  void *g = NULL;
  WITH(context, {
    result = cu.StreamGetCaptureInfo(P(stream), status, id, &g, NULL, NULL);
    *graph = (uintptr_t)g;
  });
}

int sc_graph_instantiate(sc_handle context, sc_handle graph, sc_handle *exec) {
  NEED(GraphInstantiate);
  void *e = NULL;
  WITH(context, {
    result = cu.GraphInstantiate(&e, P(graph), 0);
    *exec = (uintptr_t)e;
  });
}

int sc_graph_launch(sc_handle context, sc_handle exec, sc_handle stream) { STREAM_CALL(GraphLaunch, cu.GraphLaunch(P(exec), P(stream))); }

int sc_graph_destroy(sc_handle graph) {
  NEED(GraphDestroy);
  return cu.GraphDestroy(P(graph));
}

int sc_graph_exec_destroy(sc_handle exec) {
  NEED(GraphExecDestroy);
  return cu.GraphExecDestroy(P(exec));
}

/* Tokens of graphs that are gone: a stack that the driver's thread pushes to
 * without a lock or a CUDA call, and that sc_released empties at once. */
typedef struct node {
  struct node *next;
  uint64_t token;
} node;

static _Atomic(node *) released;

static void push(void *data) {
  node *n = data;
  n->next = atomic_load_explicit(&released, memory_order_relaxed);
  /* Release: whoever takes the stack sees next and token. */
  while (!atomic_compare_exchange_weak_explicit(&released, &n->next, n, memory_order_release, memory_order_relaxed)) {
  }
}

int sc_graph_retain(sc_handle graph, uint64_t token) {
  NEED(UserObjectCreate);
  NEED(GraphRetainUserObject);
  node *n = malloc(sizeof *n);
  if (!n) return 2;
  n->token = token;
  void *object;
  int result = cu.UserObjectCreate(&object, n, push, 1, 1 /* no destructor synchronization */);
  if (result) {
    free(n);
    return result;
  }
  /* The reference moves to the graph: nothing is left here to release. */
  return cu.GraphRetainUserObject(P(graph), object, 1, 1);
}

int sc_released(uint64_t *tokens, int max) {
  /* Acquire: see push. */
  node *n = atomic_exchange_explicit(&released, NULL, memory_order_acquire);
  int count = 0;
  while (n && count < max) {
    node *next = n->next;
    tokens[count++] = n->token;
    free(n);
    n = next;
  }
  while (n) { /* no room: back on the stack */
    node *next = n->next;
    push(n);
    n = next;
  }
  return count;
}

/* ---- modules ---------------------------------------------------------------------- */

int sc_module_load(sc_handle context, const void *image, sc_handle *module) {
  NEED(ModuleLoadData);
  void *m = NULL;
  WITH(context, {
    result = cu.ModuleLoadData(&m, image);
    *module = (uintptr_t)m;
  });
}

int sc_module_unload(sc_handle context, sc_handle module) { STREAM_CALL(ModuleUnload, cu.ModuleUnload(P(module))); }

int sc_function(sc_handle context, sc_handle module, const char *name, int max_dynamic_shared, sc_handle *function) {
  NEED(ModuleGetFunction);
  NEED(FuncSetAttribute);
  NEED(FuncGetAttribute);
  void *f = NULL;
  WITH(context, {
    result = cu.ModuleGetFunction(&f, P(module), name);
    *function = (uintptr_t)f;
    if (!result && max_dynamic_shared > 48 * 1024) result = cu.FuncSetAttribute(f, 8, max_dynamic_shared);
    /* With lazy loading the first launch would load the code, which can
     * deadlock behind a kernel that spins: asking for an attribute loads it. */
    int version;
    if (!result) result = cu.FuncGetAttribute(&version, 6, f);
  });
}

int sc_function_attribute(sc_handle context, sc_handle function, int attribute, int *value) {
  STREAM_CALL(FuncGetAttribute, cu.FuncGetAttribute(value, attribute, P(function)));
}

/* CUlaunchConfig and CUlaunchAttribute. */
typedef struct {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int programmatic;
  } value;
} launch_attribute;

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  launch_attribute *attributes;
  unsigned count;
} launch_config;

int sc_launch_all(sc_handle context, sc_handle stream, const sc_launch *launches, int count, int *done) {
  NEED(LaunchKernelEx);
  *done = 0;
  launch_attribute dependent = {.id = 6, .value = {.programmatic = 1}}; /* programmatic stream serialization */
  WITH(context, {
    for (int i = 0; i < count && !result; i++) {
      const sc_launch *l = &launches[i];
      size_t bytes = l->param_bytes;
      void *extra[] = {(void *)1, (void *)l->params, (void *)2, &bytes, (void *)0};
      launch_config config = {{l->grid[0], l->grid[1], l->grid[2]}, {l->block[0], l->block[1], l->block[2]}, l->shared, P(stream), &dependent,
                              l->flags & SC_LAUNCH_DEPENDENT ? 1 : 0};
      result = cu.LaunchKernelEx(&config, P(l->function), NULL, extra);
      if (!result) ++*done;
    }
  });
}
