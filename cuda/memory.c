/* memory.c: allocations, addresses and legacy IPC; see driver.h. */
#include <string.h>

#include "call.h"

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

int sc_host_register(sc_handle context, void *host, uint64_t bytes, sc_ptr *device) {
  NEED(MemHostRegister);
  NEED(MemHostGetDevicePointer);
  NEED(MemHostUnregister);
  WITH(context, {
    result = cu.MemHostRegister(host, bytes, 1 | 2); /* portable, mapped */
    if (!result && (result = cu.MemHostGetDevicePointer(device, host, 0))) cu.MemHostUnregister(host);
  });
}

int sc_host_unregister(sc_handle context, void *host) {
  NEED(MemHostUnregister);
  WITH(context, { result = cu.MemHostUnregister(host); });
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
    unsigned managed = 0, legacy = 0; /* the driver writes whole words for what is a bool */
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
