/* old.c: the driver that is here, looking like one of CUDA 12.0: functions that came
 * later are not there, and the version says so. What a machine with an old driver
 * would do cannot be had this way, only what Shunt does about it:
 *     SHUNT_LIBCUDA=libcuda-12.0.so shunt conformance --memory cuda
 * For x86-64. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../driver.h"

/* Every function jumps to the real one, whatever its arguments. */
#define X(name, symbol, arguments)                                             \
  __attribute__((used, visibility("hidden"))) void *real_##symbol;             \
  __asm__(".text\n.globl " #symbol "\n.type " #symbol ", @function\n" #symbol \
          ": jmp *real_" #symbol "(%rip)\n");
SC_FUNCTIONS(X)
X(IpcOpenMemHandle, cuIpcOpenMemHandle_v2, ())
#undef X

__asm__(".hidden cuFuncLoad\n"         /* 12.4 */
        ".hidden cuCtxRecordEvent\n"); /* 12.5 */

static int version(int *v) {
  *v = 12000;
  return 0;
}

__attribute__((constructor)) static void fill(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "old.c: %s\n", dlerror());
    exit(1);
  }
#define X(name, symbol, arguments) real_##symbol = dlsym(library, #symbol);
  SC_FUNCTIONS(X)
  X(IpcOpenMemHandle, cuIpcOpenMemHandle_v2, ())
#undef X
  real_cuDriverGetVersion = (void *)version;
}
