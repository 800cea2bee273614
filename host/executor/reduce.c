/* reduce.c: cuts a reduction into blocks and chooses the kernels. */
#include "reduce.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>

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

/* The calling thread's floating-point environment is the program's: it may flush subnormals to zero, as -ffast-math has
 * it, round otherwise, or trap. Kernels run in the usual one, so that all ranks get the same bits. It is written only
 * where it differs, which costs more than to look. */
#if defined(__x86_64__)
typedef unsigned environment;
static const environment usual = 0x1F80; /* MXCSR: all exceptions masked, to nearest, subnormals as they are */
enum { FLAGS = 0x3F };                   /* what has happened so far */

static inline environment environment_get(void) { return _mm_getcsr() & ~(environment)FLAGS; }
static inline void environment_set(environment to) { _mm_setcsr(to); }
#elif defined(__aarch64__)
typedef uint64_t environment;
static const environment usual = 0; /* FPCR, likewise */

static inline environment environment_get(void) {
  environment is;
  __asm__ volatile("mrs %0, fpcr" : "=r"(is));
  return is;
}

static inline void environment_set(environment to) { __asm__ volatile("msr fpcr, %0" : : "r"(to) : "memory"); }
#else
typedef int environment;
static const environment usual = 0;

static inline environment environment_get(void) { return usual; }
static inline void environment_set(environment to) { (void)to; }
#endif

static inline environment enter_usual(void) {
  environment was = environment_get();
  if (SX_UNLIKELY(was != usual)) environment_set(usual);
  return was;
}

static inline void leave_usual(environment was) {
  if (SX_UNLIKELY(was != usual)) environment_set(was);
}

void sx_scale(uint32_t dtype, char *dst, const char *src, int64_t n, double factor) {
  environment was = enter_usual();
  kernels[dtype].scale(dst, src, n, factor);
  leave_usual(was);
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

static void combine(uint32_t dtype, uint32_t op, uint32_t world, char *dst, const sx_source *sources, uint32_t count,
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

void sx_reduce(uint32_t dtype, uint32_t op, uint32_t world, char *dst, const sx_source *sources, uint32_t count,
               int64_t n) {
  environment was = enter_usual();
  combine(dtype, op, world, dst, sources, count, n);
  leave_usual(was);
}
