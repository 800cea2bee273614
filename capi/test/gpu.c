/*
 * gpu.c: collectives of GPU memory from C, one rank per GPU: called one by one,
 * and captured in a graph and replayed over changed input, and over changed counts;
 * every element is checked. It exits with status 77 where there is no GPU for its rank.
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

/* An all_reduce of what put writes, checked. */
static void reduce(shunt_comm comm, gpu_ptr send, gpu_ptr recv, gpu_handle stream, float add) {
  put(send, add);
  OK(shunt_all_reduce(comm, (void *)send, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
  OK(shunt_synchronize(comm, stream));
  expect(recv, add);
}

/* ---- all_to_all_v with counts on the device ------------------------------ */

#define RANKS 8
#define PAIR 4000 /* at least the result of pair */
#define GAP 3     /* elements between two blocks with displacements */
#define ROOM (RANKS * (PAIR + GAP))

enum { SEND_COUNTS, SEND_DISPLS, RECV_COUNTS, RECV_DISPLS, ARRAYS };

static int32_t values[ROOM];
static int64_t arrays[ARRAYS][RANKS];

/* Elements from one rank to another. */
static int64_t pair(int from, int to, int round) { return (int64_t)((from + 3 * to + round) % 4) * (PAIR / 3); }

static int32_t value(int from, int to, int64_t i) { return (int32_t)(from << 24 | to << 16 | (int)i); }

/* Fills arrays; blocks lie gap elements apart. */
static void lay_out(int round, int gap) {
  int64_t out = 0, in = 0;
  for (int r = 0; r < world; r++) {
    arrays[SEND_COUNTS][r] = pair(rank, r, round);
    arrays[RECV_COUNTS][r] = pair(r, rank, round);
    arrays[SEND_DISPLS][r] = out;
    arrays[RECV_DISPLS][r] = in;
    out += arrays[SEND_COUNTS][r] + gap;
    in += arrays[RECV_COUNTS][r] + gap;
  }
}

struct exchange {
  shunt_comm comm;
  gpu_handle stream;
  gpu_ptr send, recv, counts, next; /* next: arrays of the next replay */
};

static const int64_t *array(const struct exchange *x, int which) {
  return (const int64_t *)(x->counts + (gpu_ptr)which * sizeof arrays[0]);
}

static shunt_status call(const struct exchange *x, int with_displs) {
  return shunt_all_to_all_v_on_device(x->comm, (void *)x->send, ROOM, array(x, SEND_COUNTS),
                                      with_displs ? array(x, SEND_DISPLS) : NULL, (void *)x->recv, ROOM,
                                      array(x, RECV_COUNTS), with_displs ? array(x, RECV_DISPLS) : NULL,
                                      SHUNT_DTYPE_INT32, x->stream);
}

static void put_all(const struct exchange *x, gpu_ptr counts) {
  for (int i = 0; i < ROOM; i++)
    values[i] = -1;
  GPU(MemcpyHtoD(x->recv, values, sizeof values));
  for (int r = 0; r < world; r++)
    for (int64_t i = 0; i < arrays[SEND_COUNTS][r]; i++)
      values[arrays[SEND_DISPLS][r] + i] = value(rank, r, i);
  GPU(MemcpyHtoD(x->send, values, sizeof values));
  GPU(MemcpyHtoD(counts, arrays, sizeof arrays));
  GPU(StreamSynchronize(NULL)); /* see put */
}

/* Every expected element has come, and no other has changed. */
static void expect_all(const struct exchange *x) {
  OK(shunt_synchronize(x->comm, x->stream));
  GPU(MemcpyDtoH(values, x->recv, sizeof values));
  for (int r = 0; r < world; r++)
    for (int64_t i = 0; i < arrays[RECV_COUNTS][r]; i++) {
      int32_t *at = &values[arrays[RECV_DISPLS][r] + i];
      if (*at != value(r, rank, i)) {
        fprintf(stderr, "rank %d: element %lld of rank %d is %d, want %d\n", rank, (long long)i, r, *at,
                value(r, rank, i));
        exit(1);
      }
      *at = -1;
    }
  for (int i = 0; i < ROOM; i++)
    CHECK(values[i] == -1);
}

#define REFUSED(call, text) CHECK((call) == SHUNT_INVALID_ARGUMENT && strstr(shunt_last_error(NULL), text) != NULL)

/* The calls that the host rejects by itself. */
static void refusals(const struct exchange *x) {
  const int64_t *counts = array(x, SEND_COUNTS), *odd = (const int64_t *)(x->counts + 4);
  void *send = (void *)x->send, *recv = (void *)x->recv;
#define ON_DEVICE(room, to, displs, more, from) \
  shunt_all_to_all_v_on_device(x->comm, send, room, to, displs, recv, more, from, NULL, SHUNT_DTYPE_INT32, x->stream)
  REFUSED(ON_DEVICE(ROOM, NULL, NULL, ROOM, counts), "send counts in device memory are null");
  REFUSED(ON_DEVICE(ROOM, counts, NULL, ROOM, NULL), "receive counts in device memory are null");
  REFUSED(ON_DEVICE(0, NULL, NULL, 0, NULL), "send counts in device memory are null");
  REFUSED(ON_DEVICE(ROOM, odd, NULL, ROOM, counts), "not aligned to 8 bytes");
  REFUSED(ON_DEVICE(ROOM, counts, odd, ROOM, counts), "not aligned to 8 bytes");
  REFUSED(ON_DEVICE(ROOM, counts, NULL, ROOM, (const int64_t *)recv), "lie in the receive memory");
  REFUSED(ON_DEVICE(-1, counts, NULL, ROOM, counts), "send capacity -1 is negative");
  REFUSED(ON_DEVICE(ROOM, counts, NULL, -1, counts), "receive capacity -1 is negative");
  REFUSED(ON_DEVICE(INT64_MAX, counts, NULL, ROOM, counts), "overflows");
#undef ON_DEVICE
}

/* The last rank gives an invalid count: all ranks return the error, and that rank has
 * stored nothing. Only the communicator made here fails. */
static void impossible(struct exchange x) {
  shunt_status status;
  char want[128];
  shunt_comm whole = x.comm;
  OK(shunt_split(whole, 0, 0, &x.comm));
  lay_out(0, 0);
  put_all(&x, x.counts);
  if (rank == world - 1)
    arrays[SEND_COUNTS][0] = -3;
  GPU(MemcpyHtoD(x.counts, arrays, sizeof arrays));
  GPU(StreamSynchronize(NULL));
  status = call(&x, 0); /* the last rank may have failed before another one calls */
  CHECK(status == SHUNT_OK || status == SHUNT_INVALID_ARGUMENT);
  snprintf(want, sizeof want, "counts in device memory on rank %d: send count -3 for rank 0 is negative", world - 1);
  REFUSED(shunt_synchronize(x.comm, x.stream), want);
  OK(shunt_get_async_error(x.comm, &status));
  CHECK(status == SHUNT_INVALID_ARGUMENT && strstr(shunt_last_error(x.comm), want) != NULL);
  REFUSED(call(&x, 0), want);
  OK(shunt_close(x.comm));
  GPU(MemcpyDtoH(values, x.recv, sizeof values));
  for (int i = 0; rank == world - 1 && i < ROOM; i++)
    CHECK(values[i] == -1);
}

static void counts_on_device(shunt_comm comm, gpu_handle stream) {
  struct exchange x = {comm, stream, 0, 0, 0, 0};
  gpu_handle run;
  CHECK(world <= RANKS);
  GPU(MemAlloc(&x.send, sizeof values));
  GPU(MemAlloc(&x.recv, sizeof values));
  GPU(MemAlloc(&x.counts, sizeof arrays));
  GPU(MemAlloc(&x.next, sizeof arrays));
  refusals(&x);
  for (int round = 0; round < 4; round++) {
    lay_out(round, round % 2 == 0 ? 0 : GAP);
    put_all(&x, x.counts);
    OK(call(&x, round % 2));
    expect_all(&x);
  }
  /* In a graph, behind what writes the counts: each replay has its own. */
  gpu_capture(stream);
  GPU(MemcpyDtoDAsync(x.counts, x.next, sizeof arrays, stream));
  OK(call(&x, 1));
  run = gpu_captured(stream);
  for (int round = 0; round < 5; round++) {
    lay_out(round, round % (GAP + 1));
    put_all(&x, x.next);
    GPU(GraphLaunch(run, stream));
    expect_all(&x);
  }
  GPU(GraphExecDestroy(run));
  impossible(x);
  GPU(MemFree(x.send));
  GPU(MemFree(x.recv));
  GPU(MemFree(x.counts));
  GPU(MemFree(x.next));
}

int main(void) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm comm;
  gpu_handle stream, run;
  gpu_ptr send, recv;
  shunt_status status = SHUNT_INTERNAL;
  char record[4096];
  void *address = NULL;
  gpu_open(gpu_device());
  options.memory = SHUNT_MEMORY_CUDA;
  options.device = gpu_device();
  OK(shunt_comm_init(&options, &comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  GPU(StreamCreate(&stream, 1)); /* does not wait for the default stream */
  GPU(MemAlloc(&send, sizeof host));
  GPU(MemAlloc(&recv, sizeof host));

  /* One by one, in a stream, in the default stream, and in place in those of numbers (cuda.h: CU_STREAM_LEGACY and
   * CU_STREAM_PER_THREAD). */
  reduce(comm, send, recv, stream, 0);
  reduce(comm, send, recv, NULL, 1);
  for (uintptr_t number = 1; number <= 2; number++)
    reduce(comm, recv, recv, (gpu_handle)number, 2);

  /* Asked without waiting. */
  OK(shunt_get_async_error(comm, &status));
  CHECK(status == SHUNT_OK);
  OK(shunt_records(comm, record, sizeof record, NULL));
  CHECK(strstr(record, "\"number\":4,\"collective\":\"all_reduce\"") != NULL);
  CHECK(strstr(record, "\"state\":\"enqueued\"") != NULL && strstr(record, "\"state\":\"ended\"") == NULL);

  /* Registered, again and never. */
  OK(shunt_register(comm, (void *)send, sizeof host));
  OK(shunt_register(comm, (void *)(send + 64), 64));
  OK(shunt_deregister(comm, (void *)send));
  OK(shunt_deregister(comm, (void *)send));
  CHECK(shunt_deregister(comm, (void *)send) == SHUNT_INVALID_ARGUMENT);
  OK(shunt_register_symmetric(comm, (void *)recv, sizeof host));
  /* Inside it, at one offset on all ranks and at another on each. */
  OK(shunt_register_symmetric(comm, (void *)(recv + 4), 4));
  OK(shunt_deregister(comm, (void *)(recv + 4)));
  CHECK(shunt_register_symmetric(comm, (void *)(recv + 4 * (gpu_ptr)rank), 4) == SHUNT_UNSUPPORTED);
  reduce(comm, send, recv, stream, 4);
  OK(shunt_peer_address(comm, (void *)(recv + 8), rank, &address));
  CHECK(address == (void *)(recv + 8));
  CHECK(shunt_peer_address(comm, (void *)(recv + sizeof host), rank, &address) == SHUNT_INVALID_ARGUMENT);
  CHECK(shunt_peer_address(comm, (void *)recv, world, &address) == SHUNT_INVALID_ARGUMENT);
  OK(shunt_deregister(comm, (void *)recv));
  CHECK(shunt_deregister(comm, (void *)recv) == SHUNT_INVALID_ARGUMENT);
  reduce(comm, send, recv, stream, 3);

  /* A graph of a call, replayed between eager calls. */
  gpu_capture(stream);
  OK(shunt_all_reduce(comm, (void *)send, (void *)recv, COUNT, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, stream));
  run = gpu_captured(stream);
  for (int round = 0; round < 5; round++) {
    put(send, (float)round);
    GPU(GraphLaunch(run, stream));
    OK(shunt_synchronize(comm, stream));
    expect(recv, (float)round);
    reduce(comm, recv, recv, stream, (float)round);
  }
  GPU(GraphExecDestroy(run));
  counts_on_device(comm, stream);
  OK(shunt_close(comm));
  GPU(MemFree(send));
  GPU(MemFree(recv));
  GPU(StreamDestroy(stream));
  if (rank == 0)
    printf("gpu: %d ranks, one by one and in a graph, counts on the device: all right\n", world);
  return 0;
}
