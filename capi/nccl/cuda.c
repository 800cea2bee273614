/*
 * cuda.c: the few functions of the CUDA driver that are needed here, by dlopen.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "memory.h"

enum { NO_DRIVER = 999 };

static struct {
  int (*get_device)(int *), (*retain)(void **, int), (*release)(int), (*set_context)(void *);
  int (*alloc)(uint64_t *, size_t);
  int (*free)(uint64_t);
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_driver(void) {
  const char *named = getenv("SHUNT_LIBCUDA");
  void *library = dlopen(named != NULL && named[0] != 0 ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    return;
  *(void **)&driver.get_device = dlsym(library, "cuCtxGetDevice");
  *(void **)&driver.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void **)&driver.release = dlsym(library, "cuDevicePrimaryCtxRelease_v2");
  *(void **)&driver.set_context = dlsym(library, "cuCtxSetCurrent");
  *(void **)&driver.alloc = dlsym(library, "cuMemAlloc_v2");
  *(void **)&driver.free = dlsym(library, "cuMemFree_v2");
}

int nc_current_device(void) {
  int device = 0;
  if (nc_settings()->memory == SHUNT_MEMORY_HOST)
    return 0;
  pthread_once(&once, open_driver);
  return driver.get_device != NULL && driver.get_device(&device) == 0 ? device : 0;
}

bool nc_use_device(int device) {
  void *context = NULL;
  if (nc_settings()->memory == SHUNT_MEMORY_HOST)
    return true;
  pthread_once(&once, open_driver);
  if (driver.retain == NULL || driver.release == NULL || driver.set_context == NULL ||
      driver.retain(&context, device) != 0)
    return false;
  if (driver.set_context(context) == 0)
    return true;
  (void)driver.release(device);
  return false;
}

void nc_leave_device(int device) {
  if (nc_settings()->memory == SHUNT_MEMORY_HOST)
    return;
  (void)driver.set_context(NULL);
  (void)driver.release(device);
}

int nc_device_alloc(void **memory, size_t size) {
  uint64_t address = 0;
  pthread_once(&once, open_driver);
  int code = driver.alloc == NULL ? NO_DRIVER : driver.alloc(&address, size);
  *memory = (void *)(uintptr_t)address;
  return code;
}

int nc_device_free(void *memory) {
  pthread_once(&once, open_driver);
  return driver.free == NULL ? NO_DRIVER : driver.free((uint64_t)(uintptr_t)memory);
}
