/* reduce.c: cuts a reduction into blocks and chooses the kernels. */
#include "reduce.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>

/* clang does not know f16c by name. */
static int f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static const sx_kernels *best(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c();
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return sx_kernels_avx512;
  if (avx2) return sx_kernels_avx2;
#endif
  return sx_kernels_baseline;
}

/* Written before the first run, by a constructor, and by tests between runs. */
static const sx_kernels *kernels = sx_kernels_baseline;

__attribute__((constructor)) static void choose(void) { kernels = best(); }

int sx_reduce_use(const char *name) {
  const sx_kernels *most = best();
  if (!name) kernels = most;
  else if (!strcmp(name, "baseline")) kernels = sx_kernels_baseline;
#if defined(__x86_64__)
  else if (!strcmp(name, "avx2") && most != sx_kernels_baseline) kernels = sx_kernels_avx2;
  else if (!strcmp(name, "avx512") && most == sx_kernels_avx512) kernels = sx_kernels_avx512;
#endif
  else return -1;
  return 0;
}

static const uint8_t element[12] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const uint8_t combines[6] = {SX_SUM, SX_PROD, SX_MOST, SX_LEAST, SX_SUM, SX_SUM};

void sx_scale(uint32_t dtype, char *dst, const char *src, int64_t n, double factor) {
  kernels[dtype].scale(dst, src, n, factor);
}

/* One block of a source: in place, or scaled into scratch. */
static inline const void *block_of(const sx_kernels *k, const sx_source *s, int64_t offset, int64_t n, void *scratch) {
  if (!s->scaled) return s->at + offset;
  k->scale(scratch, s->at + offset, n, s->factor);
  return scratch;
}

/* Any number of sources, through an accumulator that stays in the first-level
 * cache. All sources of a block are read before dst's block is written, so dst
 * may be any of them. */
static void blocked(const sx_kernels *k, const sx_combine *c, uint32_t size, uint32_t divisor, char *dst,
                    const sx_source *sources, uint32_t count, int64_t n) {
  _Alignas(64) char acc[SX_BLOCK * 8], first[SX_BLOCK * 8], second[SX_BLOCK * 8];
  for (int64_t done = 0; done < n; done += SX_BLOCK) {
    int64_t m = n - done < SX_BLOCK ? n - done : SX_BLOCK, offset = done * size;
    uint32_t i = 1;
    const void *a = block_of(k, &sources[0], offset, m, first);
    if (count == 1) {
      k->load(acc, a, m);
    } else {
      c->begin(acc, a, block_of(k, &sources[1], offset, m, second), m);
      i = 2;
    }
    for (; i + 1 < count; i += 2) {
      a = block_of(k, &sources[i], offset, m, first);
      c->add_two(acc, a, block_of(k, &sources[i + 1], offset, m, second), m);
    }
    if (i < count) c->add(acc, block_of(k, &sources[i], offset, m, first), m);
    if (divisor > 1) k->divide(acc, divisor, m);
    k->store(dst + offset, acc, m);
  }
}

void sx_reduce(uint32_t dtype, uint32_t op, uint32_t world, char *dst, const sx_source *sources, uint32_t count,
               int64_t n) {
  const sx_kernels *k = &kernels[dtype];
  const sx_combine *c = &k->combine[combines[op]];
  int scaled = 0;
  for (uint32_t i = 0; i < count; i++) scaled |= sources[i].scaled;
  if (!scaled && op != SHUNT_OP_AVG) {
    switch (count) {
    case 1:
      if (dst != sources[0].at) memmove(dst, sources[0].at, (size_t)(n * element[dtype]));
      return;
    case 2:
      c->pair(dst, sources[0].at, sources[1].at, n);
      return;
    case 3:
      if (!c->triple) break;
      c->triple(dst, (const void *const[]){sources[0].at, sources[1].at, sources[2].at}, n);
      return;
    case 4:
      if (!c->quad) break;
      c->quad(dst, (const void *const[]){sources[0].at, sources[1].at, sources[2].at, sources[3].at}, n);
      return;
    }
  }
  blocked(k, c, element[dtype], op == SHUNT_OP_AVG ? world : 1, dst, sources, count, n);
}
