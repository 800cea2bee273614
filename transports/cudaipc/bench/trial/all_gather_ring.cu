// all_gather_ring.cu: all_gather as a chain from each rank to all others: every
// rank stores its own block and those it has received into the next rank's recv.
// Blocks by turns: in turn t it moves chunk t of its own block, chunk t - kLag of
// the block of the rank before, and so on, so that what it moves on came kLag turns
// ago.
#include "chain.cuh"

namespace shunt {

template <int kWords, int kLag>
__device__ __forceinline__ void gather_ring(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  __shared__ Moved moved;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT), *forwarded = epoch_of(a, SHUNT_CLASS_FORWARD);
  const u64 e = *epoch + 1;
  clear(moved);
  if (!meet(a, m, e, 0, a.bytes * a.world)) {
    gather_ll128_body<false>(a);
    part(a, e);
    advance(epoch, e);
    return;
  }
  const u64 base = *forwarded;
  constexpr int kChunk = kWords * kMoverStride;
  const int64_t mine = chunks_of_block(a.bytes, kChunk, gridDim.x);
  const int chains = a.world - 1, next = (a.rank + 1) % a.world, previous = (a.rank + a.world - 1) % a.world;
  const int64_t turns = mine == 0 ? 0 : mine + (chains - 1) * kLag;
  const int warp = threadIdx.x >> 5;
  if (warp < kMovers) {
    const char *send = reinterpret_cast<const char *>(a.send);
    char *own_block = reinterpret_cast<char *>(a.recv) + a.rank * a.bytes;
    u64 seen = base;
    for (int64_t t = 0; t < turns; t++)
#pragma unroll 1
      for (int s = 0; s < chains; s++) {
        const int64_t k = t - s * kLag;
        if (k >= 0 && k < mine) {
          const int64_t offset = (k * gridDim.x + blockIdx.x) * kChunk + threadIdx.x * 16;
          const int64_t at = (a.rank - s + a.world) % a.world * a.bytes;
          word2 w[kWords];
          if (s == 0) {
#pragma unroll
            for (int u = 0; u < kWords; u++) w[u] = load_words<uint8_t>(send, offset + u * kMoverStride, a.bytes);
          } else {
            // Acquire: what the rank before moved as its chain s - 1, kLag turns ago,
            // is visible from here, past L1.
            wait_word(a, SHUNT_OFF_FORWARD, previous, base + (t - kLag) * chains + s, seen);
#pragma unroll
            for (int u = 0; u < kWords; u++) w[u] = load_peer_words<uint8_t>(a.recv + at, offset + u * kMoverStride, a.bytes);
          }
#pragma unroll
          for (int u = 0; u < kWords; u++) store_words<uint8_t>(reinterpret_cast<char *>(m.recv[next]) + at, offset + u * kMoverStride, a.bytes, w[u]);
          if (s == 0 && own_block != send) {
#pragma unroll
            for (int u = 0; u < kWords; u++) store_words<uint8_t>(own_block, offset + u * kMoverStride, a.bytes, w[u]);
          }
        }
        move_on(moved, u32(t * chains + s + 1));
      }
  } else if (a.world > 2) {
    tell_next(a, moved, SHUNT_OFF_FORWARD, next, base, u32(turns * chains));
  }
  part(a, e);
  if (threadIdx.x == 0) *forwarded = base + turns * chains;  // part has synchronized the block
  advance(epoch, e);
}

__device__ __forceinline__ void gather_ring_w2l1(const shunt_kernel_args &a) { gather_ring<2, 1>(a); }
__device__ __forceinline__ void gather_ring_w2l2(const shunt_kernel_args &a) { gather_ring<2, 2>(a); }
__device__ __forceinline__ void gather_ring_w4l1(const shunt_kernel_args &a) { gather_ring<4, 1>(a); }
__device__ __forceinline__ void gather_ring_w4l2(const shunt_kernel_args &a) { gather_ring<4, 2>(a); }

}  // namespace shunt

SHUNT_KERNEL_BYTES(shunt_all_gather_ring_w2l1, shunt::gather_ring_w2l1)
SHUNT_KERNEL_BYTES(shunt_all_gather_ring_w2l2, shunt::gather_ring_w2l2)
SHUNT_KERNEL_BYTES(shunt_all_gather_ring_w4l1, shunt::gather_ring_w4l1)
SHUNT_KERNEL_BYTES(shunt_all_gather_ring_w4l2, shunt::gather_ring_w4l2)
