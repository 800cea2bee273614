/*
 * cuda.c: the few functions of the CUDA driver that are needed here, by dlopen.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory.h"

enum { NO_DRIVER = -1 };

static struct {
  int (*get_device)(int *), (*retain)(void **, int), (*release)(int), (*set_context)(void *);
  int (*init)(unsigned), (*error_name)(int, const char **);
  int (*alloc)(uint64_t *, size_t);
  int (*free)(uint64_t);
} driver;
static char lacks[256]; /* why there is no driver */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_driver(void) {
  const char *named = getenv("SHUNT_LIBCUDA");
  void *library = dlopen(named != NULL && named[0] != 0 ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(lacks, sizeof lacks, "the CUDA driver cannot be loaded: %s", dlerror());
    return;
  }
  *(void **)&driver.init = dlsym(library, "cuInit");
  *(void **)&driver.error_name = dlsym(library, "cuGetErrorName");
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

/* enter makes the primary context of device 0 the thread's if it has none, as the CUDA runtime does. */
static int enter(void) {
  static void *primary; /* stays */
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  int device = 0;
  pthread_once(&once, open_driver);
  if (driver.init == NULL || driver.get_device == NULL || driver.retain == NULL || driver.set_context == NULL ||
      driver.alloc == NULL || driver.free == NULL)
    return NO_DRIVER;
  if (driver.get_device(&device) == 0)
    return 0;
  pthread_mutex_lock(&lock);
  int code = driver.init(0);
  if (code == 0 && primary == NULL)
    code = driver.retain(&primary, 0);
  pthread_mutex_unlock(&lock);
  return code == 0 ? driver.set_context(primary) : code;
}

int nc_device_alloc(void **memory, size_t size) {
  uint64_t address = 0;
  int code = enter();
  if (code == 0)
    code = driver.alloc(&address, size);
  *memory = (void *)(uintptr_t)address;
  return code;
}

int nc_device_free(void *memory) {
  int code = enter();
  return code == 0 ? driver.free((uint64_t)(uintptr_t)memory) : code;
}

const char *nc_device_error(int code) {
  static _Thread_local char text[64];
  const char *name = NULL;
  if (code == NO_DRIVER)
    return lacks[0] != 0 ? lacks : "the CUDA driver lacks a function";
  if (driver.error_name != NULL && driver.error_name(code, &name) == 0 && name != NULL)
    return name;
  snprintf(text, sizeof text, "CUDA error %d", code);
  return text;
}
