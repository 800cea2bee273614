// reference.h: what kernels of collectives must compute, on the host, and data for it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../../host/executor/float.h"

struct DType {
  const char *name;
  int bytes;
};
static const DType kTypes[] = {{"int8", 1},    {"uint8", 1},    {"int32", 4},       {"uint32", 4},
                               {"int64", 8},   {"uint64", 8},   {"float16", 2},     {"float32", 4},
                               {"float64", 8}, {"bfloat16", 2}, {"float8_e4m3", 1}, {"float8_e5m2", 1}};
static const char *const kOps[] = {"sum", "prod", "max", "min", "avg", "premul_sum"};

// ---- reference ------------------------------------------------------------
static double widen(int t, const void *p) {
  switch (t) {
    case 6: return float_of_f16(*(const uint16_t *)p);
    case 7: return *(const float *)p;
    case 8: return *(const double *)p;
    case 9: return float_of_bf16(*(const uint16_t *)p);
    case 10: return float_of_e4m3(*(const uint8_t *)p);
    default: return float_of_e5m2(*(const uint8_t *)p);
  }
}
static void narrow(int t, double x, void *p) {
  switch (t) {
    case 6: *(uint16_t *)p = f16_of_float((float)x); break;
    case 7: *(float *)p = (float)x; break;
    case 8: *(double *)p = x; break;
    case 9: *(uint16_t *)p = bf16_of_float((float)x); break;
    case 10: *(uint8_t *)p = e4m3_of_float((float)x); break;
    default: *(uint8_t *)p = e5m2_of_float((float)x);
  }
}

template <class F>
static F combine(int op, F a, F b) {
  switch (op) {
    case 1: return a * b;
    case 2: return (a > b || a != a) ? a : b;
    case 3: return (a < b || a != a) ? a : b;
    default: return a + b;
  }
}

template <class I>
static void reduce_integers(int op, const std::vector<const char *> &in, const double *factor, char *out) {
  I acc = 0;
  for (size_t r = 0; r < in.size(); r++) {
    I x;
    memcpy(&x, in[r], sizeof x);
    if (op == 5) x = (I)((uint64_t)x * (uint64_t)(int64_t)factor[r]);
    if (r == 0) acc = x;
    else if (op == 2) acc = x > acc ? x : acc;
    else if (op == 3) acc = x < acc ? x : acc;
    else if (op == 1) acc = (I)((uint64_t)acc * (uint64_t)x);
    else acc = (I)((uint64_t)acc + (uint64_t)x);
  }
  if (op == 4) acc = (I)(acc / (I)in.size());
  memcpy(out, &acc, sizeof acc);
}

template <class F>
static void reduce_floats(int t, int op, const std::vector<const char *> &in, const double *factor, char *out) {
  F acc = 0;
  for (size_t r = 0; r < in.size(); r++) {
    F x = (F)widen(t, in[r]);
    if (op == 5) {
      double rounded;
      volatile F product = x * (F)factor[r];
      narrow(t, product, &rounded);
      x = (F)widen(t, &rounded);
    }
    volatile F next = r == 0 ? x : combine<F>(op, acc, x);
    acc = next;
  }
  if (op == 4) acc /= (F)in.size();
  narrow(t, acc, out);
}

static void reduce_reference(int t, int op, const std::vector<const char *> &in, const double *factor, char *out) {
  switch (t) {
    case 0: return reduce_integers<int8_t>(op, in, factor, out);
    case 1: return reduce_integers<uint8_t>(op, in, factor, out);
    case 2: return reduce_integers<int32_t>(op, in, factor, out);
    case 3: return reduce_integers<uint32_t>(op, in, factor, out);
    case 4: return reduce_integers<int64_t>(op, in, factor, out);
    case 5: return reduce_integers<uint64_t>(op, in, factor, out);
    case 8: return reduce_floats<double>(t, op, in, factor, out);
    default: return reduce_floats<float>(t, op, in, factor, out);
  }
}

static bool same(int t, const char *a, const char *b) {
  int n = kTypes[t].bytes;
  if (memcmp(a, b, n) == 0) return true;
  if (t < 6) return false;
  double x = widen(t, a), y = widen(t, b);
  return x != x && y != y;  // any NaN is NaN
}

// A rank's data: random bits, but floats of moderate size and now and then a NaN.
static void generate(int t, int r, int64_t n, unsigned seed, char *p) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + r * 0xD1B54A32D192ED03ull + 1;
  for (int64_t i = 0; i < n; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    char *at = p + i * kTypes[t].bytes;
    if (t < 6) memcpy(at, &x, kTypes[t].bytes);
    else if ((x >> 40) % 997 == 0) narrow(t, NAN, at);
    else narrow(t, (int64_t(x >> 44) - (1 << 19)) / double(1 << 18), at);
  }
}
