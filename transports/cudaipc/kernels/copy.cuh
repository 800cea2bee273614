// copy.cuh: a copy within this GPU, or to memory of a peer, by part of a grid.
#pragma once

#include "memory.cuh"

namespace shunt {

// copy_bytes for memory that is not aligned. A function of its own: in line it would cost
// registers.
__device__ __noinline__ void copy_any(char *to, const char *from, int64_t bytes, int64_t thread, int64_t threads) {
  constexpr int kUnroll = 4;
  const Middle middle(reinterpret_cast<u64>(to),
                      ((reinterpret_cast<u64>(from) - reinterpret_cast<u64>(to)) & 15) != 0, bytes);
  word2 *const into = reinterpret_cast<word2 *>(to + middle.begin);
  const u64 of = reinterpret_cast<u64>(from) + middle.begin;
  const int64_t n = middle.length() / 16;
  int64_t i = thread;
  for (; i + (kUnroll - 1) * threads < n; i += kUnroll * threads) {  // what is asked in between would put loads off
    word2 w[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; u++) w[u] = load_straddling(of + (i + u * threads) * 16);
#pragma unroll
    for (int u = 0; u < kUnroll; u++) into[i + u * threads] = w[u];
  }
  for (; i < n; i += threads) into[i] = load_straddling(of + i * 16);
  for (int64_t i = thread; i < middle.outside(); i += threads) to[middle.at(i)] = from[middle.at(i)];
}

// Copies with threads number `thread` of `threads`, kUnroll vectors of each under
// way. Source and destination are the same or do not overlap.
template <int kUnroll = 4>
__device__ __forceinline__ void copy_bytes(char *to, const char *from, int64_t bytes, int64_t thread, int64_t threads) {
  if (to == from || bytes <= 0) return;
  if (((reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from)) & 15) == 0) {
    const int64_t n = bytes / 16;
    int64_t i = thread;
    for (; i + (kUnroll - 1) * threads < n; i += kUnroll * threads) {
      word2 w[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; u++) w[u] = reinterpret_cast<const word2 *>(from)[i + u * threads];
#pragma unroll
      for (int u = 0; u < kUnroll; u++) reinterpret_cast<word2 *>(to)[i + u * threads] = w[u];
    }
    if (i < n) {  // the rest, of which all loads are under way too
      word2 w[kUnroll - 1];
#pragma unroll
      for (int u = 0; u < kUnroll - 1; u++)
        if (i + u * threads < n) w[u] = reinterpret_cast<const word2 *>(from)[i + u * threads];
#pragma unroll
      for (int u = 0; u < kUnroll - 1; u++)
        if (i + u * threads < n) reinterpret_cast<word2 *>(to)[i + u * threads] = w[u];
    }
    for (i = n * 16 + thread; i < bytes; i += threads) to[i] = from[i];
  } else {
    copy_any(to, from, bytes, thread, threads);
  }
}

}  // namespace shunt
