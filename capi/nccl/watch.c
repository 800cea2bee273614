/*
 * watch.c: the flight recorder of communicators that the real NCCL serves. With SHUNT_RECORDS_DIR set, a rank whose
 * communicator fails or is aborted writes its latest calls there, in the form that `shunt records` reads
 * (host/report). Without it nothing is recorded.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "real.h"

enum { KEPT = 256, PLACES = KEPT + 1 }; /* a call that is taken back has overwritten none that is kept */

struct record {
  uint64_t number; /* of collectives so far */
  int collective, dtype, op, root;
  int64_t count, begin, end; /* ns since the communicator was made */
  bool returned;             /* well: it is in its stream */
};

struct nc_ring {
  char label[64];
  int64_t made;
  uint64_t collectives, calls;
  int children;
  uint64_t written;  /* calls, when the file was written last */
  char failure[256]; /* the first, if it was written */
  struct record records[PLACES];
};

static const char *const collectives[] = {
    "all_reduce", "reduce",   "broadcast",    "all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v",
    "all_to_all", "all_to_all_v", "gather",   "gather_v",   "scatter",      "scatter_v",      "send",
    "recv",       "barrier",  "put",          "get",        "signal",       "wait"};
static const char *const dtypes[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                     "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static const char *folder(void) {
  const char *name = getenv("SHUNT_RECORDS_DIR");
  return name == NULL || name[0] == 0 ? NULL : name;
}

static void begin(ncclComm_t comm, const char *label) {
  struct nc_ring *ring = calloc(1, sizeof *ring);
  if (ring == NULL)
    return; /* it is not recorded */
  snprintf(ring->label, sizeof ring->label, "%s", label);
  ring->made = now();
  comm->ring = ring;
}

/* All ranks have the same id, so they have the same label. */
void nc_watch_id(ncclComm_t comm, const ncclUniqueId *id) {
  if (folder() == NULL || id == NULL)
    return;
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < sizeof id->internal; i++)
    hash = (hash ^ (unsigned char)id->internal[i]) * UINT64_C(1099511628211);
  char label[64];
  snprintf(label, sizeof label, "nccl-%08x", (unsigned)(hash >> 32));
  begin(comm, label);
}

/* Ranks derive communicators in the same order. */
void nc_watch_child(ncclComm_t comm, ncclComm_t parent, int color) {
  char label[64];
  if (parent == NULL || parent->ring == NULL)
    return;
  pthread_mutex_lock(&parent->lock);
  snprintf(label, sizeof label, "%.40s/%d.%d", parent->ring->label, ++parent->ring->children, color);
  pthread_mutex_unlock(&parent->lock);
  begin(comm, label);
}

struct nc_mark nc_watch(ncclComm_t comm, int collective, int64_t count, ncclDataType_t dtype, ncclRedOp_t op, int root,
                        cudaStream_t stream) {
  struct nc_mark mark = {-1};
  struct nc_ring *ring = comm->ring;
  (void)stream;
  if (ring == NULL)
    return mark;
  pthread_mutex_lock(&comm->lock);
  if (collective < SHUNT_COLL_SEND)
    ring->collectives++;
  mark.number = (int64_t)ring->calls++;
  ring->records[mark.number % PLACES] = (struct record){
      .number = ring->collectives, .collective = collective, .dtype = dtype, .op = op, .root = root, .count = count,
      .begin = now() - ring->made};
  pthread_mutex_unlock(&comm->lock);
  return mark;
}

ncclResult_t nc_watched(ncclComm_t comm, struct nc_mark mark, ncclResult_t result) {
  struct nc_ring *ring = comm->ring;
  if (mark.number < 0)
    return nc_came(comm, result);
  pthread_mutex_lock(&comm->lock);
  struct record *r = &ring->records[mark.number % PLACES];
  bool failed = false;
  if (result == ncclSuccess || result == ncclInProgress) {
    r->end = now() - ring->made;
    r->returned = true;
  } else if (result != ncclInvalidArgument && result != ncclInvalidUsage) {
    failed = atomic_load(&comm->state) != NC_CLOSING && atomic_load(&comm->state) != NC_FREE; /* else: by its end */
  } else if (ring->calls == (uint64_t)mark.number + 1) { /* the caller's mistake is no call */
    ring->calls--;
    ring->collectives -= r->collective < SHUNT_COLL_SEND;
  }
  pthread_mutex_unlock(&comm->lock);
  if (failed)
    nc_watch_failure(comm, result);
  return nc_came(comm, result);
}

/* length_at is how many bytes the UTF-8 character at text has; 0 where there is none, as in what a buffer has cut. */
static size_t length_at(const char *text) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  unsigned char first = (unsigned char)*text;
  if (first < 0x80)
    return 1;
  if (first < 0xc0 || first > 0xf4)
    return 0;
  size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint32_t code = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    if (((unsigned char)text[i] & 0xc0) != 0x80)
      return 0;
    code = code << 6 | ((unsigned char)text[i] & 0x3f);
  }
  return code < least[length] || code > 0x10ffff || code >> 11 == 0xd800 >> 11 ? 0 : length;
}

/* write_text writes a JSON string. */
static void write_text(FILE *file, const char *text) {
  fputc('"', file);
  for (size_t length; *text != 0; text += length == 0 ? 1 : length) {
    length = length_at(text);
    if (length == 0)
      fputs("\\ufffd", file);
    else if (*text == '"' || *text == '\\')
      fprintf(file, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      fprintf(file, "\\u%04x", (unsigned char)*text);
    else
      fwrite(text, 1, length, file);
  }
  fputc('"', file);
}

static void write_record(FILE *file, const struct record *r) {
  fprintf(file, "{\"number\":%llu,\"collective\":\"%s\",\"dtype\":\"%s\"", (unsigned long long)r->number,
          collectives[r->collective], r->dtype >= 0 && r->dtype < NC_DATA_TYPES ? dtypes[r->dtype] : "");
  if (r->op >= 0)
    fprintf(file, ",\"op\":\"%s\"", r->op < NC_BUILTIN_OPS ? ops[r->op] : "premul_sum");
  fprintf(file, ",\"count\":%lld,\"root\":%d,\"begin_ns\":%lld,\"end_ns\":%lld,\"state\":\"%s\"}", (long long)r->count,
          r->root, (long long)r->begin, (long long)r->end, r->returned ? "enqueued" : "running");
}

static void write_ring(FILE *file, ncclComm_t comm, const char *code, const char *failure) {
  const struct nc_ring *ring = comm->ring;
  char host[256] = "";
  (void)gethostname(host, sizeof host - 1);
  /* There is no job: labels of the real NCCL's communicators differ. */
  fprintf(file, "{\"communicator\":\"%s\",\"rank\":%d,\"world\":%d,\"pid\":%d,\"host\":", ring->label, comm->rank,
          comm->world, (int)getpid());
  write_text(file, host);
  if (ring->calls > 0) {
    const struct record *last = &ring->records[(ring->calls - 1) % PLACES];
    fprintf(file, ",\"last\":{\"number\":%llu,\"collective\":\"%s\",\"state\":\"%s\"}",
            (unsigned long long)last->number, collectives[last->collective], last->returned ? "enqueued" : "called");
  }
  fprintf(file, ",\"code\":\"%s\",\"failure\":", code);
  write_text(file, failure);
  fputs(",\"operations\":[", file);
  uint64_t first = ring->calls > KEPT ? ring->calls - KEPT : 0;
  for (uint64_t i = first; i < ring->calls; i++) {
    if (i > first)
      fputc(',', file);
    write_record(file, &ring->records[i % PLACES]);
  }
  fputs("]}\n", file);
}

/* write_file writes the records to a file that appears whole: those of the first failure, and of an abort after more
 * calls. */
static void write_file(ncclComm_t comm, const char *code, const char *failure, bool abort) {
  char path[PATH_MAX], part[PATH_MAX + 8], name[64];
  const char *into = folder();
  if (comm->rank < 0) { /* of a split: the real library knows */
    if (nc_real(NC_ncclCommUserRank) == NULL || nc_real(NC_ncclCommCount) == NULL ||
        NC_REAL(ncclCommUserRank)(nc_any_real(comm), &comm->rank) != ncclSuccess ||
        NC_REAL(ncclCommCount)(nc_any_real(comm), &comm->world) != ncclSuccess)
      return;
  }
  pthread_mutex_lock(&comm->lock);
  struct nc_ring *ring = comm->ring;
  char text[sizeof ring->failure + 64];
  bool before = ring->failure[0] != 0, done = into == NULL || (before && (!abort || ring->calls == ring->written));
  ring->written = ring->calls;
  if (before)
    snprintf(text, sizeof text, "%s, after a failure: %s", failure, ring->failure);
  else
    snprintf(ring->failure, sizeof ring->failure, "%s", failure);
  snprintf(name, sizeof name, "%s", ring->label);
  for (char *at = name; *at != 0; at++)
    if (*at == '/')
      *at = '_';
  if (!done && snprintf(path, sizeof path, "%s/%s.%d.json", into, name, comm->rank) < (int)sizeof path) {
    snprintf(part, sizeof part, "%s.part", path);
    (void)mkdir(into, 0777);
    FILE *file = fopen(part, "w");
    if (file != NULL) {
      write_ring(file, comm, code, before ? text : failure);
      if (fclose(file) != 0 || rename(part, path) != 0)
        (void)unlink(part);
    } else {
      nc_log("warn", "%s cannot be written: %m", part);
    }
  }
  pthread_mutex_unlock(&comm->lock);
}

void nc_watch_failure(ncclComm_t comm, ncclResult_t result) {
  static const char *const codes[] = {"internal",         "device",    "system",   "internal", "invalid_argument",
                                      "invalid_argument", "peer_died", "internal", "timeout"};
  if (comm->ring == NULL)
    return;
  const char *text = nc_real(NC_ncclGetLastError) == NULL ? "" : NC_REAL(ncclGetLastError)(nc_any_real(comm));
  if (text == NULL || text[0] == 0)
    text = "NCCL gave no text";
  write_file(comm, codes[result >= 0 && result < (int)(sizeof codes / sizeof *codes) ? result : 0], text, false);
}

void nc_watch_end(ncclComm_t comm, bool abort) {
  char text[64];
  if (comm->ring == NULL || !abort)
    return;
  snprintf(text, sizeof text, "rank %d called ncclCommAbort", comm->rank);
  write_file(comm, "aborted", text, true);
}

void nc_forget_ring(ncclComm_t comm) {
  free(comm->ring);
  comm->ring = NULL;
}
