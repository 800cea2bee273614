// broadcast_parts.cuh: broadcast through LL128, from broadcast.cu.
#pragma once

#include "copy.cuh"
#include "direct.cuh"

namespace shunt {

constexpr int kCopyBlocks = 8;  // of the root, for its own copy

// Blocks that serve the units of one owner.
__device__ __forceinline__ int broadcast_blocks(int world) {
  const int most = (SHUNT_MAX_BLOCKS - kCopyBlocks) / (world - 1);
  return most < SHUNT_CHANNEL_BLOCKS ? most : SHUNT_CHANNEL_BLOCKS;
}

__device__ __forceinline__ void broadcast_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  // Others send what happens to be in recv; nobody looks at it.
  exchange_ll<uint8_t, false>(a, a.rank == a.root ? a.send : a.recv, Unchanged(), [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) {
    u64 word = 0;
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) word |= words[s] & (s == a.root ? ~0ull : 0);
    if (a.rank != a.root || a.recv != a.send) store_word<uint8_t>(recv, offset, a.bytes, word);
  });
}

__device__ __forceinline__ void broadcast_ll128_body(const shunt_kernel_args &a) {
  const int blocks = broadcast_blocks(a.world), owners = a.world - 1;
  const char *send = reinterpret_cast<const char *>(a.send);
  char *recv = reinterpret_cast<char *>(a.recv);
  if (int(blockIdx.x) >= owners * blocks) {
    const int block = blockIdx.x - owners * blocks;
    if (a.rank == a.root && block < kCopyBlocks) copy_bytes(recv, send, a.bytes, block * blockDim.x + threadIdx.x, kCopyBlocks * blockDim.x);
    return;
  }
  const Lane l;
  const int index = blockIdx.x % owners, owner = (a.root + 1 + index) % a.world, block = blockIdx.x / owners;
  const int lanes = blocks * (blockDim.x >> 5), lane = (threadIdx.x >> 5) * blocks + block;
  const int64_t units = (a.bytes + kUnit - 1) / kUnit;
  const int64_t mine = units_of_lane(units_of_lane(units, index, owners), lane, lanes);
  if (mine == 0) return;
  auto offset = [&](int64_t k) { return ((lane + k * lanes) * owners + index) * kUnit; };
  if (a.rank == a.root) {
    Outlet outlet(a, owner, lane);
    for (int64_t k = 0; k < mine; k++) {
      const word2 w = load_unit<uint8_t>(l, send, offset(k), a.bytes);
      outlet.wait(a);
      outlet.put(l, w);
    }
    outlet.close();
  } else if (a.rank != owner) {
    Inlet inlet(a, owner, lane);
    for (int64_t k = 0; k < mine; k++) store_unit<uint8_t>(l, recv, offset(k), a.bytes, inlet.wait(a, l));
    inlet.close();
  } else {
    // Ranks that forward nothing back wait only for this one, so the waits for
    // their credits cannot close a circle.
    Inlet inlet(a, a.root, lane);
    u64 sent[SHUNT_MAX_RANKS];
#pragma unroll
    for (int p = 0; p < SHUNT_MAX_RANKS; p++)
      if (p < a.world && p != a.root && p != a.rank) sent[p] = *reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SENT + channel_word(p, lane));
    const int64_t out = channel_offset(a.world, a.rank, lane);
    for (int64_t k = 0; k < mine; k++) {
      const word2 w = inlet.wait(a, l);
      Wait wait(a);
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++) {
        if (p >= a.world) break;
        if (p == a.root || p == a.rank) continue;
        const u64 unit = sent[p] + 1 + k;
        // As Outlet::ready, without keeping the credit.
        const char *credit = own(a) + SHUNT_OFF_CREDIT + channel_word(p, lane);
        while (__any_sync(~0u, unit - load_relaxed(credit) > SHUNT_RING))
          if (__any_sync(~0u, wait.over(p, unit - SHUNT_RING))) break;
        ll128_store(l, a.region[p] + out + ring(unit), w, unit);
      }
      store_unit<uint8_t>(l, recv, offset(k), a.bytes, w);
    }
    if ((threadIdx.x & 31) == 0) {
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++)
        if (p < a.world && p != a.root && p != a.rank) *reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SENT + channel_word(p, lane)) = sent[p] + mine;
    }
    inlet.close();
  }
}

__device__ __forceinline__ void broadcast_ll128(const shunt_kernel_args &a) {
  begin();
  broadcast_ll128_body(a);
}

}  // namespace shunt
