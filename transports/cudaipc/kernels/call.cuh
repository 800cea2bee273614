// call.cuh: what a kernel's call is, in one word, which kernels compare in what their protocols
// send anyway: flags of lines and packets, the words of a meeting. So a rank takes nothing
// from a peer that does another call, and says so, whoever launched the two: replays of
// different graphs are compared as eager calls are (decision 18).
#pragma once

#include "device.cuh"

namespace shunt {

// From the top: the collective 5 bits, the op 4, the dtype 4, the root 3 where there is one, the
// kind of kernel 4, the bytes 44. The first four the host puts together. plugin/call_word.go has
// the same.
constexpr int kWhatShift = 48;  // of all that is above the kind
constexpr int kKindShift = 44;
constexpr u64 kLengthBits = (1ull << kKindShift) - 1;

// Where a flag has a number and a part of the word, so many low bits are the number's, the highest
// of them for a sum to grow into. A number is awaited long before it repeats.
constexpr int kNumberBits = 40;
constexpr u64 kNumber = (1ull << (kNumberBits - 1)) - 1;

__device__ __forceinline__ u64 call_word(const shunt_kernel_args &a, int64_t bytes, u32 kind = 0) {
  return u64(a.what) << kWhatShift | u64(kind) << kKindShift | (u64(bytes) & kLengthBits);
}

__device__ __noinline__ void tell_other_call(const shunt_kernel_args &a, int peer, u64 epoch, u64 mine, u64 theirs) {
  tell_contradiction(a, SHUNT_FAULT_CALL, peer, epoch,
      [&](volatile uint64_t *own_place, volatile uint64_t *their_place) {
        own_place[0] = mine;
        their_place[0] = theirs;
      });
}

}  // namespace shunt
