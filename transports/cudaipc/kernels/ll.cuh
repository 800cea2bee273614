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

#include "device.cuh"

namespace shunt {

// Slots hold a 32-bit flag: the epoch, moved into [1, 2^32-2] with its parity
// kept, so it is never 0, the value of fresh memory.
__device__ __forceinline__ u32 ll_flag(u64 epoch) { return u32(epoch % 0xFFFFFFFEull) + 1; }

// The packet of this thread in the slot of (parity, source, block).
__device__ __forceinline__ char *ll_slot(u64 region, int world, u64 epoch, int source) {
  return reinterpret_cast<char *>(region) + SHUNT_OFF_LL(world) +
         ((int64_t(epoch & 1) * world + source) * SHUNT_MAX_BLOCKS + blockIdx.x) * SHUNT_LL_BLOCK_BYTES + threadIdx.x * 16;
}

__device__ __forceinline__ void ll_store(char *slot, u64 word, u32 flag) {
  store_packet(slot, make_uint4(u32(word), flag, u32(word >> 32), flag));
}

__device__ __forceinline__ u64 ll_word(uint4 packet) { return u64(packet.x) | u64(packet.z) << 32; }

// Flags repeat after 2^32-2 epochs. A packet left untouched for exactly that
// long would look fresh, so twice in 2^30 epochs (once per parity) every thread
// of every block sends, whatever the message's length.
__device__ __forceinline__ bool ll_refresh(u64 epoch) { return (epoch & 0x3FFFFFFF) < 2; }

// Waits for the packets of every peer at once; words[s] is that of rank s.
// words[own rank] is left alone.
__device__ __forceinline__ void ll_wait_all(const shunt_kernel_args &a, u64 epoch, u64 (&words)[SHUNT_MAX_RANKS]) {
  const u32 flag = ll_flag(epoch);
  const int64_t stride = int64_t(SHUNT_MAX_BLOCKS) * SHUNT_LL_BLOCK_BYTES;
  const char *slot = ll_slot(a.region[a.rank], a.world, epoch, 0);
  Wait wait(a);
  int missing;
  do {
    uint4 packet[SHUNT_MAX_RANKS];
    missing = -1;
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++)
      if (s < a.world && s != a.rank) packet[s] = load_packet(slot + s * stride);
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++)
      if (s < a.world && s != a.rank) {
        if (packet[s].y != flag || packet[s].w != flag) missing = s;
        words[s] = ll_word(packet[s]);
      }
  } while (missing >= 0 && !wait.over(missing, epoch));
}

}  // namespace shunt
