/* gpu.h: the little of the CUDA driver API that test programs need, loaded at
 * run time, so that building needs no toolkit. Each call exits on failure. */
#ifndef SHUNT_TEST_GPU_H
#define SHUNT_TEST_GPU_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t gpu_ptr;
typedef void *gpu_handle;

static struct {
  int (*Init)(unsigned);
  int (*DeviceGetCount)(int *);
  int (*DevicePrimaryCtxRetain)(gpu_handle *, int);
  int (*CtxSetCurrent)(gpu_handle);
  int (*MemAlloc)(gpu_ptr *, size_t);
  int (*MemFree)(gpu_ptr);
  int (*MemcpyHtoD)(gpu_ptr, const void *, size_t);
  int (*MemcpyDtoH)(void *, gpu_ptr, size_t);
  int (*MemcpyDtoDAsync)(gpu_ptr, gpu_ptr, size_t, gpu_handle);
  int (*StreamCreate)(gpu_handle *, unsigned);
  int (*StreamSynchronize)(gpu_handle);
  int (*StreamDestroy)(gpu_handle);
  int (*StreamBeginCapture)(gpu_handle, int);
  int (*StreamEndCapture)(gpu_handle, gpu_handle *);
  int (*GraphInstantiate)(gpu_handle *, gpu_handle, unsigned long long);
  int (*GraphLaunch)(gpu_handle, gpu_handle);
  int (*GraphExecDestroy)(gpu_handle);
  int (*GraphDestroy)(gpu_handle);
} gpu;

#define GPU(call)                                                                 \
  do {                                                                            \
    int gpu_result = gpu.call;                                                    \
    if (gpu_result != 0) {                                                        \
      fprintf(stderr, "%s:%d: cu%s: error %d\n", __FILE__, __LINE__, #call, gpu_result); \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

/* gpu_open loads the driver and makes a device's primary context current. With
 * no driver or no such device it says so and exits with status 77. */
static inline void gpu_open(int device) {
  static const struct {
    const char *name;
    void **function;
  } table[] = {
      {"cuInit", (void **)&gpu.Init},
      {"cuDeviceGetCount", (void **)&gpu.DeviceGetCount},
      {"cuDevicePrimaryCtxRetain", (void **)&gpu.DevicePrimaryCtxRetain},
      {"cuCtxSetCurrent", (void **)&gpu.CtxSetCurrent},
      {"cuMemAlloc_v2", (void **)&gpu.MemAlloc},
      {"cuMemFree_v2", (void **)&gpu.MemFree},
      {"cuMemcpyHtoD_v2", (void **)&gpu.MemcpyHtoD},
      {"cuMemcpyDtoH_v2", (void **)&gpu.MemcpyDtoH},
      {"cuMemcpyDtoDAsync_v2", (void **)&gpu.MemcpyDtoDAsync},
      {"cuStreamCreate", (void **)&gpu.StreamCreate},
      {"cuStreamSynchronize", (void **)&gpu.StreamSynchronize},
      {"cuStreamDestroy_v2", (void **)&gpu.StreamDestroy},
      {"cuStreamBeginCapture_v2", (void **)&gpu.StreamBeginCapture},
      {"cuStreamEndCapture", (void **)&gpu.StreamEndCapture},
      {"cuGraphInstantiateWithFlags", (void **)&gpu.GraphInstantiate},
      {"cuGraphLaunch", (void **)&gpu.GraphLaunch},
      {"cuGraphExecDestroy", (void **)&gpu.GraphExecDestroy},
      {"cuGraphDestroy", (void **)&gpu.GraphDestroy},
  };
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  gpu_handle context;
  int count = 0;
  size_t i;
  if (library == NULL) {
    fprintf(stderr, "no CUDA driver: %s\n", dlerror());
    exit(77);
  }
  for (i = 0; i < sizeof table / sizeof *table; i++) {
    *table[i].function = dlsym(library, table[i].name);
    if (*table[i].function == NULL) {
      fprintf(stderr, "the CUDA driver has no %s\n", table[i].name);
      exit(77);
    }
  }
  GPU(Init(0));
  GPU(DeviceGetCount(&count));
  if (device >= count) {
    fprintf(stderr, "device %d of %d\n", device, count);
    exit(77);
  }
  GPU(DevicePrimaryCtxRetain(&context, device));
  GPU(CtxSetCurrent(context));
}

/* gpu_capture begins a capture of the stream by this thread. */
static inline void gpu_capture(gpu_handle stream) { GPU(StreamBeginCapture(stream, 1)); }

/* gpu_captured ends the capture and returns the graph, ready to launch. */
static inline gpu_handle gpu_captured(gpu_handle stream) {
  gpu_handle graph, run;
  GPU(StreamEndCapture(stream, &graph));
  GPU(GraphInstantiate(&run, graph, 0));
  GPU(GraphDestroy(graph)); /* run keeps what it needs */
  return run;
}

/* gpu_device is this process's device: its number among the ranks of the host, as launchers set it. */
static inline int gpu_device(void) {
  const char *text = getenv("LOCAL_RANK");
  return text != NULL ? atoi(text) : 0;
}

#endif
