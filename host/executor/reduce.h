/*
 * reduce.h: n-ary reductions over every dtype and op.
 *
 * Sources are combined in the order given, element by element, as if by
 * acc = s0; acc = acc op s1; … and stored once. Integers wrap; float16,
 * bfloat16 and float8 accumulate in float32 and are rounded once, to nearest
 * even; float8_e4m3 saturates at 448, float8_e5m2 overflows to infinity. min
 * and max return NaN if any source is NaN, and the earlier of equal values.
 * avg divides by the world size at the end; integers truncate toward zero.
 *
 * A scaled source is multiplied by its factor first and the product is rounded
 * to the dtype. float64 multiplies in float64, narrower floats in float32 with
 * the factor rounded to float32. Integers multiply exactly and wrap when the
 * factor is an integer below 2^63 in magnitude; otherwise the product is
 * formed in float64, rounded to nearest even, and saturates (NaN becomes 0).
 *
 * The calling thread's floating-point environment matters to none of it.
 */
#ifndef SHUNT_EXECUTOR_REDUCE_H
#define SHUNT_EXECUTOR_REDUCE_H

#include "engine.h"

/* dst may be the same address as any source; it must not overlap one
 * otherwise. count ≥ 1 sources, n elements. */
void sx_reduce(uint32_t dtype, uint32_t op, uint32_t world, char *dst, const sx_source *sources, uint32_t count,
               int64_t n);

/* dst = src * factor, rounded to the dtype; dst may be src. */
void sx_scale(uint32_t dtype, char *dst, const char *src, int64_t n, double factor);

/* Choose an instruction set by name ("baseline", "avx2", "avx512"; null: the
 * best); 0, or -1 where the processor does not have it. For tests and benchmarks. */
int sx_reduce_use(const char *name);

/* ---- kernels of one dtype ------------------------------------------------- */

/* Operations that kernels know; avg and premul_sum are sums. */
enum { SX_SUM, SX_PROD, SX_LEAST, SX_MOST, SX_COMBINES };

/* Elements that an accumulator block holds; 8 KiB in float32. */
#define SX_BLOCK 2048

/* How one op combines: pointers are to elements (T) or accumulators (C). */
typedef struct sx_combine {
  void (*pair)(void *dst, const void *a, const void *b, int64_t n);                /* T = T op T */
  void (*triple)(void *dst, const void *const *s, int64_t n);                      /* T = T op T op T, or null */
  void (*quad)(void *dst, const void *const *s, int64_t n);                        /* the same of four, or null */
  void (*begin)(void *acc, const void *a, const void *b, int64_t n);               /* C = T op T */
  void (*add)(void *acc, const void *a, int64_t n);                                /* C = C op T */
  void (*add_two)(void *acc, const void *a, const void *b, int64_t n);             /* C = C op T op T */
} sx_combine;

typedef struct sx_kernels {
  sx_combine combine[SX_COMBINES];
  void (*load)(void *acc, const void *a, int64_t n);            /* C = T */
  void (*store)(void *dst, const void *acc, int64_t n);         /* T = C, rounded */
  void (*divide)(void *acc, uint32_t world, int64_t n);         /* C = C / world */
  void (*scale)(void *dst, const void *a, int64_t n, double f); /* T = T * f, rounded */
} sx_kernels;

/* One table per instruction set, indexed by dtype. */
extern const sx_kernels sx_kernels_baseline[12];
#if defined(__x86_64__)
extern const sx_kernels sx_kernels_avx2[12];
extern const sx_kernels sx_kernels_avx512[12];
#endif

#endif
