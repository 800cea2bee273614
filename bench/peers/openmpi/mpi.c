/*
 * The measurements of `shunt bench` over MPI, out of place, float32, sum.
 *
 *   mpicc -O3 -o mpi mpi.c
 *   mpirun -n 4 ./mpi COLLECTIVE MIN MAX FACTOR BUDGET_US
 *
 * Sizes are bytes of the whole buffer, as nccl-tests count them. One line for
 * each size goes to standard output:
 *
 *   COLLECTIVE BYTES ITERATIONS MICROSECONDS WRONG
 *
 * The operations of a size are timed in batches; the time is the median over
 * the batches of one operation's on the slowest rank. Wrong counts wrong elements
 * of one checked call, over all ranks.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITERATIONS = 200000, BATCHES = 9 };

static int rank, world;
static float *sendbuf, *recvbuf;

/* What rank r sends as element i. */
static float value(int r, int64_t i) { return (float)((i + 17 * r) % 7); }

static float sum_of(int64_t i) {
  float s = 0;
  for (int r = 0; r < world; r++) s += value(r, i);
  return s;
}

/* block is the elements that one rank contributes or gets where the whole is
 * divided, and the whole elsewhere. */
typedef struct {
  const char *name;
  int divided;
  void (*run)(int block);
  int64_t (*wrong)(int block);
} collective;

static void all_reduce(int n) { MPI_Allreduce(sendbuf, recvbuf, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void all_gather(int n) { MPI_Allgather(sendbuf, n, MPI_FLOAT, recvbuf, n, MPI_FLOAT, MPI_COMM_WORLD); }
static void all_to_all(int n) { MPI_Alltoall(sendbuf, n, MPI_FLOAT, recvbuf, n, MPI_FLOAT, MPI_COMM_WORLD); }
static void broadcast(int n) { MPI_Bcast(rank == 0 ? sendbuf : recvbuf, n, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void reduce_scatter(int n) { MPI_Reduce_scatter_block(sendbuf, recvbuf, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static int64_t wrong_all_reduce(int n) {
  int64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad += recvbuf[i] != sum_of(i);
  return bad;
}
static int64_t wrong_all_gather(int n) {
  int64_t bad = 0;
  for (int r = 0; r < world; r++)
    for (int64_t i = 0; i < n; i++) bad += recvbuf[(int64_t)r * n + i] != value(r, i);
  return bad;
}
static int64_t wrong_all_to_all(int n) {
  int64_t bad = 0;
  for (int r = 0; r < world; r++)
    for (int64_t i = 0; i < n; i++) bad += recvbuf[(int64_t)r * n + i] != value(r, (int64_t)rank * n + i);
  return bad;
}
static int64_t wrong_broadcast(int n) {
  int64_t bad = 0;
  if (rank != 0)
    for (int64_t i = 0; i < n; i++) bad += recvbuf[i] != value(0, i);
  return bad;
}
static int64_t wrong_reduce_scatter(int n) {
  int64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad += recvbuf[i] != sum_of((int64_t)rank * n + i);
  return bad;
}

static const collective collectives[] = {
    {"all_reduce", 0, all_reduce, wrong_all_reduce},
    {"all_gather", 1, all_gather, wrong_all_gather},
    {"all_to_all", 1, all_to_all, wrong_all_to_all},
    {"broadcast", 0, broadcast, wrong_broadcast},
    {"reduce_scatter", 1, reduce_scatter, wrong_reduce_scatter},
};

/* Microseconds of one of n operations on this rank. */
static double timed(const collective *c, int block, int n) {
  MPI_Barrier(MPI_COMM_WORLD);
  double began = MPI_Wtime();
  for (int i = 0; i < n; i++) c->run(block);
  return (MPI_Wtime() - began) * 1e6 / n;
}

/* How many operations fit into the budget; rank 0 decides, as in shunt bench. */
static int calibrate(const collective *c, int block, double budget) {
  int64_t n = 1;
  for (;;) {
    double us = timed(c, block, (int)n);
    int64_t result = n * 4;
    int done = us * (double)n * 10 >= budget || n >= MAX_ITERATIONS / 4;
    if (done) result = (int64_t)(budget / (us > 0.01 ? us : 0.01));
    if (result < 3) result = 3;
    if (result > MAX_ITERATIONS) result = MAX_ITERATIONS;
    if (done) result = -result;
    MPI_Bcast(&result, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (result < 0) return (int)-result;
    n = result;
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(const collective *c, int64_t bytes, double budget) {
  int64_t elements = bytes / (int64_t)sizeof(float);
  if (elements < 1) elements = 1;
  int64_t block = c->divided ? elements / world : elements;
  if (block < 1) block = 1;
  int64_t whole = c->divided ? block * world : block;
  if (block > INT32_MAX) {
    fprintf(stderr, "%s: %lld elements are more than an MPI count holds\n", c->name, (long long)block);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int64_t i = 0; i < whole; i++) sendbuf[i] = value(rank, i);
  memset(recvbuf, 0xA5, (size_t)whole * sizeof(float));
  MPI_Barrier(MPI_COMM_WORLD);
  c->run((int)block);
  int64_t mine = c->wrong((int)block), wrong = 0;
  MPI_Reduce(&mine, &wrong, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  int n = calibrate(c, (int)block, budget);
  int batch = n / BATCHES > 0 ? n / BATCHES : 1, count = 0;
  double us[2 * BATCHES], slowest[2 * BATCHES];
  for (int left = n; left > 0; left -= batch) us[count++] = timed(c, (int)block, batch);
  MPI_Reduce(us, slowest, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    qsort(slowest, (size_t)count, sizeof *slowest, ascending);
    double median = count % 2 ? slowest[count / 2] : (slowest[count / 2 - 1] + slowest[count / 2]) / 2;
    printf("%s %lld %d %.4f %lld\n", c->name, (long long)whole * (long long)sizeof(float), count * batch, median,
           (long long)wrong);
    fflush(stdout);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const collective *c = NULL;
  if (argc == 6)
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
      if (strcmp(collectives[i].name, argv[1]) == 0) c = &collectives[i];
  if (c == NULL) {
    if (rank == 0) fprintf(stderr, "usage: mpi COLLECTIVE MIN MAX FACTOR BUDGET_US\n");
    MPI_Finalize();
    return 2;
  }
  int64_t min = atoll(argv[2]), max = atoll(argv[3]), factor = atoll(argv[4]);
  double budget = atof(argv[5]);
  if (min < 1 || max < min || factor < 2) {
    if (rank == 0) fprintf(stderr, "sizes %lld to %lld by %lld\n", (long long)min, (long long)max, (long long)factor);
    MPI_Finalize();
    return 2;
  }
  size_t room = (size_t)max + (size_t)world * sizeof(float);
  if (posix_memalign((void **)&sendbuf, 4096, room) != 0 || posix_memalign((void **)&recvbuf, 4096, room) != 0) {
    fprintf(stderr, "rank %d: no memory for 2 x %zu bytes\n", rank, room);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  for (int64_t bytes = min; bytes < max; bytes *= factor) measure(c, bytes, budget);
  measure(c, max, budget);
  free(sendbuf);
  free(recvbuf);
  MPI_Finalize();
  return 0;
}
