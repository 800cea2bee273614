/*
 * device.h: memory and streams of the test programs: of CUDA devices, by the driver's functions, or, with
 * SHUNT_NCCL_MEMORY=host, the host's.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*cu_alloc)(uint64_t *, size_t), (*cu_free)(uint64_t), (*cu_to)(uint64_t, const void *, size_t),
    (*cu_from)(void *, uint64_t, size_t), (*cu_stream)(void **, unsigned), (*cu_wait)(void *), (*cu_set)(void *);
static void *contexts[64];
static int on_host, device_count;

#define DEVICE_CHECK(call)                                                          \
  do {                                                                              \
    int code = (call);                                                              \
    if (code != 0) {                                                                \
      fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, code);  \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/* device_use makes a device the thread's current one. */
static void device_use(int device) {
  if (!on_host)
    DEVICE_CHECK(cu_set(contexts[device]));
}

/*
 * device_open opens so many devices; it ends the program with 77 where there are fewer, unless ranks may share them
 * (SHUNT_SHARE_GPU): they are dealt out in turn then.
 */
static void device_open(int count) {
  const char *memory = getenv("SHUNT_NCCL_MEMORY");
  on_host = memory != NULL && strcmp(memory, "host") == 0;
  device_count = count;
  if (on_host)
    return;
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
  int have = 0, (*init)(unsigned), (*number)(int *), (*retain)(void **, int);
  if (cuda == NULL) {
    fprintf(stderr, "no CUDA driver: %s\n", dlerror());
    exit(77);
  }
#define LOAD(name, symbol) *(void **)&name = dlsym(cuda, symbol)
  LOAD(init, "cuInit");
  LOAD(number, "cuDeviceGetCount");
  LOAD(retain, "cuDevicePrimaryCtxRetain");
  LOAD(cu_set, "cuCtxSetCurrent");
  LOAD(cu_alloc, "cuMemAlloc_v2");
  LOAD(cu_free, "cuMemFree_v2");
  LOAD(cu_to, "cuMemcpyHtoD_v2");
  LOAD(cu_from, "cuMemcpyDtoH_v2");
  LOAD(cu_stream, "cuStreamCreate");
  LOAD(cu_wait, "cuStreamSynchronize");
#undef LOAD
  DEVICE_CHECK(init(0));
  DEVICE_CHECK(number(&have));
  const char *share = getenv("SHUNT_SHARE_GPU");
  if (have < (share != NULL && strcmp(share, "on") == 0 ? 1 : count)) {
    fprintf(stderr, "%d devices, want %d\n", have, count);
    exit(77);
  }
  if (have < count)
    device_count = have;
  for (int i = 0; i < count; i++)
    DEVICE_CHECK(retain(&contexts[i], i % device_count));
}

static void *device_alloc(size_t size) {
  uint64_t address = 0;
  if (on_host)
    return calloc(size + 1, 1);
  DEVICE_CHECK(cu_alloc(&address, size + 1));
  return (void *)(uintptr_t)address;
}

static void device_free(void *memory) {
  if (on_host)
    free(memory);
  else
    DEVICE_CHECK(cu_free((uint64_t)(uintptr_t)memory));
}

/* device_write returns when the bytes are there. A copy of pageable memory may return before, with its end in the
 * driver's staging memory, and non-blocking streams do not wait for it. */
static void device_write(void *to, const void *from, size_t size) {
  if (on_host || size == 0) {
    memcpy(to, from, size);
  } else {
    DEVICE_CHECK(cu_to((uint64_t)(uintptr_t)to, from, size));
    DEVICE_CHECK(cu_wait(NULL));
  }
}

static void device_read(void *to, const void *from, size_t size) {
  if (on_host || size == 0)
    memcpy(to, from, size);
  else
    DEVICE_CHECK(cu_from(to, (uint64_t)(uintptr_t)from, size));
}

static void *device_stream(void) {
  void *stream = NULL;
  if (!on_host)
    DEVICE_CHECK(cu_stream(&stream, 1)); /* non-blocking */
  return stream;
}

static void device_wait(void *stream) {
  if (!on_host)
    DEVICE_CHECK(cu_wait(stream));
}

#endif
