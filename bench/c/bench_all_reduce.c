/*
 * bench_all_reduce.c: time of an 8-byte all_reduce from C, in the world that
 * the environment describes. Rank 0 prints the median and best of 5 runs.
 *
 *     bench_all_reduce [calls]
 */
#include <shunt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  long calls = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
  shunt_comm comm;
  int32_t rank, world;
  double in = 1, out = 0, times[5];
  if (calls < 1) {
    fprintf(stderr, "usage: bench_all_reduce [calls]\n");
    return 2;
  }
  if (shunt_comm_init_env(&comm) != SHUNT_OK || shunt_rank(comm, &rank) != SHUNT_OK ||
      shunt_world(comm, &world) != SHUNT_OK) {
    fprintf(stderr, "%s\n", shunt_last_error(NULL));
    return 1;
  }
  for (int run = -1; run < 5; run++) { /* the first run warms up */
    double start = now();
    for (long i = 0; i < calls; i++)
      if (shunt_all_reduce(comm, &in, &out, 1, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, NULL) != SHUNT_OK) {
        fprintf(stderr, "%s\n", shunt_last_error(NULL));
        return 1;
      }
    if (run >= 0)
      times[run] = (now() - start) / (double)calls;
  }
  if (out != world) {
    fprintf(stderr, "rank %d: result %g, want %d\n", rank, out, world);
    return 1;
  }
  double before = now();
  for (long i = 0; i < calls; i++)
    shunt_rank(comm, &rank);
  double crossing = (now() - before) / (double)calls;
  qsort(times, 5, sizeof *times, ascending);
  if (rank == 0)
    printf("{\"lang\": \"c\", \"world\": %d, \"bytes\": 8, \"calls\": %ld, \"ns_median\": %.1f, \"ns_best\": %.1f, "
           "\"ns_crossing\": %.1f}\n",
           world, calls, times[2], times[0], crossing);
  return shunt_close(comm) == SHUNT_OK ? 0 : 1;
}
