/*
 * shunt_c99.c: a transport in plain C99, over memory that memfd descriptors
 * name. It allocates scratch, over which the host's generic algorithms do
 * every collective, and buffers for windows; and it has one algorithm of its
 * own, all_reduce/one_shot for small messages, whose plan it writes down as
 * arrays. It keeps a list of the memory that users have registered, as an
 * engine would that needs keys of it.
 *
 *     cc -std=c99 -pedantic -shared -fPIC -I <headers> -o c99.so shunt_c99.c
 */
#define _GNU_SOURCE /* memfd_create */
#include "shunt_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

/* Regions, as every rank publishes them. */
enum { PRIVATE = 0, SCRATCH = 1, COUNT_REGIONS = 2 };

/* The private region: one word that only its rank uses, then two slots, used
 * in turn, of a line with the semaphore and SLOT_DATA bytes. Two suffice: a
 * rank fills a slot again only after every rank has signaled once more,
 * and no rank signals before it has read what the slot held. */
#define LINE 64
#define SLOT_BASE 4096
#define SLOT_DATA 16384
#define SLOT_STRIDE (LINE + SLOT_DATA)
#define PRIVATE_BYTES (SLOT_BASE + 2 * 5 * 4096)

/* Plans grow with the world; this keeps them far below the limits. */
#define WORLD_LIMIT 64
#define SCRATCH_BYTES(world) (((int64_t)(world) + 1) << 20)

typedef struct buffer {
  struct buffer *next;
  uint32_t id;
  int fd;
} buffer;

/* Memory of the caller's. */
typedef struct registration {
  struct registration *next;
  shunt_memory memory;
  uint64_t key;
} registration;

struct shunt_endpoint {
  registration *registrations;
  uint64_t next_key;
  int32_t rank, world;
  shunt_region regions[COUNT_REGIONS];
  buffer *buffers;
  char message[SHUNT_MAX_MESSAGE];
};

static shunt_status fail(char *message, size_t bytes, shunt_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (bytes > 0) vsnprintf(message, bytes, format, args);
  va_end(args);
  return status;
}

#define FAIL(endpoint, status, ...) fail((endpoint)->message, sizeof(endpoint)->message, status, __VA_ARGS__)

/* ---- supports ------------------------------------------------------------- */

static const char *refusal(const shunt_request *r) {
  if (r->memory != SHUNT_MEMORY_HOST) return "c99 moves host memory only";
  if (r->hosts > 1) return "c99 reaches one host only";
  if (r->world < 1 || r->world > WORLD_LIMIT) return "c99 serves worlds of 1 to 64 ranks";
  if (r->collective != SHUNT_COLL_ALL_REDUCE) return "c99 leaves this to the host's generic algorithms";
  return NULL;
}

static void supports(const shunt_request *r, shunt_support *s) {
  const char *why = refusal(r);
  if (why != NULL) {
    snprintf(s->reason, sizeof s->reason, "%s", why);
    return;
  }
  shunt_algorithm *a = &s->algorithms[0];
  snprintf(a->name, sizeof a->name, "one_shot");
  a->max_bytes = SLOT_DATA;
  a->latency = 0.5 + 0.2 * r->world;
  a->bandwidth = 8000.0 / r->world;
  s->count = 1;
}

/* ---- memory --------------------------------------------------------------- */

static uint64_t next_generation = 1;

/* Zero-filled memory behind a new descriptor. Sealed: a peer's loads would
 * fault if someone cut it short. */
static int make_region(shunt_region *region, uint32_t id, shunt_region_role role, int64_t bytes) {
  int fd = memfd_create("shunt-c99", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
  }
  memset(region, 0, sizeof *region);
  region->id = id;
  region->role = role;
  region->memory = SHUNT_MEMORY_HOST;
  region->bytes = bytes;
  region->handle.kind = SHUNT_HANDLE_MEMFD;
  region->handle.fd = fd;
  /* Endpoints are opened by any thread. */
  region->handle.generation = __sync_fetch_and_add(&next_generation, 1);
  region->handle.bytes = bytes;
  return 0;
}

static shunt_status errno_status(void) {
  return errno == ENOMEM || errno == EMFILE || errno == ENFILE || errno == EFBIG || errno == ENOSPC
             ? SHUNT_OUT_OF_MEMORY
             : SHUNT_SYSTEM;
}

static shunt_status open_endpoint(const shunt_open_config *config, shunt_endpoint **out, char *message, size_t bytes) {
  if (config->world < 1 || config->world > WORLD_LIMIT || config->rank < 0 || config->rank >= config->world)
    return fail(message, bytes, SHUNT_INVALID_ARGUMENT, "rank %d of a world of %d; worlds have 1 to %d ranks",
                (int)config->rank, (int)config->world, WORLD_LIMIT);
  if (config->memory != SHUNT_MEMORY_HOST)
    return fail(message, bytes, SHUNT_INVALID_ARGUMENT, "c99 moves host memory only");
  if (config->count_options != 0)
    return fail(message, bytes, SHUNT_INVALID_ARGUMENT, "unknown option %s; c99 has none", config->options[0].name);
  shunt_endpoint *e = calloc(1, sizeof *e);
  if (e == NULL) return fail(message, bytes, SHUNT_OUT_OF_MEMORY, "no memory for an endpoint");
  e->rank = config->rank;
  e->world = config->world;
  if (make_region(&e->regions[PRIVATE], PRIVATE, SHUNT_ROLE_PRIVATE, PRIVATE_BYTES) != 0) {
    shunt_status status = errno_status();
    fail(message, bytes, status, "memory for semaphores: %s", strerror(errno));
    free(e);
    return status;
  }
  if (make_region(&e->regions[SCRATCH], SCRATCH, SHUNT_ROLE_SCRATCH, SCRATCH_BYTES(e->world)) != 0) {
    shunt_status status = errno_status();
    fail(message, bytes, status, "memory for scratch: %s", strerror(errno));
    close(e->regions[PRIVATE].handle.fd);
    free(e);
    return status;
  }
  *out = e;
  return SHUNT_OK;
}

static shunt_status regions(shunt_endpoint *e, const shunt_region **out, uint32_t *count) {
  *out = e->regions;
  *count = COUNT_REGIONS;
  return SHUNT_OK;
}

static shunt_status allocate(shunt_endpoint *e, uint32_t id, int64_t bytes, shunt_region *region) {
  long page = sysconf(_SC_PAGESIZE);
  if (bytes <= 0 || bytes > INT64_MAX - page)
    return FAIL(e, SHUNT_INVALID_ARGUMENT, "a buffer of %lld bytes", (long long)bytes);
  for (buffer *b = e->buffers; b != NULL; b = b->next)
    if (b->id == id) return FAIL(e, SHUNT_INVALID_ARGUMENT, "buffer %u exists", (unsigned)id);
  buffer *b = calloc(1, sizeof *b);
  if (b == NULL) return FAIL(e, SHUNT_OUT_OF_MEMORY, "no memory for a buffer's record");
  if (make_region(region, id, SHUNT_ROLE_BUFFER, (bytes + page - 1) / page * page) != 0) {
    free(b);
    return FAIL(e, errno_status(), "memory for a buffer of %lld bytes: %s", (long long)bytes, strerror(errno));
  }
  b->id = id;
  b->fd = region->handle.fd;
  b->next = e->buffers;
  e->buffers = b;
  return SHUNT_OK;
}

static shunt_status free_buffer(shunt_endpoint *e, uint32_t id) {
  for (buffer **at = &e->buffers; *at != NULL; at = &(*at)->next) {
    if ((*at)->id == id) {
      buffer *b = *at;
      *at = b->next;
      close(b->fd);
      free(b);
      return SHUNT_OK;
    }
  }
  return FAIL(e, SHUNT_INVALID_ARGUMENT, "there is no buffer %u", (unsigned)id);
}

/* ---- the plan of all_reduce/one_shot --------------------------------------- */

/* Constants, then temporaries; registers follow the slots. */
enum { ZERO, ONE, TWO, STRIDE, BASE, HEAD, FIRST_RANK /* and the other ranks */ };
enum { OLD, EPOCH, PARITY, TURN, SLOT, DATA, COUNT_TEMPS };

/* Refs; the arrays at the end have an entry for each rank. */
enum { COUNTER, OWN_SEMAPHORE, OWN_DATA, SEND, RECV, FIRST_ARRAY };

/* A plan with its arrays behind it, so that one free suffices. */
typedef struct plan {
  shunt_plan plan;
  int64_t consts[FIRST_RANK + WORLD_LIMIT];
  shunt_ref refs[FIRST_ARRAY + 2 * WORLD_LIMIT];
  shunt_step steps[16 + WORLD_LIMIT];
  shunt_track track;
} plan;

static void step(plan *p, shunt_step_kind kind, shunt_alu alu, uint16_t dst, uint16_t a, uint16_t b, uint16_t c,
                 uint16_t n) {
  shunt_step *s = &p->steps[p->plan.count_steps++];
  s->kind = kind;
  s->alu = alu;
  s->dst = dst;
  s->a = a;
  s->b = b;
  s->c = c;
  s->n = n;
}

static shunt_ref ref(shunt_space space, uint16_t region, uint16_t rank, uint16_t offset, uint16_t scale) {
  shunt_ref r;
  r.space = space;
  r.region = region;
  r.rank = rank;
  r.offset = offset;
  r.scale = scale;
  return r;
}

static void write_one_shot(plan *p, const shunt_request *request) {
  const uint16_t world = (uint16_t)request->world, me = (uint16_t)request->rank;
  const uint16_t constant = SHUNT_SLOT_ARRAYS + 4 * world; /* first register of a kind */
  const uint16_t temp = constant + FIRST_RANK + world;
  const uint16_t semaphores = FIRST_ARRAY, sources = FIRST_ARRAY + world;
  uint16_t r;

  p->consts[ZERO] = 0;
  p->consts[ONE] = 1;
  p->consts[TWO] = 2;
  p->consts[STRIDE] = SLOT_STRIDE;
  p->consts[BASE] = SLOT_BASE;
  p->consts[HEAD] = LINE;
  for (r = 0; r < world; r++) p->consts[FIRST_RANK + r] = r;

#define CONST(c) ((uint16_t)(constant + (c)))
#define TEMP(t) ((uint16_t)(temp + (t)))
#define RANK(r) CONST(FIRST_RANK + (r))
  /* The region's number, PRIVATE, is 0. */
  p->refs[COUNTER] = ref(SHUNT_SPACE_REGION, CONST(ZERO), RANK(me), CONST(ZERO), SHUNT_NONE);
  p->refs[OWN_SEMAPHORE] = ref(SHUNT_SPACE_REGION, CONST(ZERO), RANK(me), TEMP(SLOT), SHUNT_NONE);
  p->refs[OWN_DATA] = ref(SHUNT_SPACE_REGION, CONST(ZERO), RANK(me), TEMP(DATA), SHUNT_NONE);
  p->refs[SEND] =
      ref(SHUNT_SPACE_SEND, 0, 0, CONST(ZERO), request->op == SHUNT_OP_PREMUL_SUM ? SHUNT_SLOT_SCALAR : SHUNT_NONE);
  p->refs[RECV] = ref(SHUNT_SPACE_RECV, 0, 0, CONST(ZERO), SHUNT_NONE);
  for (r = 0; r < world; r++) {
    p->refs[semaphores + r] = ref(SHUNT_SPACE_REGION, CONST(ZERO), RANK(r), TEMP(SLOT), SHUNT_NONE);
    p->refs[sources + r] = ref(SHUNT_SPACE_REGION, CONST(ZERO), RANK(r), TEMP(DATA), SHUNT_NONE);
  }

  /* epoch = how many operations there have been, this one included; the slots
   * are used in turn. */
  step(p, SHUNT_STEP_LOAD, 0, TEMP(OLD), COUNTER, 0, 0, 0);
  step(p, SHUNT_STEP_SET, SHUNT_ALU_ADD, TEMP(EPOCH), TEMP(OLD), CONST(ONE), 0, 0);
  step(p, SHUNT_STEP_SET, SHUNT_ALU_MOD, TEMP(PARITY), TEMP(EPOCH), CONST(TWO), 0, 0);
  step(p, SHUNT_STEP_SET, SHUNT_ALU_MUL, TEMP(TURN), TEMP(PARITY), CONST(STRIDE), 0, 0);
  step(p, SHUNT_STEP_SET, SHUNT_ALU_ADD, TEMP(SLOT), TEMP(TURN), CONST(BASE), 0, 0);
  step(p, SHUNT_STEP_SET, SHUNT_ALU_ADD, TEMP(DATA), TEMP(SLOT), CONST(HEAD), 0, 0);
  /* Publish the own data, then the epoch: the signal releases the copy. Also
   * when there are no bytes: every rank signals and waits, always. */
  step(p, SHUNT_STEP_COPY, 0, OWN_DATA, SEND, 0, 0, SHUNT_SLOT_BYTES);
  step(p, SHUNT_STEP_SIGNAL, 0, OWN_SEMAPHORE, TEMP(EPOCH), SHUNT_NONE, 0, 0);
  /* The wait acquires what the peer's signal released. */
  for (r = 0; r < world; r++)
    if (r != me) step(p, SHUNT_STEP_WAIT, 0, 0, (uint16_t)(semaphores + r), TEMP(EPOCH), RANK(r), 0);
  /* In rank order on every rank, so all get the same bits. */
  step(p, SHUNT_STEP_REDUCE, 0, RECV, sources, world, 0, SHUNT_SLOT_COUNT);
  step(p, SHUNT_STEP_STORE, 0, COUNTER, TEMP(EPOCH), 0, 0, 0);

  p->track.first = 0;
  p->track.count = (uint16_t)p->plan.count_steps;
  p->plan.struct_size = sizeof p->plan;
  p->plan.collective = request->collective;
  p->plan.dtype = request->dtype;
  p->plan.op = request->op;
  p->plan.world = request->world;
  p->plan.rank = request->rank;
  p->plan.count_consts = FIRST_RANK + world;
  p->plan.count_temps = COUNT_TEMPS;
  p->plan.count_refs = FIRST_ARRAY + 2 * world;
  p->plan.count_tracks = 1;
  p->plan.consts = p->consts;
  p->plan.refs = p->refs;
  p->plan.steps = p->steps;
  p->plan.tracks = &p->track;
}

static shunt_status prepare(shunt_endpoint *e, const shunt_request *request, const char *algorithm,
                            const shunt_plan **out) {
  const char *why = refusal(request);
  if (why != NULL) return FAIL(e, SHUNT_UNSUPPORTED, "%s", why);
  if (strcmp(algorithm, "one_shot") != 0) return FAIL(e, SHUNT_UNSUPPORTED, "c99 has no algorithm %.64s", algorithm);
  if (request->world != e->world || request->rank != e->rank)
    return FAIL(e, SHUNT_INVALID_ARGUMENT, "the endpoint is rank %d of %d, the request is of rank %d of %d",
                (int)e->rank, (int)e->world, (int)request->rank, (int)request->world);
  plan *p = calloc(1, sizeof *p);
  if (p == NULL) return FAIL(e, SHUNT_OUT_OF_MEMORY, "no memory for a plan");
  write_one_shot(p, request);
  *out = &p->plan;
  return SHUNT_OK;
}

static void free_plan(shunt_endpoint *e, const shunt_plan *p) {
  (void)e;
  free((void *)p); /* first member of its plan */
}

/* ---- the caller's memory --------------------------------------------------- */

static shunt_status register_memory(shunt_endpoint *e, const shunt_memory *m, uint64_t *key,
                                    shunt_native_report *report) {
  registration *r;
  if (m->bytes <= 0 || m->generation == 0 || m->kind != SHUNT_MEMORY_HOST) {
    snprintf(report->message, sizeof report->message, "%lld bytes of kind %u with generation %llu cannot be registered",
             (long long)m->bytes, (unsigned)m->kind, (unsigned long long)m->generation);
    return SHUNT_INVALID_ARGUMENT;
  }
  for (r = e->registrations; r != NULL; r = r->next) {
    if (r->memory.address != m->address || r->memory.generation == m->generation) continue;
    snprintf(report->message, sizeof report->message, "0x%llx is registered with generation %llu already",
             (unsigned long long)m->address, (unsigned long long)r->memory.generation);
    return SHUNT_INVALID_ARGUMENT;
  }
  if ((r = calloc(1, sizeof *r)) == NULL) {
    snprintf(report->message, sizeof report->message, "no memory for a registration");
    return SHUNT_OUT_OF_MEMORY;
  }
  r->memory = *m;
  *key = r->key = ++e->next_key;
  r->next = e->registrations;
  e->registrations = r;
  return SHUNT_OK;
}

static shunt_status deregister_memory(shunt_endpoint *e, uint64_t key, shunt_native_report *report) {
  for (registration **at = &e->registrations; *at != NULL; at = &(*at)->next) {
    if ((*at)->key == key) {
      registration *r = *at;
      *at = r->next;
      free(r);
      return SHUNT_OK;
    }
  }
  snprintf(report->message, sizeof report->message, "key %llu is of no registration", (unsigned long long)key);
  return SHUNT_INVALID_ARGUMENT;
}

static const char *last_error(shunt_endpoint *e) { return e->message; }

static shunt_status close_endpoint(shunt_endpoint *e, char *message, size_t bytes) {
  int i;
  shunt_status status = e->registrations == NULL ? SHUNT_OK : SHUNT_INTERNAL;
  if (status != SHUNT_OK) snprintf(message, bytes, "the host has left a registration");
  while (e->registrations != NULL) {
    registration *r = e->registrations;
    e->registrations = r->next;
    free(r);
  }
  while (e->buffers != NULL) free_buffer(e, e->buffers->id);
  for (i = 0; i < COUNT_REGIONS; i++) close(e->regions[i].handle.fd);
  free(e);
  return status;
}

/* ---- the table -------------------------------------------------------------- */

static const shunt_memory_kind memory[] = {SHUNT_MEMORY_HOST};

extern const shunt_transport_v1 shunt_transport_v1_table;
const shunt_transport_v1 shunt_transport_v1_table = {
    .magic = SHUNT_TRANSPORT_MAGIC,
    .version_major = SHUNT_VERSION_MAJOR,
    .version_minor = SHUNT_VERSION_MINOR,
    .struct_size = sizeof(shunt_transport_v1),
    .features = SHUNT_FEATURE_MEMORY | SHUNT_FEATURE_PLANS | SHUNT_FEATURE_BUFFERS | SHUNT_FEATURE_REGISTRATION,
    .name = "c99",
    .version = "1.0.0",
    .doc = "host memory, written in C99",
    .memory = memory,
    .count_memory = 1,
    .supports = supports,
    .open = open_endpoint,
    .regions = regions,
    .allocate = allocate,
    .free = free_buffer,
    .prepare = prepare,
    .free_plan = free_plan,
    .last_error = last_error,
    .close = close_endpoint,
    .register_memory = register_memory,
    .deregister_memory = deregister_memory,
};
