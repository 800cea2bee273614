/*
 * matrix.c: every collective, data type and operation of NCCL at several counts, each result compared to the bit.
 * The inputs are such that every result is exact in every data type.
 */
#include <math.h>

#include "ranks.h"

enum { TYPES = 12, FLOAT8 = 10, OPS = 6, AVG = 4, PREMUL = 5 };
static const size_t sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const size_t counts[] = {0, 1, 3, 1000, 131073};
static int cases;

static uint32_t hash(uint32_t a, uint32_t b) {
  uint32_t h = a * 0x9E3779B1u ^ b * 0x85EBCA77u;
  h = (h ^ h >> 15) * 0x2C1B3C6Du;
  return h ^ h >> 13;
}

/* bits is a small number as a float of so many bits of exponent and fraction. */
static uint64_t bits(double value, int exponent_bits, int fraction_bits) {
  int exponent;
  double fraction = frexp(value, &exponent); /* 0.5 to 1 */
  if (value == 0)
    return 0;
  uint64_t biased = (uint64_t)(exponent - 1 + (1 << (exponent_bits - 1)) - 1);
  return biased << fraction_bits | (uint64_t)((fraction * 2 - 1) * (double)(UINT64_C(1) << fraction_bits));
}

static void put(unsigned char *at, int dtype, double value) {
  static const int exponents[TYPES] = {0, 0, 0, 0, 0, 0, 5, 8, 11, 8, 4, 5},
                   fractions[TYPES] = {0, 0, 0, 0, 0, 0, 10, 23, 52, 7, 3, 2};
  uint64_t raw = exponents[dtype] ? bits(value, exponents[dtype], fractions[dtype]) : (uint64_t)value;
  memcpy(at, &raw, sizes[dtype]);
}

/* given returns a rank's input of a reduction, bytes that of the other collectives. */
static double given(int rank, size_t i) { return 1 + (hash((uint32_t)rank + 1, (uint32_t)i) & 1); }
static unsigned char byte(int rank, size_t i) { return (unsigned char)hash((uint32_t)rank + 17, (uint32_t)i); }

static double reduced(int op, int dtype, size_t i) {
  double result = op == 1 ? 1 : op == 2 ? 0 : op == 3 ? 100 : 0;
  for (int r = 0; r < world; r++) {
    double x = given(r, i);
    result = op == 1 ? result * x : op == 2 ? fmax(result, x) : op == 3 ? fmin(result, x)
             : op == PREMUL ? result + 2 * x : result + x;
  }
  if (op == AVG)
    result = dtype < 6 ? floor(result / world) : result / world;
  return result;
}

enum call { ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCTIONS, BROADCAST = REDUCTIONS, BCAST, ALL_GATHER, ALL_TO_ALL,
            GATHER, SCATTER, RING, CALLS };
static const char *const call_names[] = {"all_reduce", "reduce", "reduce_scatter", "broadcast", "bcast", "all_gather",
                                         "all_to_all", "gather", "scatter", "send/recv"};

static size_t blocks(enum call call, int sends) {
  switch (call) {
  case REDUCE_SCATTER:
  case SCATTER:
    return sends ? (size_t)world : 1;
  case ALL_GATHER:
  case GATHER:
    return sends ? 1 : (size_t)world;
  case ALL_TO_ALL:
    return (size_t)world;
  default:
    return 1;
  }
}

/* wanted writes what rank has received; false: nothing is to be looked at. */
static int wanted(enum call call, int dtype, int op, size_t count, int root, int rank, unsigned char *into) {
  size_t size = sizes[dtype], bytes = count * size;
  switch (call) {
  case ALL_REDUCE:
  case REDUCE:
    for (size_t i = 0; i < count; i++)
      put(into + i * size, dtype, reduced(op, dtype, i));
    return call == ALL_REDUCE || rank == root;
  case REDUCE_SCATTER:
    for (size_t i = 0; i < count; i++)
      put(into + i * size, dtype, reduced(op, dtype, (size_t)rank * count + i));
    return 1;
  case BROADCAST:
  case BCAST:
    for (size_t i = 0; i < bytes; i++)
      into[i] = byte(root, i);
    return 1;
  case SCATTER:
    for (size_t i = 0; i < bytes; i++)
      into[i] = byte(root, (size_t)rank * bytes + i);
    return 1;
  case RING:
    for (size_t i = 0; i < bytes; i++)
      into[i] = byte((rank + world - 1) % world, i);
    return 1;
  default: /* all_gather, gather, all_to_all */
    for (int r = 0; r < world; r++)
      for (size_t i = 0; i < bytes; i++)
        into[(size_t)r * bytes + i] = byte(r, call == ALL_TO_ALL ? (size_t)rank * bytes + i : i);
    return call != GATHER || rank == root;
  }
}

static ncclResult_t issue(enum call call, struct rank *r, void *send, void *recv, size_t count, int dtype, int op,
                          int root) {
  switch (call) {
  case ALL_REDUCE:
    return ncclAllReduce(send, recv, count, dtype, op, r->comm, r->stream);
  case REDUCE:
    return ncclReduce(send, recv, count, dtype, op, root, r->comm, r->stream);
  case REDUCE_SCATTER:
    return ncclReduceScatter(send, recv, count, dtype, op, r->comm, r->stream);
  case BROADCAST:
    return ncclBroadcast(send, recv, count, dtype, root, r->comm, r->stream);
  case BCAST:
    return ncclBcast(recv, count, dtype, root, r->comm, r->stream);
  case ALL_GATHER:
    return ncclAllGather(send, recv, count, dtype, r->comm, r->stream);
  case ALL_TO_ALL:
    return ncclAlltoAll(send, recv, count, dtype, r->comm, r->stream);
  case GATHER:
    return ncclGather(send, recv, count, dtype, root, r->comm, r->stream);
  case SCATTER:
    return ncclScatter(send, recv, count, dtype, root, r->comm, r->stream);
  default:
    CHECK(ncclSend(send, count, dtype, (r->rank + 1) % world, r->comm, r->stream));
    return ncclRecv(recv, count, dtype, (r->rank + world - 1) % world, r->comm, r->stream);
  }
}

static void run(enum call call, int dtype, int op, size_t count, int root) {
  size_t send_count = count * blocks(call, 1), recv_count = count * blocks(call, 0), size = sizes[dtype];
  unsigned char *image = malloc((send_count > recv_count ? send_count : recv_count) * size + 1);
  unsigned char *want = malloc(recv_count * size + 1);
  void *send[MOST], *recv[MOST];
  ncclRedOp_t ops[MOST];
  for (int l = 0; l < here; l++) {
    struct rank *r = &ranks[l];
    device_use(device_of(r));
    send[l] = device_alloc(send_count * size);
    recv[l] = device_alloc(recv_count * size);
    for (size_t i = 0; i < (call < REDUCTIONS ? send_count : send_count * size); i++)
      if (call < REDUCTIONS)
        put(image + i * size, dtype, given(r->rank, i));
      else
        image[i] = byte(r->rank, i);
    device_write(call == BCAST ? recv[l] : send[l], image, send_count * size);
    ops[l] = op;
    if (op == PREMUL) {
      unsigned char two[8];
      put(two, dtype, 2);
      CHECK(ncclRedOpCreatePreMulSum(&ops[l], two, dtype, 1, r->comm));
    }
  }
  CHECK(ncclGroupStart());
  for (int l = 0; l < here; l++) {
    ncclResult_t issued = issue(call, &ranks[l], send[l], recv[l], count, dtype, ops[l], root);
    if (issued != ncclSuccess) {
      fprintf(stderr, "%s of %zu elements of type %d, op %d, root %d on rank %d returned %d: %s\n", call_names[call],
              count, dtype, op, root, ranks[l].rank, issued, ncclGetLastError(ranks[l].comm));
      exit(1);
    }
  }
  CHECK(ncclGroupEnd());
  for (int l = 0; l < here; l++) {
    struct rank *r = &ranks[l];
    device_use(device_of(r));
    device_wait(r->stream);
    device_read(image, recv[l], recv_count * size);
    if (wanted(call, dtype, op, count, root, r->rank, want) && memcmp(image, want, recv_count * size) != 0) {
      size_t at = 0;
      while (image[at] == want[at])
        at++;
      fprintf(stderr, "%s of %zu elements of type %d, op %d, root %d: byte %zu on rank %d is %d, want %d\n",
              call_names[call], count, dtype, op, root, at, r->rank, image[at], want[at]);
      exit(1);
    }
    if (op == PREMUL)
      CHECK(ncclRedOpDestroy(ops[l], r->comm));
    device_free(send[l]);
    device_free(recv[l]);
  }
  free(image);
  free(want);
  cases++;
}

/*
 * lacking says what NVIDIA's library, where it serves the call, returns an invalid argument for: averages and
 * premultiplied sums of float8.
 */
static int lacking(enum call call, int dtype, int op) {
  const char *forward = getenv("SHUNT_NCCL_FORWARD");
  return forward != NULL && (strcmp(forward, "all") == 0 || strstr(forward, call_names[call]) != NULL) && op >= AVG &&
         dtype >= FLOAT8;
}

int main(int argc, char **argv) {
  start(argc, argv);
  size_t largest = getenv("MATRIX_LARGEST") ? strtoull(getenv("MATRIX_LARGEST"), NULL, 10) : SIZE_MAX;
  for (int call = 0; call < CALLS; call++)
    for (int dtype = 0; dtype < TYPES; dtype++)
      for (int op = 0; op < (call < REDUCTIONS ? OPS : 1); op++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
          if (counts[c] <= largest && !lacking((enum call)call, dtype, op))
            run((enum call)call, dtype, op, counts[c], (dtype + (int)c) % world);
  finish();
  printf("%d cases\n", cases);
  return 0;
}
