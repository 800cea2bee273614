/*
 * float.h: float16, bfloat16 and float8 to float32 and back, without branches,
 * so that a compiler can vectorise loops over them. Widening is exact.
 * Narrowing rounds to nearest even, keeps NaNs (quiet) and their signs.
 */
#ifndef SHUNT_EXECUTOR_FLOAT_H
#define SHUNT_EXECUTOR_FLOAT_H

#include <stdint.h>
#include <string.h>

#define SX_INLINE static inline __attribute__((always_inline))

SX_INLINE uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

SX_INLINE float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

/* Widening: mantissa bits m, bias of the exponent, magnitude x without sign.
 * Subnormals are small integers times the smallest step; float32 holds them
 * as normal numbers. */
SX_INLINE uint32_t widen(uint32_t x, int m, int bias, float step) {
  uint32_t normal = (x << (23 - m)) + ((uint32_t)(127 - bias) << 23);
  uint32_t subnormal = bits_of((float)(int32_t)x * step);
  return x >> m ? normal : subnormal;
}

/* Narrowing of a finite magnitude a (float32 bits). Above the smallest normal
 * number it adds half a step, less one if the result is even, and re-biases;
 * below it, adding magic makes the adder round to multiples of the step. A
 * carry into the exponent is right in both cases. */
SX_INLINE uint32_t narrow(uint32_t a, int m, int bias, float magic) {
  int shift = 23 - m;
  uint32_t odd = a >> shift & 1;
  uint32_t normal = (a + (UINT32_C(1) << (shift - 1)) - 1 + odd - ((uint32_t)(127 - bias) << 23)) >> shift;
  uint32_t subnormal = bits_of(float_of(a) + magic) - bits_of(magic);
  return a >= (uint32_t)(128 - bias) << 23 ? normal : subnormal;
}

SX_INLINE float float_of_f16(uint16_t h) {
  uint32_t x = h & 0x7FFFu;
  uint32_t w = widen(x, 10, 15, 0x1p-24f);
  w = x >= 0x7C00u ? w + (UINT32_C(112) << 23) : w; /* infinity and NaN: the largest exponent */
  return float_of(w | (uint32_t)(h & 0x8000u) << 16);
}

SX_INLINE uint16_t f16_of_float(float f) {
  uint32_t u = bits_of(f), a = u & 0x7FFFFFFFu;
  uint32_t finite = a < 0x47800000u ? a : 0x47800000u; /* 65536 and above: infinity */
  uint32_t x = narrow(finite, 10, 15, 0.5f);
  x = x < 0x7C00u ? x : 0x7C00u;
  uint32_t nan = 0x7E00u | (a >> 13 & 0x3FFu);
  return (uint16_t)((a > 0x7F800000u ? nan : x) | (u >> 16 & 0x8000u));
}

SX_INLINE float float_of_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

SX_INLINE uint16_t bf16_of_float(float f) {
  uint32_t u = bits_of(f);
  uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1)) >> 16;
  uint32_t nan = u >> 16 | 0x40u;
  return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

/* E4M3: bias 7, no infinity, NaN is 0x7F, the largest number 448. */
SX_INLINE float float_of_e4m3(uint8_t b) {
  uint32_t x = b & 0x7Fu;
  uint32_t w = widen(x, 3, 7, 0x1p-9f);
  w = x == 0x7Fu ? 0x7FC00000u : w;
  return float_of(w | (uint32_t)(b & 0x80u) << 24);
}

SX_INLINE uint8_t e4m3_of_float(float f) {
  uint32_t u = bits_of(f), a = u & 0x7FFFFFFFu;
  uint32_t finite = a < 0x43E00000u ? a : 0x43E00000u; /* 448 and above, infinity too: saturates */
  uint32_t x = narrow(finite, 3, 7, 0x1p14f);
  return (uint8_t)((a > 0x7F800000u ? 0x7Fu : x) | (u >> 24 & 0x80u));
}

/* E5M2: bias 15, infinity 0x7C: the upper half of a float16. */
SX_INLINE float float_of_e5m2(uint8_t b) { return float_of_f16((uint16_t)(b << 8)); }

SX_INLINE uint8_t e5m2_of_float(float f) {
  uint32_t u = bits_of(f), a = u & 0x7FFFFFFFu;
  uint32_t finite = a < 0x47800000u ? a : 0x47800000u;
  uint32_t x = narrow(finite, 2, 15, 0x1p7f);
  x = x < 0x7Cu ? x : 0x7Cu;
  uint32_t nan = 0x7Eu | (a >> 21 & 3u);
  return (uint8_t)((a > 0x7F800000u ? nan : x) | (u >> 24 & 0x80u));
}

#endif
