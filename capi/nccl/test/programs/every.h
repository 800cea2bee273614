/*
 * every.h: calls of every function of NCCL through the library, over a fake one.
 */
#ifndef EVERY_H
#define EVERY_H

#include <stdbool.h>
#include <stdio.h>

#include "symbols_gen.h"

struct entry {
  const char *name;
  void (*call)(void *function, ncclComm_t comm, ncclComm_t theirs);
  int kind; /* 0: by hand, 1: served, 2: forwarded, 3: no communicator; see gennccl */
  bool newer, has_result;
};
extern const struct entry entries[];
extern const int entry_count;

void expect(const char *format, ...) __attribute__((format(printf, 1, 2)));
void returned(ncclResult_t result);
void returned_team(ncclTeam_t team);
void returned_int(int value);
void returned_text(const char *text);

#endif
