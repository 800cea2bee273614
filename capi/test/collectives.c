/*
 * collectives.c: every operation of shunt.h, in whatever world the environment
 * describes, with inputs whose results are known. value(r, i) is element i of
 * rank r; all values are small integers, so float32 sums are exact.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MANY 1000

static int32_t rank, world;
static shunt_comm comm;

static float value(int r, int64_t i) { return (float)((r * 31 + i * 7) % 101 - 50); }

static float sum(int64_t i) {
  float total = 0;
  for (int r = 0; r < world; r++)
    total += value(r, i);
  return total;
}

static float *mine(int64_t count) {
  float *p = malloc((size_t)count * sizeof *p + 64);
  CHECK(p != NULL);
  for (int64_t i = 0; i < count; i++)
    p[i] = value(rank, i);
  return p;
}

/* A result with a guard behind it. */
static float *result(int64_t count) {
  float *p = malloc((size_t)count * sizeof *p + 64);
  CHECK(p != NULL);
  memset(p, 0x5A, (size_t)count * sizeof *p + 64);
  return p;
}

static void guarded(const float *p, int64_t count) {
  const unsigned char *guard = (const unsigned char *)(p + count);
  for (int i = 0; i < 64; i++)
    CHECK(guard[i] == 0x5A);
}

static void reductions(int64_t n) {
  float *in = mine(n * world), *out = result(n);
  OK(shunt_all_reduce(comm, in, out, n, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
  for (int64_t i = 0; i < n; i++)
    CHECK(out[i] == sum(i));
  guarded(out, n);

  OK(shunt_all_reduce(comm, in, out, n, SHUNT_DTYPE_FLOAT32, SHUNT_OP_MAX, NULL));
  for (int64_t i = 0; i < n; i++) {
    float want = value(0, i);
    for (int r = 1; r < world; r++)
      want = value(r, i) > want ? value(r, i) : want;
    CHECK(out[i] == want);
  }

  for (int root = 0; root < world; root++) {
    memset(out, 0x5A, (size_t)n * sizeof *out);
    OK(shunt_reduce(comm, in, out, n, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, root, NULL));
    for (int64_t i = 0; rank == root && i < n; i++)
      CHECK(out[i] == sum(i));
  }

  OK(shunt_reduce_scatter(comm, in, out, n, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
  for (int64_t i = 0; i < n; i++)
    CHECK(out[i] == sum(rank * n + i));
  guarded(out, n);

  shunt_operation scaled = SHUNT_OPERATION_INIT;
  scaled.collective = SHUNT_COLL_ALL_REDUCE;
  scaled.dtype = SHUNT_DTYPE_FLOAT32;
  scaled.op = SHUNT_OP_PREMUL_SUM;
  scaled.scalar = rank + 1;
  scaled.send = in;
  scaled.recv = out;
  scaled.count = n;
  OK(shunt_run(comm, &scaled));
  memset(out, 0x5A, (size_t)n * sizeof *out);
  /* As a caller of version 1.0: what follows its struct is not ours. */
  scaled.struct_size = offsetof(shunt_operation, counts_on_device);
  memset(&scaled.counts_on_device, 0x5A, sizeof scaled - scaled.struct_size);
  OK(shunt_run(comm, &scaled));
  for (int64_t i = 0; i < n; i++) {
    float want = 0;
    for (int r = 0; r < world; r++)
      want += (float)(r + 1) * value(r, i);
    CHECK(out[i] == want);
  }

  OK(shunt_all_reduce(comm, in, in, n, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
  for (int64_t i = 0; i < n; i++)
    CHECK(in[i] == sum(i));
  free(in);
  free(out);
}

static void copies(int64_t n) {
  float *in = mine(n * world), *out = result(n * world);
  for (int root = 0; root < world; root++) {
    OK(shunt_broadcast(comm, in, out, n, SHUNT_DTYPE_FLOAT32, root, NULL));
    for (int64_t i = 0; i < n; i++)
      CHECK(out[i] == value(root, i));
  }
  OK(shunt_all_gather(comm, in, out, n, SHUNT_DTYPE_FLOAT32, NULL));
  for (int r = 0; r < world; r++)
    for (int64_t i = 0; i < n; i++)
      CHECK(out[r * n + i] == value(r, i));
  OK(shunt_all_to_all(comm, in, out, n, SHUNT_DTYPE_FLOAT32, NULL));
  for (int r = 0; r < world; r++)
    for (int64_t i = 0; i < n; i++)
      CHECK(out[r * n + i] == value(r, rank * n + i));
  for (int root = 0; root < world; root++) {
    OK(shunt_gather(comm, in, out, n, SHUNT_DTYPE_FLOAT32, root, NULL));
    for (int r = 0; rank == root && r < world; r++)
      for (int64_t i = 0; i < n; i++)
        CHECK(out[r * n + i] == value(r, i));
    OK(shunt_scatter(comm, in, out, n, SHUNT_DTYPE_FLOAT32, root, NULL));
    for (int64_t i = 0; i < n; i++)
      CHECK(out[i] == value(root, rank * n + i));
  }
  guarded(out, n * world);
  free(in);
  free(out);
}

/* Rank r contributes r * 3 + 1 elements; between ranks a and b go a + 2 * b. */
static void varying(void) {
  int64_t counts[16], displs[16], to[16], from[16], total = 0, send_total = 0, recv_total = 0;
  CHECK(world <= 16);
  for (int r = 0; r < world; r++) {
    counts[r] = r * 3 + 1;
    displs[r] = total + r; /* gaps of r elements */
    total = displs[r] + counts[r];
    to[r] = rank + 2 * r;
    from[r] = r + 2 * rank;
    send_total += to[r];
    recv_total += from[r];
  }
  float *in = mine(total), *out = result(total);
  OK(shunt_all_gather_v(comm, in, out, counts, displs, SHUNT_DTYPE_FLOAT32, NULL));
  for (int r = 0; r < world; r++)
    for (int64_t i = 0; i < counts[r]; i++)
      CHECK(out[displs[r] + i] == value(r, i));

  OK(shunt_reduce_scatter_v(comm, in, out, counts, displs, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
  for (int64_t i = 0; i < counts[rank]; i++)
    CHECK(out[i] == sum(displs[rank] + i));

  for (int root = 0; root < world; root++) {
    OK(shunt_gather_v(comm, in, counts[rank], out, rank == root ? counts : NULL, rank == root ? displs : NULL,
                      SHUNT_DTYPE_FLOAT32, root, NULL));
    for (int r = 0; rank == root && r < world; r++)
      for (int64_t i = 0; i < counts[r]; i++)
        CHECK(out[displs[r] + i] == value(r, i));
    OK(shunt_scatter_v(comm, in, rank == root ? counts : NULL, rank == root ? displs : NULL, out, counts[rank],
                       SHUNT_DTYPE_FLOAT32, root, NULL));
    for (int64_t i = 0; i < counts[rank]; i++)
      CHECK(out[i] == value(root, displs[rank] + i));
  }
  guarded(out, total);
  free(in);
  free(out);

  in = mine(send_total);
  out = result(recv_total);
  OK(shunt_all_to_all_v(comm, in, to, NULL, out, from, NULL, SHUNT_DTYPE_FLOAT32, NULL));
  for (int64_t r = 0, at = 0; r < world; r++) {
    int64_t there = 0; /* where rank r's block for us begins on rank r */
    for (int before = 0; before < rank; before++)
      there += r + 2 * before;
    for (int64_t i = 0; i < from[r]; i++)
      CHECK(out[at + i] == value((int)r, there + i));
    at += from[r];
  }
  guarded(out, recv_total);
  free(in);
  free(out);
}

static void point_to_point(int64_t n) {
  float *in = mine(n), *out = result(n);
  int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  OK(shunt_group_start(comm));
  OK(shunt_group_start(comm)); /* groups nest */
  OK(shunt_send(comm, in, n, SHUNT_DTYPE_FLOAT32, next, NULL));
  OK(shunt_group_end(comm));
  OK(shunt_recv(comm, out, n, SHUNT_DTYPE_FLOAT32, previous, NULL));
  OK(shunt_group_end(comm));
  for (int64_t i = 0; i < n; i++)
    CHECK(out[i] == value(previous, i));
  guarded(out, n);
  if (world > 1 && rank < 2) {
    if (rank == 0)
      OK(shunt_send(comm, in, n, SHUNT_DTYPE_FLOAT32, 1, NULL));
    else
      OK(shunt_recv(comm, out, n, SHUNT_DTYPE_FLOAT32, 0, NULL));
    for (int64_t i = 0; rank == 1 && i < n; i++)
      CHECK(out[i] == value(0, i));
  }
  free(in);
  free(out);
}

static void started(int64_t n) {
  enum { REQUESTS = 8 };
  float *in = mine(n), *out[REQUESTS];
  shunt_request requests[REQUESTS];
  for (int k = 0; k < REQUESTS; k++) {
    shunt_operation operation = SHUNT_OPERATION_INIT;
    operation.collective = SHUNT_COLL_ALL_REDUCE;
    operation.dtype = SHUNT_DTYPE_FLOAT32;
    operation.op = SHUNT_OP_SUM;
    operation.send = in;
    operation.recv = out[k] = result(n);
    operation.count = n;
    OK(shunt_start(comm, &operation, &requests[k]));
  }
  for (int32_t done = 0; !done;)
    OK(shunt_request_test(requests[0], 1, &done));
  /* The last ends after all; a notice also comes of what has ended, and to a descriptor that was closed. */
  int last = eventfd(0, EFD_CLOEXEC), first = eventfd(0, EFD_CLOEXEC), closed = eventfd(0, EFD_CLOEXEC);
  uint64_t ended = 0;
  OK(shunt_request_notify(requests[REQUESTS - 1], closed));
  CHECK(close(closed) == 0);
  CHECK(shunt_request_notify(requests[0], -1) == SHUNT_INVALID_ARGUMENT);
  OK(shunt_request_notify(requests[REQUESTS - 1], last));
  CHECK(read(last, &ended, sizeof ended) == sizeof ended && ended == 1);
  for (int k = 0, done = 0; k < REQUESTS; k++) {
    OK(shunt_request_test(requests[k], 0, &done));
    CHECK(done);
  }
  OK(shunt_request_notify(requests[0], first));
  CHECK(read(first, &ended, sizeof ended) == sizeof ended && ended == 1);
  CHECK(close(last) == 0 && close(first) == 0);
  for (int k = 0; k < REQUESTS; k++) {
    OK(shunt_request_wait(requests[k]));
    CHECK(shunt_request_wait(requests[k]) == SHUNT_INVALID_ARGUMENT);
    for (int64_t i = 0; i < n; i++)
      CHECK(out[k][i] == sum(i));
    guarded(out[k], n);
    free(out[k]);
  }
  free(in);
}

/* A notice that is yet to come holds no number of a standard stream that the program has closed. */
static void noticed(void) {
  shunt_comm twin; /* tells the other ranks that rank 0 has looked */
  OK(shunt_split(comm, 0, rank, &twin));
  if (rank > 0) OK(shunt_barrier(twin, NULL));
  float one = 1, total = 0;
  shunt_operation operation = SHUNT_OPERATION_INIT;
  operation.collective = SHUNT_COLL_ALL_REDUCE;
  operation.dtype = SHUNT_DTYPE_FLOAT32;
  operation.op = SHUNT_OP_SUM;
  operation.send = &one;
  operation.recv = &total;
  operation.count = 1;
  shunt_request request;
  OK(shunt_start(comm, &operation, &request));
  if (rank == 0) {
    int input = dup(0), notice = eventfd(0, EFD_CLOEXEC);
    uint64_t ended = 0;
    CHECK(input > 2 && notice > 2 && close(0) == 0);
    OK(shunt_request_notify(request, notice));
    CHECK(fcntl(0, F_GETFD) == -1);
    CHECK(dup2(input, 0) == 0 && close(input) == 0);
    OK(shunt_barrier(twin, NULL));
    CHECK(read(notice, &ended, sizeof ended) == sizeof ended && ended == 1 && close(notice) == 0);
  }
  OK(shunt_request_wait(request));
  CHECK(total == (float)world);
  OK(shunt_close(twin));
}

static void sub_groups(void) {
  shunt_comm half, none;
  int32_t r, w;
  float one = 1, total = 0;
  OK(shunt_split(comm, rank % 2, -rank, &half));
  OK(shunt_rank(half, &r));
  OK(shunt_world(half, &w));
  CHECK(w == (world + 1 - rank % 2) / 2);
  CHECK(r == w - 1 - rank / 2);
  OK(shunt_all_reduce(half, &one, &total, 1, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
  CHECK(total == (float)w);
  OK(shunt_close(half));
  OK(shunt_split(comm, rank == 0 ? 5 : SHUNT_NO_COLOR, 0, &none));
  CHECK((none != NULL) == (rank == 0));
  if (none != NULL)
    OK(shunt_close(none));
}

static void one_sided(void) {
  shunt_window window;
  void *base;
  int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  OK(shunt_window_create(comm, MANY * (int64_t)sizeof(float), &window, &base));
  float *in = mine(MANY), *out = result(MANY);
  for (int i = 0; i < MANY; i++)
    CHECK(((float *)base)[i] == 0);
  OK(shunt_barrier(comm, NULL));
  OK(shunt_put(comm, window, in, MANY / 2, SHUNT_DTYPE_FLOAT32, next, 16, NULL));
  OK(shunt_signal(comm, window, next, NULL));
  OK(shunt_wait(comm, window, previous, 1, NULL));
  for (int i = 0; i < MANY / 2; i++)
    CHECK(((float *)base)[4 + i] == value(previous, i));
  OK(shunt_barrier(comm, NULL));
  OK(shunt_get(comm, window, out, MANY / 2, SHUNT_DTYPE_FLOAT32, next, 16, NULL));
  for (int i = 0; i < MANY / 2; i++)
    CHECK(out[i] == value(rank, i));
  OK(shunt_barrier(comm, NULL));
  OK(shunt_window_free(window));
  CHECK(shunt_window_free(window) == SHUNT_INVALID_ARGUMENT);
  free(in);
  free(out);
}

static void exchanged(void) {
  int64_t mine[2] = {rank, rank * rank}, all[2 * 64] = {0};
  CHECK(world <= 64);
  OK(shunt_exchange(comm, mine, sizeof mine, all));
  for (int r = 0; r < world; r++)
    CHECK(all[2 * r] == r && all[2 * r + 1] == r * r);
  OK(shunt_exchange(comm, NULL, 0, NULL));
}

static void explained(void) {
  char text[4096];
  size_t needed = 0;
  OK(shunt_explain(comm, SHUNT_COLL_ALL_REDUCE, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, 2, NULL, 0, &needed));
  CHECK(needed > 1 && needed <= sizeof text);
  OK(shunt_explain(comm, SHUNT_COLL_ALL_REDUCE, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, 2, text, sizeof text, &needed));
  CHECK(strlen(text) + 1 == needed);
  CHECK(strstr(text, "shm") != NULL);
  CHECK(strstr(text, "\xC2\xB5") != NULL); /* of µs, which is not cut in two */
  for (size_t capacity = 1; capacity < needed; capacity++) {
    OK(shunt_explain(comm, SHUNT_COLL_ALL_REDUCE, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, 2, text, capacity, NULL));
    CHECK(strlen(text) < capacity && strchr(text, 0)[-(capacity > 1)] != '\xC2');
  }
}

int main(void) {
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  const int64_t sizes[] = {0, 1, 3, 1000, 70001};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    reductions(sizes[k]);
    copies(sizes[k]);
    point_to_point(sizes[k]);
    started(sizes[k]);
  }
  varying();
  noticed();
  sub_groups();
  one_sided();
  exchanged();
  explained();
  OK(shunt_barrier(comm, NULL));
  OK(shunt_close(comm));
  printf("rank %d of %d: ok\n", rank, world);
  return 0;
}
