/* rounding.c: the ranks' threads have different floating-point environments, and all ranks get the same bits. Each
 * environment is afterwards as before. */
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "check.h"

enum { MOST = 20000 };

static float mine[MOST], sums[MOST];

/* Sets bits of the thread's environment. */
static void environment(unsigned bits) {
#if defined(__x86_64__)
  _mm_setcsr(0x1F80 | bits);
#else
  (void)bits;
#endif
}

static int environment_is(unsigned bits) {
#if defined(__x86_64__)
  return (_mm_getcsr() & ~0x3FU) == (0x1F80 | bits);
#else
  return (int)(bits | 1);
#endif
}

/* Reduces the first n floats, and compares the results with those of rank 0. */
static void same(shunt_comm comm, int64_t n, shunt_op op) {
  static float all[4 * MOST];
  int32_t world;
  OK(shunt_world(comm, &world));
  CHECK(world <= 4);
  OK(shunt_all_reduce(comm, mine, sums, n, SHUNT_DTYPE_FLOAT32, op, NULL));
  OK(shunt_all_gather(comm, sums, all, n, SHUNT_DTYPE_FLOAT32, NULL));
  for (int32_t rank = 1; rank < world; rank++) CHECK(memcmp(all, all + rank * n, (size_t)n * sizeof(float)) == 0);
}

int main(void) {
  shunt_comm comm;
  int32_t rank;
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  const unsigned rounds[] = {0, 0x4000, 0x2000}; /* to nearest, up, down */
  environment(rounds[rank % 3]);
  for (int64_t n = 1; n <= MOST; n = n * 27 + 3) {
    for (int64_t i = 0; i < n; i++) mine[i] = 0.1F * (float)(i + 1) + 0.001F * (float)rank;
    same(comm, n, SHUNT_OP_SUM);
    same(comm, n, SHUNT_OP_AVG);
  }
  CHECK(environment_is(rounds[rank % 3]));
  const unsigned flush = rank == 1 ? 0x8040 : 0; /* subnormal operands and results are zero */
  environment(flush);
  for (int64_t n = 1; n <= MOST; n = n * 27 + 3) {
    for (int64_t i = 0; i < n; i++) {
      uint32_t subnormal = (uint32_t)(i % 1000 + 1);
      memcpy(&mine[i], &subnormal, sizeof subnormal);
    }
    same(comm, n, SHUNT_OP_SUM);
    uint32_t first;
    memcpy(&first, &sums[0], sizeof first);
    CHECK(first != 0);
  }
  CHECK(environment_is(flush));
  OK(shunt_close(comm));
  return 0;
}
