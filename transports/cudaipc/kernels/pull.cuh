// pull.cuh: large reductions by loads from the users' own buffers, which direct.cuh has
// made known. Vectors of memory that is aligned, and, in kernels of their own, of any.
#pragma once

#include "direct.cuh"

namespace shunt {

// What pull reads at once: kUnroll vectors of up to kRanks ranks. Reading begins
// at the next rank, so that not all ranks read from the same one; the words are
// then turned back into rank order, in which they are combined. What straddles is whole
// vectors.
template <class T, int kRanks, int kUnroll, bool kStraddles = false, class Sink>
__device__ __forceinline__ void pull_reduced(const shunt_kernel_args &a, const Meeting &m, int64_t at, int64_t i,
    int64_t step, int64_t length, Sink sink) {
  word2 lines[kUnroll][SHUNT_MAX_RANKS];
  const bool turn = kRanks == a.world;
#pragma unroll
  for (int k = 0; k < kRanks; k++) {
    if (k >= a.world) break;
    const int s = turn ? (a.rank + k) & (kRanks - 1) : k;
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      const int64_t offset = (i + u * step) * 16;
      if constexpr (!kStraddles) lines[u][k] = load_peer_words<T>(m.send[s] + at, offset, length);
      else if (offset < length) lines[u][k] = load_straddling(m.send[s] + at + offset);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; u++) {
#pragma unroll
    for (int bit = 1; bit < kRanks; bit *= 2) {
      if (!turn || !(a.rank & bit)) continue;  // place k held rank k + rank: move up by rank, bit by bit
      word2 moved[kRanks];
#pragma unroll
      for (int k = 0; k < kRanks; k++) moved[(k + bit) & (kRanks - 1)] = lines[u][k];
#pragma unroll
      for (int k = 0; k < kRanks; k++) lines[u][k] = moved[k];
    }
    if (a.op == kPremulSum) {
#pragma unroll
      for (int s = 0; s < kRanks; s++) {
        if (s >= a.world) break;
        lines[u][s] = word2{premultiply<T>(a.op, m.scalar[s], lines[u][s].x),
                            premultiply<T>(a.op, m.scalar[s], lines[u][s].y)};
      }
    }
    sink((i + u * step) * 16, reduce_lines<T>(a, lines[u]));
  }
}

// Runs sink(offset, words) for every 16 bytes of a shard of all ranks' send.
template <class T, class Sink>
__device__ __forceinline__ void pull_shard(const shunt_kernel_args &a, const Meeting &m, int64_t at, int64_t length,
    Sink sink) {
  if (length <= 0) return;
  if (a.world <= 4)
    each_vector<4>(length, [&](int64_t i, int64_t step) { pull_reduced<T, 4, 4>(a, m, at, i, step, length, sink); });
  else
    each_vector<2>(length, [&](int64_t i, int64_t step) { pull_reduced<T, 8, 2>(a, m, at, i, step, length, sink); });
}

// Stores what vectors of two ranks combine to, as many as there(u) says. The op is chosen
// once a round, behind the loads: before the loop, it would let the compiler put some of
// them off.
template <class T, int kVectors, int kTo, class There>
__device__ __forceinline__ void store_pairs(int op, const word2 (&lines)[2][kVectors], char *const (&to)[kTo],
    int64_t at, int64_t step, There there) {
  auto store = [&](auto op) {
    constexpr int kOp = decltype(op)::value;
#pragma unroll
    for (int u = 0; u < kVectors; u++) {
      if (!there(u)) break;
      const word2 w{reduce_pair<T, kOp>(lines[0][u].x, lines[1][u].x),
                    reduce_pair<T, kOp>(lines[0][u].y, lines[1][u].y)};
#pragma unroll
      for (int k = 0; k < kTo; k++) *reinterpret_cast<word2 *>(to[k] + at + u * step) = w;
    }
  };
  if (op == kAvg) store(Constant<kAvg>());
  else with_op(op, store);
}

// Combines whole vectors of two ranks in aligned memory, kVectors of both under way in
// a thread: between loads nothing is called, and which of them there are is a predicate
// of each, not a branch.
template <class T, int kVectors, int kTo>
__device__ __forceinline__ void pull_vectors(int op, const char *const (&from)[2], char *const (&to)[kTo],
    int64_t bytes) {
  const int64_t step = int64_t(block_count()) * blockDim.x * 16;
#pragma unroll 1
  for (int64_t at = (int64_t(block_index()) * blockDim.x + threadIdx.x) * 16; at < bytes; at += kVectors * step) {
    auto there = [&](int u) { return at + u * step < bytes; };
    word2 lines[2][kVectors];
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
      for (int u = 0; u < kVectors; u++)
        if (there(u)) lines[s][u] = load_line(from[s] + at + u * step);
    }
    store_pairs<T>(op, lines, to, at, step, there);
  }
}

// Whether pull_pair can do what pull_shard does, into memory whose addresses or-ed are
// to: two ranks, everything aligned. Dtypes that are not hot are combined by calls, and
// premul_sum scales by calls.
template <class T>
__device__ __forceinline__ bool is_pair(const shunt_kernel_args &a, const Meeting &m, int64_t at, u64 to) {
  return kHot<T> && a.world == 2 && a.op != kPremulSum && ((m.send[0] | m.send[1] | at | to) & 15) == 0;
}

// pull_shard of a pair, into one or two buffers: whole vectors, then what is left.
template <class T, int kTo>
__device__ __forceinline__ void pull_pair(const shunt_kernel_args &a, const Meeting &m, int64_t at, int64_t length,
    char *const (&to)[kTo]) {
  if constexpr (kHot<T>) {
    const char *const from[2] = {reinterpret_cast<const char *>(m.send[0]) + at,
                                 reinterpret_cast<const char *>(m.send[1]) + at};
    const int64_t end = length / 16 * 16;
    pull_vectors<T, 8>(a.op, from, to, end);
    if (end >= length || block_index() != 0 || threadIdx.x != 0) return;
    const word2 lines[2] = {gather_words<T>(from[0], end, length), gather_words<T>(from[1], end, length)};
    const word2 w = reduce_lines<T>(a, lines);
    for (char *p : to) scatter_words<T>(p, end, length, w);
  }
}

// ---- of memory that is not aligned -------------------------------------------
// Kernels of their own, for what straddles would cost the others registers and half of their
// speed. Ranks of one call may run either: they differ in how a rank reads and stores alone.

// The vectors of a pair whose sends are not aligned as `to` is. A lane has the vector that
// the lane before it straddles, so that none is loaded twice; a warp's last lane has only
// that. from is aligned, and the vector behind the last is there.
template <class T, int kVectors, int kTo>
__device__ __forceinline__ void pull_straddling(int op, const char *const (&from)[2], const int (&shift)[2],
    char *const (&to)[kTo], int64_t bytes) {
  constexpr int kRow = 31 * 16;
  const int lane = threadIdx.x & 31;
  const int64_t warps = blockDim.x >> 5, step = block_count() * warps * kRow;
  int64_t row = (block_index() * warps + (threadIdx.x >> 5)) * kRow;
  // Rows from `row` on, which all have 31 vectors, but one alone may have fewer.
  auto some = [&](auto batch) {
    constexpr int kBatch = decltype(batch)::vectors;
    const int64_t at = row + lane * 16;
    word2 lines[2][kBatch];
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
      for (int u = 0; u < kBatch; u++)
        if (kBatch > 1 || at <= bytes) lines[s][u] = load_line(from[s] + at + u * step);
    }
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
      for (int u = 0; u < kBatch; u++) {
        const word2 next{__shfl_sync(~0u, lines[s][u].x, (lane + 1) & 31),
                         __shfl_sync(~0u, lines[s][u].y, (lane + 1) & 31)};
        lines[s][u] = straddle(lines[s][u], next, shift[s]);
      }
    }
    store_pairs<T>(op, lines, to, at, step, [&](int u) { return lane < 31 && at + u * step < bytes; });
    row += kBatch * step;
  };
#pragma unroll 1
  while (row + (kVectors - 1) * step + kRow <= bytes) some(Batch<kVectors>());
#pragma unroll 1
  while (row < bytes) some(Batch<1>());
}

// pull_shard into buffers that are aligned alike, as many as there are ranks or the first
// alone.
template <class T, int kTo>
__device__ __forceinline__ void pull_any(const shunt_kernel_args &a, const Meeting &m, int64_t at, int64_t length,
    char *const (&to)[kTo]) {
  if (length <= 0) return;
  const u64 first = reinterpret_cast<u64>(to[0]);
  u64 apart = 0;
  for (int s = 0; s < a.world; s++) apart |= m.send[s] + at - first;
  const bool straddles = (apart & 15) != 0;
  const Middle middle(first, straddles, length);
  // Stores words at an offset from a byte of the shard behind which there is room.
  auto sink_from = [&](int64_t from, int64_t room) {
    return [&, from, room](int64_t offset, word2 w) {
#pragma unroll
      for (int k = 0; k < kTo; k++)
        if (k < a.world) store_words<T>(to[k] + from, offset, room, w);
    };
  };
  // The ends, a thread a piece.
  if (block_index() == 0 && threadIdx.x < Middle::kPieces) {
    const int64_t piece = middle.piece(threadIdx.x), room = min(middle.room(piece), int64_t(16));
    if (room > 0) pull_reduced<T, 8, 1>(a, m, at + piece, 0, 0, room, sink_from(piece, room));
  }
  __syncwarp();
  const int64_t from = at + middle.begin, whole = middle.length();
  if constexpr (kHot<T>) {
    if (a.world == 2 && a.op != kPremulSum) {
      char *into[kTo == 1 ? 1 : 2];
#pragma unroll
      for (int k = 0; k < (kTo == 1 ? 1 : 2); k++) into[k] = to[k] + middle.begin;
      const u64 places[2] = {m.send[0] + from, m.send[1] + from};
      const int shift[2] = {int(places[0] & 15), int(places[1] & 15)};
      const char *const lines[2] = {reinterpret_cast<const char *>(places[0] - shift[0]),
                                    reinterpret_cast<const char *>(places[1] - shift[1])};
      if (straddles) pull_straddling<T, 4>(a.op, lines, shift, into, whole);
      else pull_vectors<T, 8>(a.op, lines, into, whole);
      return;
    }
  }
  auto sink = sink_from(middle.begin, whole);
  if (a.world <= 4)
    each_vector<2>(whole, [&](int64_t i, int64_t step) {
      pull_reduced<T, 4, 2, true>(a, m, from, i, step, whole, sink);
    });
  else
    each_vector<1>(whole, [&](int64_t i, int64_t step) {
      pull_reduced<T, 8, 1, true>(a, m, from, i, step, whole, sink);
    });
}

// Whether what ranks receive into is aligned alike.
__device__ __forceinline__ bool is_alike(const shunt_kernel_args &a, const Meeting &m) {
  u64 differing = 0;
  for (int p = 1; p < a.world; p++) differing |= m.recv[p] ^ m.recv[0];
  return (differing & 15) == 0;
}

// This rank's block, which lies `at` bytes behind what enter, the start barrier, has told of
// everyone's send.
template <class T, bool kAny, class Blocks, class Enter>
__device__ __forceinline__ void reduce_scatter_direct(const shunt_kernel_args &a, const Blocks &blocks, int64_t at,
    Enter enter) {
  begin();
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  const Met all = enter(m, e);
  bool met = all != Met::kLost;
  const int64_t length = blocks.length(a.rank);
  if (all == Met::kUnmapped) {
    met = reduce_scatter_ll128_body<T>(a, blocks);
  } else if (met) {
    char *const recv[] = {reinterpret_cast<char *>(a.recv)};
    if constexpr (kAny)
      pull_any<T>(a, m, at, length, recv);
    else if (is_pair<T>(a, m, at, a.recv))
      pull_pair<T>(a, m, at, length, recv);
    else
      pull_shard<T>(a, m, at, length, [&](int64_t offset, word2 w) { store_words<T>(recv[0], offset, length, w); });
  }
  part(a, e, met);
  advance(epoch, e);
}

template <class T, bool kAny>
__device__ __forceinline__ void reduce_scatter_direct(const shunt_kernel_args &a) {
  reduce_scatter_direct<T, kAny>(a, EqualBlocks(a), a.rank * a.bytes, [&](Meeting &m, u64 e) {
    return meet(a, m, Kind::kReduceScatter, e, a.bytes * a.world, 0);
  });
}

// Of blocks of any lengths each peer hears where its own begins, as displacements are a
// rank's own matter, and how long this rank takes it to be.
template <class T, bool kAny>
__device__ __forceinline__ void reduce_scatter_v_direct(const shunt_kernel_args_v &v) {
  const shunt_messages &messages = v.messages;
  struct Told {
    const shunt_messages &messages;
    __device__ __forceinline__ int64_t place(int p) const { return messages.send_displ[p]; }
    __device__ __forceinline__ u64 reference(u64 send, int p) const {
      return send == 0 || send == kNothing ? send : send + place(p);
    }
    __device__ __forceinline__ int64_t length(int p) const { return messages.send_count[p]; }
    __device__ __forceinline__ double scalar(double factor) const { return factor; }
    __device__ __forceinline__ u64 word(u64 call, int p) const {
      return (call & ~kLengthBits) | (u64(length(p)) & kLengthBits);
    }
  };
  int64_t end = 0;
  for (int p = 0; p < v.base.world; p++)
    if (messages.send_count[p] > 0) end = max(end, messages.send_displ[p] + messages.send_count[p]);
  reduce_scatter_direct<T, kAny>(v.base, UnequalBlocks{v}, 0, [&](Meeting &m, u64 e) {
    return meet(v.base, m, Kind::kReduceScatterV, e, end, 0, threadIdx.x, [] { __syncthreads(); }, Told{messages});
  });
}

// all_reduce: owner r pulls shard r from all and pushes the result to all. In
// place too: only rank r reads shard r anywhere, and each thread reads its
// vector everywhere before it writes it.
template <class T, bool kAny>
__device__ __forceinline__ void all_reduce_direct(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  const Met all = meet(a, m, Kind::kAllReduce, e, a.bytes, a.bytes);
  bool met = all != Met::kLost;
  if (all == Met::kUnmapped) {
    met = two_shot_ll128<T, false>(a);
  } else if (met) {
    const Shards shards(a.bytes, a.world);
    const int64_t at = shards.start(a.rank), length = shards.length(a.rank);
    if (kAny && is_alike(a, m)) {
      char *to[SHUNT_MAX_RANKS];
#pragma unroll
      for (int k = 1; k <= SHUNT_MAX_RANKS; k++) {
        if (k > a.world) break;
        to[k - 1] = reinterpret_cast<char *>(m.recv[a.rank + k < a.world ? a.rank + k : a.rank + k - a.world]) + at;
      }
      pull_any<T>(a, m, at, length, to);
    } else if (is_pair<T>(a, m, at, m.recv[0] | m.recv[1])) {
      char *const to[] = {reinterpret_cast<char *>(m.recv[0]) + at, reinterpret_cast<char *>(m.recv[1]) + at};
      pull_pair<T>(a, m, at, length, to);
    } else {
      pull_shard<T>(a, m, at, length, [&](int64_t offset, word2 w) {
        for (int k = 1; k <= a.world; k++) {
          const int p = a.rank + k < a.world ? a.rank + k : a.rank + k - a.world;
          store_words<T>(reinterpret_cast<char *>(m.recv[p]) + at, offset, length, w);
        }
      });
    }
  }
  part(a, e, met);
  advance(epoch, e);
}

// Each as two kernels: for memory that is aligned, and for any.
template <class T>
__device__ __forceinline__ void reduce_scatter_direct_aligned(const shunt_kernel_args &a) {
  reduce_scatter_direct<T, false>(a);
}
template <class T>
__device__ __forceinline__ void reduce_scatter_direct_any(const shunt_kernel_args &a) {
  reduce_scatter_direct<T, true>(a);
}
template <class T>
__device__ __forceinline__ void reduce_scatter_v_direct_aligned(const shunt_kernel_args_v &v) {
  reduce_scatter_v_direct<T, false>(v);
}
template <class T>
__device__ __forceinline__ void reduce_scatter_v_direct_any(const shunt_kernel_args_v &v) {
  reduce_scatter_v_direct<T, true>(v);
}
template <class T>
__device__ __forceinline__ void all_reduce_direct_aligned(const shunt_kernel_args &a) {
  all_reduce_direct<T, false>(a);
}
template <class T>
__device__ __forceinline__ void all_reduce_direct_any(const shunt_kernel_args &a) {
  all_reduce_direct<T, true>(a);
}

}  // namespace shunt
