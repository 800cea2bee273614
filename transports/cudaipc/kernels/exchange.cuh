// exchange.cuh: every rank sends a block to every peer and receives one from
// each: what all_gather, all_to_all and reduce_scatter share. kSpread says
// whether each peer gets a block of its own (block p of send goes to rank p)
// or all get the same, which is block 0.
#pragma once

#include "ll.cuh"
#include "ll128.cuh"

namespace shunt {

// Where the blocks of what is sent lie: they have one length, and one begins where the one
// before it ends.
struct EqualBlocks {
  const shunt_kernel_args &a;
  const char *first;
  __device__ __forceinline__ EqualBlocks(const shunt_kernel_args &a, u64 send)
      : a(a), first(reinterpret_cast<const char *>(send)) {}
  __device__ __forceinline__ explicit EqualBlocks(const shunt_kernel_args &a) : EqualBlocks(a, a.send) {}
  __device__ __forceinline__ const char *at(int p) const { return first + p * a.bytes; }
  __device__ __forceinline__ int64_t length(int) const { return a.bytes; }
};

// Or any, of which all ranks know how long they are; a.bytes is the length of the longest.
struct UnequalBlocks {
  const shunt_kernel_args_v &v;
  __device__ __forceinline__ const char *at(int p) const {
    return reinterpret_cast<const char *>(v.base.send) + v.messages.send_displ[p];
  }
  __device__ __forceinline__ int64_t length(int p) const { return v.messages.send_count[p]; }
};

// Runs sink(offset, words) for every 8-byte word of the longest block: words[s] is the
// word that rank s sent here, this rank's own included, and 0 behind the end of this rank's
// block; offset is its place in the block. source prepares a word before it is sent. T is
// the element.
template <class T, bool kSpread, class Blocks, class Source, class Sink>
__device__ __forceinline__ void exchange_ll(const shunt_kernel_args &a, const Blocks &blocks, Source source,
    Sink sink) {
  const Epoch epoch(a, SHUNT_CLASS_LL);
  const u64 base = epoch.value;
  const int64_t packets = (a.bytes + 7) / 8, step = int64_t(block_count()) * blockDim.x;
  const int64_t rounds = packets <= step ? 1 : (packets + step - 1) / step;
  int64_t i = int64_t(block_index()) * blockDim.x + threadIdx.x;
  for (int64_t round = 0; round < rounds; round++, i += step) {
    // The caller's memory is read before anything depends on the epoch, so that
    // both reads are under way at once.
    u64 outgoing[kSpread ? SHUNT_MAX_RANKS : 1], mine = 0;
    if (kSpread) {
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++)
        if (p < a.world) outgoing[p] = load_word<T>(blocks.at(p), i * 8, blocks.length(p));
    } else {
      mine = source(load_word<T>(blocks.at(0), i * 8, blocks.length(0)));
    }
    if (epoch.lost) break;
    const u64 e = base + 1 + round;
    const bool active = i < packets || rounds > 1 || threadIdx.x == 0;
    const Flags flags = ll_flags(a, e, a.bytes);
    ll_refresh(a, e, flags, active);
    if (active) {
      const int64_t slot = ll_offset(a.world, e, a.rank);
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++) {
        if (p >= a.world) break;
        const u64 word = kSpread ? source(outgoing[kSpread ? p : 0]) : mine;
        if (p != a.rank)
          ll_store(a.region[p] + slot, word, flags);
        else
          mine = word;
      }
      u64 words[SHUNT_MAX_RANKS];
      if (!ll_wait_all(a, e, flags, words)) break;
      if (round == 0) heard_from_peers();
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS; s++) words[s] = s == a.rank ? mine : words[s];
      sink(i * 8, words);
    }
  }
  epoch.advance(base + rounds);
}

// The same in units of a warp: sink(lane, offset, lines). A warp that has given up gets
// false.
template <class T, bool kSpread, class Blocks, class Source, class Sink, class Fenced = Asked>
__device__ __forceinline__ bool exchange_ll128(const shunt_kernel_args &a, const Blocks &blocks, Source source,
    Sink sink, Fenced fenced = {}) {
  const Epoch epoch(a, SHUNT_CLASS_LL128);
  const Lane l(a, fenced);
  const u64 base = first_unit(a, epoch.value);
  const Deal deal(a.bytes);
  const int64_t out = ll128_offset(a.world, 0, a.rank);
  const char *in = own(a) + ll128_offset(a.world, 0, 0);
  auto load = [&](int block, int64_t round) {
    const int p = kSpread ? block : 0;
    const word2 w = load_unit<T>(l, blocks.at(p), deal.offset(round), blocks.length(p));
    return word2{source(w.x), source(w.y)};
  };
  auto emit = [&](int64_t round) {
    const u64 unit = base + round;
    const int64_t slot = out + ring(unit);
    word2 lines[SHUNT_MAX_RANKS];
#pragma unroll
    for (int k = 1; k < SHUNT_MAX_RANKS; k++) {  // loads of all peers first, then the stores
      if (k >= a.world) break;
      if (kSpread || k == 1) lines[k] = load(a.rank + k < a.world ? a.rank + k : a.rank + k - a.world, round);
    }
    if (round == 0 && __any_sync(~0u, epoch.lost)) return false;
    with_store(l, [&](auto store) {
#pragma unroll
      for (int k = 1; k < SHUNT_MAX_RANKS; k++) {
        if (k >= a.world) break;
        const int p = a.rank + k < a.world ? a.rank + k : a.rank + k - a.world;
        store(a.region[p] + slot, kSpread ? lines[k] : lines[1], unit);
      }
    });
    return true;
  };
  bool met = true;
  for (int64_t round = 0; met && round < deal.ahead; round++) met = emit(round);
  for (int64_t round = 0; met && round < deal.mine; round++) {
    if (round + deal.ahead < deal.mine) met = emit(round + deal.ahead);
    if (!met) break;
    const word2 mine = load(a.rank, round);
    word2 lines[SHUNT_MAX_RANKS];
    met = ll128_wait_all<0>(a, l, in, base + round, lines);
    if (!met) break;
    if (round == 0) heard_from_peers();
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) lines[s] = select(s == a.rank, mine, lines[s]);
    sink(l, deal.offset(round), lines);
  }
  epoch.advance(epoch.value + deal.rounds);
  return met;
}

// Sinks that lay the blocks out in rank order in recv.
struct Unchanged {
  __device__ __forceinline__ u64 operator()(u64 word) const { return word; }
};

template <bool kSpread>
__device__ __forceinline__ void gather_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<uint8_t, kSpread>(
      a, EqualBlocks(a), Unchanged(), [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) {
#pragma unroll
        for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
          if (s >= a.world) break;
          store_word<uint8_t>(recv + s * a.bytes, offset, a.bytes, words[s]);
        }
      });
}

template <bool kSpread, class Fenced = Asked>
__device__ __forceinline__ bool gather_ll128_body(const shunt_kernel_args &a, Fenced fenced = {}) {
  char *recv = reinterpret_cast<char *>(a.recv);
  return exchange_ll128<uint8_t, kSpread>(
      a, EqualBlocks(a), Unchanged(),
      [&](const Lane &l, int64_t offset, const word2(&lines)[SHUNT_MAX_RANKS]) {
#pragma unroll
        for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
          if (s >= a.world) break;
          store_unit<uint8_t>(l, recv + s * a.bytes, offset, a.bytes, lines[s]);
        }
      },
      fenced);
}

template <bool kSpread>
__device__ __forceinline__ void gather_ll128(const shunt_kernel_args &a) {
  begin();
  for_either(a, [&](auto fenced) { gather_ll128_body<kSpread>(a, fenced); });
}

}  // namespace shunt

// One entry point whose body does not depend on the dtype, and one of other arguments.
#define SHUNT_KERNEL_BYTES(name, body) SHUNT_KERNEL_BYTES_OF(name, body, shunt_kernel_args)
#define SHUNT_KERNEL_BYTES_OF(name, body, block)                                                           \
  extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1)                                       \
      name(const __grid_constant__ block args) {                                                           \
    if (shunt::spare_block()) return;                                                                      \
    body(args);                                                                                            \
    shunt::end();                                                                                          \
  }
