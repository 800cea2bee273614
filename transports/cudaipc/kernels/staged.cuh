// staged.cuh: large reductions by pushing. Every rank stores its part of a shard
// into memory of the shard's owner, chunk by chunk; the owner combines what all
// staged and stores the result where it belongs. NVLink carries stores better
// than loads: a load's request takes of the way back what an acknowledgement
// does not.
//
// Chunks of a block are numbered for ever, alike on all ranks: number n uses
// stage n mod SHUNT_STAGES. It is staged once its owner is done with chunk
// n - SHUNT_STAGES, and combined once everyone has staged it. Warps of a block,
// which has SHUNT_MAX_THREADS threads, have a part each: some stage, one tells
// peers what has been staged, because that waits for the stores to arrive, and
// half of them combine. They meet only through other ranks.
#pragma once

#include "direct.cuh"

namespace shunt {

constexpr int kCombiners = SHUNT_MAX_WARPS / 2;             // the last warps
constexpr int kStagers = SHUNT_MAX_WARPS - kCombiners - 1;  // the first; between them is the teller
constexpr int kStageWords = 2;                              // vectors that a thread moves at once

__device__ __forceinline__ int64_t staged_word(int rank) { return (int(blockIdx.x) * SHUNT_MAX_RANKS + rank) * 8; }

// Where in a region source's stage of this block for a chunk is.
__device__ __forceinline__ int64_t stage_of(int world, int source, u64 chunk) {
  return SHUNT_OFF_STAGING(world) + (int64_t(source * SHUNT_MAX_BLOCKS + int(blockIdx.x)) * SHUNT_STAGES + int(chunk % SHUNT_STAGES)) * SHUNT_STAGE_BYTES;
}

// Lane p of a warp waits until peer p's word, if asked for, has reached a value;
// seen is what the lane saw last. Acquires, for the whole warp.
__device__ __forceinline__ void wait_words(const shunt_kernel_args &a, int64_t offset, bool asked, u64 value, u64 &seen) {
  const int p = threadIdx.x & 31;
  if (asked && (long long)(seen - value) < 0) {
    const char *word = own(a) + offset + staged_word(p);
    Wait wait(a);
    do seen = load_acquire(word);
    while ((long long)(seen - value) < 0 && !wait.over(p, value));
  }
  __syncwarp();
}

// Raises the word of this rank at every peer; the whole warp calls it.
__device__ __forceinline__ void tell_peers(const shunt_kernel_args &a, int64_t offset, u64 value) {
  const int p = threadIdx.x & 31;
  if (p < a.world && p != a.rank) store_relaxed(reinterpret_cast<void *>(a.region[p] + offset + staged_word(a.rank)), value);
}

// Where the shards lie and who owns them.
struct Deed {
  int64_t shard, bytes;  // length of a shard, the last ones may be short or empty; and of all
  int owners, first;     // shard s, which begins at s * shard, belongs to rank (first + s) mod world
  __device__ __forceinline__ int64_t start(int s) const { return s * shard; }
  __device__ __forceinline__ int64_t length(int s) const { return min(shard, bytes - s * shard); }
};

// How far the warps of a block are.
struct Progress {
  u32 staged[kStagers + 1];    // chunks that a warp has staged; at the end, that will be
  u32 combined[SHUNT_STAGES];  // warps that have combined a chunk with this stage, in all
};

// All but the teller.
__device__ __forceinline__ void join_stagers_and_combiners() { join_warps<1, (kStagers + kCombiners) * 32>(); }

// Runs sink(offset, words) for every 16 bytes of the shard that this rank owns,
// combined from the send of all ranks; ranks that own nothing only stage. The
// combiners first call ready(thread, join), which answers, alike on all ranks,
// whether results can be stored; meanwhile a first chunk is staged. If not, it is
// dropped, and nothing is combined.
template <class T, class Ready, class Sink>
__device__ __forceinline__ void staged_reduce(const shunt_kernel_args &a, const Deed &deed, Ready ready, Sink sink) {
  __shared__ Progress progress;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_STAGED);
  const u64 base = *epoch;
  const int64_t chunks = (deed.shard + SHUNT_STAGE_BYTES - 1) / SHUNT_STAGE_BYTES;
  int64_t mine = chunks <= int64_t(blockIdx.x) ? 0 : (chunks - blockIdx.x - 1) / gridDim.x + 1;
  if (threadIdx.x < kStagers) progress.staged[threadIdx.x] = 0;
  if (threadIdx.x < SHUNT_STAGES) progress.combined[threadIdx.x] = 0;
  if (threadIdx.x == kStagers) progress.staged[kStagers] = u32(mine);
  __syncthreads();
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const char *send = reinterpret_cast<const char *>(a.send);
  const int shard = (a.rank - deed.first + a.world) % a.world;  // of this rank, if below owners
  auto load = [&](int s, int64_t offset) {
    const word2 w = load_words<T>(send + deed.start(s), offset, deed.length(s));
    return word2{premultiply<T>(a.op, a.scalar, w.x), premultiply<T>(a.op, a.scalar, w.y)};
  };
  auto start = [&](int64_t k) { return (k * gridDim.x + blockIdx.x) * SHUNT_STAGE_BYTES; };
  if (warp < kStagers) {
    constexpr int kStride = kStagers * 32 * 16;
    const bool owner = lane < a.world && lane != a.rank && (lane - deed.first + a.world) % a.world < deed.owners;
    u64 seen = 0;
    for (int64_t k = 0; k < mine; k++) {
      const u64 n = base + k;
      const int64_t stage = stage_of(a.world, a.rank, n);
#pragma unroll 1
      for (int at = threadIdx.x * 16; at < SHUNT_STAGE_BYTES; at += kStageWords * kStride) {
        word2 w[SHUNT_MAX_RANKS][kStageWords];
#pragma unroll
        for (int j = 1; j < SHUNT_MAX_RANKS; j++) {
          if (j >= a.world) break;
          const int s = (shard + j) % a.world;
          if (s >= deed.owners) continue;
#pragma unroll
          for (int u = 0; u < kStageWords; u++)
            if (at + u * kStride < SHUNT_STAGE_BYTES) w[j][u] = load(s, start(k) + at + u * kStride);
        }
        // Acquire: the owner had read the stage before it said so.
        if (at < kStride) wait_words(a, SHUNT_OFF_TAKEN, owner, n + 1 - SHUNT_STAGES, seen);
#pragma unroll
        for (int j = 1; j < SHUNT_MAX_RANKS; j++) {
          if (j >= a.world) break;
          const int s = (shard + j) % a.world;
          if (s >= deed.owners) continue;
          char *to = reinterpret_cast<char *>(a.region[(deed.first + s) % a.world]) + stage + at;
#pragma unroll
          for (int u = 0; u < kStageWords; u++)
            if (at + u * kStride < SHUNT_STAGE_BYTES) *reinterpret_cast<word2 *>(to + u * kStride) = w[j][u];
        }
      }
      __syncwarp();
      // Release: the warp's stores come before the teller's fence.
      if (lane == 0) store_release_shared(&progress.staged[warp], u32(k + 1));
      if (k == 0) {
        join_stagers_and_combiners();
        mine = progress.staged[kStagers];
      }
    }
    if (mine == 0) join_stagers_and_combiners();
  } else if (warp == kStagers) {
    for (u32 told = 0;;) {
      const u32 word = lane <= kStagers ? load_acquire_shared(&progress.staged[lane]) : ~0u, limit = __shfl_sync(~0u, word, kStagers);
      u32 staged = lane < kStagers ? word : ~0u;
#pragma unroll
      for (int other = 16; other > 0; other /= 2) staged = min(staged, __shfl_xor_sync(~0u, staged, other));
      if (staged != told) {
        // Release: the stores of the stagers come before the counts.
        fence_system();
        __syncwarp();
        told = staged;
        tell_peers(a, SHUNT_OFF_STAGED, base + told);
      }
      if (told >= limit) break;
    }
  } else {
    constexpr int kStride = kCombiners * 32 * 16;
    const int thread = threadIdx.x - (kStagers + 1) * 32;
    const bool answer = ready(thread, [] { join_warps<2, kCombiners * 32>(); });
    if (thread == 0 && !answer && mine > 1) store_release_shared(&progress.staged[kStagers], 1);
    join_stagers_and_combiners();
    const bool source = lane < a.world && lane != a.rank;
    const int64_t last = answer && shard < deed.owners ? mine : 0;
    u64 seen = 0;
    for (int64_t k = 0; k < last; k++) {
      const u64 n = base + k;
      const char *stage = own(a) + stage_of(a.world, 0, n);
#pragma unroll 1
      for (int at = thread * 16; at < SHUNT_STAGE_BYTES; at += kStageWords * kStride) {
        word2 lines[kStageWords][SHUNT_MAX_RANKS], kept[kStageWords];
#pragma unroll
        for (int u = 0; u < kStageWords; u++) kept[u] = load(shard, start(k) + at + u * kStride);
        // Acquire: what the peers staged is visible from here, past L1.
        if (at < kStride) wait_words(a, SHUNT_OFF_STAGED, source, n + 1, seen);
#pragma unroll
        for (int s = 0; s < SHUNT_MAX_RANKS; s++) {
          if (s >= a.world) break;
#pragma unroll
          for (int u = 0; u < kStageWords; u++)
            if (s != a.rank) lines[u][s] = load_line(stage + int64_t(s) * SHUNT_MAX_BLOCKS * SHUNT_STAGES * SHUNT_STAGE_BYTES + at + u * kStride);
        }
#pragma unroll
        for (int u = 0; u < kStageWords; u++) {
#pragma unroll
          for (int s = 0; s < SHUNT_MAX_RANKS; s++) lines[u][s] = select(s == a.rank, kept[u], lines[u][s]);
          sink(start(k) + at + u * kStride, reduce_lines<T>(a, lines[u]));
        }
      }
      __syncwarp();
      u32 before = 0;
      if (lane == 0) before = count_shared(&progress.combined[n % SHUNT_STAGES]);
      // The last warp answers. Results needed every word of the stage, so it has
      // been read, here and, by the counter, in the other warps: no fence. No
      // warp begins a chunk with this stage before all have combined this one.
      if (__shfl_sync(~0u, before, 0) % kCombiners == kCombiners - 1) tell_peers(a, SHUNT_OFF_TAKEN, n + 1);
    }
  }
  __syncthreads();
  mine = progress.staged[kStagers];
  // Where this rank owned nothing or dropped a chunk, peers count on it all the same.
  if (warp == 0) tell_peers(a, SHUNT_OFF_TAKEN, base + mine);
  advance(epoch, base + mine);
}

// reduce_scatter needs no address of a peer.
template <class T>
__device__ __forceinline__ void reduce_scatter_staged(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  const Deed deed{a.bytes, a.bytes * a.world, a.world, 0};
  staged_reduce<T>(
      a, deed, [](int, auto) { return true; }, [&](int64_t offset, word2 w) { store_words<T>(recv, offset, a.bytes, w); });
}

// all_reduce: the owner stores results into the recv of everyone. In place too:
// nobody's part of a chunk is still needed when its result comes.
template <class T>
__device__ __forceinline__ void all_reduce_staged(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  const Shards shards(a.bytes, a.world);
  const Deed deed{shards.shard, a.bytes, a.world, 0};
  const int64_t at = shards.start(a.rank), length = shards.length(a.rank);
  staged_reduce<T>(
      a, deed, [&](int thread, auto join) { return meet(a, m, e, 0, a.bytes, thread, join); },
      [&](int64_t offset, word2 w) {
        for (int k = 1; k <= a.world; k++) {
          const int p = a.rank + k < a.world ? a.rank + k : a.rank + k - a.world;
          store_words<T>(reinterpret_cast<char *>(m.recv[p]) + at, offset, length, w);
        }
      });
  if (m.strangers) two_shot_ll128<T, false>(a);
  part(a, e);
  advance(epoch, e);
}

// reduce: the ranks but the root own a shard each and store the result into the
// root's recv, so the root's link carries the message once each way. Of two ranks
// the root owns all: what it would give away only came back.
template <class T>
__device__ __forceinline__ void reduce_staged(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  const bool pair = a.world == 2;
  const Shards shards(a.bytes, pair ? 1 : a.world - 1);
  const Deed deed{shards.shard, a.bytes, pair ? 1 : a.world - 1, pair ? a.root : a.root + 1};
  const int shard = (a.rank - deed.first + a.world) % a.world;
  const int64_t at = shards.start(shard), length = shards.length(shard);
  staged_reduce<T>(
      a, deed, [&](int thread, auto join) { return meet(a, m, e, 0, a.rank == a.root && !pair ? a.bytes : 0, thread, join); },
      [&](int64_t offset, word2 w) { store_words<T>(reinterpret_cast<char *>(m.recv[a.root]) + at, offset, length, w); });
  if (m.strangers) two_shot_ll128<T, true>(a);
  part(a, e);
  advance(epoch, e);
}

}  // namespace shunt
