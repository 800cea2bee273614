// direct.cuh: large messages, between the users' own buffers: no staging, no
// flags but at the ends. Every rank publishes where its buffers lie, as {export,
// offset}, in the start barrier, and only if every peer is known to have mapped
// them; since everyone publishes the same to all, everyone knows alike whether
// all buffers can be reached. If not, the call falls back to LL128, and the
// address that was missing is left where the host finds it and maps it.
//
// The host writes an export before anyone is told of it, and an import before
// its exporter is told (known) that it is there. known it writes while kernels
// run. So the first block of a kernel to look decides for all of them: blocks
// that fall back share a message out otherwise than those that do not.
#pragma once

#include "copy.cuh"
#include "fallback.cuh"

namespace shunt {

// What the start barrier told this block about everyone.
struct Meeting {
  u64 send[SHUNT_MAX_RANKS], recv[SHUNT_MAX_RANKS];  // addresses, mapped here
  double scalar[SHUNT_MAX_RANKS];
  u64 mine[2];  // references to this rank's send and recv
  int unmapped;  // a buffer of someone cannot be reached
  int lost;       // a wait was given up: nothing above is to be used
};

// Which kernel this is, in the call's word that ranks tell each other in the start barrier.
// Whoever hears of another call uses no address of it.
enum class Kind : u32 {
  kAllGather = 1,
  kAllToAll,
  kReduceScatter,
  kAllReduce,
  kAllReduceStaged,
  kReduceStaged,
  kBroadcast,
  kBroadcastChain,
  kReduceScatterV
};
// What a rank tells a peer of its send: where what the peer reads begins, a reference to
// that, how long it is, the factor, and the call's word, of which `call` is the one that it
// expects of its peers. The same to all.
struct Alike {
  const shunt_kernel_args &a;
  __device__ __forceinline__ int64_t place(int) const { return 0; }
  __device__ __forceinline__ u64 reference(u64 send, int) const { return send; }
  __device__ __forceinline__ int64_t length(int) const { return a.bytes; }
  __device__ __forceinline__ double scalar(double factor) const { return factor; }
  __device__ __forceinline__ u64 word(u64 call, int) const { return call; }
};

// What comes of the start barrier, for all threads that take part.
enum class Met { kAll, kUnmapped, kLost };

// A reference: export number + 1 above bit 48, offset below; 0: unreachable.
constexpr int kOffsetBits = 48;
constexpr u64 kNothing = ~0ull;  // no bytes, no address needed

__device__ __forceinline__ shunt_counts *counts_of(const shunt_kernel_args &a) {
  return reinterpret_cast<shunt_counts *>(own(a) + SHUNT_OFF_COUNTS(a.world));
}

// Nobody here waits for a count, and the host looks at it a while later.
__device__ __forceinline__ void raise(uint64_t *word, u64 n) { atomicAdd(reinterpret_cast<u64 *>(word), n); }

// Thread t looks at export t, after the block has been counted as begun.
__device__ __forceinline__ void find_export(const shunt_kernel_args &a, int t, u64 address, int64_t bytes, u64 *found) {
  if (t >= SHUNT_MAX_EXPORTS) return;
  const shunt_export *e = reinterpret_cast<const shunt_export *>(own(a) + SHUNT_OFF_EXPORTS) + t;
  const u64 base = e->base, size = e->bytes, known = e->known;
  const u64 all = ((1u << a.world) - 1) & ~(1u << a.rank);
  if (size != 0 && address >= base && address + bytes <= base + size && (known & all) == all)
    *found = u64(t + 1) << kOffsetBits | (address - base);
}

// What the first block of this kernel has found of send (0) or recv (1).
__device__ __forceinline__ u64 same_for_all_blocks(const shunt_kernel_args &a, int which, u64 found) {
  constexpr u64 kDecided = 1ull << 63;
  const u64 before = atomicCAS(reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_CHOICE) + which, 0ull, found | kDecided);
  if (before != 0) return before & ~kDecided;
  const u64 index = (found >> kOffsetBits) - 1;
  raise(&counts_of(a)->decided, 1);
  if (found != 0 && index < SHUNT_MAX_EXPORTS) raise(&counts_of(a)->used[index], 1);
  return found;
}

// The last of so many blocks to be done leaves nothing decided for the next kernel, which
// begins when all blocks of this one have ended.
__device__ __forceinline__ void forget_choice(const shunt_kernel_args &a, int blocks) {
  volatile u64 *choice = reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_CHOICE);
  u32 *done = reinterpret_cast<u32 *>(own(a) + SHUNT_OFF_CHOICE + 16);
  if (atomicAdd(done, 1u) != blocks - 1) return;
  const u64 decisions = u64(choice[0] != 0) + u64(choice[1] != 0);
  choice[0] = choice[1] = 0;
  if (decisions != 0) raise(&counts_of(a)->forgotten, decisions);
  *reinterpret_cast<volatile u32 *>(done) = 0;
}

// Leaves an address that peers cannot reach where the host finds it.
__device__ __forceinline__ void miss(const shunt_kernel_args &a, u64 address, int64_t bytes) {
  *reinterpret_cast<volatile u64 *>(own(a) + SHUNT_OFF_MISSED) = address;
  if (a.abort == 0 || block_index() != 0) return;
  volatile shunt_watch *watch = reinterpret_cast<shunt_watch *>(a.abort);
  watch->missed_bytes = bytes;
  watch->missed = address;
}

// Where a peer's reference lies here; 0 if it cannot be reached.
__device__ __forceinline__ u64 import_address(const shunt_kernel_args &a, int peer, u64 reference) {
  const u64 index = (reference >> kOffsetBits) - 1;
  if (reference == 0 || reference == kNothing || index >= SHUNT_MAX_EXPORTS) return 0;
  return (reinterpret_cast<const u64 *>(own(a) + SHUNT_OFF_IMPORTS) + peer * SHUNT_MAX_EXPORTS)[index] +
         (reference & ((1ull << kOffsetBits) - 1));
}

// What a wait for a peer's hello looks at: whether it does another call, too.
__device__ __noinline__ u64 meeting_look(const shunt_kernel_args &a, int peer, u64 epoch, u64 since) {
  since = Wait::look(a, peer, epoch, since);
  const u64 call = call_word(a, a.bytes);
  const char *hello = own(a) + SHUNT_OFF_HELLO + (block_index() * SHUNT_MAX_RANKS + peer) * 64;
  if (since != Wait::kOver && in_another_call(a, peer, epoch, call, [&] {
        bool all = true;
        for (int i = 0; i < 4; i++) all = all && load_packet(hello + i * 16).w == ll_flag(epoch);
        return all ? call : kNoCall;
      }))
    return Wait::kOver;
  return since;
}

// The start barrier. kAll if all buffers can be reached, otherwise kUnmapped: all ranks
// that are not kLost get the same. No bytes need no address; a negative number is a buffer that
// peers must not reach. told says what each peer hears of send. t counts the threads that take part, of whom there are
// at least SHUNT_MAX_EXPORTS; join is a barrier among them.
template <class Join, class Told>
[[nodiscard]] __device__ __forceinline__ Met meet(const shunt_kernel_args &a, Meeting &m, Kind kind, u64 e,
    int64_t send_bytes, int64_t recv_bytes, int t, Join join, Told told) {
  const u32 fault = earlier_fault(a);  // of an earlier kernel; under way beside the exports
  if (t == 0) {
    m.mine[0] = send_bytes == 0 ? kNothing : 0;
    m.mine[1] = recv_bytes == 0 ? kNothing : 0;
    m.unmapped = m.lost = 0;
    raise(&counts_of(a)->begun, 1);
  }
  join();
  if (send_bytes > 0) find_export(a, t, a.send, send_bytes, &m.mine[0]);
  if (recv_bytes > 0) find_export(a, t, a.recv, recv_bytes, &m.mine[1]);
  join();
  if (t < 2 && (t == 0 ? send_bytes : recv_bytes) > 0) m.mine[t] = same_for_all_blocks(a, t, m.mine[t]);
  if (fault != SHUNT_FAULT_NONE) m.lost = 1;
  join();
  if (t < a.world && m.lost == 0) {
    const int p = t;
    if (p == a.rank) {
      m.send[p] = a.send + told.place(p);
      m.recv[p] = a.recv;
      m.scalar[p] = told.scalar(a.scalar);
      if (m.mine[0] == 0 || m.mine[1] == 0) {
        m.unmapped = 1;
        if (m.mine[0] == 0 && send_bytes > 0) miss(a, a.send, send_bytes);
        else if (m.mine[1] == 0 && recv_bytes > 0) miss(a, a.recv, recv_bytes);
      }
    } else {
      // Release: what earlier work of this stream wrote to send is visible to
      // the peer that reads it after these packets.
      fence_system();
      const u32 flag = ll_flag(e);
      const u64 slot = a.region[p] + SHUNT_OFF_HELLO + (block_index() * SHUNT_MAX_RANKS + a.rank) * 64;
      ll_store(slot, told.reference(m.mine[0], p), flag);
      ll_store(slot + 16, m.mine[1], flag);
      ll_store(slot + 32, __double_as_longlong(told.scalar(a.scalar)), flag);
      const u64 call = call_word(a, told.length(a.rank), u32(kind));
      ll_store(slot + 48, told.word(call, p), flag);
      const char *hello = own(a) + SHUNT_OFF_HELLO + (block_index() * SHUNT_MAX_RANKS + p) * 64;
      u64 word[4];
      bool met = true;
      Wait wait(a);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint4 packet;
        do {
          packet = load_packet(hello + i * 16);
          met = packet.y == flag && packet.w == flag;
        } while (!met && !wait.over_by<meeting_look>(p, e));
        if (!met) break;
        word[i] = ll_word(packet);
      }
      // Acquire: the peer's send, as its stream left it, is visible from here.
      fence_system();
      if (met && word[3] != call) {
        tell_other_call(a, p, e, call, word[3]);
        m.lost = 1;
      } else if (met) {
        if (word[0] == 0 || word[1] == 0) m.unmapped = 1;
        m.send[p] = import_address(a, p, word[0]);
        m.recv[p] = import_address(a, p, word[1]);
        m.scalar[p] = __longlong_as_double(word[2]);
      } else {
        m.lost = 1;  // the words are those of an earlier call
      }
    }
  }
  join();
  if (t == 0 && !m.lost) heard_from_peers();
  return m.lost ? Met::kLost : m.unmapped ? Met::kUnmapped : Met::kAll;
}

// The same where peers hear alike, and by the whole block.
template <class Join>
[[nodiscard]] __device__ __forceinline__ Met meet(const shunt_kernel_args &a, Meeting &m, Kind kind, u64 e,
    int64_t send_bytes, int64_t recv_bytes, int t, Join join) {
  return meet(a, m, kind, e, send_bytes, recv_bytes, t, join, Alike{a});
}
[[nodiscard]] __device__ __forceinline__ Met meet(const shunt_kernel_args &a, Meeting &m, Kind kind, u64 e,
    int64_t send_bytes, int64_t recv_bytes) {
  return meet(a, m, kind, e, send_bytes, recv_bytes, threadIdx.x, [] { __syncthreads(); });
}

// What a wait for a peer's end looks at: whether it does another call, too.
__device__ __noinline__ u64 parting_look(const shunt_kernel_args &a, int peer, u64 epoch, u64 since) {
  since = Wait::look(a, peer, epoch, since);
  const u64 call = call_word(a, a.bytes);
  const char *done = own(a) + SHUNT_OFF_DONE + (block_index() * SHUNT_MAX_RANKS + peer) * 8;
  if (since != Wait::kOver && in_another_call(a, peer, epoch, call, [&] {
        return (long long)(load_acquire(done) - epoch) >= 0 ? call : kNoCall;
      }))
    return Wait::kOver;
  return since;
}

// The end barrier, also after falling back, so that no start barrier is
// overwritten before it is read: this block's stores to peers are visible to them, and theirs
// here; nobody reads this rank's memory any more. met is whether this thread has given up
// nothing: a block that has does not say that it is done. So many blocks of the kernel do this.
__device__ __forceinline__ void part(const shunt_kernel_args &a, u64 e, bool met, int blocks = block_count()) {
  met = !__syncthreads_or(!met);
  if (threadIdx.x == blockDim.x - 1) forget_choice(a, blocks);
  const int p = threadIdx.x;
  if (met && p < a.world && p != a.rank) {
    // Release: the whole block's stores and reads, ordered by __syncthreads,
    // come before the count.
    store_release(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_DONE +
                                           (block_index() * SHUNT_MAX_RANKS + a.rank) * 8),
                  e);
    // wait_for acquires: the peer's stores to recv are visible to what follows, which
    // touches no peer.
    const char *done = own(a) + SHUNT_OFF_DONE + (block_index() * SHUNT_MAX_RANKS + p) * 8;
    met = wait_for(a, done, e, [&](Wait &wait) { return wait.over_by<parting_look>(p, e); });
  }
  // Where a wait was given up peers may still reach this rank's memory, which stays.
  if (!__syncthreads_or(!met) && threadIdx.x == 0) raise(&counts_of(a)->ended, 1);
}

// Runs body(i, step) for the 16-byte vectors of a message, kUnroll of them, i,
// i + step, …, at a time. Vectors past the end read as zero and are not written.
template <int kUnroll, class Body>
__device__ __forceinline__ void each_vector(int64_t bytes, Body body) {
  const int64_t n = (bytes + 15) / 16, step = int64_t(block_count()) * blockDim.x;
#pragma unroll 1
  for (int64_t i = int64_t(block_index()) * blockDim.x + threadIdx.x; i < n; i += kUnroll * step) body(i, step);
}

// So many vectors.
template <int kVectors>
struct Batch {
  static constexpr int vectors = kVectors;
};

// Runs body(batch, i, step) for the vectors i, i + step, … of a message, in batches
// that are as long as possible and never reach past the end, where a vector would
// take the long way of load_words. Eight under way instead of four carry 2 to 3 %
// more over a link.
template <int kVectors, class Body>
__device__ __forceinline__ void each_batch(int64_t bytes, Body body) {
  const int64_t n = (bytes + 15) / 16, step = int64_t(block_count()) * blockDim.x;
  int64_t i = int64_t(block_index()) * blockDim.x + threadIdx.x;
#pragma unroll 1
  for (; i + (kVectors - 1) * step < n; i += kVectors * step) body(Batch<kVectors>(), i, step);
#pragma unroll 1
  for (; i + step < n; i += 2 * step) body(Batch<2>(), i, step);
  if (i < n) body(Batch<1>(), i, step);
}

// Peer memory is not read through L1.
template <class T>
__device__ __forceinline__ word2 load_peer_words(u64 base, int64_t offset, int64_t length) {
  if ((base & 15) == 0 && offset + 16 <= length) return load_line(reinterpret_cast<const char *>(base) + offset);
  return gather_words<T>(reinterpret_cast<const char *>(base), offset, length);
}

// all_gather and all_to_all at any alignment: a block after the other.
template <bool kSpread>
__device__ __noinline__ void copy_blocks(const shunt_kernel_args &a, const Meeting &m) {
#pragma unroll 1
  for (int k = 1; k <= a.world; k++) {
    const int p = (a.rank + k) % a.world;
    copy_bytes<8>(reinterpret_cast<char *>(m.recv[p]) + a.rank * a.bytes,
                  reinterpret_cast<const char *>(a.send) + (kSpread ? p * a.bytes : 0), a.bytes,
                  int64_t(block_index()) * blockDim.x + threadIdx.x, int64_t(block_count()) * blockDim.x);
  }
}

// all_to_all: of each block a batch at a time, so that a rank changes peers often.
__device__ __forceinline__ void spread_direct(const shunt_kernel_args &a, const Meeting &m) {
  const char *send = reinterpret_cast<const char *>(a.send);
  each_batch<8>(a.bytes, [&](auto batch, int64_t i, int64_t step) {
    constexpr int U = decltype(batch)::vectors;
    for (int k = 1; k <= a.world; k++) {
      const int p = (a.rank + k) % a.world;
      const char *from = send + p * a.bytes;
      char *recv = reinterpret_cast<char *>(m.recv[p]) + a.rank * a.bytes;
      word2 w[U];
#pragma unroll
      for (int u = 0; u < U; u++) w[u] = load_words<uint8_t>(from, (i + u * step) * 16, a.bytes);
#pragma unroll
      for (int u = 0; u < U; u++) store_words<uint8_t>(recv, (i + u * step) * 16, a.bytes, w[u]);
    }
  });
}

// all_gather and all_to_all: a load, and a store into every rank's recv.
template <bool kSpread>
__device__ __forceinline__ void gather_direct(const shunt_kernel_args &a) {
  begin();
  __shared__ Meeting m;
  u64 *epoch = epoch_of(a, SHUNT_CLASS_DIRECT);
  const u64 e = *epoch + 1;
  // In place, a peer's block would land on a block not yet sent.
  const Met all = meet(a, m, kSpread ? Kind::kAllToAll : Kind::kAllGather, e, 0,
                       kSpread && a.send == a.recv ? -1 : a.bytes * a.world);
  bool met = all != Met::kLost;
  if (all == Met::kUnmapped) {
    met = gather_ll128_body<kSpread>(a);
  } else if (met) {
    if (((a.send | a.recv | u64(a.bytes)) & 15) != 0) {
      copy_blocks<kSpread>(a, m);
    } else if (!kSpread) {
      const char *send = reinterpret_cast<const char *>(a.send);
      each_vector<4>(a.bytes, [&](int64_t i, int64_t step) {
        constexpr int U = 4;
        word2 w[U];
#pragma unroll
        for (int u = 0; u < U; u++) w[u] = load_words<uint8_t>(send, (i + u * step) * 16, a.bytes);
        for (int k = 1; k <= a.world; k++) {
          const int p = (a.rank + k) % a.world;
          char *recv = reinterpret_cast<char *>(m.recv[p]) + a.rank * a.bytes;
          if (recv == send) continue;
#pragma unroll
          for (int u = 0; u < U; u++) store_words<uint8_t>(recv, (i + u * step) * 16, a.bytes, w[u]);
        }
      });
    } else {
      spread_direct(a, m);
    }
  }
  part(a, e, met);
  advance(epoch, e);
}

}  // namespace shunt
