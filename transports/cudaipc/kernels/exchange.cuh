// exchange.cuh: every rank sends a block to every peer and receives one from
// each: what all_gather, all_to_all and reduce_scatter share. kSpread says
// whether each peer gets a block of its own (block p of send goes to rank p)
// or all get the same.
#pragma once

#include "ll.cuh"
#include "ll128.cuh"

namespace shunt {

// Runs sink(i, words) for every 8-byte word i of the blocks: words[s] is the
// word that rank s sent here, this rank's own included; offset is its place in
// the block. T is the element; op and factor as in premultiply.
template <class T, bool kSpread, class Source, class Sink>
__device__ __forceinline__ void exchange_ll(const shunt_kernel_args &a, Source source, Sink sink) {
  u64 *epoch = epoch_of(a, SHUNT_CLASS_LL);
  const u64 base = *epoch;
  const char *send = reinterpret_cast<const char *>(a.send);
  const int64_t packets = (a.bytes + 7) / 8, step = int64_t(gridDim.x) * blockDim.x;
  const int64_t rounds = packets <= step ? 1 : (packets + step - 1) / step;
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t round = 0; round < rounds; round++, i += step) {
    const u64 e = base + 1 + round;
    if (i < packets || rounds > 1 || threadIdx.x == 0 || ll_refresh(e)) {
      const u32 flag = ll_flag(e);
      const u64 mine = source(load_word<T>(kSpread ? send + a.rank * a.bytes : send, i * 8, a.bytes));
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++)
        if (p < a.world && p != a.rank)
          ll_store(ll_slot(a.region[p], a.world, e, a.rank),
                   kSpread ? source(load_word<T>(send + p * a.bytes, i * 8, a.bytes)) : mine, flag);
      u64 words[SHUNT_MAX_RANKS];
      ll_wait_all(a, e, words);
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS; s++) words[s] = s == a.rank ? mine : words[s];
      sink(i * 8, words);
    }
  }
  advance(epoch, base + rounds);
}

// The same in units of a warp: sink(lane, offset, lines).
template <class T, bool kSpread, class Source, class Sink>
__device__ __forceinline__ void exchange_ll128(const shunt_kernel_args &a, Source source, Sink sink) {
  u64 *epoch = epoch_of(a, SHUNT_CLASS_LL128);
  const u64 base = *epoch;
  const Lane l;
  const char *send = reinterpret_cast<const char *>(a.send);
  const int64_t units = (a.bytes + kUnit - 1) / kUnit;
  const int64_t warps = int64_t(gridDim.x) * (blockDim.x >> 5), step = warps * SHUNT_LL128_UNROLL;
  const int64_t rounds = units <= step ? 1 : (units + step - 1) / step;
  // Neighbouring units go to different blocks, so that short messages spread.
  int64_t i = int64_t(threadIdx.x >> 5) * gridDim.x + blockIdx.x;
  for (int64_t round = 0; round < rounds; round++, i += step) {
    const u64 e = base + 1 + round;
    word2 mine[SHUNT_LL128_UNROLL];
    bool active[SHUNT_LL128_UNROLL];
#pragma unroll
    for (int u = 0; u < SHUNT_LL128_UNROLL; u++) {
      const int64_t unit = i + u * warps;
      active[u] = unit < units || (u == 0 && (rounds > 1 || threadIdx.x < 32));
      if (!active[u]) continue;
      auto load = [&](int block) {
        word2 w = load_unit<T>(l, kSpread ? send + block * a.bytes : send, unit * kUnit, a.bytes);
        return word2{source(w.x), source(w.y)};
      };
      mine[u] = load(a.rank);
#pragma unroll
      for (int k = 1; k < SHUNT_MAX_RANKS; k++)
        if (k < a.world) {
          const int p = a.rank + k < a.world ? a.rank + k : a.rank + k - a.world;
          ll128_store(l, ll128_slot(a.region[p], a.world, 0, e, a.rank) + u * 512, kSpread ? load(p) : mine[u], e);
        }
    }
#pragma unroll
    for (int u = 0; u < SHUNT_LL128_UNROLL; u++) {
      if (!active[u]) continue;
      word2 lines[SHUNT_MAX_RANKS];
      ll128_wait_all(a, l, ll128_slot(a.region[a.rank], a.world, 0, e, 0) + u * 512, e, lines);
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS; s++) lines[s] = select(s == a.rank, mine[u], lines[s]);
      sink(l, (i + u * warps) * kUnit, lines);
    }
  }
  advance(epoch, base + rounds);
}

// Sinks that lay the blocks out in rank order in recv.
struct Unchanged {
  __device__ __forceinline__ u64 operator()(u64 word) const { return word; }
};

template <bool kSpread>
__device__ __forceinline__ void gather_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<uint8_t, kSpread>(a, Unchanged(), [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) {
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++)
      if (s < a.world) store_word<uint8_t>(recv + s * a.bytes, offset, a.bytes, words[s]);
  });
}

template <bool kSpread>
__device__ __forceinline__ void gather_ll128(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll128<uint8_t, kSpread>(a, Unchanged(), [&](const Lane &l, int64_t offset, const word2(&lines)[SHUNT_MAX_RANKS]) {
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++)
      if (s < a.world) store_unit<uint8_t>(l, recv + s * a.bytes, offset, a.bytes, lines[s]);
  });
}

}  // namespace shunt

// One entry point whose body does not depend on the dtype.
#define SHUNT_KERNEL_BYTES(name, body)                                                                     \
  extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1) name(const __grid_constant__ shunt_kernel_args args) { \
    body(args);                                                                                            \
  }
