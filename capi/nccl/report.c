/*
 * report.c: tells `shunt run --nccl` whether this library was loaded, and whether it was used: by files PID.loaded and
 * PID.used in SHUNT_NCCL_REPORT_DIR. PID.other has the path of another NCCL that a process without communicators here
 * had loaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "real.h"

static atomic_bool used;

static void write_file(const char *what, const char *text) {
  char path[PATH_MAX];
  const char *folder = getenv("SHUNT_NCCL_REPORT_DIR");
  if (folder == NULL || folder[0] == 0 ||
      snprintf(path, sizeof path, "%s/%d.%s", folder, (int)getpid(), what) >= (int)sizeof path)
    return;
  int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0)
    return; /* the launcher has gone */
  if (write(file, text, strlen(text)) < 0)
    (void)unlink(path);
  close(file);
}

void nc_report_use(void) {
  if (!atomic_exchange(&used, true))
    write_file("used", "");
}

static int look(struct dl_phdr_info *info, size_t size, void *own) {
  (void)size;
  const char *name = strrchr(info->dlpi_name, '/');
  if (name == NULL || strncmp(name, "/libnccl.so", 11) != 0 || info->dlpi_addr == (uintptr_t)own)
    return 0;
  write_file("other", info->dlpi_name);
  return 1;
}

__attribute__((constructor)) static void at_load(void) { write_file("loaded", program_invocation_short_name); }

__attribute__((destructor)) static void at_end(void) {
  Dl_info self;
  if (!atomic_load(&used) && getenv("SHUNT_NCCL_REPORT_DIR") != NULL && dladdr(&used, &self) != 0)
    (void)dl_iterate_phdr(look, self.dli_fbase);
}
