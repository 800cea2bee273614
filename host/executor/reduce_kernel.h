/*
 * reduce_kernel.h: the loops of a reduction, compiled once for each
 * instruction set by the file that includes this one and defines SX_TABLE, the
 * name of the table. Loops are plain C over arrays that may be one and the
 * same but do not overlap otherwise, so ivdep is true of every one of them.
 */
#include "float.h"
#include "reduce.h"

#include <math.h>
#include <stddef.h>

/* Elements may lie at any address: a plan's offsets are data. */
#define SX_ANY(T) T __attribute__((aligned(1), may_alias))
typedef SX_ANY(int8_t) any_i8;
typedef SX_ANY(uint8_t) any_u8;
typedef SX_ANY(int32_t) any_i32;
typedef SX_ANY(uint32_t) any_u32;
typedef SX_ANY(int64_t) any_i64;
typedef SX_ANY(uint64_t) any_u64;
typedef SX_ANY(uint16_t) any_u16;
typedef SX_ANY(float) any_f32;
typedef SX_ANY(double) any_f64;

/* clang, which compiles for other processors, neither knows ivdep nor GCC's pragmas of the files
 * that include this one. Products are rounded before they are added, on every processor. */
#if defined(__clang__)
#pragma clang fp contract(off)
#define SX_EACH _Pragma("clang loop vectorize(assume_safety)") for (int64_t i = 0; i < n; i++)
#else
#define SX_EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
#endif
#define SX_SAME(x) (x)

/* Wrapping sums and products are formed in unsigned arithmetic. */
#define SX_ADD_OF(C, U, a, b) ((C)((U)(a) + (U)(b)))
#define SX_MUL_OF(C, U, a, b) ((C)((U)(a) * (U)(b)))
/* Ties and NaNs in a keep a; a NaN in b fails every comparison and wins. */
#define SX_LEAST_OF(C, U, a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))
#define SX_MOST_OF(C, U, a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))

/* The loops of one dtype (elements T, accumulators C, wrapping in U, LOAD and
 * STORE between them) and one op. */
#define SX_COMBINE(name, op, T, C, U, LOAD, STORE, OF)                                                \
  static void name##_##op##_pair(void *dst, const void *a, const void *b, int64_t n) {               \
    T *d = dst;                                                                                       \
    const T *x = a, *y = b;                                                                           \
    SX_EACH {                                                                                         \
      C p = LOAD(x[i]), q = LOAD(y[i]);                                                               \
      d[i] = STORE(OF(C, U, p, q));                                                                   \
    }                                                                                                 \
  }                                                                                                   \
  static void name##_##op##_begin(void *acc, const void *a, const void *b, int64_t n) {              \
    C *r = acc;                                                                                       \
    const T *x = a, *y = b;                                                                           \
    SX_EACH {                                                                                         \
      C p = LOAD(x[i]), q = LOAD(y[i]);                                                               \
      r[i] = OF(C, U, p, q);                                                                          \
    }                                                                                                 \
  }                                                                                                   \
  static void name##_##op##_add(void *acc, const void *a, int64_t n) {                               \
    C *r = acc;                                                                                       \
    const T *x = a;                                                                                   \
    SX_EACH {                                                                                         \
      C p = r[i], q = LOAD(x[i]);                                                                     \
      r[i] = OF(C, U, p, q);                                                                          \
    }                                                                                                 \
  }                                                                                                   \
  static void name##_##op##_add_two(void *acc, const void *a, const void *b, int64_t n) {            \
    C *r = acc;                                                                                       \
    const T *x = a, *y = b;                                                                           \
    SX_EACH {                                                                                         \
      C p = r[i], q = LOAD(x[i]), s = LOAD(y[i]);                                                     \
      C t = OF(C, U, p, q);                                                                           \
      r[i] = OF(C, U, t, s);                                                                          \
    }                                                                                                 \
  }

/* Sums of three and four sources in one pass: the case that matters most. */
#define SX_WIDE(name, T, C, U, LOAD, STORE)                                                           \
  static void name##_triple(void *dst, const void *const *s, int64_t n) {                            \
    T *d = dst;                                                                                       \
    const T *x = s[0], *y = s[1], *z = s[2];                                                          \
    SX_EACH {                                                                                         \
      C p = LOAD(x[i]), q = LOAD(y[i]), r = LOAD(z[i]);                                               \
      C t = SX_ADD_OF(C, U, p, q);                                                                    \
      d[i] = STORE(SX_ADD_OF(C, U, t, r));                                                            \
    }                                                                                                 \
  }                                                                                                   \
  static void name##_quad(void *dst, const void *const *s, int64_t n) {                              \
    T *d = dst;                                                                                       \
    const T *x = s[0], *y = s[1], *z = s[2], *w = s[3];                                               \
    SX_EACH {                                                                                         \
      C p = LOAD(x[i]), q = LOAD(y[i]), r = LOAD(z[i]), v = LOAD(w[i]);                               \
      C t = SX_ADD_OF(C, U, p, q);                                                                    \
      t = SX_ADD_OF(C, U, t, r);                                                                      \
      d[i] = STORE(SX_ADD_OF(C, U, t, v));                                                            \
    }                                                                                                 \
  }

/* What does not depend on the op. W is wide enough for any world size. */
#define SX_CONVERT(name, T, C, W, LOAD, STORE)                                                        \
  static void name##_load(void *acc, const void *a, int64_t n) {                                     \
    C *r = acc;                                                                                       \
    const T *x = a;                                                                                   \
    SX_EACH r[i] = LOAD(x[i]);                                                                        \
  }                                                                                                   \
  static void name##_store(void *dst, const void *acc, int64_t n) {                                  \
    T *d = dst;                                                                                       \
    const C *r = acc;                                                                                 \
    SX_EACH d[i] = STORE(r[i]);                                                                       \
  }                                                                                                   \
  static void name##_divide(void *acc, uint32_t world, int64_t n) {                                  \
    C *r = acc;                                                                                       \
    W w = (W)world;                                                                                   \
    SX_EACH r[i] = (C)((W)r[i] / w);                                                                  \
  }

#define SX_SCALE_FLOAT(name, T, C, LOAD, STORE)                                                       \
  static void name##_scale(void *dst, const void *a, int64_t n, double factor) {                     \
    T *d = dst;                                                                                       \
    const T *x = a;                                                                                   \
    C f = (C)factor;                                                                                  \
    SX_EACH d[i] = STORE(LOAD(x[i]) * f);                                                             \
  }

/* top is 2^bits of the largest value, exactly representable in float64. */
#define SX_SCALE_INTEGER(name, T, C, U, least, most, top)                                             \
  static void name##_scale(void *dst, const void *a, int64_t n, double factor) {                     \
    T *d = dst;                                                                                       \
    const T *x = a;                                                                                   \
    if (factor > -0x1p63 && factor < 0x1p63 && (double)(int64_t)factor == factor) {                   \
      U f = (U)(uint64_t)(int64_t)factor;                                                             \
      SX_EACH d[i] = SX_MUL_OF(C, U, x[i], f);                                                        \
      return;                                                                                         \
    }                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                 \
      double p = nearbyint((double)x[i] * factor);                                                    \
      d[i] = p != p ? 0 : p >= top ? most : p <= (double)least ? least : (C)p;                        \
    }                                                                                                 \
  }

#define SX_DTYPE(name, T, C, U, W, LOAD, STORE)                                                       \
  SX_COMBINE(name, sum, T, C, U, LOAD, STORE, SX_ADD_OF)                                              \
  SX_COMBINE(name, prod, T, C, U, LOAD, STORE, SX_MUL_OF)                                             \
  SX_COMBINE(name, least, T, C, U, LOAD, STORE, SX_LEAST_OF)                                          \
  SX_COMBINE(name, most, T, C, U, LOAD, STORE, SX_MOST_OF)                                            \
  SX_CONVERT(name, T, C, W, LOAD, STORE)

#define SX_INTEGER(name, T, C, U, W, least, most, top)                                                \
  SX_DTYPE(name, T, C, U, W, SX_SAME, SX_SAME)                                                        \
  SX_SCALE_INTEGER(name, T, C, U, least, most, top)

#define SX_FLOAT(name, T, C, LOAD, STORE)                                                             \
  SX_DTYPE(name, T, C, C, C, LOAD, STORE)                                                             \
  SX_WIDE(name, T, C, C, LOAD, STORE)                                                                 \
  SX_SCALE_FLOAT(name, T, C, LOAD, STORE)

SX_INTEGER(i8, any_i8, int8_t, uint8_t, int32_t, INT8_MIN, INT8_MAX, 0x1p7)
SX_INTEGER(u8, any_u8, uint8_t, uint8_t, uint32_t, 0, UINT8_MAX, 0x1p8)
SX_INTEGER(i32, any_i32, int32_t, uint32_t, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
SX_INTEGER(u32, any_u32, uint32_t, uint32_t, uint32_t, 0, UINT32_MAX, 0x1p32)
SX_INTEGER(i64, any_i64, int64_t, uint64_t, int64_t, INT64_MIN, INT64_MAX, 0x1p63)
SX_INTEGER(u64, any_u64, uint64_t, uint64_t, uint64_t, 0, UINT64_MAX, 0x1p64)
SX_FLOAT(f32, any_f32, float, SX_SAME, SX_SAME)
SX_FLOAT(f64, any_f64, double, SX_SAME, SX_SAME)
SX_FLOAT(bf16, any_u16, float, float_of_bf16, bf16_of_float)
#if defined(SX_F16C)
SX_FLOAT(f16_any, any_u16, float, float_of_f16, f16_of_float)
#include "reduce_f16.h"
#else
SX_FLOAT(f16, any_u16, float, float_of_f16, f16_of_float)
#endif
SX_FLOAT(e4m3, any_u8, float, float_of_e4m3, e4m3_of_float)
SX_FLOAT(e5m2, any_u8, float, float_of_e5m2, e5m2_of_float)

#define SX_COMBINE_ENTRY(name, op, wide3, wide4) \
  {name##_##op##_pair, wide3, wide4, name##_##op##_begin, name##_##op##_add, name##_##op##_add_two}
#define SX_ENTRY(name, wide3, wide4)                                                                  \
  {{SX_COMBINE_ENTRY(name, sum, wide3, wide4), SX_COMBINE_ENTRY(name, prod, NULL, NULL),              \
    SX_COMBINE_ENTRY(name, least, NULL, NULL), SX_COMBINE_ENTRY(name, most, NULL, NULL)},             \
   name##_load, name##_store, name##_divide, name##_scale}
#define SX_INTEGER_ENTRY(name) SX_ENTRY(name, NULL, NULL)
#define SX_FLOAT_ENTRY(name) SX_ENTRY(name, name##_triple, name##_quad)

const sx_kernels SX_TABLE[12] = {
  [SHUNT_DTYPE_INT8] = SX_INTEGER_ENTRY(i8),
  [SHUNT_DTYPE_UINT8] = SX_INTEGER_ENTRY(u8),
  [SHUNT_DTYPE_INT32] = SX_INTEGER_ENTRY(i32),
  [SHUNT_DTYPE_UINT32] = SX_INTEGER_ENTRY(u32),
  [SHUNT_DTYPE_INT64] = SX_INTEGER_ENTRY(i64),
  [SHUNT_DTYPE_UINT64] = SX_INTEGER_ENTRY(u64),
  [SHUNT_DTYPE_FLOAT16] = SX_FLOAT_ENTRY(f16),
  [SHUNT_DTYPE_FLOAT32] = SX_FLOAT_ENTRY(f32),
  [SHUNT_DTYPE_FLOAT64] = SX_FLOAT_ENTRY(f64),
  [SHUNT_DTYPE_BFLOAT16] = SX_FLOAT_ENTRY(bf16),
  [SHUNT_DTYPE_FLOAT8_E4M3] = SX_FLOAT_ENTRY(e4m3),
  [SHUNT_DTYPE_FLOAT8_E5M2] = SX_FLOAT_ENTRY(e5m2),
};
