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
// half of them combine. They meet only through other ranks. In a reduce of two a
// rank does one of both, with all its warps.
#pragma once

#include "pull.cuh"
#include "stages.cuh"
#include "width.cuh"

namespace shunt {

constexpr int kCombiners = SHUNT_MAX_WARPS / 2;             // the last warps
constexpr int kStagers = SHUNT_MAX_WARPS - kCombiners - 1;  // the first; between them is the teller
constexpr int kRow = 512;                                   // bytes that a warp moves with a vector a thread
static_assert(SHUNT_CHUNK_BYTES % kRow == 0, "a chunk is of whole rows");

// Where the shards lie and who owns them: shard (mine + k) mod world belongs to rank
// (own rank + k) mod world, if it is below owners.
struct Deed {
  int64_t shard, bytes;  // length of a shard, the last ones may be short or empty; and of all
  int owners, mine;
  __device__ __forceinline__ int64_t start(int s) const { return s * shard; }
  __device__ __forceinline__ int64_t length(int s) const { return min(shard, bytes - s * shard); }
};

// A number below twice the world, mod the world.
__device__ __forceinline__ int wrap(const shunt_kernel_args &a, int i) { return i < a.world ? i : i - a.world; }

// How far the warps of a block are.
struct Progress {
  u32 staged[SHUNT_MAX_WARPS];  // chunks that a warp has staged, or kLost
  u32 last;                     // that each will have staged at the end, or kLost
  u32 combined[SHUNT_STAGES];   // warps that have combined a chunk with this stage, in all
};

// All but the teller.
__device__ __forceinline__ void join_stagers_and_combiners() { join_warps<1, (kStagers + kCombiners) * 32>(); }

// What is known of a chunk: its vectors are aligned and inside of their shards; or, in a
// kernel for memory that is not aligned, so far inside that they can straddle; or nothing.
enum class Fit { kStraight, kStraddling, kAny };

// Moves a warp's rows of chunks. Unless nothing is known of a chunk kBatch rows of up to
// kRanks ranks are loaded before the first vector is used, and nothing is asked between
// loads, so that a block has as many under way as registers allow. Otherwise every vector is
// looked at. Either way a warp has waited for what it needs before it loads: what it holds
// meanwhile it could not load.
template <class T, Fit kFit, int kRanks, int kBatch>
struct Chunks {
  static constexpr bool kWhole = kFit != Fit::kAny;
  const shunt_kernel_args &a;
  const Deed &deed;

  __device__ __forceinline__ int rows() const { return SHUNT_STAGE_BYTES(a.world) / kRow; }

  // Whether the row u * kWarps after one exists, as the first always does.
  template <int kWarps>
  __device__ __forceinline__ bool exists(int row, int u) const {
    return u == 0 || SHUNT_CHUNK_BYTES / kRow % (kBatch * kWarps) == 0 || row + u * kWarps < rows();
  }

  __device__ __forceinline__ word2 load(int s, int64_t offset) const {
    const char *send = reinterpret_cast<const char *>(a.send) + deed.start(s);
    if (kFit == Fit::kStraight) return *reinterpret_cast<const word2 *>(send + offset);
    if (kFit == Fit::kStraddling) return load_straddling(reinterpret_cast<u64>(send) + offset);
    return load_words<T>(send, offset, deed.length(s));
  }

  // For premul_sum.
  __device__ __forceinline__ void scale(word2 &w) const {
    w = word2{multiply<T>(a.scalar, w.x), multiply<T>(a.scalar, w.y)};
  }

  // From the peers' shards of send at a place, to a place in the owners' regions, by
  // kStagers warps.
  template <int kStagers>
  __device__ __forceinline__ void stage(int warp, int64_t at, int64_t to) const {
    const int lane = (threadIdx.x & 31) * 16;
    auto owns = [&](int k) { return wrap(a, deed.mine + k) < deed.owners; };
    auto from = [&](int k, int row) { return load(wrap(a, deed.mine + k), at + row * kRow + lane); };
    auto put = [&](int k, int row, word2 w) {
      *reinterpret_cast<word2 *>(reinterpret_cast<char *>(a.region[wrap(a, a.rank + k)]) + to + row * kRow + lane) = w;
    };
#pragma unroll 1
    for (int row = warp; row < rows(); row += kBatch * kStagers) {
      if constexpr (!kWhole) {
#pragma unroll 1
        for (int k = 1; k < a.world; k++) {
          if (!owns(k)) continue;
          word2 w = from(k, row);
          if (a.op == kPremulSum) scale(w);
          put(k, row, w);
        }
      } else {
        word2 w[kRanks][kBatch];
#pragma unroll
        for (int k = 1; k < kRanks; k++) {
          if (k >= a.world) break;
          if (!owns(k)) continue;
#pragma unroll
          for (int u = 0; u < kBatch; u++)
            if (exists<kStagers>(row, u)) w[k][u] = from(k, row + u * kStagers);
        }
        if (a.op == kPremulSum) {
#pragma unroll
          for (int k = 1; k < kRanks; k++) {
            if (k >= a.world) break;
#pragma unroll
            for (int u = 0; u < kBatch; u++) scale(w[k][u]);
          }
        }
#pragma unroll
        for (int k = 1; k < kRanks; k++) {
          if (k >= a.world) break;
          if (!owns(k)) continue;
#pragma unroll
          for (int u = 0; u < kBatch; u++)
            if (exists<kStagers>(row, u)) put(k, row + u * kStagers, w[k][u]);
        }
      }
    }
  }

  // From the own shard of send at a place and the peers' stages, of which stage
  // would be rank 0's, to sink, by kCombiners warps.
  template <int kCombiners, class Sink>
  __device__ __forceinline__ void combine(int warp, int64_t at, const char *stage, Sink sink) const {
    const int lane = (threadIdx.x & 31) * 16;
#pragma unroll 1
    for (int row = warp; row < rows(); row += kBatch * kCombiners) {
      word2 lines[kBatch][kRanks], kept[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; u++)
        if (exists<kCombiners>(row, u)) kept[u] = load(deed.mine, at + (row + u * kCombiners) * kRow + lane);
#pragma unroll
      for (int s = 0; s < kRanks; s++) {
        if (s >= a.world) break;
        if (s == a.rank) continue;
        const char *from = stage + int64_t(s) * SHUNT_MAX_BLOCKS * SHUNT_STAGES * SHUNT_STAGE_BYTES(a.world);
#pragma unroll
        for (int u = 0; u < kBatch; u++)
          if (exists<kCombiners>(row, u)) lines[u][s] = load_line(from + (row + u * kCombiners) * kRow + lane);
      }
      if (a.op == kPremulSum) {
#pragma unroll
        for (int u = 0; u < kBatch; u++) scale(kept[u]);
      }
#pragma unroll
      for (int u = 0; u < kBatch; u++) {
        if (!exists<kCombiners>(row, u)) continue;
#pragma unroll
        for (int s = 0; s < kRanks; s++) lines[u][s] = select(s == a.rank, kept[u], lines[u][s]);
        sink(Constant<int(kFit)>(), at + (row + u * kCombiners) * kRow + lane, reduce_lines<T>(a, lines[u]));
      }
    }
  }
};

// Runs f(chunks) with what moves as much at once as it can without spilling.
template <class T, bool kAny, class F>
__device__ __forceinline__ void with_chunks(const shunt_kernel_args &a, const Deed &deed, bool whole, F f) {
  constexpr Fit kFit = kAny ? Fit::kStraddling : Fit::kStraight;
  if (!whole) f(Chunks<T, Fit::kAny, SHUNT_MAX_RANKS, 1>{a, deed});
  else if (a.world <= 4) f(Chunks<T, kFit, 4, 2>{a, deed});
  else f(Chunks<T, kFit, SHUNT_MAX_RANKS, 1>{a, deed});
}

// Whether the chunk at a place is whole in all shards of send; the last shard is
// the shortest. With kAny there is a vector before it and one behind it, for what straddles.
template <bool kAny>
__device__ __forceinline__ bool is_whole(const shunt_kernel_args &a, const Deed &deed, int64_t at) {
  if (kAny) return at > 0 && at + SHUNT_STAGE_BYTES(a.world) + 16 <= deed.length(deed.owners - 1);
  return ((a.send | u64(deed.shard)) & 15) == 0 && at + SHUNT_STAGE_BYTES(a.world) <= deed.length(deed.owners - 1);
}

// Stores a warp's row, a vector a lane, at any address: all but its ends in whole vectors,
// each of what two lanes have, and the ends, which have as many bytes together as one more,
// an element a lane.
template <class T>
__device__ __forceinline__ void store_row(char *to, word2 w) {
  const int lane = threadIdx.x & 31, miss = int(reinterpret_cast<u64>(to) & 15);
  if (miss == 0) {
    *reinterpret_cast<word2 *>(to) = w;
    return;
  }
  auto of = [&](int other) { return word2{__shfl_sync(~0u, w.x, other), __shfl_sync(~0u, w.y, other)}; };
  const word2 before = of((lane + 31) & 31);
  if (lane != 0) *reinterpret_cast<word2 *>(to - miss) = straddle(before, w, 16 - miss);
  const int at = lane * int(sizeof(T)), holder = at < 16 - miss ? 0 : 31;
  const word2 end = of(holder);
  typedef typename Bits<sizeof(T)>::type Element;
  if (at < 16)
    reinterpret_cast<Element *>(to + (holder - lane) * 16)[lane] = Element((at < 8 ? end.x : end.y) >> (at % 8 * 8));
}

// Sixteen bytes of a result, as of the chunk; the whole warp stores a row.
template <class T, int kFit>
__device__ __forceinline__ void store_result(Constant<kFit>, u64 base, int64_t offset, int64_t length, word2 w) {
  char *to = reinterpret_cast<char *>(base);
  if (kFit == int(Fit::kStraight)) *reinterpret_cast<word2 *>(to + offset) = w;
  else if (kFit == int(Fit::kStraddling)) store_row<T>(to + offset, w);
  else store_words<T>(to, offset, length, w);
}

// This block's chunks of every shard, of so many blocks, and where they are.
struct Share {
  int blocks, chunks;
  u64 base;  // the number of the first
  __device__ __forceinline__ Share(const shunt_kernel_args &a, const Deed &deed, int blocks = block_count())
      : blocks(blocks), base(*epoch_of(a, SHUNT_CLASS_STAGED)) {
    const int64_t all = (deed.shard + SHUNT_STAGE_BYTES(a.world) - 1) / SHUNT_STAGE_BYTES(a.world);
    chunks = all <= int64_t(block_index()) ? 0 : int((all - block_index() - 1) / blocks) + 1;
  }
  __device__ __forceinline__ int64_t at(const shunt_kernel_args &a, int k) const {
    return (int64_t(k) * blocks + block_index()) * SHUNT_STAGE_BYTES(a.world);
  }
};

__device__ __forceinline__ void clear(Progress &progress, const Share &share) {
  if (threadIdx.x < SHUNT_MAX_WARPS) progress.staged[threadIdx.x] = 0;
  if (threadIdx.x < SHUNT_STAGES) progress.combined[threadIdx.x] = 0;
  if (threadIdx.x == 0) progress.last = u32(share.chunks);
  __syncthreads();
}

// One of kStagers warps stages its rows of the chunks; first() is called behind the
// first of them, if there is one, and returns how many there are, or kLost. False if it
// has given up.
template <class T, bool kAny, int kStagers, class First>
[[nodiscard]] __device__ __forceinline__ bool stage_chunks(const shunt_kernel_args &a, const Deed &deed,
    const Share &share, Progress &progress, int warp, First first) {
  const int lane = threadIdx.x & 31;
  const bool owner = lane < a.world && lane != a.rank && (deed.mine + lane - a.rank + a.world) % a.world < deed.owners;
  u64 seen = 0;
  int chunks = share.chunks;
  for (int k = 0; k < chunks; k++) {
    const u64 n = share.base + k;
    const u32 fault = k == 0 ? earlier_fault(a) : 0;  // of an earlier kernel
    // Acquire: the owner had read the stage before it said so.
    const bool met = wait_taken(a, owner, n + 1 - SHUNT_STAGES, seen, fault);
    if (met)
      with_chunks<T, kAny>(a, deed, is_whole<kAny>(a, deed, share.at(a, k)), [&](auto c) {
        c.template stage<kStagers>(warp, share.at(a, k), stage_of(a.world, a.rank, n));
      });
    __syncwarp();
    // Release: the warp's stores come before the teller's fence.
    if (lane == 0) store_release_shared(&progress.staged[warp], met ? u32(k + 1) : kLost);
    const u32 last = k == 0 ? first() : u32(chunks);
    if (!met || last == kLost) return false;
    chunks = int(last);
  }
  return true;
}

// The teller: tells peers what all of kStagers warps have staged, until that is the last
// chunk or a warp has given up.
template <int kStagers>
__device__ __forceinline__ void tell_staged(const shunt_kernel_args &a, const Share &share, Progress &progress) {
  const int lane = threadIdx.x & 31;
  for (u32 told = 0;;) {
    const u32 last = load_acquire_shared(&progress.last);
    u32 staged = lane < kStagers ? load_acquire_shared(&progress.staged[lane]) : last;
    if (__any_sync(~0u, staged == kLost)) break;
#pragma unroll
    for (int other = 16; other > 0; other /= 2) staged = min(staged, __shfl_xor_sync(~0u, staged, other));
    if (staged != told) {
      if (told == 0 && block_index() == 0 && lane < a.world && lane != a.rank)
        store_relaxed(reinterpret_cast<void *>(a.region[lane] + SHUNT_OFF_CALL + a.rank * 8), call_word(a, a.bytes));
      // Release: the stores of the stagers come before the counts.
      fence_system();
      __syncwarp();
      told = staged;
      tell_peers(a, SHUNT_OFF_STAGED, share.base + told);
    }
    if (__shfl_sync(~0u, told >= last, 0)) break;
  }
}

// One of kCombiners warps combines its rows of the chunks of the shard that this rank
// owns. Runs sink(fit, offset, words) for every 16 bytes; fit is a constant: where vectors
// are aligned the sink's memory is, too, for straight says so.
// False if it has given up; its part of a chunk is then never counted, so nobody says
// that the stage may be used again.
template <class T, bool kAny, int kCombiners, class Sink>
[[nodiscard]] __device__ __forceinline__ bool combine_chunks(const shunt_kernel_args &a, const Deed &deed,
    const Share &share, Progress &progress, int warp, bool straight, Sink sink) {
  const int lane = threadIdx.x & 31;
  const bool source = lane < a.world && lane != a.rank;
  u64 seen = 0;
  for (int k = 0; k < share.chunks; k++) {
    const u64 n = share.base + k;
    const u32 fault = k == 0 ? earlier_fault(a) : 0;  // of an earlier kernel
    // Acquire: what the peers staged is visible from here, past L1.
    if (!wait_staged(a, source, n + 1, seen, fault)) return false;
    if (k == 0) heard_from_peers();
    with_chunks<T, kAny>(a, deed, (kAny || straight) && is_whole<kAny>(a, deed, share.at(a, k)), [&](auto c) {
      c.template combine<kCombiners>(warp, share.at(a, k), own(a) + stage_of(a.world, 0, n), sink);
    });
    __syncwarp();
    u32 before = 0;
    if (lane == 0) before = count_shared(&progress.combined[n % SHUNT_STAGES]);
    // The last warp replies. Results needed every word of the stage, so it has
    // been read, here and, by the counter, in the other warps: no fence. No
    // warp begins a chunk with this stage before all have combined this one.
    if (__shfl_sync(~0u, before, 0) % kCombiners == kCombiners - 1) tell_peers(a, SHUNT_OFF_TAKEN, n + 1);
  }
  return true;
}

// Every thread has done its part, or has not met what it waited for: then the whole block
// gets false. Where this rank owned nothing or dropped a chunk, peers count on it all the
// same.
[[nodiscard]] __device__ __forceinline__ bool close(const shunt_kernel_args &a, const Share &share,
    Progress &progress, bool met) {
  if (__syncthreads_or(!met)) return false;
  const u64 next = share.base + progress.last;
  if (threadIdx.x < 32) tell_peers(a, SHUNT_OFF_TAKEN, next);
  advance(epoch_of(a, SHUNT_CLASS_STAGED), next);
  return true;
}

// Runs sink for this block's share of the shard that this rank owns; ranks that own nothing only stage. The
// combiners first call ready(thread, join), which returns, alike on all ranks, whether
// results can be stored, and then aligned(), whether their memory is; meanwhile a first
// chunk is staged. If they cannot, it is dropped, and nothing is combined. The whole block
// gets false if it has given up.
template <class T, bool kAny, class Ready, class Aligned, class Sink>
[[nodiscard]] __device__ __forceinline__ bool staged_reduce(const shunt_kernel_args &a, const Deed &deed,
    const Share &share, Ready ready, Aligned aligned, Sink sink) {
  __shared__ Progress progress;
  clear(progress, share);
  const int warp = threadIdx.x >> 5;
  bool met = share.chunks > 0 || earlier_fault(a) == SHUNT_FAULT_NONE;  // who has chunks looks behind the first loads
  if (warp < kStagers) {
    met &= stage_chunks<T, kAny, kStagers>(a, deed, share, progress, warp, [&] {
      join_stagers_and_combiners();
      return progress.last;
    });
    if (share.chunks == 0) join_stagers_and_combiners();
  } else if (warp == kStagers) {
    tell_staged<kStagers>(a, share, progress);
  } else {
    const int thread = threadIdx.x - (kStagers + 1) * 32;
    const Met all = ready(thread, [] { join_warps<2, kCombiners * 32>(); });
    met &= all != Met::kLost;
    if (thread == 0 && !met) store_release_shared(&progress.last, kLost);
    if (thread == 0 && all == Met::kUnmapped && share.chunks > 1) store_release_shared(&progress.last, 1);
    join_stagers_and_combiners();
    if (all == Met::kAll && deed.mine < deed.owners)
      met &= combine_chunks<T, kAny, kCombiners>(a, deed, share, progress, thread / 32, aligned(), sink);
  }
  return close(a, share, progress, met);
}

// reduce_scatter needs no address of a peer.
template <class T, bool kAny>
__device__ __forceinline__ void reduce_scatter_staged(const shunt_kernel_args &a) {
  begin();
  const Deed deed{a.bytes, a.bytes * a.world, a.world, a.rank};
  (void)staged_reduce<T, kAny>(
      a, deed, Share(a, deed), [](int, auto) { return Met::kAll; }, [&] { return a.recv % 16 == 0; },
      [&](auto fit, int64_t offset, word2 w) { store_result<T>(fit, a.recv, offset, a.bytes, w); });
}

// all_reduce, by so many blocks: the owner stores results into the recv of everyone. In place
// too: nobody's part of a chunk is still needed when its result comes.
template <class T, bool kAny>
__device__ __forceinline__ void all_reduce_staged_by(const shunt_kernel_args &a, int blocks) {
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  const Shards shards(a.bytes, a.world);
  const Deed deed{shards.shard, a.bytes, a.world, a.rank};
  const int64_t at = shards.start(a.rank), length = shards.length(a.rank);
  bool met = staged_reduce<T, kAny>(
      a, deed, Share(a, deed, blocks),
      [&](int thread, auto join) {
        const Met all = meet(a, m, Kind::kAllReduceStaged, e, 0, a.bytes, thread, join, Wish{a});
        if (a.root != 0 && all != Met::kLost && thread == 0 && block_index() == 0) agree_width(a, m);
        return all;
      },
      [&] {
        u64 all = at;
        for (int p = 0; p < a.world; p++) all |= m.recv[p];
        return all % 16 == 0;
      },
      [&](auto fit, int64_t offset, word2 w) {
        for (int k = 1; k <= a.world; k++) store_result<T>(fit, m.recv[wrap(a, a.rank + k)] + at, offset, length, w);
      });
  if (met && m.unmapped) met = two_shot_ll128<T, false>(a, blocks);
  part(a, e, met, blocks);
  advance(epoch, e);
}
template <class T, bool kAny>
__device__ __forceinline__ void all_reduce_staged(const shunt_kernel_args &a) {
  begin();
  const int blocks = working_blocks(a);
  if (block_index() < blocks) all_reduce_staged_by<T, kAny>(a, blocks);
  settle_width(a);
}

// reduce of two: the root owns all, for what it would give away only came back. All of
// its warps combine, and of the other's all but the teller stage; nobody needs an address.
template <class T, bool kAny>
__device__ __forceinline__ void reduce_pair_staged(const shunt_kernel_args &a) {
  __shared__ Progress progress;
  const bool root = a.rank == a.root;
  const Deed deed{(a.bytes + 15) / 16 * 16, a.bytes, 1, root ? 0 : 1};
  const Share share(a, deed);
  clear(progress, share);
  const int warp = threadIdx.x >> 5;
  bool met = share.chunks > 0 || earlier_fault(a) == SHUNT_FAULT_NONE;  // who has chunks looks behind the first loads
  if (root) {
    met &= combine_chunks<T, kAny, SHUNT_MAX_WARPS>(
        a, deed, share, progress, warp, a.recv % 16 == 0,
        [&](auto fit, int64_t offset, word2 w) { store_result<T>(fit, a.recv, offset, a.bytes, w); });
  } else if (warp < SHUNT_MAX_WARPS - 1) {
    met &= stage_chunks<T, kAny, SHUNT_MAX_WARPS - 1>(
        a, deed, share, progress, warp, [&] { return u32(share.chunks); });
  } else {
    tell_staged<SHUNT_MAX_WARPS - 1>(a, share, progress);
  }
  met = close(a, share, progress, met);
  if (threadIdx.x == 0) raise(&counts_of(a)->begun, 1);  // as part counts it as ended
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  part(a, e, met);
  advance(epoch, e);
}

// reduce: the ranks but the root own a shard each and store the result into the
// root's recv, so the root's link carries the message once each way.
template <class T, bool kAny>
__device__ __forceinline__ void reduce_staged(const shunt_kernel_args &a) {
  begin();
  if (a.world == 2) return reduce_pair_staged<T, kAny>(a);
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  const int owners = a.world - 1, mine = wrap(a, a.rank - a.root - 1 + a.world);
  const Shards shards(a.bytes, owners);
  const Deed deed{shards.shard, a.bytes, owners, mine};
  const int64_t at = shards.start(mine), length = shards.length(mine);
  bool met = staged_reduce<T, kAny>(
      a, deed, Share(a, deed),
      [&](int thread, auto join) {
        return meet(a, m, Kind::kReduceStaged, e, 0, a.rank == a.root ? a.bytes : 0, thread, join);
      },
      [&] { return (m.recv[a.root] | u64(at)) % 16 == 0; },
      [&](auto fit, int64_t offset, word2 w) { store_result<T>(fit, m.recv[a.root] + at, offset, length, w); });
  if (met && m.unmapped) met = two_shot_ll128<T, true>(a);
  part(a, e, met);
  advance(epoch, e);
}

// Each as two kernels: for memory that is aligned, and for any.
template <class T>
__device__ __forceinline__ void reduce_scatter_staged_aligned(const shunt_kernel_args &a) {
  reduce_scatter_staged<T, false>(a);
}
template <class T>
__device__ __forceinline__ void reduce_scatter_staged_any(const shunt_kernel_args &a) {
  reduce_scatter_staged<T, true>(a);
}
template <class T>
__device__ __forceinline__ void all_reduce_staged_aligned(const shunt_kernel_args &a) {
  all_reduce_staged<T, false>(a);
}
template <class T>
__device__ __forceinline__ void all_reduce_staged_any(const shunt_kernel_args &a) {
  all_reduce_staged<T, true>(a);
}
template <class T>
__device__ __forceinline__ void reduce_staged_aligned(const shunt_kernel_args &a) {
  reduce_staged<T, false>(a);
}
template <class T>
__device__ __forceinline__ void reduce_staged_any(const shunt_kernel_args &a) {
  reduce_staged<T, true>(a);
}

}  // namespace shunt
