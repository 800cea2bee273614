// fallback.cuh: the LL128 forms of reduce_scatter and reduce, which the direct
// forms fall back to.
#pragma once

#include "channel.cuh"
#include "two_shot.cuh"

namespace shunt {

template <class T, class Blocks>
__device__ __forceinline__ bool reduce_scatter_ll128_body(const shunt_kernel_args &a, const Blocks &blocks) {
  char *recv = reinterpret_cast<char *>(a.recv);
  return exchange_ll128<T, true>(
      a, blocks, [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](const Lane &l, int64_t offset, const word2(&lines)[SHUNT_MAX_RANKS]) {
        store_unit<T>(l, recv, offset, blocks.length(a.rank), reduce_lines<T>(a, lines));
      });
}

// Blocks that serve one owner of reduce: a rank that is not the root.
__device__ __forceinline__ int reduce_blocks(int world) {
  const int most = SHUNT_MAX_BLOCKS / (world - 1);
  return most < SHUNT_CHANNEL_BLOCKS ? most : SHUNT_CHANNEL_BLOCKS;
}

// For an owner's waits for everyone.
__device__ __noinline__ bool contradicted_by_any(const shunt_kernel_args &a) {
  bool any = false;
  for (int s = 0; s < a.world; s++) any = any || (s != a.rank && contradicted(a, s, a.bytes));
  return any;
}

// reduce over channels: unit u goes to its owner, one of the ranks but the root
// in turn, who combines what all ranks sent and sends it to the root: the root's
// link carries the message once each way. Blocks past the last owner's do
// nothing.
template <class T>
__device__ __forceinline__ void reduce_ll128_body(const shunt_kernel_args &a) {
  const int blocks = reduce_blocks(a.world), owners = a.world - 1;
  if (block_index() >= owners * blocks) return;
  const Lane l(a);
  const int index = block_index() % owners, owner = (a.root + 1 + index) % a.world, block = block_index() / owners;
  const int lanes = blocks * (blockDim.x >> 5), lane = (threadIdx.x >> 5) * blocks + block;
  const int64_t units = (a.bytes + kUnit - 1) / kUnit;
  const int64_t mine = units_of_lane(units_of_lane(units, index, owners), lane, lanes);
  if (mine == 0) return;
  const u32 fault = earlier_fault(a);  // of an earlier kernel
  const char *send = reinterpret_cast<const char *>(a.send);
  char *recv = reinterpret_cast<char *>(a.recv);
  auto offset = [&](int64_t k) { return ((lane + k * lanes) * owners + index) * kUnit; };
  auto load = [&](int64_t k) {
    const word2 w = load_unit<T>(l, send, offset(k), a.bytes);
    return word2{premultiply<T>(a.op, a.scalar, w.x), premultiply<T>(a.op, a.scalar, w.y)};
  };
  if (a.rank != owner) {
    // The root also takes results, whichever can move, so that it and the owner
    // cannot wait for each other's credits.
    Outlet outlet(a, owner, lane, a.bytes);
    Inlet inlet(a, owner, lane, a.bytes);
    const int64_t results = a.rank == a.root ? mine : 0;
    Wait wait(a);
    word2 next = load(0);
    outlet.settle();
    if (__any_sync(~0u, fault != SHUNT_FAULT_NONE)) return;
    for (int64_t sent = 0, taken = 0; sent < mine || taken < results;) {
      bool moved = false;
      if (sent < mine && outlet.ready()) {
        outlet.put(l, next);
        if (++sent < mine) next = load(sent);
        moved = true;
      }
      word2 w;
      if (taken < results && inlet.take(l, w)) {
        store_unit<T>(l, recv, offset(taken), a.bytes, w);
        taken++;
        moved = true;
      }
      if (!moved && __any_sync(~0u, wait.over(owner, inlet.next(), [&] {
            return lane == 0 && results > 0 && contradicted(a, owner, a.bytes);
          })))
        return;
    }
    outlet.close();
    if (results > 0) inlet.close();
    return;
  }
  Outlet outlet(a, a.root, lane, a.bytes);
  u64 received[SHUNT_MAX_RANKS] = {};
#pragma unroll
  for (int s = 0; s < SHUNT_MAX_RANKS; s++)
    if (s < a.world && s != a.rank)
      received[s] = *reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_RECEIVED + channel_word(s, lane));
  word2 next = load(0);
  outlet.settle();
  if (__any_sync(~0u, fault != SHUNT_FAULT_NONE)) return;
  for (int64_t k = 0; k < mine; k++) {
    word2 lines[SHUNT_MAX_RANKS];
    auto flag = [&](int s) { return channel_flag(received[s] + 1 + k, a.bytes); };
    if (!ll128_wait_each(
            a, l, [&](int s) { return own(a) + channel_offset(a.world, s, lane) + ring(received[s] + 1 + k); }, flag,
            [&](Wait &wait, int s, u64 flag) {
              return wait.over(missed_by_warp(s), flag, [&] {
                return block_index() < owners && threadIdx.x < 32 && contradicted_by_any(a);
              });
            },
            lines))
      return;
    // As Inlet::take: the vote was the whole warp's, so the slots have been read.
    if ((threadIdx.x & 31) == 0) {
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
        if (s >= a.world) break;
        const u64 unit = received[s] + 1 + k;
        if (s != a.rank && ((unit & 3) == 0 || k == mine - 1))
          store_relaxed(reinterpret_cast<char *>(a.region[s]) + SHUNT_OFF_CREDIT + channel_word(a.rank, lane), unit);
      }
    }
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) lines[s] = select(s == a.rank, next, lines[s]);
    const word2 result = reduce_lines<T>(a, lines);
    if (k + 1 < mine) next = load(k + 1);
    if (!outlet.wait(a)) return;
    outlet.put(l, result);
  }
  outlet.close();
  if ((threadIdx.x & 31) == 0) {
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++)
      if (s < a.world && s != a.rank)
        *reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_RECEIVED + channel_word(s, lane)) = received[s] + mine;
  }
}

}  // namespace shunt
