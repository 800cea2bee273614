/*
 * gpu.c: collectives of GPU memory from C, one rank per GPU: called one by one,
 * and captured in a graph and replayed over changed input; every element is
 * checked. It exits with status 77 where there is no GPU for its rank.
 */
#include "check.h"
#include "gpu.h"

#define COUNT 100003

static float host[COUNT];
static int32_t rank, world;

static void put(gpu_ptr to, float add) {
  for (int i = 0; i < COUNT; i++)
    host[i] = (float)(rank + i % 13) + add;
  GPU(MemcpyHtoD(to, host, sizeof host));
  /* From pageable memory the copy may return before its last part is there, and
   * the stream of the calls does not wait for the default stream. */
  GPU(StreamSynchronize(NULL));
}

static void expect(gpu_ptr from, float add) {
  GPU(MemcpyDtoH(host, from, sizeof host));
  for (int i = 0; i < COUNT; i++) {
    float want = (float)(world * (world - 1) / 2) + (float)world * ((float)(i % 13) + add);
    if (host[i] != want) {
      fprintf(stderr, "rank %d: element %d is %g, want %g\n", rank, i, host[i], want);
      exit(1);
    }
  }
}

int main(void) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm comm;
  gpu_handle stream, graph, run;
  gpu_ptr send, recv;
  shunt_status status = SHUNT_INTERNAL;
  char record[4096];
  gpu_open(gpu_rank());
  options.memory = SHUNT_MEMORY_CUDA;
  options.device = gpu_rank();
  OK(shunt_comm_init(&options, &comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  GPU(StreamCreate(&stream, 1)); /* does not wait for the default stream */
  GPU(MemAlloc(&send, sizeof host));
  GPU(MemAlloc(&recv, sizeof host));

  /* One by one, in a stream and in the default stream, and in place. */
  put(send, 0);
  OK(shunt_all_reduce(comm, (void *)send, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
  OK(shunt_synchronize(comm, stream));
  expect(recv, 0);
  put(send, 1);
  OK(shunt_all_reduce(comm, (void *)send, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
  OK(shunt_synchronize(comm, NULL));
  expect(recv, 1);
  put(recv, 2);
  OK(shunt_all_reduce(comm, (void *)recv, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
  OK(shunt_synchronize(comm, stream));
  expect(recv, 2);

  /* Asked without waiting. */
  OK(shunt_get_async_error(comm, &status));
  CHECK(status == SHUNT_OK);
  OK(shunt_records(comm, record, sizeof record, NULL));
  CHECK(strstr(record, "\"number\":3,\"collective\":\"all_reduce\"") != NULL);
  CHECK(strstr(record, "\"state\":\"enqueued\"") != NULL && strstr(record, "\"state\":\"ended\"") == NULL);

  /* Registered, again and never. */
  OK(shunt_register(comm, (void *)send, sizeof host));
  OK(shunt_register(comm, (void *)(send + 64), 64));
  OK(shunt_deregister(comm, (void *)send));
  OK(shunt_deregister(comm, (void *)send));
  CHECK(shunt_deregister(comm, (void *)send) == SHUNT_INVALID_ARGUMENT);
  OK(shunt_register_symmetric(comm, (void *)recv, sizeof host));
  CHECK(shunt_register_symmetric(comm, (void *)(recv + 4), 4) == SHUNT_INVALID_ARGUMENT);
  put(send, 4);
  OK(shunt_all_reduce(comm, (void *)send, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
  OK(shunt_synchronize(comm, stream));
  expect(recv, 4);
  OK(shunt_deregister(comm, (void *)recv));
  CHECK(shunt_deregister(comm, (void *)recv) == SHUNT_INVALID_ARGUMENT);
  put(send, 3);
  OK(shunt_all_reduce(comm, (void *)send, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
  OK(shunt_synchronize(comm, stream));
  expect(recv, 3);

  /* A graph of a call, replayed between eager calls. */
  GPU(StreamBeginCapture(stream, 1)); /* thread local */
  OK(shunt_all_reduce(comm, (void *)send, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
  GPU(StreamEndCapture(stream, &graph));
  GPU(GraphInstantiate(&run, graph, 0));
  for (int round = 0; round < 5; round++) {
    put(send, (float)round);
    GPU(GraphLaunch(run, stream));
    OK(shunt_synchronize(comm, stream));
    expect(recv, (float)round);
    put(recv, (float)round);
    OK(shunt_all_reduce(comm, (void *)recv, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
    OK(shunt_synchronize(comm, stream));
    expect(recv, (float)round);
  }
  GPU(GraphExecDestroy(run));
  GPU(GraphDestroy(graph));
  OK(shunt_close(comm));
  GPU(MemFree(send));
  GPU(MemFree(recv));
  GPU(StreamDestroy(stream));
  if (rank == 0)
    printf("gpu: %d ranks, one by one and in a graph: all right\n", world);
  return 0;
}
