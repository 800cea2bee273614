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
#include <unistd.h>

struct nc_shunt nc_shunt;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool opened;
static char reason[512];

/* Where this library lies: the folder that it was loaded from and, behind a link, that of the file. Known at once, as
 * the program may change its own folder. */
static char folders[2][PATH_MAX];

__attribute__((constructor)) static void know_folders(void) {
  Dl_info self;
  char path[PATH_MAX], *name;
  if (dladdr(&nc_shunt, &self) == 0 || self.dli_fname == NULL ||
      snprintf(path, sizeof path, "%s", self.dli_fname) >= (int)sizeof path || (name = strrchr(path, '/')) == NULL)
    return;
  if (realpath(path, folders[1]) != NULL)
    *strrchr(folders[1], '/') = 0;
  *name = 0;
  if (realpath(path[0] == 0 ? "/" : path, folders[0]) == NULL)
    folders[0][0] = 0;
}

/* load opens a library. Of several that are there and cannot be opened the first has the reason. */
static void *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL && reason[0] == 0 && access(path, F_OK) == 0)
    snprintf(reason, sizeof reason, "%s cannot be loaded: %s", path, dlerror());
  return library;
}

static void *find(void) {
  /* Beside this library, or, where that has a folder of its own, above: bin/nccl, lib/shunt/nccl. Beside libshunt.so.1
   * the other name may be a text for linkers. */
  static const char *const places[] = {"libshunt.so.1", "libshunt.so", "../libshunt.so.1", "../libshunt.so",
                                       "../../libshunt.so.1", "../../libshunt.so"};
  const char *named = getenv("SHUNT_LIBRARY");
  char path[PATH_MAX];
  void *library = NULL;
  if (named != NULL && named[0] != 0)
    return load(named);
  for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
    for (size_t i = 0; folders[f][0] != 0 && i < sizeof places / sizeof *places && library == NULL; i++)
      if (snprintf(path, sizeof path, "%s/%s", folders[f], places[i]) < (int)sizeof path)
        library = load(path);
  return library != NULL ? library : dlopen("libshunt.so.1", RTLD_NOW | RTLD_LOCAL);
}

static void open_once(void) {
  void *library = find();
  if (library == NULL) {
    if (reason[0] == 0)
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
