// broadcast_chain.cu: broadcast, from the root to the next rank, from there to the
// next, and so on: every rank stores what has arrived in its recv into that of the
// next one. Grid: SHUNT_MAX_BLOCKS, because it falls back to LL128, of which so
// many serve the chain.
#include "broadcast_parts.cuh"
#include "chain.cuh"

namespace shunt {

template <int kBlocks, int kWords>
__device__ __forceinline__ void broadcast_chain(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  __shared__ Moved moved;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT), *forwarded = epoch_of(a, SHUNT_CLASS_FORWARD);
  const u64 e = *epoch + 1;
  clear(moved);
  if (!meet(a, m, e, 0, a.rank == a.root ? 0 : a.bytes)) {
    broadcast_ll128_body(a);
    part(a, e);
    advance(epoch, e);
    return;
  }
  const u64 base = *forwarded;
  constexpr int kChunk = kWords * kMoverStride;
  const int64_t mine = chunks_of_block(a.bytes, kChunk, kBlocks);
  const int place = (a.rank - a.root + a.world) % a.world, next = (a.rank + 1) % a.world, previous = (a.rank + a.world - 1) % a.world;
  const bool first = place == 0, last = place == a.world - 1;
  const int warp = threadIdx.x >> 5;
  if (!last && warp < kMovers) {
    const char *send = reinterpret_cast<const char *>(a.send);
    char *to = reinterpret_cast<char *>(m.recv[next]), *recv = reinterpret_cast<char *>(a.recv);
    u64 seen = base;
    for (int64_t k = 0; k < mine; k++) {
      const int64_t offset = (k * kBlocks + blockIdx.x) * kChunk + threadIdx.x * 16;
      word2 w[kWords];
      if (first) {
#pragma unroll
        for (int u = 0; u < kWords; u++) w[u] = load_words<uint8_t>(send, offset + u * kMoverStride, a.bytes);
      } else {
        // Acquire: the chunk is visible from here, past L1.
        wait_word(a, SHUNT_OFF_FORWARD, previous, base + k + 1, seen);
#pragma unroll
        for (int u = 0; u < kWords; u++) w[u] = load_peer_words<uint8_t>(a.recv, offset + u * kMoverStride, a.bytes);
      }
#pragma unroll
      for (int u = 0; u < kWords; u++) store_words<uint8_t>(to, offset + u * kMoverStride, a.bytes, w[u]);
      if (first && recv != send) {
#pragma unroll
        for (int u = 0; u < kWords; u++) store_words<uint8_t>(recv, offset + u * kMoverStride, a.bytes, w[u]);
      }
      move_on(moved, u32(k + 1));
    }
  } else if (warp == kMovers && place + 2 < a.world) {
    tell_next(a, moved, SHUNT_OFF_FORWARD, next, base, u32(mine));
  }
  // The last rank learns from the end barrier that all is there.
  part(a, e);
  if (threadIdx.x == 0) *forwarded = base + mine;  // part has synchronized the block
  advance(epoch, e);
}

__device__ __forceinline__ void broadcast_chain_b64w2(const shunt_kernel_args &a) { broadcast_chain<SHUNT_MAX_BLOCKS, 2>(a); }
__device__ __forceinline__ void broadcast_chain_b64w4(const shunt_kernel_args &a) { broadcast_chain<SHUNT_MAX_BLOCKS, 4>(a); }
__device__ __forceinline__ void broadcast_chain_b48w2(const shunt_kernel_args &a) { broadcast_chain<SHUNT_MAX_BLOCKS * 3 / 4, 2>(a); }
__device__ __forceinline__ void broadcast_chain_b48w4(const shunt_kernel_args &a) { broadcast_chain<SHUNT_MAX_BLOCKS * 3 / 4, 4>(a); }
__device__ __forceinline__ void broadcast_chain_b32w4(const shunt_kernel_args &a) { broadcast_chain<SHUNT_MAX_BLOCKS / 2, 4>(a); }
__device__ __forceinline__ void broadcast_chain_b32w8(const shunt_kernel_args &a) { broadcast_chain<SHUNT_MAX_BLOCKS / 2, 8>(a); }

}  // namespace shunt

SHUNT_KERNEL_BYTES(shunt_broadcast_chain_b64w2, shunt::broadcast_chain_b64w2)
SHUNT_KERNEL_BYTES(shunt_broadcast_chain_b64w4, shunt::broadcast_chain_b64w4)
SHUNT_KERNEL_BYTES(shunt_broadcast_chain_b48w2, shunt::broadcast_chain_b48w2)
SHUNT_KERNEL_BYTES(shunt_broadcast_chain_b48w4, shunt::broadcast_chain_b48w4)
SHUNT_KERNEL_BYTES(shunt_broadcast_chain_b32w4, shunt::broadcast_chain_b32w4)
SHUNT_KERNEL_BYTES(shunt_broadcast_chain_b32w8, shunt::broadcast_chain_b32w8)
