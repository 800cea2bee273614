// combine.cuh: what every rank contributed, combined in rank order.
#pragma once

#include "element.cuh"

namespace shunt {

// The dtypes of most traffic are combined in registers, in line. For the others
// that would be most of every kernel's code; they share one function per dtype,
// which takes the words in memory (L1), fast enough for the links.
template <class T>
constexpr bool kHot = false;
template <>
constexpr bool kHot<float> = true;
template <>
constexpr bool kHot<__half> = true;
template <>
constexpr bool kHot<__nv_bfloat16> = true;

// Runs f with the op as a constant, so that it is chosen once, not per element.
template <class F>
__device__ __forceinline__ void with_op(int op, F f) {
  switch (op) {
    case kProd: f(Constant<kProd>()); break;
    case kMax: f(Constant<kMax>()); break;
    case kMin: f(Constant<kMin>()); break;
    default: f(Constant<kSum>());
  }
}

template <class T>
__device__ __noinline__ u64 reduce_in_memory(int op, int world, const u64 *words, int stride) {
  Accumulator<T> acc;
  acc.set(words[0]);
  with_op(op, [&](auto constant) {
#pragma unroll 1
    for (int s = 1; s < world; s++) acc.add(decltype(constant)::value, words[s * stride]);
  });
  return acc.result(op, world);
}

// words[s] is what rank s contributed.
template <class T>
__device__ __forceinline__ u64 reduce_words(const shunt_kernel_args &a, const u64 (&words)[SHUNT_MAX_RANKS]) {
  if constexpr (!kHot<T>) {
    return reduce_in_memory<T>(a.op, a.world, words, 1);
  } else {
    Accumulator<T> acc;
    acc.set(words[0]);
    with_op(a.op, [&](auto op) {
#pragma unroll
      for (int s = 1; s < SHUNT_MAX_RANKS; s++) {
        if (s >= a.world) break;
        acc.add(decltype(op)::value, words[s]);
      }
    });
    return acc.result(a.op, a.world);
  }
}

// The same of two words each, of up to kRanks ranks.
template <class T, int kRanks>
__device__ __forceinline__ word2 reduce_lines(const shunt_kernel_args &a, const word2 (&lines)[kRanks]) {
  if constexpr (!kHot<T>) {
    return word2{reduce_in_memory<T>(a.op, a.world, &lines[0].x, 2),
                 reduce_in_memory<T>(a.op, a.world, &lines[0].y, 2)};
  } else {
    Accumulator<T> x, y;
    x.set(lines[0].x);
    y.set(lines[0].y);
    with_op(a.op, [&](auto op) {
#pragma unroll
      for (int s = 1; s < kRanks; s++) {
        if (s >= a.world) break;
        x.add(decltype(op)::value, lines[s].x);
        y.add(decltype(op)::value, lines[s].y);
      }
    });
    return word2{x.result(a.op, a.world), y.result(a.op, a.world)};
  }
}

// A word each of two ranks, of a hot dtype, the op a constant and not premul_sum. No
// division, which calls: half of a float is the same, rounded alike.
template <class T, int kOp>
__device__ __forceinline__ u64 reduce_pair(u64 first, u64 second) {
  static_assert(kHot<T>, "accumulates in float");
  Accumulator<T> acc;
  acc.set(first);
  acc.add(kOp, second);
#pragma unroll
  for (int i = 0; i < Accumulator<T>::N; i++) acc.v[i] = kOp == kAvg ? acc.v[i] * 0.5f : acc.v[i];
  return acc.result(kSum, 2);
}

}  // namespace shunt
