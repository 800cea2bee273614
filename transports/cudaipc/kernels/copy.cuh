// copy.cuh: a copy within this GPU, or to memory of a peer, by part of a grid.
#pragma once

#include "device.cuh"

namespace shunt {

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
  } else if ((reinterpret_cast<u64>(to) - reinterpret_cast<u64>(from)) % 4 == 0) {
    // Both reach a 4-byte boundary after the same few bytes.
    int64_t head = min(int64_t(-reinterpret_cast<u64>(to) & 3), bytes);
    for (int64_t i = thread; i < head; i += threads) to[i] = from[i];
    const int64_t n = (bytes - head) / 4;
    const u32 *s = reinterpret_cast<const u32 *>(from + head);
    u32 *d = reinterpret_cast<u32 *>(to + head);
    for (int64_t i = thread; i < n; i += threads) d[i] = s[i];
    for (int64_t i = head + n * 4 + thread; i < bytes; i += threads) to[i] = from[i];
  } else {
    for (int64_t i = thread; i < bytes; i += threads) to[i] = from[i];
  }
}

}  // namespace shunt
