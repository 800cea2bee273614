// ll.cuh: the LL protocol: 16-byte packets {data, flag, data, flag} stored
// straight into the peer's slot. The flag travels with the data in one 8-byte
// half, which no GPU tears, so nothing is fenced and nothing else is awaited.
//
// A slot is used every second epoch. That is safe only where every rank hears
// from every peer before it begins the next epoch: who starts epoch e+2 has
// heard, in e+1, from a peer whose kernel of epoch e had ended. Hence two
// rules: thread 0 of every block exchanges a packet also when there are no
// bytes, and in a kernel of more than one round every thread takes part in
// every round (its partner's packet of the next round is its proof).
#pragma once

#include "elsewhere.cuh"

namespace shunt {

// A 32-bit flag that says no more than when: the epoch's low 31 bits, and a bit that makes
// it differ from 0, the value of fresh memory.
__device__ __forceinline__ u32 ll_flag(u64 epoch) { return u32(epoch) | 0x80000000u; }

// Offset within any region of this thread's packet from a source.
__device__ __forceinline__ int64_t ll_offset(int world, u64 epoch, int source) {
  return SHUNT_OFF_LL(world) +
         (int64_t(((int(epoch) & 1) * world + source) * SHUNT_MAX_BLOCKS + block_index()) * SHUNT_LL_BLOCK_BYTES +
          threadIdx.x * 16);
}

constexpr int64_t kLLSourceStride = int64_t(SHUNT_MAX_BLOCKS) * SHUNT_LL_BLOCK_BYTES;

__device__ __forceinline__ void ll_store(u64 address, u64 word, Flags flags) {
  store_packet(reinterpret_cast<void *>(address), make_uint4(u32(word), flags.first, u32(word >> 32), flags.second));
}
__device__ __forceinline__ void ll_store(u64 address, u64 word, u32 flag) {
  ll_store(address, word, Flags{flag, flag});
}

// Epochs repeat after 2^15, so a packet left untouched for exactly that long would look
// fresh to a call like it. Twice in 2^14 epochs (once per parity) every slot of the block is
// written anew. Nobody waits for these packets.
__device__ __noinline__ void ll_rewrite(const shunt_kernel_args &a, u64 epoch, Flags flags) {
  const u64 slot = ll_offset(a.world, epoch, a.rank);
  for (int p = 0; p < a.world; p++)
    for (int t = blockDim.x; p != a.rank && t + int(threadIdx.x) < SHUNT_MAX_THREADS; t += blockDim.x)
      ll_store(a.region[p] + slot + t * 16, 0, flags);
}
__device__ __forceinline__ void ll_refresh(const shunt_kernel_args &a, u64 epoch, Flags flags, bool sent) {
  if ((epoch & kEpoch / 2) >= 2) return;
  const u64 slot = ll_offset(a.world, epoch, a.rank);
  for (int p = 0; p < a.world && !sent; p++)
    if (p != a.rank) ll_store(a.region[p] + slot, 0, flags);
  ll_rewrite(a, epoch, flags);
}

__device__ __forceinline__ u64 ll_word(uint4 packet) { return u64(packet.x) | u64(packet.z) << 32; }

// Waits for the packets of every peer at once; words[s] becomes that of rank s,
// words[own rank] is left alone. False if the wait was given up.
[[nodiscard]] __device__ __forceinline__ bool ll_wait_all(const shunt_kernel_args &a, u64 epoch, Flags flags,
    u64 (&words)[SHUNT_MAX_RANKS]) {
  const char *slot = own(a) + ll_offset(a.world, epoch, 0);
  Wait wait(a);
  int missing;
  do {
    uint4 packet[SHUNT_MAX_RANKS];
    missing = -1;
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
      if (s >= a.world) break;
      if (s != a.rank) packet[s] = load_packet(slot + s * kLLSourceStride);
    }
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
      if (s >= a.world) break;
      if (s == a.rank) continue;
      if (packet[s].y != flags.first || packet[s].w != flags.second) missing = s;
      words[s] = ll_word(packet[s]);
    }
  } while (missing >= 0 && !wait.over_unless(missing, epoch, [&] {
             // A packet that is there and not this call's.
             const u64 mine = call_of_flags(flags),
                       theirs = call_of_packet(load_packet(slot + missing * kLLSourceStride), epoch);
             return Wait::Calls{mine, theirs == kNoCall ? mine : theirs};
           }));
  return missing < 0;
}

}  // namespace shunt
