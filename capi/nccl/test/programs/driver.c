/*
 * driver.c: a CUDA driver for memory.c. As the real one it wants cuInit before all, and a context of the thread's.
 */
#include <stdint.h>
#include <stdlib.h>

enum { OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201 };

static int initialized, primary;
static _Thread_local void *current;

static int state(void) { return !initialized ? NOT_INITIALIZED : current == NULL ? INVALID_CONTEXT : 0; }

int cuInit(unsigned flags);
int cuInit(unsigned flags) {
  initialized = 1;
  return (int)flags;
}

int cuCtxGetDevice(int *device);
int cuCtxGetDevice(int *device) {
  *device = 0;
  return state();
}

int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &primary;
  return initialized ? device : NOT_INITIALIZED;
}

int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }

int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context) {
  current = context;
  return initialized ? 0 : NOT_INITIALIZED;
}

int cuMemAlloc_v2(uint64_t *address, size_t size);
int cuMemAlloc_v2(uint64_t *address, size_t size) {
  if (state() != 0)
    return state();
  *address = size > 1 << 20 ? 0 : (uint64_t)(uintptr_t)malloc(size);
  return *address == 0 ? OUT_OF_MEMORY : 0;
}

int cuMemFree_v2(uint64_t address);
int cuMemFree_v2(uint64_t address) {
  if (state() == 0)
    free((void *)(uintptr_t)address);
  return state();
}

int cuGetErrorName(int code, const char **name);
int cuGetErrorName(int code, const char **name) {
  *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
  return *name == NULL;
}
