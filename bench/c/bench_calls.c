/*
 * bench_calls.c: times of 8-byte calls on host memory from C, in the world that the
 * environment describes. Rank 0 prints a line of JSON for each operation: the median
 * and the 99th percentile over samples of CALLS_PER_SAMPLE calls, in ns a call. A
 * send_recv is half of a message there and back. bench/go and bench/python measure
 * the same, and bench/compare compares two versions of Shunt by them.
 *
 *     shunt run -n 2 --bind bench_calls [SAMPLES]
 */
#include "timing.h"

enum { CALLS_PER_SAMPLE = 8, WARM_UP = 2000 };

static shunt_comm comm;
static int32_t rank, world;
static double in = 1, out;

static shunt_status all_reduce(void) {
  return shunt_all_reduce(comm, &in, &out, 1, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, NULL);
}

static shunt_status broadcast(void) { return shunt_broadcast(comm, &out, &out, 1, SHUNT_DTYPE_FLOAT64, 0, NULL); }

/* One message each way between ranks 0 and 1. */
static shunt_status send_recv(void) {
  int32_t peer = 1 - rank;
  shunt_status s = SHUNT_OK;
  if (rank == 0)
    s = shunt_send(comm, &out, 1, SHUNT_DTYPE_FLOAT64, peer, NULL);
  if (s == SHUNT_OK && rank < 2)
    s = shunt_recv(comm, &out, 1, SHUNT_DTYPE_FLOAT64, peer, NULL);
  if (s == SHUNT_OK && rank == 1)
    s = shunt_send(comm, &out, 1, SHUNT_DTYPE_FLOAT64, peer, NULL);
  return s;
}

static shunt_status barrier(void) { return shunt_barrier(comm, NULL); }

static const struct operation {
  const char *name;
  shunt_status (*call)(void);
  double messages; /* of a call, one after the other */
  int ranks;       /* that it needs */
} operations[] = {{"all_reduce", all_reduce, 1, 1}, {"broadcast", broadcast, 1, 1}, {"send_recv", send_recv, 2, 2},
                  {"barrier", barrier, 1, 1}};

static void measure(const struct operation *o, double *times, long samples) {
  for (long i = -WARM_UP / CALLS_PER_SAMPLE; i < samples; i++) {
    double start = now();
    for (int call = 0; call < CALLS_PER_SAMPLE; call++)
      check(comm, o->call());
    if (i >= 0)
      times[i] = (now() - start) / CALLS_PER_SAMPLE / o->messages;
  }
  if (out != world) {
    fprintf(stderr, "rank %d: %s left %g, want %d\n", rank, o->name, out, world);
    exit(1);
  }
  sort_times(times, samples);
  if (rank == 0)
    printf("{\"lang\": \"c\", \"op\": \"%s\", \"world\": %d, \"bytes\": 8, \"samples\": %ld, \"ns_median\": %.1f, "
           "\"ns_p99\": %.1f}\n",
           o->name, world, samples, times[samples / 2], times[samples * 99 / 100]);
}

int main(int argc, char **argv) {
  long samples = argc > 1 ? strtol(argv[1], NULL, 10) : 20000;
  double *times;
  if (samples < 1) {
    fprintf(stderr, "usage: bench_calls [SAMPLES]\n");
    return 2;
  }
  times = new_times(samples);
  check(NULL, shunt_comm_init_env(&comm));
  check(comm, shunt_rank(comm, &rank));
  check(comm, shunt_world(comm, &world));
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (world >= operations[i].ranks)
      measure(&operations[i], times, samples);
  free(times);
  check(comm, shunt_close(comm));
  return 0;
}
