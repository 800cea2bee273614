// broadcast.cu: recv of every rank = send of the root. On the root send may
// equal recv; elsewhere send is ignored.
//
//   ll      every rank exchanges a packet with every other; the root's count
//   ll128   unit u goes from the root to its owner, one of the other ranks in
//           turn, who forwards it to the rest: every link carries the message
//           once. Grid: up to (world - 1) * broadcast_blocks, equal on all ranks, as
//           for all that follow
//   direct  the same between the users' buffers, in chunks
//   chain   between the users' buffers, from rank to rank
#include "chain.cuh"
#include "copy.cuh"
#include "direct.cuh"

namespace shunt {

// Blocks that serve the units of one owner: no more than there are units, and between two
// ranks twice as many where a warp would have several.
__device__ __forceinline__ int broadcast_blocks(const shunt_kernel_args &a) {
  const u32 owners = a.world - 1, units = (u32((a.bytes + kUnit - 1) / kUnit) + owners - 1) / owners;
  const u32 most = a.world == 2 && units > SHUNT_CHANNEL_BLOCKS * SHUNT_MAX_WARPS
      ? 2 * SHUNT_CHANNEL_BLOCKS
      : SHUNT_CHANNEL_BLOCKS;
  return int(max(min(units, min(most, SHUNT_MAX_BLOCKS / owners)), 1u));
}

__device__ __forceinline__ void broadcast_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  // Others send what happens to be in recv; nobody looks at it.
  exchange_ll<uint8_t, false>(
      a, EqualBlocks(a, a.rank == a.root ? a.send : a.recv), Unchanged(),
      [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) {
        u64 word = 0;
#pragma unroll
        for (int s = 0; s < SHUNT_MAX_RANKS; s++) word |= words[s] & (s == a.root ? ~0ull : 0);
        if (a.rank != a.root || a.recv != a.send) store_word<uint8_t>(recv, offset, a.bytes, word);
      });
}

// What block number `at` of the whole grid does. A warp that has given up gets false.
template <class Fenced>
__device__ __forceinline__ bool broadcast_ll128_block(const shunt_kernel_args &a, Fenced fenced, int at, int blocks) {
  const int owners = a.world - 1;
  const char *send = reinterpret_cast<const char *>(a.send);
  char *recv = reinterpret_cast<char *>(a.recv);
  const Lane l(a, fenced);
  const int index = at % owners, owner = (a.root + 1 + index) % a.world, block = at / owners;
  const int lanes = blocks * (blockDim.x >> 5), lane = (threadIdx.x >> 5) * blocks + block;
  const int64_t units = (a.bytes + kUnit - 1) / kUnit;
  const int64_t mine = units_of_lane(units_of_lane(units, index, owners), lane, lanes);
  if (mine == 0) return true;
  auto offset = [&](int64_t k) { return ((lane + k * lanes) * owners + index) * kUnit; };
  auto in_vain = [&] { return lane == 0 && contradicted(a, a.rank == owner ? a.root : owner, a.bytes); };
  if (a.rank == a.root) {
    Outlet outlet(a, owner, lane, a.bytes);
    const u32 fault = earlier_fault(a);  // of an earlier kernel
    constexpr int kBatch = 4;            // units that are loaded at once
#pragma unroll 1
    for (int64_t k = 0; k < mine; k += kBatch) {
      word2 w[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; u++)
        if (k + u < mine) w[u] = load_unit<uint8_t>(l, send, offset(k + u), a.bytes);
      if (k == 0) {
        outlet.settle();
        if (__any_sync(~0u, fault != SHUNT_FAULT_NONE)) return false;
      }
#pragma unroll
      for (int u = 0; u < kBatch; u++) {
        if (k + u >= mine) break;
        if (!outlet.wait(a)) return false;
        outlet.put(l, w[u]);
      }
      if (recv == send) continue;
#pragma unroll
      for (int u = 0; u < kBatch; u++)
        if (k + u < mine) store_unit<uint8_t>(l, recv, offset(k + u), a.bytes, w[u]);
    }
    outlet.close();
  } else if (a.rank != owner) {
    Inlet inlet(a, owner, lane, a.bytes);
    if (__any_sync(~0u, earlier_fault(a) != SHUNT_FAULT_NONE)) return false;
    for (int64_t k = 0; k < mine; k++) {
      word2 w;
      if (!inlet.wait(a, l, w, in_vain)) return false;
      if (k == 0 && owners == 1) heard_from_peers();
      store_unit<uint8_t>(l, recv, offset(k), a.bytes, w);
    }
    inlet.close();
  } else {
    // Ranks that forward nothing back wait only for this one, so the waits for
    // their credits cannot close a circle.
    Inlet inlet(a, a.root, lane, a.bytes);
    u64 sent[SHUNT_MAX_RANKS], credit[SHUNT_MAX_RANKS];
    const auto credit_word = [&](int p) { return own(a) + SHUNT_OFF_CREDIT + channel_word(p, lane); };
#pragma unroll
    for (int p = 0; p < SHUNT_MAX_RANKS; p++)
      if (p < a.world && p != a.root && p != a.rank)
        sent[p] = *reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SENT + channel_word(p, lane));
    const int64_t out = channel_offset(a.world, a.rank, lane);
    if (__any_sync(~0u, earlier_fault(a) != SHUNT_FAULT_NONE)) return false;
    for (int64_t k = 0; k < mine; k++) {
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++)  // with the unit: after it, each would be waited for
        if (p < a.world && p != a.root && p != a.rank) credit[p] = load_relaxed(credit_word(p));
      __syncwarp();  // the warp loads a line at once
      word2 w;
      if (!inlet.wait(a, l, w, in_vain)) return false;
      if (k == 0 && owners == 1) heard_from_peers();
      Wait wait(a);
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++) {
        if (p >= a.world) break;
        if (p == a.root || p == a.rank) continue;
        const u64 unit = sent[p] + 1 + k;
        while (__any_sync(~0u, unit - credit[p] > SHUNT_RING)) {
          if (__any_sync(~0u, wait.over(p, unit - SHUNT_RING))) return false;
          credit[p] = load_relaxed(credit_word(p));
        }
        with_store(l, [&](auto store) { store(a.region[p] + out + ring(unit), w, channel_flag(unit, a.bytes)); });
      }
      store_unit<uint8_t>(l, recv, offset(k), a.bytes, w);
    }
    if ((threadIdx.x & 31) == 0) {
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++)
        if (p < a.world && p != a.root && p != a.rank)
          *reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SENT + channel_word(p, lane)) = sent[p] + mine;
    }
    inlet.close();
  }
  return true;
}

// A smaller grid, equal on all ranks, takes the blocks in turns: a block of one rank
// waits for the same one of others only, so that the first unfinished one can go on. A
// warp that has given up gets false.
template <class Fenced = Asked>
__device__ __forceinline__ bool broadcast_ll128_body(const shunt_kernel_args &a, Fenced fenced = {}) {
  const int blocks = broadcast_blocks(a), all = (a.world - 1) * blocks;
  bool met = true;
#pragma unroll 1
  for (int at = block_index(); met && at < all; at += block_count()) met = broadcast_ll128_block(a, fenced, at, blocks);
  return met;
}

__device__ __forceinline__ void broadcast_ll128(const shunt_kernel_args &a) {
  begin();
  for_either(a, [&](auto fenced) { broadcast_ll128_body(a, fenced); });
}

constexpr int kForwardWords = 2;  // vectors of a chunk that a thread moves

// Between two ranks at any alignment.
__device__ __noinline__ void copy_to_one(const shunt_kernel_args &a, const Meeting &m) {
  for (int p = 0; p < 2; p++)
    copy_bytes<8>(reinterpret_cast<char *>(m.recv[p]), reinterpret_cast<const char *>(a.send), a.bytes,
                  int64_t(block_index()) * blockDim.x + threadIdx.x, int64_t(block_count()) * blockDim.x);
}

// Between two ranks: nobody has to pass anything on.
__device__ __forceinline__ void broadcast_to_one(const shunt_kernel_args &a, const Meeting &m) {
  const char *send = reinterpret_cast<const char *>(a.send);
  char *there = reinterpret_cast<char *>(m.recv[1 - a.rank]), *here = reinterpret_cast<char *>(a.recv);
  if (((a.send | m.recv[1 - a.rank] | a.recv) & 15) != 0) return copy_to_one(a, m);
  each_batch<8>(a.bytes, [&](auto batch, int64_t i, int64_t step) {
    constexpr int U = decltype(batch)::vectors;
    word2 w[U];
#pragma unroll
    for (int u = 0; u < U; u++) w[u] = load_words<uint8_t>(send, (i + u * step) * 16, a.bytes);
#pragma unroll
    for (int u = 0; u < U; u++) store_words<uint8_t>(there, (i + u * step) * 16, a.bytes, w[u]);
    if (here == send) return;
#pragma unroll
    for (int u = 0; u < U; u++) store_words<uint8_t>(here, (i + u * step) * 16, a.bytes, w[u]);
  });
}

// Whether what all but the root receive into is aligned, which all ranks know alike: if not,
// lines are faster.
__device__ __forceinline__ bool is_forwarded_straight(const shunt_kernel_args &a, const Meeting &m) {
  u64 all = 0;
  for (int p = 0; p < a.world; p++)
    if (p != a.root) all |= m.recv[p];
  return (all & 15) == 0;
}

// The root stores each owner's shard into the owner's recv, chunk by chunk, and
// the owner passes every chunk on to the others as soon as it is there. Chunks of
// a block are numbered for ever, alike on all ranks.
__device__ __forceinline__ void broadcast_direct(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT), *forwarded = epoch_of(a, SHUNT_CLASS_FORWARD);
  const u64 e = *epoch + 1;
  const Met all = meet(a, m, Kind::kBroadcast, e, 0, a.rank == a.root ? 0 : a.bytes);
  bool met = all != Met::kLost;
  if (all != Met::kAll || a.world == 2 || !is_forwarded_straight(a, m)) {
    if (all == Met::kUnmapped || (met && a.world > 2)) met = broadcast_ll128_body(a);
    else if (met && a.rank == a.root) broadcast_to_one(a, m);
    part(a, e, met);
    advance(epoch, e);
    return;
  }
  const u64 base = *forwarded;
  const Shards shards(a.bytes, a.world - 1);
  const int kStride = blockDim.x * 16, chunk = kForwardWords * kStride;
  const int64_t chunks = (shards.shard + chunk - 1) / chunk;
  const int64_t mine = chunks <= int64_t(block_index()) ? 0 : (chunks - block_index() - 1) / block_count() + 1;
  const char *send = reinterpret_cast<const char *>(a.send);
  for (int64_t k = 0; k < mine; k++) {
    const int64_t offset = (k * block_count() + block_index()) * chunk + threadIdx.x * 16;
    word2 w[SHUNT_MAX_RANKS][kForwardWords];
    if (a.rank == a.root) {
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS - 1; s++) {
        if (s >= a.world - 1) break;
#pragma unroll
        for (int u = 0; u < kForwardWords; u++)
          w[s][u] = load_words<uint8_t>(send + shards.start(s), offset + u * kStride, shards.length(s));
      }
#pragma unroll
      for (int s = 0; s < SHUNT_MAX_RANKS - 1; s++) {
        if (s >= a.world - 1) break;
        char *to = reinterpret_cast<char *>(m.recv[(a.root + 1 + s) % a.world]) + shards.start(s);
#pragma unroll
        for (int u = 0; u < kForwardWords; u++)
          store_words<uint8_t>(to, offset + u * kStride, shards.length(s), w[s][u]);
      }
      if (a.recv != a.send) {
#pragma unroll
        for (int s = 0; s < SHUNT_MAX_RANKS - 1; s++) {
          if (s >= a.world - 1) break;
          char *to = reinterpret_cast<char *>(a.recv) + shards.start(s);
#pragma unroll
          for (int u = 0; u < kForwardWords; u++)
            store_words<uint8_t>(to, offset + u * kStride, shards.length(s), w[s][u]);
        }
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        fence_system();  // release: the block's stores come before the counts
        for (int p = 0; p < a.world; p++)
          if (p != a.root)
            store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_FORWARD +
                                                   (block_index() * SHUNT_MAX_RANKS + a.rank) * 8),
                          base + k + 1);
      }
    } else {
      // Acquire: the chunk is visible from here, past L1.
      if (threadIdx.x == 0) met = wait_for(a, own(a) + SHUNT_OFF_FORWARD +
                                              (block_index() * SHUNT_MAX_RANKS + a.root) * 8,
                                           base + k + 1, a.root);
      if (__syncthreads_or(!met)) break;
      const int shard = (a.rank - a.root - 1 + a.world) % a.world;
      const int64_t at = shards.start(shard), length = shards.length(shard);
#pragma unroll
      for (int u = 0; u < kForwardWords; u++)
        w[0][u] = load_peer_words<uint8_t>(a.recv + at, offset + u * kStride, length);
      for (int j = 1; j < a.world; j++) {
        const int p = (a.rank + j) % a.world;
        if (p == a.root) continue;
#pragma unroll
        for (int u = 0; u < kForwardWords; u++)
          store_words<uint8_t>(reinterpret_cast<char *>(m.recv[p]) + at, offset + u * kStride, length, w[0][u]);
      }
    }
  }
  part(a, e, met);
  if (threadIdx.x == 0) *forwarded = base + mine;  // part has synchronized the block
  advance(epoch, e);
}

// From the root to the next rank, from there to the next, and so on: every rank
// stores what has arrived in its recv into that of the next one, so that every GPU
// stores to one peer only. Chunks are numbered, and counted, as above.
__device__ __forceinline__ void broadcast_chain(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  __shared__ Moved moved;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT), *forwarded = epoch_of(a, SHUNT_CLASS_FORWARD);
  const u64 e = *epoch + 1;
  clear(moved);
  const Met all = meet(a, m, Kind::kBroadcastChain, e, 0, a.rank == a.root ? 0 : a.bytes);
  bool met = all != Met::kLost;
  if (all != Met::kAll || !is_forwarded_straight(a, m)) {
    if (met) met = broadcast_ll128_body(a);
    part(a, e, met);
    advance(epoch, e);
    return;
  }
  const u64 base = *forwarded;
  constexpr int kWords = 4;
  constexpr int kChunk = kWords * kMoverStride;
  const int blocks = min(SHUNT_MAX_BLOCKS * 3 / 4, block_count());  // the best of 32, 48 and 64 with 2, 4 and 8 words
  const int64_t mine = chunks_of_block(a.bytes, kChunk, blocks);
  const int place = (a.rank - a.root + a.world) % a.world, next = (a.rank + 1) % a.world,
            previous = (a.rank + a.world - 1) % a.world;
  const bool first = place == 0, last = place == a.world - 1;
  const int warp = threadIdx.x >> 5;
  if (!last && warp < kMovers) {
    const char *send = reinterpret_cast<const char *>(a.send);
    char *to = reinterpret_cast<char *>(m.recv[next]), *recv = reinterpret_cast<char *>(a.recv);
    u64 seen = base;
    for (int64_t k = 0; k < mine; k++) {
      const int64_t offset = (k * blocks + block_index()) * kChunk + threadIdx.x * 16;
      word2 w[kWords];
      if (first) {
#pragma unroll
        for (int u = 0; u < kWords; u++) w[u] = load_words<uint8_t>(send, offset + u * kMoverStride, a.bytes);
      } else {
        // Acquire: the chunk is visible from here, past L1.
        met = wait_word(a, SHUNT_OFF_FORWARD, previous, base + k + 1, seen);
        if (!met) break;
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
    if (!met) move_on(moved, kLost);
  } else if (warp == kMovers && place + 2 < a.world) {
    tell_next(a, moved, SHUNT_OFF_FORWARD, next, base, u32(mine));
  }
  // The last rank learns from the end barrier that all is there.
  part(a, e, met);
  if (threadIdx.x == 0) *forwarded = base + mine;  // part has synchronized the block
  advance(epoch, e);
}

}  // namespace shunt

SHUNT_KERNEL_BYTES(shunt_broadcast_ll, shunt::broadcast_ll)
SHUNT_KERNEL_BYTES(shunt_broadcast_ll128, shunt::broadcast_ll128)
SHUNT_KERNEL_BYTES(shunt_broadcast_direct, shunt::broadcast_direct)
SHUNT_KERNEL_BYTES(shunt_broadcast_chain, shunt::broadcast_chain)
