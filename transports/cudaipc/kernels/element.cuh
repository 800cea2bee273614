// element.cuh: dtypes and reduction ops. An Element<T> says how the elements of
// one 8-byte word are accumulated; T is the storage type of the dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "device.cuh"

namespace shunt {

// Values equal shunt_op.
enum Operator { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kPremulSum = 5 };

// How a dtype is held while it is reduced. Integers wrap; 8- and 16-bit floats
// accumulate in float and are rounded once, at the end. scale is premul_sum's
// product, rounded to the dtype; it uses explicit roundings, so that it cannot
// be fused with the addition that follows. The CPU executor does the same.
template <class T>
struct Integer {
  typedef T Acc;
  static __device__ __forceinline__ Acc widen(T x) { return x; }
  static __device__ __forceinline__ T narrow(Acc x) { return x; }
  static __device__ __forceinline__ Acc divide(Acc x, int n) { return Acc(x / Acc(n)); }
  // Exact and wrapping for an integral factor below 2^63; else formed in
  // double, rounded to nearest even and saturated, NaN to 0.
  static __device__ __forceinline__ Acc scale(Acc x, double s) {
    if (s == trunc(s) && fabs(s) < 9223372036854775808.0) return Acc(u64(x) * u64((long long)s));
    double p = rint(__dmul_rn(double(x), s));
    constexpr bool is_signed = T(-1) < T(0);
    constexpr T least = is_signed ? T(u64(1) << (sizeof(T) * 8 - 1)) : T(0);
    constexpr T most = T(~least);
    if (p != p) return 0;
    if (p <= double(least)) return least;
    if (p >= double(most)) return most;
    return T(p);
  }
};
template <class T>
struct Element : Integer<T> {};

template <>
struct Element<float> {
  typedef float Acc;
  static __device__ __forceinline__ float widen(float x) { return x; }
  static __device__ __forceinline__ float narrow(float x) { return x; }
  static __device__ __forceinline__ float scale(float x, double s) { return __fmul_rn(x, float(s)); }
  static __device__ __forceinline__ float divide(float x, int n) { return __fdiv_rn(x, float(n)); }
};
template <>
struct Element<double> {
  typedef double Acc;
  static __device__ __forceinline__ double widen(double x) { return x; }
  static __device__ __forceinline__ double narrow(double x) { return x; }
  static __device__ __forceinline__ double scale(double x, double s) { return __dmul_rn(x, s); }
  static __device__ __forceinline__ double divide(double x, int n) { return __ddiv_rn(x, double(n)); }
};

// What the floats that accumulate in float share; C converts.
template <class T, class C>
struct Small {
  typedef float Acc;
  static __device__ __forceinline__ float scale(float x, double s) {
    return C::widen(C::narrow(__fmul_rn(x, float(s))));
  }
  static __device__ __forceinline__ float divide(float x, int n) { return __fdiv_rn(x, float(n)); }
};
template <>
struct Element<__half> : Small<__half, Element<__half>> {
  static __device__ __forceinline__ float widen(__half x) { return __half2float(x); }
  static __device__ __forceinline__ __half narrow(float x) { return __float2half_rn(x); }
};
template <>
struct Element<__nv_bfloat16> : Small<__nv_bfloat16, Element<__nv_bfloat16>> {
  static __device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __forceinline__ __nv_bfloat16 narrow(float x) { return __float2bfloat16_rn(x); }
};

// Storage of the two 8-bit floats. e4m3 saturates (it has no infinity), e5m2
// overflows to infinity.
struct e4m3 {
  __nv_fp8_storage_t bits;
};
struct e5m2 {
  __nv_fp8_storage_t bits;
};
template <>
struct Element<e4m3> : Small<e4m3, Element<e4m3>> {
  static __device__ __forceinline__ float widen(e4m3 x) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
  }
  static __device__ __forceinline__ e4m3 narrow(float x) {
    return e4m3{__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
  }
};
template <>
struct Element<e5m2> : Small<e5m2, Element<e5m2>> {
  static __device__ __forceinline__ float widen(e5m2 x) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E5M2)));
  }
  static __device__ __forceinline__ e5m2 narrow(float x) {
    return e5m2{__nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2)};
  }
};

// NaN wins in min and max: a comparison with NaN is false, so b is taken when b
// is NaN, and a != a keeps a when a is.
template <class A>
__device__ __forceinline__ A combine(int op, A a, A b) {
  switch (op) {
    case kProd:
      return A(a * b);
    case kMax:
      return (a > b || a != a) ? a : b;
    case kMin:
      return (a < b || a != a) ? a : b;
    default:
      return A(a + b);
  }
}

// The elements of one 8-byte word while they are reduced.
template <class T>
struct Accumulator {
  static constexpr int N = 8 / sizeof(T);
  typedef typename Element<T>::Acc Acc;
  Acc v[N];

  static __device__ __forceinline__ void unpack(u64 word, Acc (&out)[N]) {
    union {
      u64 word;
      T element[N];
    } w;
    w.word = word;
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = Element<T>::widen(w.element[i]);
  }

  __device__ __forceinline__ void set(u64 word) { unpack(word, v); }

  __device__ __forceinline__ void add(int op, u64 word) {
    Acc x[N];
    unpack(word, x);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = combine(op, v[i], x[i]);
  }

  __device__ __forceinline__ u64 result(int op, int world) const {
    union {
      u64 word;
      T element[N];
    } w;
#pragma unroll
    for (int i = 0; i < N; i++) w.element[i] = Element<T>::narrow(op == kAvg ? Element<T>::divide(v[i], world) : v[i]);
    return w.word;
  }
};

// premul_sum: a rank's data times its factor, rounded to the dtype. Any other
// op leaves the word alone.
template <class T>
__device__ __noinline__ u64 multiply(double factor, u64 word) {
  Accumulator<T> acc;
  acc.set(word);
#pragma unroll
  for (int i = 0; i < Accumulator<T>::N; i++) acc.v[i] = Element<T>::scale(acc.v[i], factor);
  return acc.result(kSum, 1);
}

template <class T>
__device__ __forceinline__ u64 premultiply(int op, double factor, u64 word) {
  return op == kPremulSum ? multiply<T>(factor, word) : word;
}

// Storage of the dtypes. Names are those of the table DType.
#define SHUNT_STORAGE_int8 int8_t
#define SHUNT_STORAGE_uint8 uint8_t
#define SHUNT_STORAGE_int32 int32_t
#define SHUNT_STORAGE_uint32 uint32_t
#define SHUNT_STORAGE_int64 int64_t
#define SHUNT_STORAGE_uint64 uint64_t
#define SHUNT_STORAGE_float16 __half
#define SHUNT_STORAGE_float32 float
#define SHUNT_STORAGE_float64 double
#define SHUNT_STORAGE_bfloat16 __nv_bfloat16
#define SHUNT_STORAGE_float8_e4m3 shunt::e4m3
#define SHUNT_STORAGE_float8_e5m2 shunt::e5m2

// Defines the entry point of a kernel that reduces, for the dtype that its file
// is compiled for (SHUNT_DTYPE, see compile): name_float32 and so on, which
// calls body<storage type>(args).
#define SHUNT_KERNEL_TYPED(name, body) SHUNT_KERNEL_EXPAND(name, body, shunt_kernel_args, SHUNT_DTYPE)
#define SHUNT_KERNEL_EXPAND(name, body, block, dtype) SHUNT_KERNEL_OF(name, body, block, dtype)
#define SHUNT_KERNEL_OF(name, body, block, dtype) SHUNT_KERNEL_STORED(name, body, block, dtype, SHUNT_STORAGE_##dtype)
#define SHUNT_KERNEL_STORED(name, body, block, dtype, T)                                                \
  extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1)                                    \
      name##_##dtype(const __grid_constant__ block args) {                                              \
    if (shunt::spare_block()) return;                                                                   \
    body<T>(args);                                                                                      \
    shunt::end();                                                                                       \
  }

// The same for the dtypes of most traffic alone: kHot of combine.cuh.
#define SHUNT_HOT_float16 1
#define SHUNT_HOT_float32 1
#define SHUNT_HOT_bfloat16 1
#define SHUNT_IS_HOT(dtype) SHUNT_HOT_OF(dtype)
#define SHUNT_HOT_OF(dtype) SHUNT_HOT_##dtype
#if SHUNT_IS_HOT(SHUNT_DTYPE)
#define SHUNT_KERNEL_HOT(name, body) SHUNT_KERNEL_TYPED(name, body)
#define SHUNT_KERNEL_HOT_V(name, body) SHUNT_KERNEL_EXPAND(name, body, shunt_kernel_args_v, SHUNT_DTYPE)
#else
#define SHUNT_KERNEL_HOT(name, body)
#define SHUNT_KERNEL_HOT_V(name, body)
#endif

}  // namespace shunt
