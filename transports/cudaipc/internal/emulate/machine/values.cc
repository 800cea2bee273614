// values.cc: see values.h. Conversions are the CPU executor's own, so that the kernels'
// use of them is checked, but not the GPU's: those are the machine's, which are the same
// code. Of equal values min and max keep the later, as the kernels and not as the CPU executor.
#include "values.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "../../../../../host/executor/float.h"
#include "cuda.h"

namespace emulate {
float float_of_half(uint16_t x) { return float_of_f16(x); }
uint16_t half_of_float(float x) { return f16_of_float(x); }
float float_of_bfloat(uint16_t x) { return float_of_bf16(x); }
uint16_t bfloat_of_float(float x) { return bf16_of_float(x); }
float float_of_e4m3(uint8_t x) { return ::float_of_e4m3(x); }
uint8_t e4m3_of_float(float x) { return ::e4m3_of_float(x); }
float float_of_e5m2(uint8_t x) { return ::float_of_e5m2(x); }
uint8_t e5m2_of_float(float x) { return ::e5m2_of_float(x); }
}  // namespace emulate

namespace values {

const char *const kNames[kTypes] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                    "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
const int kBytes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
const char *const kOps[6] = {"sum", "prod", "max", "min", "avg", "premul_sum"};

static double wide(int t, const char *p) {
  uint16_t half;
  float single;
  double x;
  switch (t) {
    case 6: return memcpy(&half, p, 2), float_of_f16(half);
    case 7: return memcpy(&single, p, 4), single;
    case 8: return memcpy(&x, p, 8), x;
    case 9: return memcpy(&half, p, 2), float_of_bf16(half);
    case 10: return float_of_e4m3(uint8_t(*p));
    default: return float_of_e5m2(uint8_t(*p));
  }
}

static void store(int t, double x, char *p) {
  const float single = float(x);
  uint16_t half;
  switch (t) {
    case 6: half = f16_of_float(single), memcpy(p, &half, 2); break;
    case 7: memcpy(p, &single, 4); break;
    case 8: memcpy(p, &x, 8); break;
    case 9: half = bf16_of_float(single), memcpy(p, &half, 2); break;
    case 10: *p = char(e4m3_of_float(single)); break;
    default: *p = char(e5m2_of_float(single));
  }
}

template <class F>
static F combine(int op, F a, F b) {
  switch (op) {
    case 1: return F(a * b);
    case 2: return (a > b || a != a) ? a : b;
    case 3: return (a < b || a != a) ? a : b;
    default: return F(a + b);
  }
}

template <class I>
static void reduce_integers(int op, const std::vector<const char *> &in, const double *factor, char *out) {
  uint64_t acc = 0;
  for (size_t r = 0; r < in.size(); r++) {
    I x;
    memcpy(&x, in[r], sizeof x);
    if (op == 5) x = I(uint64_t(x) * uint64_t(int64_t(factor[r])));
    if (r == 0) acc = uint64_t(x);
    else if (op == 2 || op == 3) acc = uint64_t(combine(op, I(acc), x));
    else acc = combine(op, acc, uint64_t(x));
  }
  I result = I(acc);
  if (op == 4) result = I(result / I(in.size()));
  memcpy(out, &result, sizeof result);
}

template <class F>
static void reduce_floats(int t, int op, const std::vector<const char *> &in, const double *factor, char *out) {
  F acc = 0;
  for (size_t r = 0; r < in.size(); r++) {
    F x = F(wide(t, in[r]));
    if (op == 5) {
      char rounded[8];
      volatile F product = x * F(factor[r]);
      store(t, product, rounded);
      x = F(wide(t, rounded));
    }
    volatile F next = r == 0 ? x : combine<F>(op, acc, x);
    acc = next;
  }
  if (op == 4) acc /= F(in.size());
  store(t, acc, out);
}

void reduce(int t, int op, const std::vector<const char *> &in, const double *factor, char *out) {
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

bool same(int t, const char *a, const char *b) {
  if (memcmp(a, b, kBytes[t]) == 0) return true;
  if (t < 6) return false;
  const double x = wide(t, a), y = wide(t, b);
  return x != x && y != y;
}

void generate(int t, int rank, long count, unsigned seed, char *p) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + rank * 0xD1B54A32D192ED03ull + 1;
  for (long i = 0; i < count; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    char *at = p + i * kBytes[t];
    if (t < 6) memcpy(at, &x, kBytes[t]);
    else store(t, (x >> 40) % 997 == 0 ? NAN : (int64_t(x >> 44) - (1 << 19)) / double(1 << 18), at);
  }
}

}  // namespace values
