// channel.cuh: an ordered pair of ranks as a stream of LL128 units with
// credits. Nothing here needs the receiver to answer with data, so it serves
// what is not symmetric: send and recv, broadcast, counts that vary.
//
// A channel has lanes; a lane is one warp at each end. Both ends count the units
// of a lane for ever, so they agree without a word about calls whose bytes both
// know: a message of no bytes moves nothing and counts nothing. Unit n uses slot
// n mod 8, has the flag n (from 1), and is sent once the receiver has consumed
// unit n - 8.
#pragma once

#include "ll128.cuh"

namespace shunt {

// The lane of unit u of a message that is dealt to so many lanes, and how many
// units a lane gets.
__device__ __forceinline__ int64_t units_of_lane(int64_t units, int lane, int lanes) {
  return units <= lane ? 0 : (units - lane - 1) / lanes + 1;
}

__device__ __forceinline__ int64_t channel_offset(int world, int source, int lane) {
  return SHUNT_OFF_CHANNEL(world) + int64_t(source * SHUNT_CHANNEL_LANES + lane) * SHUNT_LL128_WARP_BYTES + (threadIdx.x & 31) * 16;
}

__device__ __forceinline__ int64_t channel_word(int peer, int lane) { return int64_t(peer * SHUNT_CHANNEL_LANES + lane) * 8; }

// This warp's sending end of one lane.
class Outlet {
 public:
  Outlet() = default;
  __device__ __forceinline__ Outlet(const shunt_kernel_args &a, int peer, int lane)
      : peer_(peer),
        slot_(a.region[peer] + channel_offset(a.world, a.rank, lane)),
        count_(reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SENT + channel_word(peer, lane))),
        credit_word_(own(a) + SHUNT_OFF_CREDIT + channel_word(peer, lane)),
        sent_(*count_),
        credit_(0) {}

  // True when a unit may be sent now. The credit was stored after the receiver
  // had read the slot, so the slot may be overwritten.
  __device__ __forceinline__ bool ready() {
    if (sent_ + 1 - credit_ <= SHUNT_RING) return true;
    credit_ = __shfl_sync(~0u, load_relaxed(credit_word_), 0);
    return sent_ + 1 - credit_ <= SHUNT_RING;
  }
  __device__ __forceinline__ void wait(const shunt_kernel_args &a) {
    Wait w(a);
    while (!ready())
      if (__any_sync(~0u, w.over(peer_, sent_ + 1 - SHUNT_RING))) return;
  }
  __device__ __forceinline__ void put(const Lane &l, word2 w) {
    sent_++;
    ll128_store(l, slot_ + ring(sent_), w, sent_);
  }
  // Keeps the count for the next call. Every lane has read it by then.
  __device__ __forceinline__ void close() {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) *count_ = sent_;
  }

 private:
  int peer_;
  u64 slot_;
  u64 *count_;
  const char *credit_word_;
  u64 sent_, credit_;
};

// This warp's receiving end of one lane.
class Inlet {
 public:
  Inlet() = default;
  __device__ __forceinline__ Inlet(const shunt_kernel_args &a, int peer, int lane)
      : peer_(peer),
        slot_(own(a) + channel_offset(a.world, peer, lane)),
        count_(reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_RECEIVED + channel_word(peer, lane))),
        credit_word_(reinterpret_cast<char *>(a.region[peer]) + SHUNT_OFF_CREDIT + channel_word(a.rank, lane)),
        received_(*count_) {}

  // Takes the next unit if it is there.
  __device__ __forceinline__ bool take(const Lane &l, word2 &w) {
    w = load_line(slot_ + ring(received_ + 1));
    if (__any_sync(~0u, l.flag && w.y != received_ + 1)) return false;
    received_++;
    // The vote needed the loads of the whole warp, so every lane has read its
    // part of the slot before the credit is stored: no fence.
    if ((received_ & 3) == 0) post();
    return true;
  }
  __device__ __forceinline__ word2 wait(const shunt_kernel_args &a, const Lane &l) {
    Wait give_up(a);
    word2 w;
    while (!take(l, w))
      if (__any_sync(~0u, give_up.over(peer_, received_ + 1))) break;
    return w;
  }
  __device__ __forceinline__ void close() {
    __syncwarp();
    post();
    if ((threadIdx.x & 31) == 0) *count_ = received_;
  }
  __device__ __forceinline__ u64 next() const { return received_ + 1; }

 private:
  __device__ __forceinline__ void post() {
    if ((threadIdx.x & 31) == 0) store_relaxed(credit_word_, received_);
  }

  int peer_;
  const char *slot_;
  u64 *count_;
  char *credit_word_;
  u64 received_;
};

}  // namespace shunt
