// all_reduce.cu: recv of every rank = op over send of all ranks, combined in
// rank order, so that every rank gets the same bits. send may equal recv.
//
//   one_shot_ll     every rank sends everything to everyone; LL packets
//   one_shot_ll128  the same with LL128 lines
//   two_shot_ll128  rank r reduces shard r and sends the result to everyone
#include "combine.cuh"
#include "exchange.cuh"

namespace shunt {

template <class T>
__device__ __forceinline__ void all_reduce_one_shot_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<T, false>(
      a, [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) { store_word<T>(recv, offset, a.bytes, reduce_words<T>(a, words)); });
}

template <class T>
__device__ __forceinline__ void all_reduce_one_shot_ll128(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll128<T, false>(
      a, [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](const Lane &l, int64_t offset, const word2(&lines)[SHUNT_MAX_RANKS]) {
        store_unit<T>(l, recv, offset, a.bytes, reduce_lines<T>(a, lines));
      });
}

template <class T>
__device__ __forceinline__ void all_reduce_two_shot_ll128(const shunt_kernel_args &a) {
  begin();
  u64 *epoch = epoch_of(a, SHUNT_CLASS_LL128);
  const u64 base = *epoch;
  const Lane l;
  const char *send = reinterpret_cast<const char *>(a.send);
  char *recv = reinterpret_cast<char *>(a.recv);
  const int64_t shard = ((a.bytes + a.world - 1) / a.world + 15) / 16 * 16;
  const int64_t units = (shard + kUnit - 1) / kUnit;
  const int64_t warps = int64_t(gridDim.x) * (blockDim.x >> 5), step = warps * SHUNT_LL128_UNROLL;
  const int64_t rounds = units <= step ? 1 : (units + step - 1) / step;
  int64_t i = int64_t(threadIdx.x >> 5) * gridDim.x + blockIdx.x;
  for (int64_t round = 0; round < rounds; round++, i += step) {
    const u64 e = base + 1 + round;
    bool active[SHUNT_LL128_UNROLL];
    // Shard p of this rank's data goes to rank p. A unit never crosses its
    // shard's end: the length given is that of the shard.
#pragma unroll
    for (int u = 0; u < SHUNT_LL128_UNROLL; u++) {
      const int64_t unit = i + u * warps;
      active[u] = unit < units || (u == 0 && (rounds > 1 || threadIdx.x < 32));
      if (!active[u]) continue;
#pragma unroll
      for (int k = 1; k < SHUNT_MAX_RANKS; k++)
        if (k < a.world) {
          const int p = (a.rank + k) % a.world;
          const int64_t start = p * shard, length = min(shard, a.bytes - start);
          word2 w = load_unit<T>(l, send + start, unit * kUnit, length);
          w.x = premultiply<T>(a.op, a.scalar, w.x);
          w.y = premultiply<T>(a.op, a.scalar, w.y);
          ll128_store(l, ll128_slot(a.region[p], a.world, 0, e, a.rank) + u * 512, w, e);
        }
    }
    const int64_t start = a.rank * shard, length = min(shard, a.bytes - start);
#pragma unroll
    for (int u = 0; u < SHUNT_LL128_UNROLL; u++) {
      if (!active[u]) continue;
      const int64_t offset = (i + u * warps) * kUnit;
      word2 mine = load_unit<T>(l, send + start, offset, length);
      mine.x = premultiply<T>(a.op, a.scalar, mine.x);
      mine.y = premultiply<T>(a.op, a.scalar, mine.y);
      word2 lines[SHUNT_MAX_RANKS];
      ll128_wait_all(a, l, ll128_slot(a.region[a.rank], a.world, 0, e, 0) + u * 512, e, lines);
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS; s++)
        lines[s] = select(s == a.rank, mine, lines[s]);
      const word2 result = reduce_lines<T>(a, lines);
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++)
        if (p < a.world && p != a.rank) ll128_store(l, ll128_slot(a.region[p], a.world, 1, e, a.rank) + u * 512, result, e);
      store_unit<T>(l, recv + start, offset, length, result);
    }
#pragma unroll
    for (int u = 0; u < SHUNT_LL128_UNROLL; u++) {
      if (!active[u]) continue;
      const int64_t offset = (i + u * warps) * kUnit;
      word2 lines[SHUNT_MAX_RANKS];
      ll128_wait_all(a, l, ll128_slot(a.region[a.rank], a.world, 1, e, 0) + u * 512, e, lines);
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS; s++)
        if (s < a.world && s != a.rank) store_unit<T>(l, recv + s * shard, offset, min(shard, a.bytes - s * shard), lines[s]);
    }
  }
  advance(epoch, base + rounds);
}

}  // namespace shunt

SHUNT_KERNEL_EVERY_DTYPE(shunt_all_reduce_one_shot_ll, shunt::all_reduce_one_shot_ll)
SHUNT_KERNEL_EVERY_DTYPE(shunt_all_reduce_one_shot_ll128, shunt::all_reduce_one_shot_ll128)
SHUNT_KERNEL_EVERY_DTYPE(shunt_all_reduce_two_shot_ll128, shunt::all_reduce_two_shot_ll128)
