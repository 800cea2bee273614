// ll128.cuh: the LL128 protocol: lines of 120 bytes of data and an 8-byte flag.
// A warp stores four lines at once; NVLink delivers a 128-byte line whole, so a
// line whose flag has arrived has arrived. 94 % of the bytes are data, against
// 50 % in LL; in return a warp must vote. PCIe may deliver a line in pieces, in any
// order. Among ranks that do not all have NVLink between them lines are fenced: the flag
// is stored behind a fence, and the line is loaded anew once its flag is there.
//
// A warp moves units of 480 bytes. Units are numbered for ever: number n uses
// slot n mod 8 of the warp's ring and has the number n, from 1, in its flags, beside which
// they say of which call it is. A warp may send up
// to kAhead units ahead of the one it waits for. Reusing a slot is safe among
// ranks that run alike: before a warp sends unit n it has received unit
// n - kAhead - 1 from every peer, whose warp had then consumed unit
// n - 2 (kAhead + 1), past n - 8. As in LL, that needs proof of life in every call:
// warp 0 of every block exchanges a unit also when there are no bytes, and in a
// call of more than one unit a warp every warp takes part in every one.
#pragma once

#include "elsewhere.cuh"
#include "memory.cuh"

namespace shunt {

constexpr int kUnit = 480;  // bytes of data that a warp stores at once
constexpr int kAhead = 2;
static_assert(2 * (kAhead + 1) + 2 <= SHUNT_RING, "a slot would be rewritten before it is read");

// Whether lines are fenced: asked at every unit, or known where a kernel is compiled for
// either. To ask costs a message 0.05 to 0.1 us; only kernels that exist once, not once a
// dtype, are compiled for either.
struct Asked {};
__device__ __forceinline__ bool is_fenced(const shunt_kernel_args &a, Asked) { return a.fenced != 0; }
template <bool kFenced>
__device__ __forceinline__ bool is_fenced(const shunt_kernel_args &, Constant<kFenced>) { return kFenced; }

template <class Body>
__device__ __forceinline__ void for_either(const shunt_kernel_args &a, Body body) {
  if (a.fenced) body(Constant<true>());
  else body(Constant<false>());
}

struct Lane {
  int offset;   // of this lane's first word within a unit, in bytes
  bool flag;    // the second word is the flag, not data
  bool fenced;  // alike in all lanes, of all ranks
  template <class Fenced = Asked>
  __device__ __forceinline__ explicit Lane(const shunt_kernel_args &a, Fenced f = {}) : fenced(is_fenced(a, f)) {
    const int lane = threadIdx.x & 31;
    offset = (lane >> 3) * 120 + (lane & 7) * 16;
    flag = (lane & 7) == 7;
  }
};

// Offset within any region of this lane's 16 bytes of slot 0 of the warp's ring.
__device__ __forceinline__ int64_t ll128_offset(int world, int phase, int source) {
  return SHUNT_OFF_LL128(world) +
         int64_t((phase * world + source) * SHUNT_MAX_BLOCKS + block_index()) * SHUNT_LL128_BLOCK_BYTES +
         (threadIdx.x >> 5) * SHUNT_LL128_WARP_BYTES + (threadIdx.x & 31) * 16;
}

constexpr int64_t kLL128SourceStride = int64_t(SHUNT_MAX_BLOCKS) * SHUNT_LL128_BLOCK_BYTES;

__device__ __forceinline__ int ring(u64 unit) { return (int(unit) & (SHUNT_RING - 1)) * 512; }

// What this lane's line has as its flag in the first unit of a call: the number that follows the
// epoch, and beside it what the line says of the call. Later units count on.
__device__ __forceinline__ u64 first_unit(const shunt_kernel_args &a, u64 epoch) {
  return ((epoch + 1) & kNumber) | part_of_call(call_word(a, a.bytes), (threadIdx.x & 31) >> 3);
}

// This lane's two words of the unit at a byte offset of the caller's memory.
template <class T>
__device__ __forceinline__ word2 load_unit(const Lane &l, const char *base, int64_t offset, int64_t length) {
  word2 w;
  w.x = load_word<T>(base, offset + l.offset, length);
  w.y = l.flag ? 0 : load_word<T>(base, offset + l.offset + 8, length);
  return w;
}

template <class T>
__device__ __forceinline__ void store_unit(const Lane &l, char *base, int64_t offset, int64_t length, word2 w) {
  store_word<T>(base, offset + l.offset, length, w.x);
  if (!l.flag) store_word<T>(base, offset + l.offset + 8, length, w.y);
}

// Runs body(store), where store(slot, words, flag) stores a unit; the whole warp calls it.
// Which way lines are stored is asked once, not for every peer.
template <class Body>
__device__ __forceinline__ void with_store(const Lane &l, Body body) {
  if (!l.fenced) {
    body([&](u64 slot, word2 w, u64 flag) {
      if (l.flag) w.y = flag;
      store_line(reinterpret_cast<void *>(slot), w);
    });
  } else {
    body([&](u64 slot, word2 w, u64 flag) {
      if (l.flag) store_relaxed(reinterpret_cast<void *>(slot), w.x);
      else store_line(reinterpret_cast<void *>(slot), w);
      __syncwarp();
      fence_system();  // release: the warp's words of the unit come before its flags
      if (l.flag) store_relaxed(reinterpret_cast<void *>(slot + 8), flag);
    });
  }
}

// For units that are fenced: a fence of the whole warp. Between the vote that the flags of
// a unit have come and the loads of its words it acquires what was stored before the flags;
// behind those loads it keeps them before what says that the slot is free.
__device__ __forceinline__ void fence_unit() {
  __syncwarp();
  fence_system();
  __syncwarp();
}

// Waits for one unit of every peer; w[s] becomes that of rank s, w[own rank] is
// left alone. slot(s) and flag(s) say where and for what; over(wait, s, flag) asks the wait, where
// s is a rank whose line this lane misses, or negative.
// The whole warp calls it, and gets false if the wait was given up.
template <class Slot, class Flag, class Over>
[[nodiscard]] __device__ __forceinline__ bool ll128_wait_each(const shunt_kernel_args &a, const Lane &l, Slot slot,
    Flag flag, Over over, word2 (&w)[SHUNT_MAX_RANKS]) {
  Wait wait(a);
  bool again = l.fenced;  // words may have been loaded before they came: once more
  for (;;) {
    int missing = -1;
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
      if (s >= a.world) break;
      if (s != a.rank) w[s] = load_line(slot(s));
    }
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
      if (s >= a.world) break;
      if (s != a.rank && l.flag && w[s].y != flag(s)) missing = s;
    }
    if (!__any_sync(~0u, missing >= 0)) {
      if (l.fenced) fence_unit();
      if (again) {
        again = false;
        continue;
      }
      return true;
    }
    if (__any_sync(~0u, over(wait, missing, flag(0)))) return false;
  }
}

// The peer that a lane names if it gives up a wait: the one whose line it misses, else one whose line
// another lane misses. One lane in eight looks at flags, and any may be the one that tells. The whole
// warp calls it, and one of its lanes at least misses a line.
__device__ __forceinline__ int missed_by_warp(int peer) {
  const int other = __shfl_sync(~0u, peer, __ffs(__ballot_sync(~0u, peer >= 0)) - 1);
  return peer >= 0 ? peer : other;
}

// What such a wait asks once in a while: whether lines are there that are not this call's, or the
// peer, if there is one, has begun another call. It knows no more than the loop needs anyway, and
// what it calls keeps its registers apart: else the loop would have to spill some.
template <int kPhase>
__device__ __noinline__ u64 lines_look(const shunt_kernel_args &a, int peer, u64 flag, u64 since) {
  const u64 mine = call_word(a, a.bytes);
  u64 theirs = mine;
  if (peer >= 0) {
    theirs = call_of_unit(own(a) + ll128_offset(a.world, kPhase, peer) - (threadIdx.x & 31) * 16 + ring(flag), flag);
    if (theirs == kNoCall) {
      theirs = other_call_nearby(a, peer, mine);
      if (theirs == kNoCall || !is_elsewhere(a, peer, theirs)) theirs = mine;
    }
  }
  return Wait::look(a, missed_by_warp(peer), flag, since, mine, theirs);
}

// The same where all ranks run alike; in is this lane's place in slot 0 of source 0 of a phase, and
// flag what its line must have.
template <int kPhase>
[[nodiscard]] __device__ __forceinline__ bool ll128_wait_all(const shunt_kernel_args &a, const Lane &l,
    const char *in, u64 flag, word2 (&w)[SHUNT_MAX_RANKS]) {
  const char *first = in + ring(flag);
  return ll128_wait_each(
      a, l, [&](int s) { return first + s * kLL128SourceStride; }, [&](int) { return flag; },
      [](Wait &wait, int s, u64 flag) { return wait.over_by<lines_look<kPhase>>(s, flag); }, w);
}

// How the units of a message are dealt to the warps of so many blocks. Neighbouring
// units go to different blocks, so that short messages spread.
struct Deal {
  int64_t units, warps, rounds, mine, first;
  int ahead;
  __device__ __forceinline__ explicit Deal(int64_t bytes, int blocks = block_count()) {
    units = (bytes + kUnit - 1) / kUnit;
    warps = int64_t(blocks) * (blockDim.x >> 5);
    rounds = units <= warps ? 1 : (units + warps - 1) / warps;
    first = int64_t(threadIdx.x >> 5) * blocks + block_index();
    mine = first + (rounds - 1) * warps < units ? rounds : rounds - 1;
    if (mine == 0 && threadIdx.x < 32) mine = 1;  // an empty unit, as proof of life
    ahead = mine - 1 < kAhead ? int(max(mine - 1, int64_t(0))) : kAhead;
  }
  __device__ __forceinline__ int64_t offset(int64_t round) const { return (first + round * warps) * kUnit; }
};

}  // namespace shunt
