/*
 * bench_stream.c: what an 8-byte all_reduce of GPU memory costs the calling
 * thread, the driver's launch included: calls are put into a stream in batches,
 * and only the calls are timed. Rank 0 prints the median and best batch as JSON.
 *
 *     shunt run -n 2 bench_stream [BATCHES]
 */
#include <shunt.h>
#include <time.h>

#include "../test/gpu.h"

#define BATCH 100

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

#define OK(call)                                         \
  do {                                                   \
    if ((call) != SHUNT_OK) {                            \
      fprintf(stderr, "%s\n", shunt_last_error(NULL));   \
      exit(1);                                           \
    }                                                    \
  } while (0)

int main(int argc, char **argv) {
  long batches = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm comm;
  int32_t rank, world;
  gpu_handle stream;
  gpu_ptr send, recv;
  double in = 1, out = 0, *times;
  if (batches < 1) {
    fprintf(stderr, "usage: bench_stream [BATCHES]\n");
    return 2;
  }
  gpu_open(gpu_rank());
  options.memory = SHUNT_MEMORY_CUDA;
  options.device = gpu_rank();
  OK(shunt_comm_init(&options, &comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  GPU(StreamCreate(&stream, 1));
  GPU(MemAlloc(&send, 4096));
  GPU(MemAlloc(&recv, 4096));
  GPU(MemcpyHtoD(send, &in, sizeof in));
  times = calloc((size_t)batches, sizeof *times);
  if (times == NULL) {
    fprintf(stderr, "no memory for %ld times\n", batches);
    return 1;
  }
  for (long b = -10; b < batches; b++) { /* the first batches warm up */
    double start = now();
    for (int i = 0; i < BATCH; i++)
      OK(shunt_all_reduce(comm, (void *)send, (void *)recv, 1, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, stream));
    if (b >= 0)
      times[b] = (now() - start) / BATCH;
    OK(shunt_synchronize(comm, stream));
  }
  GPU(MemcpyDtoH(&out, recv, sizeof out));
  if (out != world) {
    fprintf(stderr, "rank %d: result %g, want %d\n", rank, out, world);
    return 1;
  }
  qsort(times, (size_t)batches, sizeof *times, ascending);
  if (rank == 0)
    printf("{\"lang\": \"c\", \"memory\": \"cuda\", \"world\": %d, \"bytes\": 8, \"calls\": %ld, \"ns_median\": %.1f, "
           "\"ns_best\": %.1f, \"ns_p99\": %.1f}\n",
           world, batches * BATCH, times[batches / 2], times[0], times[batches * 99 / 100]);
  free(times);
  OK(shunt_close(comm));
  GPU(MemFree(send));
  GPU(MemFree(recv));
  GPU(StreamDestroy(stream));
  return 0;
}
