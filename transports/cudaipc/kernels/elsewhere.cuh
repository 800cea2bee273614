// elsewhere.cuh: whether a peer that is waited for has begun another call. Each class of
// protocols counts its calls, alike on all ranks, and the first block of a kernel says to that of
// every peer at once which one it has begun: so who waits long looks at what a peer has said
// in every class of the call that is this rank's present or next one there.
//
// Kernels in packets look at their own packets alone, and those in lines at packets and meetings,
// too: what more needs of registers would cost short messages 3 to 6 %. So of two ranks in
// different classes one at least finds it, and the other is aborted.
//
// If that is another call than the one here, and what is waited for does not come for a while, it
// never will: a peer stores all that a call has for this rank before it begins the next one, and
// what a kernel that has ended stored is under way for a moment at most.
#pragma once

#include "call.cuh"

namespace shunt {

constexpr u64 kNoCall = ~0ull;
constexpr u32 kPatience = 50;  // times 2^20 nanoseconds: far more than a store is under way

// The flags of a packet in LL say when and which call: both the low bits of the epoch, the first
// one what is called, and the second one how many bytes, as far as LL carries any.
struct Flags {
  u32 first, second;
};
constexpr int kEpochBits = 15;
constexpr u32 kEpoch = (1u << kEpochBits) - 1, kThere = 0x80000000u;
__device__ __forceinline__ Flags ll_flags(const shunt_kernel_args &a, u64 epoch, int64_t bytes) {
  const u32 e = u32(epoch) & kEpoch;
  return Flags{kThere | u32(a.what) << kEpochBits | e, u32(bytes) << kEpochBits | e};
}

// Which call such flags are of, and kNoCall if they are of another epoch.
__device__ __forceinline__ u64 call_of_flags(Flags flags) {
  return u64((flags.first & ~kThere) >> kEpochBits) << kWhatShift | flags.second >> kEpochBits;
}
__device__ __forceinline__ u64 call_of_packet(uint4 packet, u64 epoch) {
  const u32 e = u32(epoch) & kEpoch;
  if ((packet.y & (kThere | kEpoch)) != (kThere | e) || (packet.w & kEpoch) != e) return kNoCall;
  return call_of_flags(Flags{packet.y, packet.w});
}

// What the flag of a line of LL128 says beside a number: a part of the word of the call, another
// one in each of four lines: what is above bit 44 in the first and third, and in the others the
// low 24 and the 20 bits between.
__device__ __forceinline__ u64 part_of_call(u64 call, int line) {
  return (line % 2 == 0 ? call >> kKindShift : line == 1 ? call : call >> 24) << kNumberBits;
}

// Which call the unit of a number is of, whose first line is at a place; kNoCall if it is not there.
__device__ __forceinline__ u64 call_of_unit(const char *slot, u64 number) {
  u64 flags[4];
  bool there = true;
  for (int line = 0; line < 4; line++) {
    flags[line] = load_relaxed(slot + line * 128 + 120);
    there = there && ((flags[line] ^ number) & kNumber) == 0;
  }
  if (!there) return kNoCall;
  return flags[0] >> kNumberBits << kKindShift | (flags[3] >> kNumberBits & 0xFFFFF) << 24 | flags[1] >> kNumberBits;
}

// The number of this rank's next or present call in a class.
__device__ __forceinline__ u64 next_call(const shunt_kernel_args &a, int protocol) {
  return load_relaxed(own(a) + SHUNT_OFF_EPOCH + protocol * SHUNT_MAX_BLOCKS * SHUNT_EPOCH_BYTES) + 1;
}

// The call that a peer has begun in LL, or where kernels meet, if that is another than this rank's;
// otherwise kNoCall. Where blocks have any lengths a meeting says that of one block, and the
// rest the longest.
constexpr u64 kKind = 15ull << kKindShift;
__device__ __forceinline__ u64 known_of(u64 call) {
  return ~(call >> 59 == SHUNT_CALL_REDUCE_SCATTER_V ? kKind | kLengthBits : kKind);
}
__device__ __forceinline__ u64 other_call_nearby(const shunt_kernel_args &a, int peer, u64 mine) {
  const u64 known = known_of(mine), e = next_call(a, SHUNT_CLASS_LL);
  u64 call = call_of_packet(load_packet(own(a) + SHUNT_OFF_LL(a.world) + ((int(e) & 1) * a.world + peer) *
                                        int64_t(SHUNT_MAX_BLOCKS) * SHUNT_LL_BLOCK_BYTES), e);
  constexpr u64 kBytes = kLengthBits & ~u64((1u << (32 - kEpochBits)) - 1);  // that a packet does not say
  if (call != kNoCall && ((call ^ mine) & known & ~kBytes) != 0) return call;
  const uint4 hello = load_packet(own(a) + SHUNT_OFF_HELLO + peer * 64 + 48);
  const u32 met = u32(next_call(a, SHUNT_CLASS_DIRECT)) | kThere;
  call = u64(hello.x) | u64(hello.z) << 32;
  return hello.y == met && hello.w == met && ((call ^ mine) & known) != 0 ? call : kNoCall;
}

// The same in any class. One that this rank has never used may have no memory yet.
__device__ __noinline__ u64 other_call(const shunt_kernel_args &a, int peer, u64 mine) {
  const char *here = own(a);
  auto next = [&](int protocol) { return next_call(a, protocol); };
  auto other = [&](u64 call) { return call != kNoCall && ((call ^ mine) & known_of(mine)) != 0; };

  u64 call = other_call_nearby(a, peer, mine);
  if (call != kNoCall) return call;

  if (const u64 n = next(SHUNT_CLASS_LL128); n > 1) {
    call = call_of_unit(here + SHUNT_OFF_LL128(a.world) + peer * int64_t(SHUNT_MAX_BLOCKS) * SHUNT_LL128_BLOCK_BYTES +
                        (int(n) & (SHUNT_RING - 1)) * 512, n);
    if (other(call)) return call;
  }

  // A peer may have staged what later calls combine, too; then this is the word of the last of them.
  const u64 staged = load_acquire(here + SHUNT_OFF_STAGED + peer * 8);
  call = load_relaxed(here + SHUNT_OFF_CALL + peer * 8);
  if ((long long)(staged - next(SHUNT_CLASS_STAGED)) >= 0 && other(call)) return call;

  const int classes[SHUNT_GATES] = {SHUNT_CLASS_DIRECT, SHUNT_CLASS_STAGED, SHUNT_CLASS_LL128};
#pragma unroll
  for (int g = 0; g < SHUNT_GATES; g++) {
    const word2 gate = load_line(here + SHUNT_OFF_GATE + (g * SHUNT_MAX_RANKS + peer) * 16);
    if (gate.x == next(classes[g]) && other(gate.y)) return gate.y;
  }
  return kNoCall;
}

// Whether a peer that seems to do another call has seemed so for long enough. Since when it does
// stands in this rank's region, beside what tells that moment from others: the numbers of this
// rank's calls, which only grow, and what the peer calls.
__device__ __forceinline__ bool is_elsewhere(const shunt_kernel_args &a, int peer, u64 theirs) {
  u64 calls = 0;
#pragma unroll 1
  for (int c = 0; c < SHUNT_CLASSES; c++) calls += next_call(a, c);
  const u32 now = u32(nanoseconds() >> 20),
            moment = u32((theirs + calls * 0xD6E8FEB86659FD93ull) * 0x9E3779B97F4A7C15ull >> 32) | 1;
  char *place = own(a) + SHUNT_OFF_ODD + peer * 8;
  const u64 odd = load_relaxed(place);
  if (u32(odd) != moment) store_relaxed(place, u64(now) << 32 | moment);
  return u32(odd) == moment && int(now - u32(odd >> 32)) >= int(kPatience);
}

// Whether a wait for a peer is in vain because the peer does another call, which is then told. come
// says of which call that is which has come where this rank waits: kNoCall if nothing has, and
// mine if it is what is waited for.
template <class Come>
__device__ __forceinline__ bool in_another_call(const shunt_kernel_args &a, int peer, u64 epoch, u64 mine, Come come) {
  u64 theirs = come();
  if (theirs == kNoCall) {
    theirs = other_call(a, peer, mine);
    if (theirs == kNoCall || !is_elsewhere(a, peer, theirs)) return false;
  }
  if (theirs == mine) return false;
  tell_other_call(a, peer, epoch, mine, theirs);
  return true;
}

}  // namespace shunt
