/*
 * every.h: calls of every function of NCCL through the library, over a fake one.
 */
#ifndef EVERY_H
#define EVERY_H

#include <stdbool.h>
#include <stdio.h>

#include "symbols_gen.h"

/* Which library serves a function: the kinds of gennccl. */
enum kind { BY_HAND, SERVED, WINDOWS, COLLECTIVE, FORWARDED, EVERYWHERE };

struct entry {
  const char *name;
  void (*call)(void *function, ncclComm_t comm, ncclComm_t theirs);
  enum kind kind;
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
