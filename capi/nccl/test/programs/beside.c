/*
 * beside.c LOADED NCCL: loads a library of a site-packages and makes a call that is given to the real NCCL, which is
 * found there. Nothing is opened while the loader's list of libraries is iterated.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "ranks.h"

static _Thread_local bool iterates;

int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data) {
  int (*real)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
  *(void **)&real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
  iterates = true;
  int result = real(callback, data);
  iterates = false;
  return result;
}

void *dlopen(const char *path, int mode) {
  void *(*real)(const char *, int);
  *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
  if (iterates) { /* another thread's dlopen may wait for the end of the iteration, with a lock that this one takes */
    puts("dlopen is called by a callback of dl_iterate_phdr");
    fflush(stdout);
    _exit(1);
  }
  return real(path, mode);
}

int main(int argc, char **argv) {
  WANT(argc == 3 && dlopen(argv[1], RTLD_NOW) != NULL);
  WANT(dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD) == NULL);
  CHECK(ncclGroupStart());
  WANT(dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD) != NULL);
  return 0;
}
