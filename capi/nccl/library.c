/*
 * library.c: finds and opens libshunt.so.
 */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nc_shunt nc_shunt;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool opened;
static char reason[512];

static void *find(void) {
  const char *named = getenv("SHUNT_LIBRARY");
  if (named != NULL && named[0] != 0)
    return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  Dl_info self;
  char path[PATH_MAX];
  if (dladdr(&nc_shunt, &self) != 0 && self.dli_fname != NULL && strrchr(self.dli_fname, '/') != NULL) {
    /* Beside this library, or, where that has a folder of its own, above: bin/nccl, lib/shunt/nccl. */
    static const char *const places[] = {"libshunt.so", "libshunt.so.1", "../libshunt.so", "../libshunt.so.1",
                                         "../../libshunt.so", "../../libshunt.so.1"};
    int folder = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
      snprintf(path, sizeof path, "%.*s/%s", folder, self.dli_fname, places[i]);
      void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (library != NULL)
        return library;
    }
  }
  return dlopen("libshunt.so.1", RTLD_NOW | RTLD_LOCAL);
}

static void open_once(void) {
  void *library = find();
  if (library == NULL) {
    snprintf(reason, sizeof reason, "libshunt.so cannot be loaded (SHUNT_LIBRARY names it): %s", dlerror());
    return;
  }
#define FIND(name)                                                                       \
  *(void **)&nc_shunt.name##_ = dlsym(library, "shunt_" #name);                          \
  if (nc_shunt.name##_ == NULL) {                                                        \
    snprintf(reason, sizeof reason, "libshunt.so is older: it lacks shunt_" #name);      \
    return;                                                                              \
  }
  NC_SHUNT_FUNCTIONS(FIND)
#undef FIND
  opened = true;
}

ncclResult_t nc_open_shunt(ncclComm_t comm) {
  pthread_once(&once, open_once);
  return opened ? ncclSuccess : nc_fail(comm, ncclSystemError, "%s", reason);
}
