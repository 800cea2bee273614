// two_shot.cuh: rank r reduces shard r and sends the result to everyone, or,
// rooted, to the root alone. Rooted among more than two, the ranks but the root own
// a shard each, so the root's link carries the message once each way. send may
// equal recv: a warp reads its units of a shard before it writes them.
#pragma once

#include "combine.cuh"
#include "exchange.cuh"

namespace shunt {

// Shards of a message, one an owner; the last ones may be short or empty.
struct Shards {
  int64_t bytes, shard;
  __device__ __forceinline__ Shards(int64_t bytes, int owners)
      : bytes(bytes), shard(((bytes + owners - 1) / owners + 15) / 16 * 16) {}
  __device__ __forceinline__ int64_t start(int owner) const { return owner * shard; }
  __device__ __forceinline__ int64_t length(int owner) const { return min(shard, bytes - owner * shard); }
};

// Per warp and round: send this rank's units of the peers' shards, reduce the
// own shard's unit, send the result, take in the peers' results. Rounds overlap:
// data goes out kAhead rounds early and results are taken in kBehind late.
//
// Phase 1. A warp that sends result n has received, in phase 0, unit n from every
// rank that takes the result in. That rank runs this call, then, so slots of earlier
// calls are read; and of this one it had taken in result n - kAhead - 1 - kBehind:
// the ring suffices.
//
// Phase 0. Before a warp sends unit n to an owner it has heard from it of unit
// n - kAhead - 1 of this call, as in ll128.cuh: owners have by what it contributed,
// a root that owns nothing by its result, which needed the root's unit of that
// number. Only the first kAhead + 1 units of a call go out unheard. They take the
// slots of units up to base + kAhead - 8; and when the call before ended, whatever
// its kernel and root, the warp had heard of unit base - 2 at least from each peer
// that it sent to, which had then consumed unit base - 2 - (kAhead + 1). A root that
// owns nothing must therefore not take results in kBehind late, as one of two
// ranks does: so many more units of a call would go out unheard.
constexpr int kBehind = 3;
static_assert(kAhead + 1 + kBehind + 2 <= SHUNT_RING, "a result would be overwritten before it is read");
static_assert(kAhead - SHUNT_RING <= -2 - (kAhead + 1),
              "a unit of the call before would be overwritten before it is read");

// By so many blocks, the first ones. A warp that has given up gets false.
template <class T, bool kRooted>
__device__ __forceinline__ bool two_shot_ll128(const shunt_kernel_args &a, int blocks = block_count()) {
  const Epoch epoch(a, SHUNT_CLASS_LL128);
  const Lane l(a);
  const u64 base = first_unit(a, epoch.value);
  const char *send = reinterpret_cast<const char *>(a.send);
  char *recv = reinterpret_cast<char *>(a.recv);
  // the root owns nothing; this rank is it
  const bool apart = kRooted && a.world > 2, idle = apart && a.rank == a.root;
  const int first = apart ? a.root + 1 : 0;
  const Shards shards(a.bytes, apart ? a.world - 1 : a.world);
  const Deal deal(shards.shard, blocks);
  const int64_t out = ll128_offset(a.world, 0, a.rank), result_out = ll128_offset(a.world, 1, a.rank);
  const char *in = own(a) + ll128_offset(a.world, 0, 0), *result_in = own(a) + ll128_offset(a.world, 1, 0);
  auto shard_of = [&](int owner) { return owner < first ? owner - first + a.world : owner - first; };
  // A unit never crosses its shard's end: the length given is the shard's.
  auto load = [&](int owner, int64_t round) {
    const int s = shard_of(owner);
    const word2 w = load_unit<T>(l, send + shards.start(s), deal.offset(round), shards.length(s));
    return word2{premultiply<T>(a.op, a.scalar, w.x), premultiply<T>(a.op, a.scalar, w.y)};
  };
  auto emit = [&](int64_t round) {
    const u64 unit = base + round;
    word2 lines[SHUNT_MAX_RANKS];
#pragma unroll
    for (int k = 1; k < SHUNT_MAX_RANKS; k++) {
      if (k >= a.world) break;
      const int p = a.rank + k < a.world ? a.rank + k : a.rank + k - a.world;
      if (!apart || p != a.root) lines[k] = load(p, round);
    }
    if (round == 0 && __any_sync(~0u, epoch.lost)) return false;
    with_store(l, [&](auto store) {
#pragma unroll
      for (int k = 1; k < SHUNT_MAX_RANKS; k++) {
        if (k >= a.world) break;
        const int p = a.rank + k < a.world ? a.rank + k : a.rank + k - a.world;
        if (!apart || p != a.root) store(a.region[p] + out + ring(unit), lines[k], unit);
      }
    });
    return true;
  };
  auto reduce = [&](int64_t round) {
    if (idle) return true;
    const u64 unit = base + round;
    const word2 mine = load(a.rank, round);
    word2 lines[SHUNT_MAX_RANKS];
    if (!ll128_wait_all<0>(a, l, in, unit, lines)) return false;
    if (round == 0) heard_from_peers();
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) lines[s] = select(s == a.rank, mine, lines[s]);
    const word2 result = reduce_lines<T>(a, lines);
    with_store(l, [&](auto store) {
#pragma unroll
      for (int p = 0; p < SHUNT_MAX_RANKS; p++) {
        if (p >= a.world) break;
        if (p != a.rank && (!kRooted || p == a.root)) store(a.region[p] + result_out + ring(unit), result, unit);
      }
    });
    if (!kRooted || a.rank == a.root)
      store_unit<T>(l, recv + shards.start(shard_of(a.rank)), deal.offset(round),
                    shards.length(shard_of(a.rank)), result);
    return true;
  };
  auto collect = [&](int64_t round) {
    if (kRooted && a.rank != a.root) return true;
    const u64 unit = base + round;
    word2 lines[SHUNT_MAX_RANKS];
    if (!ll128_wait_all<1>(a, l, result_in, unit, lines)) return false;
    if (idle && round == 0) heard_from_peers();
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
      if (s >= a.world) break;
      if (s != a.rank)
        store_unit<T>(l, recv + shards.start(shard_of(s)), deal.offset(round), shards.length(shard_of(s)), lines[s]);
    }
    return true;
  };
  const int64_t behind = idle ? 0 : max(min(deal.mine - 1, int64_t(kBehind)), int64_t(0));
  bool met = true;
  for (int64_t round = 0; met && round < deal.ahead; round++) met = emit(round);
  for (int64_t round = 0; met && round < deal.mine; round++) {
    if (round + deal.ahead < deal.mine) met = emit(round + deal.ahead);
    if (!met) break;
    met = reduce(round);
    if (met && round >= behind) met = collect(round - behind);
  }
  for (int64_t round = deal.mine - behind; met && round < deal.mine; round++) met = collect(round);
  epoch.advance(epoch.value + deal.rounds);
  return met;
}

}  // namespace shunt
