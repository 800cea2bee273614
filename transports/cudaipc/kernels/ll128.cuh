// ll128.cuh: the LL128 protocol: lines of 120 bytes of data and an 8-byte flag.
// A warp stores four lines at once; NVLink delivers a 128-byte line whole, so a
// line whose flag has arrived has arrived. 94 % of the bytes are data, against
// 50 % in LL; in return a warp must vote, and PCIe is excluded.
//
// A warp moves SHUNT_LL128_UNROLL units of 480 bytes in a round. The rules of
// ll.cuh about two slots by parity hold here with "warp" for "thread".
#pragma once

#include "device.cuh"

namespace shunt {

constexpr int kUnit = 480;  // bytes of data that a warp stores at once

struct Lane {
  int lane, offset;  // byte offset of this lane's first word within a unit
  bool flag;         // second word is the flag, not data
  __device__ __forceinline__ Lane() {
    lane = threadIdx.x & 31;
    offset = (lane >> 3) * 120 + (lane & 7) * 16;
    flag = (lane & 7) == 7;
  }
};

// This lane's 16 bytes in the slot of (phase, parity, source, block, warp).
__device__ __forceinline__ char *ll128_slot(u64 region, int world, int phase, u64 epoch, int source) {
  return reinterpret_cast<char *>(region) + SHUNT_OFF_LL128(world) +
         ((int64_t(phase * 2 + int(epoch & 1)) * world + source) * SHUNT_MAX_BLOCKS + blockIdx.x) * SHUNT_LL128_BLOCK_BYTES +
         (threadIdx.x >> 5) * SHUNT_LL128_WARP_BYTES + (threadIdx.x & 31) * 16;
}

constexpr int64_t kLL128SourceStride = int64_t(SHUNT_MAX_BLOCKS) * SHUNT_LL128_BLOCK_BYTES;

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

__device__ __forceinline__ void ll128_store(const Lane &l, char *slot, word2 w, u64 flag) {
  if (l.flag) w.y = flag;
  store_line(slot, w);
}

// Waits for one unit; the whole warp calls it.
__device__ __forceinline__ word2 ll128_wait(const shunt_kernel_args &a, const Lane &l, const char *slot, u64 flag, int peer) {
  Wait wait(a);
  word2 w;
  bool missing;
  do {
    w = load_line(slot);
    missing = __any_sync(~0u, l.flag && w.y != flag);
    if (missing && __any_sync(~0u, wait.over(peer, flag))) break;
  } while (missing);
  return w;
}

// Waits for one unit of every peer; w[s] is that of rank s, w[own rank] is
// left alone. The whole warp calls it.
__device__ __forceinline__ void ll128_wait_all(const shunt_kernel_args &a, const Lane &l, const char *slot_of_0, u64 flag,
                                               word2 (&w)[SHUNT_MAX_RANKS]) {
  Wait wait(a);
  bool any;
  do {
    int missing = -1;
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++)
      if (s < a.world && s != a.rank) w[s] = load_line(slot_of_0 + s * kLL128SourceStride);
#pragma unroll
    for (int s = 0; s < SHUNT_MAX_RANKS; s++)
      if (s < a.world && s != a.rank && l.flag && w[s].y != flag) missing = s;
    any = __any_sync(~0u, missing >= 0);
    if (any && __any_sync(~0u, wait.over(missing < 0 ? 0 : missing, flag))) break;
  } while (any);
}

}  // namespace shunt
