/*
 * every.c LIBRARY FAKE MODE: calls every function of LIBRARY, in both names.
 *   all     over FAKE: each call arrives, once, with equal arguments and the communicator of FAKE, and its result
 *           returns
 *   older   as all, over a FAKE without the newest functions: those return ncclInvalidUsage and are named
 *   absent  without a real library: nothing takes a communicator that is NULL or was never made, and what needs none
 *           and is not Shunt's returns ncclInvalidUsage; each is named
 */
#define _GNU_SOURCE
#include "every.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *mode, *name;
static char expected[1024];
static char *log_of_fake;
static ncclResult_t *result_of_fake;
static nc_type_ncclGetLastError *last_error;
static nc_type_ncclGetVersion *version;
static int failures, calls;
static bool lacking;
static ncclResult_t failure; /* what is lacking returns */

#define BAD(...)                                                    \
  do {                                                              \
    fprintf(stderr, "%s (%s): ", name, mode);                       \
    fprintf(stderr, __VA_ARGS__);                                   \
    fprintf(stderr, "\n");                                          \
    failures++;                                                     \
  } while (0)

void expect(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(expected, sizeof expected - 1, format, arguments);
  va_end(arguments);
  strcat(expected, "\n");
}

void returned(ncclResult_t result) {
  if (lacking) {
    const char *text = last_error(NULL);
    if (result != failure)
      BAD("returned %d, want %d", result, failure);
    if (strstr(text, name) == NULL)
      BAD("the error does not name it: %s", text);
  } else if (result != *result_of_fake) {
    BAD("returned %d, want %d: %s", result, *result_of_fake, last_error(NULL));
  }
}

void returned_team(ncclTeam_t team) {
  if (team.nRanks != (lacking ? 0 : 7) || team.rank != (lacking ? 0 : 8) || team.stride != (lacking ? 0 : 9))
    BAD("returned %d/%d/%d", team.nRanks, team.rank, team.stride);
}

void returned_int(int value) {
  if (value != (lacking ? -1 : 42))
    BAD("returned %d", value);
}

void returned_text(const char *text) {
  if (!lacking && strcmp(text, "fake") != 0)
    BAD("returned %s", text);
}

/* call makes one call; the communicator is a new one, since some functions end it. */
static void call(void *library, const struct entry *e, ncclResult_t result) {
  ncclComm_t comm = NULL, theirs = NULL;
  void *function = dlsym(library, name);
  calls++;
  if (function == NULL) {
    BAD("the library does not have it");
    return;
  }
  if (strcmp(mode, "absent") == 0) {
    e->call(function, NULL, NULL);
    char stranger[64];
    e->call(function, (ncclComm_t)(void *)stranger, NULL);
    return;
  }
  int number;
  *result_of_fake = ncclSystemError;
  version(&number); /* ncclGetLastError is theirs behind a failure of theirs */
  *result_of_fake = ncclSuccess;
  nc_type_ncclCommInitRank *init = (nc_type_ncclCommInitRank *)dlsym(library, "ncclCommInitRank");
  init(&comm, 2, (ncclUniqueId){"id"}, 1);
  ncclComm_t next = NULL;
  void *fake = log_of_fake == NULL ? NULL : dlopen(getenv("SHUNT_NCCL_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  ((void (*)(ncclComm_t *, int))dlsym(fake, "fake_make"))(&next, 1);
  theirs = (ncclComm_t)((char *)next - 16); /* the one before */
  log_of_fake[0] = 0;
  *result_of_fake = result;
  e->call(function, comm, theirs);
  if (strcmp(log_of_fake, lacking ? "" : expected) != 0)
    BAD("the real library got\n  %swant\n  %s", log_of_fake, lacking ? "nothing\n" : expected);
}

int main(int argc, char **argv) {
  if (argc < 4)
    return 2;
  mode = argv[3];
  bool absent = strcmp(mode, "absent") == 0;
  setenv("SHUNT_NCCL_FORWARD", absent ? "nothing" : "all", 1);
  setenv("SHUNT_NCCL_LIBRARY", argv[2], 1);
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  last_error = (nc_type_ncclGetLastError *)dlsym(library, "ncclGetLastError");
  version = (nc_type_ncclGetVersion *)dlsym(library, "ncclGetVersion");
  int number = 0;
  if (strcmp(mode, "loaded") == 0 && dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) == NULL) { /* as import torch does */
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (!absent) {
    version(&number); /* opens the fake one */
    void *fake = dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD);
    if (fake == NULL) {
      fprintf(stderr, "%s was not opened: %s\n", argv[2], last_error(NULL));
      return 1;
    }
    log_of_fake = dlsym(fake, "fake_log");
    result_of_fake = dlsym(fake, "fake_result");
    const char *(*calls_another)(void) = (const char *(*)(void))dlsym(fake, "fake_calls_another");
    if (calls_another() != NULL) {
      fprintf(stderr, "the real library calls this library where it means itself: %s\n", calls_another());
      return 1;
    }
  }
  for (int i = 0; i < entry_count; i++) {
    char p[128];
    if (absent && entries[i].kind == BY_HAND)
      continue; /* their arguments are looked at */
    failure = absent && entries[i].kind < EVERYWHERE ? ncclInvalidArgument : ncclInvalidUsage;
    lacking = absent || (strcmp(mode, "older") == 0 && entries[i].newer);
    snprintf(p, sizeof p, "p%s", entries[i].name);
    name = entries[i].name;
    call(library, &entries[i], ncclSuccess);
    if (entries[i].has_result)
      call(library, &entries[i], ncclInternalError);
    name = p;
    void *same = dlsym(library, p);
    if (same != dlsym(library, entries[i].name))
      BAD("is another function than without the p");
  }
  printf("%d calls, %d failures\n", calls, failures);
  return failures == 0 ? 0 : 1;
}
