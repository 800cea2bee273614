/*
 * bad.c: a transport that breaks the contract in one way, chosen by the macro
 * BAD. Without the macro the host accepts it, so each rejection is due to the
 * one way.
 */
#include "shunt_transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING 0
#define MAGIC 1
#define OLD_VERSION 2
#define NEW_VERSION 3
#define SHORT_TABLE 4    /* says fewer bytes than its version has */
#define CUT_TABLE 5      /* says all, and the symbol has fewer */
#define NO_SYMBOL 6
#define NO_NAME 7
#define BAD_NAME 8
#define LONG_NAME 9
#define NO_MEMORY 10
#define NO_OPEN 11
#define NO_PREPARE 12
#define UNRESOLVED 13    /* needs a function that does not exist */
#define MANY_ALGORITHMS 14
#define ENDLESS_NAME 15
#define NAN_COST 16
#define NO_ENDPOINT 17
#define MANY_REGIONS 18
#define NULL_REGIONS 19
#define BIG_REGION 20
#define MANY_STEPS 21
#define NULL_STEPS 22
#define BAD_INDEX 23
#define NO_PLAN 24
#define BAD_STATUS 25
#define NEWER_MINOR 26   /* a longer table of the same major version: accepted */
#define OLDER_MINOR 27
#define NULL_KINDS 28
#define NO_MESSAGE 29
#define ENDLESS_MESSAGE 30
#define LONG_MESSAGE 31
#define NEGATIVE_STATUS 32
#define MANY_TEMPS 33
#define MANY_IMAGES 34
#define NULL_IMAGES 35
#define NO_IMAGE 36      /* one image without data */

#ifndef BAD
#define BAD NOTHING
#endif

struct shunt_endpoint {
  shunt_region region;
  shunt_plan plan;
  shunt_step steps[1];
  shunt_track track;
};

static void supports(const shunt_request *r, shunt_support *s) {
  (void)r;
  shunt_algorithm *a = &s->algorithms[0];
  s->count = BAD == MANY_ALGORITHMS ? 1000 : 1;
  snprintf(a->name, sizeof a->name, "direct");
  if (BAD == ENDLESS_NAME) memset(a->name, 'x', sizeof a->name);
  a->latency = BAD == NAN_COST ? 0.0 / (double)(r->hosts - r->hosts) : 1;
  a->bandwidth = 1;
}

static shunt_status open_endpoint(const shunt_open_config *c, shunt_endpoint **out, char *message, size_t bytes) {
  (void)c;
  if (BAD == BAD_STATUS) {
    snprintf(message, bytes, "%s", "no such code");
    return 4711;
  }
  if (BAD == NEGATIVE_STATUS) {
    snprintf(message, bytes, "%s", "less than nothing");
    return (shunt_status)-1;
  }
  if (BAD == ENDLESS_MESSAGE) {
    memset(message, 'o', bytes);
    return SHUNT_SYSTEM;
  }
  if (BAD != NO_ENDPOINT) *out = calloc(1, sizeof **out);
  return SHUNT_OK;
}

static shunt_status regions(shunt_endpoint *e, const shunt_region **out, uint32_t *count) {
  e->region.bytes = 4096;
  e->region.handle.kind = SHUNT_HANDLE_CUDA_IPC;
  e->region.handle.generation = 1;
  e->region.handle.bytes = BAD == BIG_REGION ? 100 : 4096;
  e->region.handle.fd = -1;
  *out = BAD == NULL_REGIONS ? NULL : &e->region;
  *count = BAD == MANY_REGIONS ? 1000000 : 1;
  return SHUNT_OK;
}

static shunt_status images(shunt_endpoint *e, const shunt_image **out, uint32_t *count) {
  static const shunt_image one = {"image", BAD == NO_IMAGE ? NULL : "code", 4};
  (void)e;
  *out = BAD == NULL_IMAGES ? NULL : &one;
  *count = BAD == MANY_IMAGES ? 65 : 1;
  return SHUNT_OK;
}

static shunt_status prepare(shunt_endpoint *e, const shunt_request *r, const char *algorithm, const shunt_plan **out) {
  (void)algorithm;
  if (BAD == NO_MESSAGE || BAD == LONG_MESSAGE) return SHUNT_UNSUPPORTED;
  e->steps[0].kind = SHUNT_STEP_COPY;
  e->steps[0].dst = 9; /* there are no refs */
  e->track.count = BAD == BAD_INDEX ? 1 : 0;
  e->plan.struct_size = sizeof e->plan;
  e->plan.collective = r->collective;
  e->plan.dtype = r->dtype;
  e->plan.op = r->op;
  e->plan.world = r->world;
  e->plan.rank = r->rank;
  e->plan.count_steps = BAD == MANY_STEPS ? 0x80000000u : 1;
  e->plan.steps = BAD == NULL_STEPS ? NULL : e->steps;
  e->plan.count_temps = BAD == MANY_TEMPS ? 0x80000000u : 0;
  e->plan.count_tracks = 1;
  e->plan.tracks = &e->track;
  if (BAD != NO_PLAN) *out = &e->plan;
  return SHUNT_OK;
}

static void free_plan(shunt_endpoint *e, const shunt_plan *p) {
  (void)e;
  (void)p;
}

#if BAD == UNRESOLVED
const char *a_function_of_no_library(void);
static const char *last_error(shunt_endpoint *e) {
  (void)e;
  return a_function_of_no_library();
}
#else
static const char *last_error(shunt_endpoint *e) {
  (void)e;
  static char text[1001];
  if (BAD == LONG_MESSAGE) memset(text, 'o', sizeof text - 1);
  return text;
}
#endif

static shunt_status close_endpoint(shunt_endpoint *e, char *message, size_t bytes) {
  (void)message;
  (void)bytes;
  free(e);
  return SHUNT_OK;
}

static const shunt_memory_kind memory[] = {SHUNT_MEMORY_HOST};

#define HEAD_MAGIC (BAD == MAGIC ? UINT64_C(0x0102030405060708) : SHUNT_TRANSPORT_MAGIC)
#define HEAD_MAJOR (BAD == OLD_VERSION ? 0 : BAD == NEW_VERSION ? 2 : SHUNT_VERSION_MAJOR)

#if BAD == NO_SYMBOL
#define TABLE some_other_table
#else
#define TABLE shunt_transport_v1_table
#endif

#if BAD == CUT_TABLE
typedef struct cut_table {
  uint64_t magic;
  uint32_t version_major, version_minor;
  uint64_t struct_size;
} cut_table;
extern const cut_table TABLE;
const cut_table TABLE = {SHUNT_TRANSPORT_MAGIC, SHUNT_VERSION_MAJOR, SHUNT_VERSION_MINOR, sizeof(shunt_transport_v1)};
const void *const keep[] = {(const void *)&memory, (const void *)supports, (const void *)open_endpoint,
                            (const void *)regions, (const void *)prepare, (const void *)free_plan,
                            (const void *)last_error, (const void *)close_endpoint};
#else
typedef struct long_table {
  shunt_transport_v1 known;
  void *unknown[4]; /* what a later minor version may add */
} long_table;
extern const long_table TABLE;
const long_table TABLE = {
    .known = {
        .magic = HEAD_MAGIC,
        .version_major = HEAD_MAJOR,
        .version_minor = BAD == NEWER_MINOR ? 7 : BAD == OLDER_MINOR ? 0 : SHUNT_VERSION_MINOR,
        .struct_size = BAD == SHORT_TABLE ? 64 : BAD == NEWER_MINOR ? sizeof(long_table) : sizeof(shunt_transport_v1),
        .features = SHUNT_FEATURE_PLANS,
        .name = BAD == NO_NAME     ? NULL
                : BAD == BAD_NAME  ? "Not A Name"
                : BAD == LONG_NAME ? "a_name_of_more_than_sixty_four_letters_a_name_of_more_than_sixty_four_letters"
                                   : "bad",
        .version = "1",
        .doc = "breaks the contract",
        .memory = BAD == NULL_KINDS ? NULL : memory,
        .count_memory = BAD == NO_MEMORY ? 0 : 1,
        .supports = supports,
        .open = BAD == NO_OPEN ? NULL : open_endpoint,
        .regions = regions,
        .images = images,
        .prepare = BAD == NO_PREPARE ? NULL : prepare,
        .free_plan = free_plan,
        .last_error = last_error,
        .close = close_endpoint,
    },
};
#endif
