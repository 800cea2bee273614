// combine.cuh: what every rank contributed, combined in rank order.
#pragma once

#include <type_traits>

#include "element.cuh"

namespace shunt {

// Calls step(s) for ranks 1 … world-1. Unrolled, so that what the ranks sent
// stays in registers; but eight conversions a word times eight ranks would be
// a lot of code, so one-byte elements loop.
template <class T, class F>
__device__ __forceinline__ void each_other(int world, F step) {
  if constexpr (sizeof(T) == 1) {
#pragma unroll 1
    for (int s = 1; s < world; s++) step(s);
  } else {
#pragma unroll
    for (int s = 1; s < SHUNT_MAX_RANKS; s++) {
      if (s >= world) break;
      step(s);
    }
  }
}

// Runs f with the op as a constant, so that it is chosen once, not per element.
template <class F>
__device__ __forceinline__ void with_op(int op, F f) {
  switch (op) {
    case kProd: f(std::integral_constant<int, kProd>()); break;
    case kMax: f(std::integral_constant<int, kMax>()); break;
    case kMin: f(std::integral_constant<int, kMin>()); break;
    default: f(std::integral_constant<int, kSum>());
  }
}

template <class T>
__device__ __forceinline__ u64 reduce_words(const shunt_kernel_args &a, const u64 (&words)[SHUNT_MAX_RANKS]) {
  Accumulator<T> acc;
  acc.set(words[0]);
  with_op(a.op, [&](auto op) { each_other<T>(a.world, [&](int s) { acc.add(decltype(op)::value, words[s]); }); });
  return acc.result(a.op, a.world);
}

template <class T>
__device__ __forceinline__ word2 reduce_lines(const shunt_kernel_args &a, const word2 (&lines)[SHUNT_MAX_RANKS]) {
  Accumulator<T> x, y;
  x.set(lines[0].x);
  y.set(lines[0].y);
  with_op(a.op, [&](auto op) {
    each_other<T>(a.world, [&](int s) {
      x.add(decltype(op)::value, lines[s].x);
      y.add(decltype(op)::value, lines[s].y);
    });
  });
  return word2{x.result(a.op, a.world), y.result(a.op, a.world)};
}

}  // namespace shunt
