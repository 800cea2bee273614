// channel.cuh: an ordered pair of ranks as a stream of LL128 units with
// credits. Nothing here needs the receiver to return data, so it serves
// what is not symmetric: send and recv, broadcast, counts that vary.
//
// A channel has lanes; a lane is one warp at each end. Both ends count the units
// of a lane for ever, so they agree without a word about calls whose bytes both
// know: a message of no bytes moves nothing and counts nothing. Unit n, from 1, uses
// slot n mod 8 and is sent once the receiver has consumed unit n - 8. Its flag says n,
// as far as slots need it, and how many bytes the message has: units of a message of
// another length than the receiver's are none that it waits for (decision 13).
#pragma once

#include "ll128.cuh"

namespace shunt {

// The lane of unit u of a message that is dealt to so many lanes, and how many
// units a lane gets. Of 480 bytes each, units of 40 bits of bytes are a number of 32 bits,
// whose division takes a fifth of the time.
__device__ __forceinline__ int64_t units_of_lane(int64_t units, int lane, int lanes) {
  return units <= lane ? 0 : int64_t((u32(units) - lane - 1) / u32(lanes)) + 1;
}

__device__ __forceinline__ int64_t channel_offset(int world, int source, int lane) {
  return SHUNT_OFF_CHANNEL(world) + int64_t(source * SHUNT_CHANNEL_LANES + lane) * SHUNT_LL128_WARP_BYTES +
         (threadIdx.x & 31) * 16;
}

__device__ __forceinline__ int64_t channel_word(int peer, int lane) {
  return int64_t(peer * SHUNT_CHANNEL_LANES + lane) * 8;
}

// The flag of a unit: the low bits of its number and the bytes of its message, which
// are not 0.
__device__ __forceinline__ u64 channel_flag(u64 unit, int64_t bytes) { return (unit & 0xFFFFFF) | u64(bytes) << 24; }
__device__ __forceinline__ u64 number_of(u64 flag) { return flag & 0xFFFFFF; }
__device__ __forceinline__ u64 bytes_of(u64 flag) { return flag >> 24; }

// The flag that lane 0's next unit has if the next message has so many bytes. counts
// is SHUNT_OFF_SENT or SHUNT_OFF_RECEIVED.
__device__ __forceinline__ u64 next_message(const shunt_kernel_args &a, int64_t counts, int peer, int64_t bytes) {
  return channel_flag(*reinterpret_cast<const u64 *>(own(a) + counts + channel_word(peer, 0)) + 1, bytes);
}

// What a receiver who has waited long for a message of so many bytes looks at: the bytes
// of the message that its sender has begun, if those are others; otherwise 0. Every
// message that has bytes has a unit in lane 0, unless its sender waits for an offer, and
// then that says so. It is proof, however little time has passed: nothing else has the
// number of the message's first unit, as who has got its offer takes back what it has
// said before the message has landed. Only where lane 0's count cannot move meanwhile:
// in the warp that serves it, or if the message does not go through the channel.
__device__ __noinline__ u64 other_length(const shunt_kernel_args &a, int peer, int64_t bytes) {
  const u64 awaited = next_message(a, SHUNT_OFF_RECEIVED, peer, bytes);
  const char *slot = own(a) + SHUNT_OFF_CHANNEL(a.world) +
                     int64_t(peer) * SHUNT_CHANNEL_LANES * SHUNT_LL128_WARP_BYTES + ring(awaited) + 120;
  auto other = [&](const void *p) {
    const u64 flag = load_relaxed(p);
    return number_of(flag) == number_of(awaited) && flag != awaited ? bytes_of(flag) : 0;
  };
  const u64 begun = other(slot);
  return begun != 0 ? begun : other(own(a) + SHUNT_OFF_PENDING + peer * 8);
}

// For Wait::over: whether that is so, which it then tells.
__device__ __noinline__ bool contradicted(const shunt_kernel_args &a, int peer, int64_t bytes) {
  const u64 theirs = other_length(a, peer, bytes);
  if (theirs == 0) return false;
  tell_contradiction(a, SHUNT_FAULT_LENGTH, peer, next_message(a, SHUNT_OFF_RECEIVED, peer, bytes),
      [&](volatile uint64_t *own_place, volatile uint64_t *their_place) {
        own_place[0] = bytes;
        their_place[0] = theirs;
      });
  return true;
}

// This warp's sending end of one lane, for a message of so many bytes.
class Outlet {
 public:
  Outlet() = default;
  __device__ __forceinline__ Outlet(const shunt_kernel_args &a, int peer, int lane, int64_t bytes)
      : peer_(peer),
        bytes_(bytes),
        slot_(a.region[peer] + channel_offset(a.world, a.rank, lane)),
        count_(reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SENT + channel_word(peer, lane))),
        credit_word_(own(a) + SHUNT_OFF_CREDIT + channel_word(peer, lane)),
        sent_(*count_),
        credit_(load_relaxed(credit_word_)) {}

  // Once, before ready, when the first loads are under way: the lanes of the warp may
  // have read different credits.
  __device__ __forceinline__ void settle() { credit_ = __shfl_sync(~0u, credit_, 0); }
  // True when a unit may be sent now. The credit was stored after the receiver
  // had read the slot, so the slot may be overwritten.
  __device__ __forceinline__ bool ready() {
    if (sent_ + 1 - credit_ <= SHUNT_RING) return true;
    credit_ = __shfl_sync(~0u, load_relaxed(credit_word_), 0);
    return sent_ + 1 - credit_ <= SHUNT_RING;
  }
  // False if it was given up.
  [[nodiscard]] __device__ __forceinline__ bool wait(const shunt_kernel_args &a) {
    Wait w(a);
    while (!ready())
      if (__any_sync(~0u, w.over(peer_, sent_ + 1 - SHUNT_RING))) return false;
    return true;
  }
  __device__ __forceinline__ void put(const Lane &l, word2 w) {
    sent_++;
    with_store(l, [&](auto store) { store(slot_ + ring(sent_), w, channel_flag(sent_, bytes_)); });
  }
  // Keeps the count for the next call. Every lane has read it by then. A warp that has
  // given up closes nothing: no call comes after.
  __device__ __forceinline__ void close() {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) *count_ = sent_;
  }

 private:
  int peer_;
  int64_t bytes_;
  u64 slot_;
  u64 *count_;
  const char *credit_word_;
  u64 sent_, credit_;
};

// This warp's receiving end of one lane, likewise.
class Inlet {
 public:
  Inlet() = default;
  __device__ __forceinline__ Inlet(const shunt_kernel_args &a, int peer, int lane, int64_t bytes)
      : peer_(peer),
        bytes_(bytes),
        slot_(own(a) + channel_offset(a.world, peer, lane)),
        count_(reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_RECEIVED + channel_word(peer, lane))),
        credit_word_(reinterpret_cast<char *>(a.region[peer]) + SHUNT_OFF_CREDIT + channel_word(a.rank, lane)),
        received_(*count_) {}

  // Takes the next unit if it is there.
  __device__ __forceinline__ bool take(const Lane &l, word2 &w) {
    w = load_line(slot_ + ring(received_ + 1));
    if (__any_sync(~0u, l.flag && w.y != next())) return false;
    if (l.fenced) {
      fence_unit();
      w = load_line(slot_ + ring(received_ + 1));
      fence_unit();
    }
    received_++;
    // The vote needed the loads of the whole warp, so every lane has read its
    // part of the slot before the credit is stored: no fence.
    if ((received_ & 3) == 0) post();
    return true;
  }
  // Takes the next unit when it is there; false if the wait was given up. in_vain as for
  // Wait::over.
  template <class InVain>
  [[nodiscard]] __device__ __forceinline__ bool wait(const shunt_kernel_args &a, const Lane &l, word2 &w,
      InVain in_vain) {
    Wait give_up(a);
    while (!take(l, w))
      if (__any_sync(~0u, give_up.over(peer_, received_ + 1, in_vain))) return false;
    return true;
  }
  __device__ __forceinline__ void close() {
    __syncwarp();
    post();
    if ((threadIdx.x & 31) == 0) *count_ = received_;
  }
  // The flag of the next unit.
  __device__ __forceinline__ u64 next() const { return channel_flag(received_ + 1, bytes_); }

 private:
  __device__ __forceinline__ void post() {
    if ((threadIdx.x & 31) == 0) store_relaxed(credit_word_, received_);
  }

  int peer_;
  int64_t bytes_;
  const char *slot_;
  u64 *count_;
  char *credit_word_;
  u64 received_;
};

}  // namespace shunt
