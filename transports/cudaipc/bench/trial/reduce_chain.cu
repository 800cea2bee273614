// reduce_chain.cu: reduce, from rank 0 to the last one: every rank adds its part to
// what the rank before has staged in its region, and stages the sum at the next;
// the last one stores the result into the root's recv. So sums are formed in rank
// order. The root has to be the last rank or rank 0, or its link would carry the
// message twice; and partial sums have to be of the dtype, which those of small
// floats are not. Elsewhere this is reduce_staged.
//
// Chunks are numbered as in staged.cuh, with the same words. A rank stages into all
// of the next rank's staging memory, not only what is its own in other calls: so it
// first waits until the next rank is done with all that came before this call, and
// nobody goes on to the next call before all are done with this one.
#include "chain.cuh"

namespace shunt {

// A sum so far and what this rank adds; the last rank finishes it.
template <class T>
__device__ __forceinline__ u64 fold(const shunt_kernel_args &a, u64 sum, u64 own, bool last) {
  Accumulator<T> acc;
  acc.set(sum);
  with_op(a.op, [&](auto op) { acc.add(decltype(op)::value, own); });
  return acc.result(last ? a.op : int(kSum), a.world);
}

template <class T>
__device__ __forceinline__ void reduce_in_chain(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  __shared__ Moved moved;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT), *staged = epoch_of(a, SHUNT_CLASS_STAGED);
  const u64 e = *epoch + 1, base = *staged;
  clear(moved);
  const bool first = a.rank == 0, last = a.rank == a.world - 1;
  if (!meet(a, m, e, 0, a.root == 0 && a.rank == a.root ? a.bytes : 0)) {
    two_shot_ll128<T, true>(a);
    part(a, e);
    advance(epoch, e);
    return;
  }
  constexpr int kWords = SHUNT_STAGE_BYTES / kMoverStride, kChunk = kWords * kMoverStride;
  const int64_t mine = chunks_of_block(a.bytes, kChunk, gridDim.x);
  const int warp = threadIdx.x >> 5, window = a.world * SHUNT_STAGES;
  if (warp < kMovers) {
    const char *send = reinterpret_cast<const char *>(a.send);
    char *recv = reinterpret_cast<char *>(m.recv[a.root]);
    u64 seen = base, credit = base - 1;
    for (int64_t k = 0; k < mine; k++) {
      const u64 n = base + k;
      const int slot = int(n % window);
      const int64_t offset = (k * gridDim.x + blockIdx.x) * kChunk + threadIdx.x * 16;
      const int64_t stage = stage_of(a.world, slot / SHUNT_STAGES, slot) + threadIdx.x * 16;
      word2 w[kWords], sum[kWords];
#pragma unroll
      for (int u = 0; u < kWords; u++) {
        w[u] = load_words<T>(send, offset + u * kMoverStride, a.bytes);
        w[u] = word2{premultiply<T>(a.op, a.scalar, w[u].x), premultiply<T>(a.op, a.scalar, w[u].y)};
      }
      if (!first) {
        // Acquire: what the rank before staged is visible from here, past L1.
        wait_word(a, SHUNT_OFF_STAGED, a.rank - 1, n + 1, seen);
#pragma unroll
        for (int u = 0; u < kWords; u++) sum[u] = load_line(own(a) + stage + u * kMoverStride);
#pragma unroll
        for (int u = 0; u < kWords; u++) w[u] = word2{fold<T>(a, sum[u].x, w[u].x, last), fold<T>(a, sum[u].y, w[u].y, last)};
      }
      if (last) {
#pragma unroll
        for (int u = 0; u < kWords; u++) store_words<T>(recv, offset + u * kMoverStride, a.bytes, w[u]);
      } else {
        // Acquire: the next rank had read the stage before it said so.
        wait_word(a, SHUNT_OFF_TAKEN, a.rank + 1, k < window ? base : n + 1 - window, credit);
        char *to = reinterpret_cast<char *>(a.region[a.rank + 1]) + stage;
#pragma unroll
        for (int u = 0; u < kWords; u++) *reinterpret_cast<word2 *>(to + u * kMoverStride) = w[u];
        move_on(moved, u32(k + 1));
      }
      if (!first) {
        __syncwarp();
        // As in staged_reduce: what was stored needed every word of the stage, so
        // it has been read: no fence. No warp begins a chunk with this slot before
        // all have read this one.
        if ((threadIdx.x & 31) == 0 && count_shared(&moved.read[slot]) % kMovers == kMovers - 1)
          store_relaxed(reinterpret_cast<void *>(a.region[a.rank - 1] + SHUNT_OFF_TAKEN + staged_word(a.rank)), n + 1);
      }
    }
  } else if (!last) {
    tell_next(a, moved, SHUNT_OFF_STAGED, a.rank + 1, base, u32(mine));
  }
  part(a, e);
  // All count on it, whoever staged here.
  if (warp == 0) tell_peers(a, SHUNT_OFF_TAKEN, base + mine);
  advance(staged, base + mine);
  advance(epoch, e);
}

template <class T>
__device__ __forceinline__ void reduce_chain(const shunt_kernel_args &a) {
  if constexpr (sizeof(typename Element<T>::Acc) == sizeof(T)) {
    if (a.root == 0 || a.root == a.world - 1) return reduce_in_chain<T>(a);
  }
  reduce_staged<T>(a);
}

}  // namespace shunt

SHUNT_KERNEL_TYPED(shunt_reduce_chain, shunt::reduce_chain)
