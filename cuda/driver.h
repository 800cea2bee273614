/*
 * driver.h: the CUDA driver API as this package uses it: types written by hand
 * and a table of functions found by dlsym. No CUDA header is needed to build.
 *
 * Every call that needs a context takes it and makes it current for the length
 * of the call; the caller's own is put back. Calls return the driver's result,
 * or SC_MISSING - i when the library does not have function i of the table.
 */
#ifndef SHUNT_CUDA_DRIVER_H
#define SHUNT_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "shunt_transport.h" /* native functions */

typedef uint64_t sc_ptr;      /* CUdeviceptr */
typedef uint64_t sc_handle;   /* CUcontext, CUstream, CUevent, …: opaque pointers */

#define SC_MISSING (-1000)
#define SC_PARAM_BYTES 640

/* Functions of libcuda: X(name here, symbol, prototype of arguments). */
#define SC_FUNCTIONS(X)                                                                                    \
  X(Init, cuInit, (unsigned))                                                                              \
  X(DriverGetVersion, cuDriverGetVersion, (int *))                                                         \
  X(GetErrorName, cuGetErrorName, (int, const char **))                                                    \
  X(GetErrorString, cuGetErrorString, (int, const char **))                                                \
  X(DeviceGetCount, cuDeviceGetCount, (int *))                                                             \
  X(DeviceGet, cuDeviceGet, (int *, int))                                                                  \
  X(DeviceGetName, cuDeviceGetName, (char *, int, int))                                                    \
  X(DeviceGetUuid, cuDeviceGetUuid_v2, (void *, int))                                                      \
  X(DeviceGetAttribute, cuDeviceGetAttribute, (int *, int, int))                                           \
  X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, int))                                                  \
  X(DeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *, int, int))                                            \
  X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *, int, int))                                         \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int))                                      \
  X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                          \
  X(CtxPushCurrent, cuCtxPushCurrent_v2, (void *))                                                         \
  X(CtxPopCurrent, cuCtxPopCurrent_v2, (void **))                                                          \
  X(CtxGetCurrent, cuCtxGetCurrent, (void **))                                                             \
  X(CtxSynchronize, cuCtxSynchronize, (void))                                                              \
  X(CtxRecordEvent, cuCtxRecordEvent, (void *, void *))                                                    \
  X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *))                           \
  X(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (void *, unsigned))                                        \
  X(MemAlloc, cuMemAlloc_v2, (sc_ptr *, size_t))                                                           \
  X(MemFree, cuMemFree_v2, (sc_ptr))                                                                       \
  X(MemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                                     \
  X(MemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                                             \
  X(MemFreeHost, cuMemFreeHost, (void *))                                                                  \
  X(MemHostRegister, cuMemHostRegister_v2, (void *, size_t, unsigned))                                     \
  X(MemHostUnregister, cuMemHostUnregister, (void *))                                                      \
  X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, (sc_ptr *, void *, unsigned))                   \
  X(MemGetAddressRange, cuMemGetAddressRange_v2, (sc_ptr *, size_t *, sc_ptr))                             \
  X(PointerGetAttribute, cuPointerGetAttribute, (void *, int, sc_ptr))                                     \
  X(IpcGetMemHandle, cuIpcGetMemHandle, (void *, sc_ptr))                                                  \
  X(IpcCloseMemHandle, cuIpcCloseMemHandle, (sc_ptr))                                                      \
  X(MemGetAllocationGranularity, cuMemGetAllocationGranularity, (size_t *, const void *, int))             \
  X(MemCreate, cuMemCreate, (uint64_t *, size_t, const void *, unsigned long long))                        \
  X(MemRelease, cuMemRelease, (uint64_t))                                                                  \
  X(MemAddressReserve, cuMemAddressReserve, (sc_ptr *, size_t, size_t, sc_ptr, unsigned long long))        \
  X(MemAddressFree, cuMemAddressFree, (sc_ptr, size_t))                                                    \
  X(MemMap, cuMemMap, (sc_ptr, size_t, size_t, uint64_t, unsigned long long))                              \
  X(MemUnmap, cuMemUnmap, (sc_ptr, size_t))                                                                \
  X(MemSetAccess, cuMemSetAccess, (sc_ptr, size_t, const void *, size_t))                                  \
  X(MemExportToShareableHandle, cuMemExportToShareableHandle, (void *, uint64_t, int, unsigned long long)) \
  X(MemImportFromShareableHandle, cuMemImportFromShareableHandle, (uint64_t *, void *, int))               \
  X(MemRetainAllocationHandle, cuMemRetainAllocationHandle, (uint64_t *, void *))                          \
  X(Memcpy, cuMemcpy, (sc_ptr, sc_ptr, size_t))                                                            \
  X(MemcpyHtoD, cuMemcpyHtoD_v2, (sc_ptr, const void *, size_t))                                           \
  X(MemcpyDtoH, cuMemcpyDtoH_v2, (void *, sc_ptr, size_t))                                                 \
  X(MemcpyAsync, cuMemcpyAsync, (sc_ptr, sc_ptr, size_t, void *))                                          \
  X(MemsetD8Async, cuMemsetD8Async, (sc_ptr, unsigned char, size_t, void *))                               \
  X(StreamCreateWithPriority, cuStreamCreateWithPriority, (void **, unsigned, int))                        \
  X(StreamGetPriority, cuStreamGetPriority, (void *, int *))                                               \
  X(StreamDestroy, cuStreamDestroy_v2, (void *))                                                           \
  X(StreamSynchronize, cuStreamSynchronize, (void *))                                                      \
  X(StreamQuery, cuStreamQuery, (void *))                                                                  \
  X(StreamWaitEvent, cuStreamWaitEvent, (void *, void *, unsigned))                                        \
  X(StreamWriteValue64, cuStreamWriteValue64_v2, (void *, sc_ptr, uint64_t, unsigned))                     \
  X(StreamWaitValue64, cuStreamWaitValue64_v2, (void *, sc_ptr, uint64_t, unsigned))                       \
  X(StreamBeginCapture, cuStreamBeginCapture_v2, (void *, int))                                            \
  X(StreamEndCapture, cuStreamEndCapture, (void *, void **))                                               \
  X(StreamGetId, cuStreamGetId, (void *, uint64_t *))                                                      \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, (void *, int *, uint64_t *, void **, const void ***, size_t *)) \
  X(EventCreate, cuEventCreate, (void **, unsigned))                                                       \
  X(EventDestroy, cuEventDestroy_v2, (void *))                                                             \
  X(EventRecord, cuEventRecord, (void *, void *))                                                          \
  X(EventQuery, cuEventQuery, (void *))                                                                    \
  X(EventElapsedTime, cuEventElapsedTime, (float *, void *, void *))                                       \
  X(GraphInstantiate, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                  \
  X(GraphLaunch, cuGraphLaunch, (void *, void *))                                                          \
  X(GraphDestroy, cuGraphDestroy, (void *))                                                                \
  X(GraphExecDestroy, cuGraphExecDestroy, (void *))                                                        \
  X(UserObjectCreate, cuUserObjectCreate, (void **, void *, void (*)(void *), unsigned, unsigned))         \
  X(UserObjectRelease, cuUserObjectRelease, (void *, unsigned))                                            \
  X(GraphRetainUserObject, cuGraphRetainUserObject, (void *, void *, unsigned, unsigned))                  \
  X(ModuleLoadData, cuModuleLoadData, (void **, const void *))                                             \
  X(ModuleUnload, cuModuleUnload, (void *))                                                                \
  X(ModuleGetFunction, cuModuleGetFunction, (void **, void *, const char *))                               \
  X(FuncLoad, cuFuncLoad, (void *))                                                                        \
  X(FuncSetAttribute, cuFuncSetAttribute, (void *, int, int))                                              \
  X(FuncGetAttribute, cuFuncGetAttribute, (int *, int, void *))                                            \
  X(LaunchKernelEx, cuLaunchKernelEx, (const void *, void *, void **, void **))

typedef struct sc_ipc_handle {
  unsigned char bytes[64];
} sc_ipc_handle;

typedef struct sc_table {
#define X(name, symbol, arguments) int(*name) arguments;
  SC_FUNCTIONS(X)
#undef X
  int (*IpcOpenMemHandle)(sc_ptr *, sc_ipc_handle, unsigned);
} sc_table;

/* One kernel launch. params is the kernel's argument block, laid out as the
 * kernel declares it. flags: SC_LAUNCH_*. */
typedef struct sc_kernel_launch {
  sc_handle function;
  uint32_t grid[3], block[3];
  uint32_t shared, flags, param_bytes, reserved;
  unsigned char params[SC_PARAM_BYTES];
} sc_kernel_launch;

/* The launch may begin before the one before it in the stream has ended; the
 * kernel waits for it itself. */
#define SC_LAUNCH_DEPENDENT 1u
/* In the memory synchronization domain for remote traffic; see LaunchRemote in work.go. */
#define SC_LAUNCH_REMOTE 2u

/* One thing that is put into a stream. It holds no pointers. */
enum {
  SC_WORK_LAUNCH = 1, /* kernel handle with the argument block at params */
  SC_WORK_COPY,       /* bytes from from to to */
  SC_WORK_RECORD,     /* event handle */
  SC_WORK_WAIT,       /* for event handle */
  SC_WORK_CALL        /* function handle(bytes, registers at params, from, to, stream), on this thread, now */
};
typedef struct sc_work {
  uint32_t kind, flags;
  sc_handle stream, handle;
  uint32_t grid[3], block[3];
  uint32_t shared, param_bytes;
  uint64_t params; /* offset in the caller's block of params */
  uint64_t to, from, bytes;
} sc_work;

#define SC_CALL_FAILED (-900) /* a function of SC_WORK_CALL failed; call_status is its status */

typedef struct sc_submitted {
  int done;           /* pieces of work that are in their streams */
  int capture_status; /* CU_STREAM_CAPTURE_STATUS_*, or -1 if it is unknown, -2 if the context was not to be had */
  int call_status;
  uint64_t stream; /* the stream's id, which no other stream of the process ever has; 0: not known (before CUDA 12.0) */
  uint64_t capture; /* id, 0 where the stream is not being captured */
  sc_handle graph;
  shunt_native_report report; /* of the native function that failed */
} sc_submitted;

typedef struct sc_device {
  char name[128];
  char bus[32];
  unsigned char uuid[16];
  int64_t total_memory;
  int major, minor, multiprocessors, posix_handles, virtual_memory, cooperative, stream_memory_ops, max_shared, domains;
} sc_device;

/* Memory of cuMemCreate, mapped with access for one device. */
typedef struct sc_mapping {
  sc_ptr address;
  uint64_t handle, bytes;
} sc_mapping;

/* Memory of one handle that other code of the process has mapped, and a descriptor of it. */
typedef struct sc_chunk {
  sc_ptr address;
  uint64_t bytes, buffer_id;
  int device, fd;
} sc_chunk;

typedef struct sc_pointer {
  int kind; /* CU_MEMORYTYPE_*: 1 host, 2 device, 0 unknown */
  int device;
  sc_ptr base;
  uint64_t bytes, buffer_id;
  int managed, legacy_ipc, shareable;
} sc_pointer;

/* Loads the library; 0, or -1 with a message. */
int sc_load(const char *path, char *message, size_t bytes);
const char *sc_symbol(int index); /* of function i of the table, or null */
int sc_version(int *version);
void sc_error(int result, const char **name, const char **text);

int sc_device_count(int *count);
int sc_device_info(int ordinal, sc_device *info);
int sc_can_access(int device, int peer, int *can);
int sc_retain(int ordinal, sc_handle *context);
int sc_release(int ordinal);
int sc_current(sc_handle *context);
int sc_synchronize(sc_handle context);
int sc_enable_peer(sc_handle context, sc_handle peer);

int sc_alloc(sc_handle context, uint64_t bytes, sc_ptr *address);
int sc_free(sc_handle context, sc_ptr address);
int sc_memory_info(sc_handle context, uint64_t *available, uint64_t *total);
int sc_host_alloc(sc_handle context, uint64_t bytes, void **host, sc_ptr *device);
int sc_host_free(sc_handle context, void *host);
int sc_host_register(sc_handle context, void *host, uint64_t bytes, sc_ptr *device);
int sc_host_unregister(sc_handle context, void *host);
int sc_create(sc_handle context, int device, uint64_t bytes, sc_mapping *mapping);
int sc_export(sc_handle context, uint64_t handle, int *fd);
int sc_import(sc_handle context, int device, int fd, uint64_t bytes, sc_mapping *mapping);
int sc_unmap(sc_handle context, const sc_mapping *mapping);
/* The mapping that address lies in, exported. The handle is retained inside the
 * call alone, and the memory must stay mapped meanwhile. */
int sc_export_chunk(sc_handle context, sc_ptr address, sc_chunk *chunk);
/* Sets *same to whether the buffer id of every address is still the one beside it. */
int sc_still_mapped(sc_handle context, const sc_ptr *at, const uint64_t *ids, int count, int *same);
/* Maps handles behind each other; fills in the chunks, whose bytes are given. */
int sc_import_range(sc_handle context, int device, const int *fds, sc_mapping *chunks, int count, sc_ptr *address,
                    uint64_t *bytes);
/* Reserves addresses for memory of a device. */
int sc_reserve(sc_handle context, int device, uint64_t bytes, sc_ptr *address);
/* Maps exported memory at chunk->address, within reserved addresses, and fills in its handle. */
int sc_map_chunk(sc_handle context, int device, int fd, sc_mapping *chunk);
int sc_unmap_range(sc_handle context, const sc_mapping *chunks, int count, sc_ptr address, uint64_t bytes);
int sc_pointer_info(sc_handle context, sc_ptr address, sc_pointer *info);
int sc_ipc_export(sc_handle context, sc_ptr address, sc_ipc_handle *handle);
int sc_ipc_open(sc_handle context, const sc_ipc_handle *handle, sc_ptr *address);
int sc_ipc_close(sc_handle context, sc_ptr address);
int sc_write(sc_handle context, sc_ptr to, const void *from, uint64_t bytes);
int sc_read(sc_handle context, void *to, sc_ptr from, uint64_t bytes);

int sc_stream_create(sc_handle context, int priority, sc_handle *stream);
int sc_stream_priority(sc_handle context, sc_handle stream, int *priority);
int sc_stream_destroy(sc_handle context, sc_handle stream);
int sc_stream_synchronize(sc_handle context, sc_handle stream);
int sc_stream_query(sc_handle context, sc_handle stream);
int sc_copy(sc_handle context, sc_ptr to, sc_ptr from, uint64_t bytes, sc_handle stream);
int sc_set(sc_handle context, sc_ptr to, unsigned char value, uint64_t bytes, sc_handle stream);
int sc_write_value(sc_handle context, sc_handle stream, sc_ptr word, uint64_t value);
int sc_wait_value(sc_handle context, sc_handle stream, sc_ptr word, uint64_t value);
int sc_event_create(sc_handle context, int timing, sc_handle *event);
int sc_event_destroy(sc_handle context, sc_handle event);
int sc_event_record(sc_handle context, sc_handle event, sc_handle stream);
int sc_event_query(sc_handle context, sc_handle event);
int sc_event_elapsed(sc_handle context, sc_handle from, sc_handle to, float *milliseconds);
/* Records everything that is in the context's streams. */
int sc_event_record_context(sc_handle context, sc_handle event);
int sc_stream_wait(sc_handle context, sc_handle stream, sc_handle event);

int sc_capture_begin(sc_handle context, sc_handle stream);
int sc_capture_end(sc_handle context, sc_handle stream, sc_handle *graph);
int sc_capture_info(sc_handle context, sc_handle stream, int *status, uint64_t *id, sc_handle *graph);
int sc_graph_instantiate(sc_handle context, sc_handle graph, sc_handle *exec);
int sc_graph_launch(sc_handle context, sc_handle exec, sc_handle stream);
int sc_graph_destroy(sc_handle graph);
int sc_graph_exec_destroy(sc_handle exec);
/* token is handed out by sc_released once neither the graph nor what was made
 * of it can run any more. */
int sc_graph_retain(sc_handle graph, uint64_t token);
/* Takes up to max tokens off the queue; how many. Any thread. */
int sc_released(uint64_t *tokens, int max);

int sc_module_load(sc_handle context, const void *image, sc_handle *module);
int sc_module_unload(sc_handle context, sc_handle module);
int sc_function(sc_handle context, sc_handle module, const char *name, int max_dynamic_shared, sc_handle *function);
int sc_function_attribute(sc_handle context, sc_handle function, int attribute, int *value);
int sc_launch(sc_handle function, sc_handle stream, const uint32_t grid[3], const uint32_t block[3], uint32_t shared,
              uint32_t flags, const void *params, size_t bytes);
/* Launches in order; *done counts those that were launched. */
int sc_launch_all(sc_handle context, sc_handle stream, const sc_kernel_launch *launches, int count, int *done);
/* Puts work into streams, in order, if stream is in the given capture (0: in
 * none) and, outside captures, has the given id (0: any); otherwise nothing is
 * done but to say which they are. Kernels' argument blocks and the registers of
 * calls lie in params. */
int sc_submit(sc_handle context, sc_handle stream, uint64_t id, uint64_t capture, const sc_work *work, int count,
              const unsigned char *params, sc_submitted *s);

#endif
