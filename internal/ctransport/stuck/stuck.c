/*
 * stuck.c: the C99 transport, stuck on rank 1 in the function that the macro STUCK
 * names, or with a native function that fails with a status that is in no table.
 */
#define shunt_transport_v1_table complete_table
#include "../c99/shunt_c99.c"
#undef shunt_transport_v1_table

#define SUPPORTS 1 /* for all_reduce, on every rank: it knows none */
#define OPEN 2
#define PREPARE 3
#define CLOSE 4
#define NATIVE 5
#define FAILS 6 /* the native function */
#define START 8 /* of a native step */
#define ENDLESS 7 /* no zero behind an algorithm's name */

static void stop(int phase, int rank) {
  while (STUCK == phase && rank == 1) pause();
}

static void stuck_supports(const shunt_request *r, shunt_support *s) {
  if (r->collective == SHUNT_COLL_ALL_REDUCE) stop(SUPPORTS, 1);
  supports(r, s);
  if (STUCK == ENDLESS && r->collective == SHUNT_COLL_SCATTER_V) {
    s->count = 1;
    memset(s->algorithms[0].name, 'x', sizeof s->algorithms[0].name);
    s->algorithms[0].bandwidth = 1;
  }
  if (s->count > 0) s->algorithms[0].latency = 0; /* the first choice */
}

static shunt_status stuck_open(const shunt_open_config *c, shunt_endpoint **out, char *message, size_t bytes) {
  stop(OPEN, c->rank);
  return open_endpoint(c, out, message, bytes);
}

static shunt_status native(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                           shunt_native_report *report) {
  shunt_endpoint *e = context;
  (void)registers, (void)send, (void)recv, (void)stream;
  stop(NATIVE, e->rank);
  if (STUCK != FAILS || e->rank != 1) return SHUNT_OK;
  strcpy(report->message, "rail 3 is down");
  return 12345;
}

static shunt_status start(void *context, const int64_t *args, uint32_t count, const void *send, void *recv,
                          void **request, shunt_native_report *report) {
  shunt_endpoint *e = context;
  (void)args, (void)count, (void)send, (void)recv, (void)request, (void)report;
  stop(START, e->rank);
  return SHUNT_OK;
}

static shunt_status poll_native(void *context, void *request, int32_t over, shunt_native_report *report) {
  (void)context, (void)request, (void)over, (void)report;
  return SHUNT_OK;
}

static shunt_status stuck_prepare(shunt_endpoint *e, const shunt_request *r, const char *algorithm,
                                  const shunt_plan **out) {
  stop(PREPARE, e->rank);
  shunt_status status = prepare(e, r, algorithm, out);
  if (status == SHUNT_OK && (STUCK == NATIVE || STUCK == FAILS || STUCK == START)) {
    plan *p = (plan *)*out;
    shunt_native *n = calloc(1, sizeof *n); /* left behind, like much here */
    if (STUCK == START) n->start = start, n->poll = poll_native;
    else n->function = native;
    n->context = e;
    step(p, SHUNT_STEP_NATIVE, 0, 0, 0, 0, 0, 0);
    p->track.count++;
    p->plan.natives = n;
    p->plan.count_natives = 1;
  }
  return status;
}

static shunt_status stuck_close(shunt_endpoint *e, char *message, size_t bytes) {
  stop(CLOSE, e->rank);
  return close_endpoint(e, message, bytes);
}

extern const shunt_transport_v1 shunt_transport_v1_table;
const shunt_transport_v1 shunt_transport_v1_table = {
    .magic = SHUNT_TRANSPORT_MAGIC,
    .version_major = SHUNT_VERSION_MAJOR,
    .version_minor = SHUNT_VERSION_MINOR,
    .struct_size = sizeof(shunt_transport_v1),
    .features = SHUNT_FEATURE_MEMORY | SHUNT_FEATURE_PLANS | SHUNT_FEATURE_BUFFERS,
    .name = "stuck",
    .version = "1.0.0",
    .doc = "a transport that never returns",
    .memory = memory,
    .count_memory = 1,
    .supports = stuck_supports,
    .open = stuck_open,
    .regions = regions,
    .allocate = allocate,
    .free = free_buffer,
    .prepare = stuck_prepare,
    .free_plan = free_plan,
    .last_error = last_error,
    .close = stuck_close,
};
