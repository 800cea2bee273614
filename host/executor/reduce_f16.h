/*
 * reduce_f16.h: float16 loops on the processor's own conversions (F16C or
 * AVX-512), which are three times as fast as the portable ones. Included by
 * reduce_kernel.h in place of its float16 loops; same names, same results.
 */
#if defined(SX_AVX512)
typedef __m512 f16_vector;
#define F16_LANES 16
#define F16_LOAD(p) _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p)))
#define F16_STORE(p, v) \
  _mm256_storeu_si256((void *)(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define F16_LOAD_ACC(p) _mm512_loadu_ps(p)
#define F16_STORE_ACC(p, v) _mm512_storeu_ps(p, v)
/* a where a compares so to b or is NaN, else b */
#define F16_KEEP(a, b, how) \
  _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, how) | _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), b, a)
#else
typedef __m256 f16_vector;
#define F16_LANES 8
#define F16_LOAD(p) _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p)))
#define F16_STORE(p, v) _mm_storeu_si128((void *)(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define F16_LOAD_ACC(p) _mm256_loadu_ps(p)
#define F16_STORE_ACC(p, v) _mm256_storeu_ps(p, v)
#define F16_KEEP(a, b, how) \
  _mm256_blendv_ps(b, a, _mm256_or_ps(_mm256_cmp_ps(a, b, how), _mm256_cmp_ps(a, a, _CMP_UNORD_Q)))
#endif

#define F16_ADD(a, b) ((a) + (b))
#define F16_MUL(a, b) ((a) * (b))
#define F16_LEAST(a, b) F16_KEEP(a, b, _CMP_LE_OQ)
#define F16_MOST(a, b) F16_KEEP(a, b, _CMP_GE_OQ)

/* Whole vectors, then the portable loop for the rest. */
#define F16_VECTORS int64_t i = 0; for (; i + F16_LANES <= n; i += F16_LANES)

#define F16_COMBINE(op, OF)                                                                            \
  static void f16_##op##_pair(void *dst, const void *a, const void *b, int64_t n) {                   \
    any_u16 *d = dst;                                                                                  \
    const any_u16 *x = a, *y = b;                                                                      \
    F16_VECTORS {                                                                                      \
      f16_vector p = F16_LOAD(x + i), q = F16_LOAD(y + i);                                             \
      F16_STORE(d + i, OF(p, q));                                                                      \
    }                                                                                                  \
    f16_any_##op##_pair(d + i, x + i, y + i, n - i);                                                   \
  }                                                                                                    \
  static void f16_##op##_begin(void *acc, const void *a, const void *b, int64_t n) {                  \
    float *r = acc;                                                                                    \
    const any_u16 *x = a, *y = b;                                                                      \
    F16_VECTORS {                                                                                      \
      f16_vector p = F16_LOAD(x + i), q = F16_LOAD(y + i);                                             \
      F16_STORE_ACC(r + i, OF(p, q));                                                                  \
    }                                                                                                  \
    f16_any_##op##_begin(r + i, x + i, y + i, n - i);                                                  \
  }                                                                                                    \
  static void f16_##op##_add(void *acc, const void *a, int64_t n) {                                   \
    float *r = acc;                                                                                    \
    const any_u16 *x = a;                                                                              \
    F16_VECTORS {                                                                                      \
      f16_vector p = F16_LOAD_ACC(r + i), q = F16_LOAD(x + i);                                         \
      F16_STORE_ACC(r + i, OF(p, q));                                                                  \
    }                                                                                                  \
    f16_any_##op##_add(r + i, x + i, n - i);                                                           \
  }                                                                                                    \
  static void f16_##op##_add_two(void *acc, const void *a, const void *b, int64_t n) {                \
    float *r = acc;                                                                                    \
    const any_u16 *x = a, *y = b;                                                                      \
    F16_VECTORS {                                                                                      \
      f16_vector p = F16_LOAD_ACC(r + i), q = F16_LOAD(x + i), s = F16_LOAD(y + i);                    \
      f16_vector t = OF(p, q);                                                                         \
      F16_STORE_ACC(r + i, OF(t, s));                                                                  \
    }                                                                                                  \
    f16_any_##op##_add_two(r + i, x + i, y + i, n - i);                                                \
  }

F16_COMBINE(sum, F16_ADD)
F16_COMBINE(prod, F16_MUL)
F16_COMBINE(least, F16_LEAST)
F16_COMBINE(most, F16_MOST)

static void f16_triple(void *dst, const void *const *s, int64_t n) {
  any_u16 *d = dst;
  const any_u16 *x = s[0], *y = s[1], *z = s[2];
  F16_VECTORS {
    f16_vector t = F16_LOAD(x + i) + F16_LOAD(y + i);
    F16_STORE(d + i, t + F16_LOAD(z + i));
  }
  f16_any_triple(d + i, (const void *const[]){x + i, y + i, z + i}, n - i);
}

static void f16_quad(void *dst, const void *const *s, int64_t n) {
  any_u16 *d = dst;
  const any_u16 *x = s[0], *y = s[1], *z = s[2], *w = s[3];
  F16_VECTORS {
    f16_vector t = F16_LOAD(x + i) + F16_LOAD(y + i);
    t += F16_LOAD(z + i);
    F16_STORE(d + i, t + F16_LOAD(w + i));
  }
  f16_any_quad(d + i, (const void *const[]){x + i, y + i, z + i, w + i}, n - i);
}

static void f16_load(void *acc, const void *a, int64_t n) {
  float *r = acc;
  const any_u16 *x = a;
  F16_VECTORS F16_STORE_ACC(r + i, F16_LOAD(x + i));
  f16_any_load(r + i, x + i, n - i);
}

static void f16_store(void *dst, const void *acc, int64_t n) {
  any_u16 *d = dst;
  const float *r = acc;
  F16_VECTORS F16_STORE(d + i, F16_LOAD_ACC(r + i));
  f16_any_store(d + i, r + i, n - i);
}

static void f16_scale(void *dst, const void *a, int64_t n, double factor) {
  any_u16 *d = dst;
  const any_u16 *x = a;
  float f = (float)factor;
  F16_VECTORS F16_STORE(d + i, F16_LOAD(x + i) * f);
  f16_any_scale(d + i, x + i, n - i, factor);
}

#define f16_divide f16_any_divide
