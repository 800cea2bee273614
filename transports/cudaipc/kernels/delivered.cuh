// delivered.cuh: a large all_reduce out of place whose every transfer is a copy
// engine's, which fill links better than stores. In symmetric memory a rank's engines
// write its part of a peer's shard into the receive memory of that peer, where this
// rank's shard of the result will stand; the peer combines what was delivered with its
// own part; and its engines write the result into everyone's receive memory, over what
// was delivered there. Nothing else is allocated, and nothing is copied twice.
//
// A shard is two chunks: while the second is delivered the first is combined, and
// while results of the first leave the second is combined. More would cost more than
// they hide: an engine takes 3 us from one copy to the next. Chunks are numbered for
// ever, alike on all ranks. Between its copies a rank launches shunt_symmetric_turn,
// which tells peers what has been delivered and waits until results may be copied:
// they are there, and no rank needs what they will overwrite. Results of one kernel
// leave while it still runs, so it says by a word when they are there.
#pragma once

#include "direct.cuh"

namespace shunt {

constexpr int kDeliveries = 2;

// The first chunk of a shard, a multiple of 16 as the shard is.
__device__ __forceinline__ int64_t first_delivery(int64_t shard) { return (shard / 2 + 15) / 16 * 16; }

__device__ __forceinline__ u64 *turn_of(const shunt_kernel_args &a) { return reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_TURN); }

// The last block to have combined a chunk tells everyone, this rank too. The whole
// block calls it.
__device__ __forceinline__ void tell_combined(const shunt_kernel_args &a, int chunk, u64 number) {
  __syncthreads();
  if (threadIdx.x >= 32) return;
  u32 *blocks = reinterpret_cast<u32 *>(turn_of(a) + 1) + chunk;
  bool last = false;
  if (threadIdx.x == 0) {
    // Release and acquire: the block's results, ordered by __syncthreads, come before
    // the count, and those of the blocks that were counted before what follows.
    fence_system();
    last = atomicAdd(blocks, 1u) == gridDim.x - 1;
    fence_system();
    if (last) *reinterpret_cast<volatile u32 *>(blocks) = 0;  // for the next call
  }
  if (!__shfl_sync(~0u, last, 0)) return;
  const int p = threadIdx.x;
  if (p < a.world) store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_COMBINED + a.rank * 8), number);
}

// bytes is a shard's length, a multiple of 16.
template <class T>
__device__ __forceinline__ void all_reduce_delivered(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  const u64 base = *turn_of(a);  // the turn that moves it on waits for all blocks to have combined
  const int p = threadIdx.x;
  if (p < a.world) m.send[p] = p == a.rank ? a.send + p * a.bytes : a.recv + p * a.bytes;
  char *recv = reinterpret_cast<char *>(a.recv) + a.rank * a.bytes;
  const int64_t first = first_delivery(a.bytes);
#pragma unroll 1
  for (int chunk = 0; chunk < kDeliveries; chunk++) {
    const u64 number = base + chunk + 1;
    // Acquire: what the peer's engines wrote before its turn said so is visible.
    if (p < a.world && p != a.rank) wait_for(a, own(a) + SHUNT_OFF_DELIVERED + p * 8, number, p);
    __syncthreads();
    const int64_t at = chunk == 0 ? 0 : first, length = chunk == 0 ? first : a.bytes - first;
    pull_shard<T>(a, m, at, length, [&](int64_t offset, word2 w) { store_words<T>(recv + at, offset, length, w); });
    tell_combined(a, chunk, number);
  }
}

}  // namespace shunt
