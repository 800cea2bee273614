// chain.cuh: what passes a message on from rank to rank, so that every link
// carries it once and every GPU stores to one peer only, at which links carry more
// than at several. The first warps of a block move chunks, each warp its part of
// every chunk by itself; the last one tells the next rank what has been moved,
// because that waits for the stores to arrive.
#pragma once

#include "direct.cuh"

namespace shunt {

__device__ __forceinline__ int64_t chain_word(int rank) { return (block_index() * SHUNT_MAX_RANKS + rank) * 8; }

constexpr int kMovers = SHUNT_MAX_WARPS - 1;
constexpr int kMoverStride = kMovers * 32 * 16;  // bytes that the movers move with a vector each

// Chunks that each mover of a block has moved, or kLost.
struct Moved {
  u32 done[kMovers];
};

__device__ __forceinline__ void clear(Moved &moved) {
  if (threadIdx.x < kMovers) moved.done[threadIdx.x] = 0;
}

// A mover is done with so many chunks; the whole warp calls it.
__device__ __forceinline__ void move_on(Moved &moved, u32 chunks) {
  __syncwarp();
  // Release: the warp's stores come before the teller's fence.
  if ((threadIdx.x & 31) == 0) store_release_shared(&moved.done[threadIdx.x >> 5], chunks);
}

// Waits until the word that a peer raises here has reached a value; seen is what
// this warp saw last. Acquires, for the whole warp, which calls it and gets false if the
// wait was given up.
[[nodiscard]] __device__ __forceinline__ bool wait_word(const shunt_kernel_args &a, int64_t offset, int peer,
    u64 value, u64 &seen) {
  if ((long long)(seen - value) >= 0) return true;
  if ((threadIdx.x & 31) == 0) {
    const char *word = own(a) + offset + chain_word(peer);
    Wait wait(a);
    do seen = load_acquire(word);
    while ((long long)(seen - value) < 0 && !wait.over(peer, value));
  }
  seen = __shfl_sync(~0u, seen, 0);
  __syncwarp();
  return (long long)(seen - value) >= 0;
}

// The teller: raises this rank's word at the next rank to base plus what all movers
// have done, until that is the limit or one of them has given up: its chunks count on
// nothing that may be told.
__device__ __forceinline__ void tell_next(const shunt_kernel_args &a, Moved &moved, int64_t offset, int next,
    u64 base, u32 limit) {
  const int lane = threadIdx.x & 31;
  for (u32 told = 0; told < limit;) {
    u32 done = lane < kMovers ? load_acquire_shared(&moved.done[lane]) : limit;
    if (__any_sync(~0u, done == kLost)) return;
#pragma unroll
    for (int other = 16; other > 0; other /= 2) done = min(done, __shfl_xor_sync(~0u, done, other));
    if (done == told) continue;
    // Release: the movers' stores come before the count.
    fence_system();
    __syncwarp();
    told = done;
    if (lane == 0) store_relaxed(reinterpret_cast<void *>(a.region[next] + offset + chain_word(a.rank)), base + told);
  }
}

// Chunks of a message that this block serves, of so many blocks.
__device__ __forceinline__ int64_t chunks_of_block(int64_t bytes, int chunk, int blocks) {
  const int64_t chunks = (bytes + chunk - 1) / chunk;
  return block_index() >= blocks || chunks <= int64_t(block_index()) ? 0 : (chunks - block_index() - 1) / blocks + 1;
}

}  // namespace shunt
