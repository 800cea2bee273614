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

__device__ __forceinline__ u64 *turn_of(const shunt_kernel_args &a) {
  return reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_TURN);
}

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
    last = atomicAdd(blocks, 1u) == block_count() - 1;
    fence_system();
    if (last) *reinterpret_cast<volatile u32 *>(blocks) = 0;  // for the next call
  }
  if (!__shfl_sync(~0u, last, 0)) return;
  const int p = threadIdx.x;
  if (p < a.world) store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_COMBINED + a.rank * 8), number);
}

// Waits until a peer's engines have delivered so many chunks. Acquires: what they
// wrote before its turn said so is visible. All blocks look at the same word, which
// without a rest slows down what arrives by a fifth.
[[nodiscard]] __device__ __forceinline__ bool wait_delivered(const shunt_kernel_args &a, u64 number, int peer) {
  const char *word = own(a) + SHUNT_OFF_DELIVERED + peer * 8;
  Wait wait(a);
  while ((long long)(load_acquire(word) - number) < 0) {
    if (wait.over(peer, number)) return false;
    __nanosleep(1000);
  }
  return true;
}

// Where rank s's part of this rank's shard is.
__device__ __forceinline__ const char *part_of(const shunt_kernel_args &a, int s) {
  return reinterpret_cast<const char *>((s == a.rank ? a.send : a.recv) + s * a.bytes);
}

// Combines the vectors of a chunk that begins at byte at of the shard, kVectors of
// each of up to kRanks ranks at a time. What engines wrote is not read through L1.
template <class T, int kRanks, int kVectors>
__device__ __forceinline__ void combine_aligned(const shunt_kernel_args &a, int64_t at, int64_t length) {
  const int64_t step = int64_t(block_count()) * blockDim.x * 16, end = at + length;
  char *to = reinterpret_cast<char *>(a.recv) + a.rank * a.bytes;
  auto some = [&](auto batch, int64_t i) {
    constexpr int kBatch = decltype(batch)::vectors;
    word2 lines[kBatch][kRanks];
#pragma unroll
    for (int s = 0; s < kRanks; s++) {
      if (s >= a.world) break;
      const char *from = part_of(a, s) + i;
#pragma unroll
      for (int u = 0; u < kBatch; u++) lines[u][s] = load_line(from + u * step);
    }
#pragma unroll
    for (int u = 0; u < kBatch; u++) *reinterpret_cast<word2 *>(to + i + u * step) = reduce_lines<T>(a, lines[u]);
  };
  int64_t i = at + (int64_t(block_index()) * blockDim.x + threadIdx.x) * 16;
#pragma unroll 1
  for (; i + (kVectors - 1) * step < end; i += kVectors * step) some(Batch<kVectors>(), i);
#pragma unroll 1
  for (; i < end; i += step) some(Batch<1>(), i);
}

// The same for any memory and world.
template <class T>
__device__ __forceinline__ void combine_any(const shunt_kernel_args &a, int64_t at, int64_t length) {
  const int64_t step = int64_t(block_count()) * blockDim.x * 16;
  char *to = reinterpret_cast<char *>(a.recv) + a.rank * a.bytes;
#pragma unroll 1
  for (int64_t i = at + (int64_t(block_index()) * blockDim.x + threadIdx.x) * 16; i < at + length; i += step) {
    word2 lines[SHUNT_MAX_RANKS];
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
      if (s >= a.world) break;
      lines[s] = load_peer_words<T>(reinterpret_cast<u64>(part_of(a, s)), i, a.bytes);
    }
    store_words<T>(to, i, a.bytes, reduce_lines<T>(a, lines));
  }
}

// bytes is a shard's length, a multiple of 16. kAny: memory need not be aligned, and
// there may be more than four ranks. That is a kernel of its own, because its calls
// would cost the other one registers and two thirds of its speed.
template <class T, bool kAny>
__device__ __forceinline__ void all_reduce_delivered(const shunt_kernel_args &a) {
  begin();
  const u64 base = *turn_of(a);  // the turn that moves it on waits for all blocks to have combined
  const int p = threadIdx.x;
  bool met = earlier_fault(a) == SHUNT_FAULT_NONE;  // of an earlier kernel
  int64_t at = 0, length = first_delivery(a.bytes);
#pragma unroll 1
  for (int chunk = 0; chunk < kDeliveries; chunk++) {
    const u64 number = base + chunk + 1;
    if (p < a.world && p != a.rank) met = met && wait_delivered(a, number, p);
    if (__syncthreads_or(!met)) return;
    if (kAny) combine_any<T>(a, at, length);
    else combine_aligned<T, 4, 4>(a, at, length);
    tell_combined(a, chunk, number);
    at = length;
    length = a.bytes - length;
  }
}

template <class T>
__device__ __forceinline__ void all_reduce_delivered_aligned(const shunt_kernel_args &a) {
  all_reduce_delivered<T, false>(a);
}

template <class T>
__device__ __forceinline__ void all_reduce_delivered_any(const shunt_kernel_args &a) {
  all_reduce_delivered<T, true>(a);
}

}  // namespace shunt
