/*
 * real.c: finds and opens the real NCCL.
 */
#define _GNU_SOURCE
#include "real.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../transports/nccl/open.h"

#define SONAME "libnccl.so.2"

/* By this symbol the library knows itself, also a copy of it under another path. transports/nccl looks for it too. */
__attribute__((visibility("default"))) const int shunt_nccl_compatible = 1;

static const char *const names[] = {NC_NAMES};
static _Atomic(void *) functions[NC_SYMBOLS];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library; /* stays open */
static char path[PATH_MAX], reason[512];

const char *nc_name(enum nc_symbol symbol) { return names[symbol]; }

static bool try(const char *candidate) {
  void *handle = nl_open(candidate, reason, sizeof reason);
  if (handle == NULL)
    return false;
  library = handle;
  snprintf(path, sizeof path, "%s", candidate);
  return true;
}

/* try_in looks for FOLDER/SUFFIX; the suffix may have patterns. */
static bool try_in(const char *folder, const char *suffix) {
  char pattern[3 * PATH_MAX];
  size_t length = 0;
  glob_t found;
  bool opened = false;
  if (folder == NULL || folder[0] == 0 || strlen(folder) >= PATH_MAX)
    return false;
  for (const char *c = folder; *c != 0; c++) {
    if (strchr("*?[\\", *c) != NULL)
      pattern[length++] = '\\';
    pattern[length++] = *c;
  }
  snprintf(pattern + length, sizeof pattern - length, "/%s", suffix);
  if (glob(pattern, 0, NULL, &found) != 0)
    return false;
  for (size_t i = found.gl_pathc; i-- > 0 && !opened;) /* newer versions of Python first */
    opened = try(found.gl_pathv[i]);
  globfree(&found);
  return opened;
}

static const char *const in_prefix = "lib/python3*/*-packages/nvidia/nccl/lib/" SONAME;

static bool try_each(const char *folders) {
  char *copy = folders == NULL ? NULL : strdup(folders), *state, *folder;
  bool opened = false;
  for (folder = copy == NULL ? NULL : strtok_r(copy, ":", &state); folder != NULL && !opened;
       folder = strtok_r(NULL, ":", &state))
    opened = try_in(folder, SONAME);
  free(copy);
  return opened;
}

/* note_beside writes down where NCCL is in the site-packages that something loaded comes from, with a zero behind. */
static int note_beside(struct dl_phdr_info *info, size_t size, void *folders) {
  (void)size;
  const char *at = strstr(info->dlpi_name, "-packages/");
  if (at != NULL)
    fprintf(folders, "%.*s-packages/nvidia/nccl/lib%c", (int)(at - info->dlpi_name), info->dlpi_name, 0);
  return 0;
}

/* try_beside looks beside what is loaded: pip's torch and its NCCL lie there. It opens nothing before the iteration has
 * ended: that holds a lock of the loader which another thread's dlopen takes after the one that opening takes. */
static bool try_beside(void) {
  char *text = NULL;
  size_t size;
  FILE *folders = open_memstream(&text, &size);
  if (folders == NULL)
    return false;
  (void)dl_iterate_phdr(note_beside, folders);
  bool opened = false;
  if (fclose(folders) == 0)
    for (const char *folder = text; folder < text + size && !opened; folder += strlen(folder) + 1)
      opened = try_in(folder, SONAME);
  free(text);
  return opened;
}

static void search(void) {
  const char *named = getenv("SHUNT_NCCL_LIBRARY");
  if (named != NULL && named[0] != 0) {
    (void)try(named);
    return;
  }
  char home[PATH_MAX];
  snprintf(home, sizeof home, "%s/.local", getenv("HOME") == NULL ? "" : getenv("HOME"));
  /* By name the loader returns what it has under that name, which is this library: folders are searched. */
  if (try_beside() || try_in(getenv("VIRTUAL_ENV"), in_prefix) || try_in(getenv("CONDA_PREFIX"), in_prefix) ||
      try_in(home, in_prefix) || try_each(getenv("LD_LIBRARY_PATH")) || try_in("/usr/local", in_prefix) ||
      try_in("/usr", in_prefix) ||
      try_each("/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/local/lib:/usr/lib:"
               "/usr/local/cuda/lib64"))
    return;
  if (reason[0] == 0)
    snprintf(reason, sizeof reason,
             "no " SONAME " was found beside torch, in Python's packages or in the system's folders");
}

const char *nc_real_path(void) {
  pthread_once(&once, search);
  return library == NULL ? NULL : path;
}

void *nc_real(enum nc_symbol symbol) {
  void *function = atomic_load_explicit(&functions[symbol], memory_order_acquire);
  if (function != NULL)
    return function;
  if (nc_real_path() == NULL || (function = dlsym(library, names[symbol])) == NULL)
    return NULL;
  atomic_store_explicit(&functions[symbol], function, memory_order_release);
  return function;
}

ncclResult_t nc_lacks(ncclComm_t comm, enum nc_symbol symbol) {
  if (nc_real_path() == NULL)
    return nc_fail(comm, ncclInvalidUsage, "%s needs NVIDIA's NCCL (SHUNT_NCCL_LIBRARY names it): %s", names[symbol],
                   reason);
  return nc_fail(comm, ncclInvalidUsage, "%s: %s does not have it; it is older than the program", names[symbol], path);
}
