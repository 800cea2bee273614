// stages.cuh: the stages of staged.cuh in a region, and the words that say which chunks are in
// them and which are taken.
#pragma once

#include "elsewhere.cuh"

namespace shunt {

__device__ __forceinline__ int64_t staged_word(int rank) { return (block_index() * SHUNT_MAX_RANKS + rank) * 8; }

// Where in a region source's stage of this block for a chunk is.
__device__ __forceinline__ int64_t stage_of(int world, int source, u64 chunk) {
  return SHUNT_OFF_STAGING(world) +
         (int64_t(source * SHUNT_MAX_BLOCKS + block_index()) * SHUNT_STAGES + int(chunk % SHUNT_STAGES)) *
             SHUNT_STAGE_BYTES(world);
}

// Whether a word has reached a number.
__device__ __forceinline__ bool has_reached(u64 word, u64 value) { return (long long)(word - value) >= 0; }

// What a wait for staged chunks looks at: whether the peer does another call, too.
__device__ __noinline__ u64 staged_look(const shunt_kernel_args &a, int peer, u64 value, u64 since) {
  since = Wait::look(a, peer, value, since);
  const u64 call = call_word(a, a.bytes);
  if (since != Wait::kOver && in_another_call(a, peer, value, call, [&] {
        return has_reached(load_acquire(own(a) + SHUNT_OFF_STAGED + staged_word(peer)), value) ? call : kNoCall;
      }))
    return Wait::kOver;
  return since;
}

// Lane p of a warp waits until peer p's word, if asked for, has reached a value; seen is what the
// lane saw last, and over(wait, p) asks the wait. Acquires, for the whole warp, which gets false if
// the wait was given up, or fault says that one of an earlier kernel was.
template <class Over>
[[nodiscard]] __device__ __forceinline__ bool wait_words(const shunt_kernel_args &a, int64_t offset, bool asked,
    u64 value, u64 &seen, u32 fault, Over over) {
  const int p = threadIdx.x & 31;
  bool met = true;
  if (asked && !has_reached(seen, value)) {
    const char *word = own(a) + offset + staged_word(p);
    Wait wait(a);
    do seen = load_acquire(word);
    while (!has_reached(seen, value) && !over(wait, p));
    met = has_reached(seen, value);
  }
  return __all_sync(~0u, met && fault == SHUNT_FAULT_NONE);
}
[[nodiscard]] __device__ __forceinline__ bool wait_taken(const shunt_kernel_args &a, bool asked, u64 value, u64 &seen,
    u32 fault) {
  return wait_words(a, SHUNT_OFF_TAKEN, asked, value, seen, fault,
                    [&](Wait &wait, int p) { return wait.over(p, value); });
}
[[nodiscard]] __device__ __forceinline__ bool wait_staged(const shunt_kernel_args &a, bool asked, u64 value, u64 &seen,
    u32 fault) {
  return wait_words(a, SHUNT_OFF_STAGED, asked, value, seen, fault,
                    [&](Wait &wait, int p) { return wait.over_by<staged_look>(p, value); });
}

// Raises the word of this rank at every peer; the whole warp calls it.
__device__ __forceinline__ void tell_peers(const shunt_kernel_args &a, int64_t offset, u64 value) {
  const int p = threadIdx.x & 31;
  if (p < a.world && p != a.rank)
    store_relaxed(reinterpret_cast<void *>(a.region[p] + offset + staged_word(a.rank)), value);
}

}  // namespace shunt
