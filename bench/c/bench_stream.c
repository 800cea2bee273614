/*
 * bench_stream.c: what an 8-byte all_reduce of GPU memory costs the calling
 * thread, the driver's launch included: calls are put into a stream in batches,
 * and only the calls are timed. Rank 0 prints the median and best batch as JSON.
 *
 *     shunt run -n 2 bench_stream [BATCHES]
 */
#include "../test/gpu.h"
#include "timing.h"

#define BATCH 100

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
  gpu_open(gpu_device());
  options.memory = SHUNT_MEMORY_CUDA;
  options.device = gpu_device();
  check(NULL, shunt_comm_init(&options, &comm));
  check(NULL, shunt_rank(comm, &rank));
  check(NULL, shunt_world(comm, &world));
  GPU(StreamCreate(&stream, 1));
  GPU(MemAlloc(&send, 4096));
  GPU(MemAlloc(&recv, 4096));
  GPU(MemcpyHtoD(send, &in, sizeof in));
  times = new_times(batches);
  for (long b = -10; b < batches; b++) { /* the first batches warm up */
    double start = now();
    for (int i = 0; i < BATCH; i++)
      check(NULL, shunt_all_reduce(comm, (void *)send, (void *)recv, 1, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, stream));
    if (b >= 0)
      times[b] = (now() - start) / BATCH;
    check(NULL, shunt_synchronize(comm, stream));
  }
  GPU(MemcpyDtoH(&out, recv, sizeof out));
  if (out != world) {
    fprintf(stderr, "rank %d: result %g, want %d\n", rank, out, world);
    return 1;
  }
  sort_times(times, batches);
  if (rank == 0)
    printf("{\"lang\": \"c\", \"memory\": \"cuda\", \"world\": %d, \"bytes\": 8, \"calls\": %ld, \"ns_median\": %.1f, "
           "\"ns_best\": %.1f, \"ns_p99\": %.1f}\n",
           world, batches * BATCH, times[batches / 2], times[0], times[batches * 99 / 100]);
  free(times);
  check(NULL, shunt_close(comm));
  GPU(MemFree(send));
  GPU(MemFree(recv));
  GPU(StreamDestroy(stream));
  return 0;
}
