// device.cuh: memory operations, waiting and launch order, as the protocols
// use them. No protocol lives here.
#pragma once

#include "layout.h"

#ifndef SHUNT_LINE_STORE
#define SHUNT_LINE_STORE ".volatile"
#endif

namespace shunt {

typedef unsigned long long u64;
typedef unsigned int u32;

// Two 64-bit words: half of what a thread moves at once everywhere.
struct alignas(16) word2 {
  u64 x, y;
};

// A number as a type, for what is to be chosen when a kernel is compiled.
template <auto kValue>
struct Constant {
  static constexpr auto value = kValue;
};

// Without a branch, so that arrays of words stay in registers.
__device__ __forceinline__ word2 select(bool c, word2 a, word2 b) { return word2{c ? a.x : b.x, c ? a.y : b.y}; }

// ---- which block --------------------------------------------------------
// A kernel of many blocks can be launched as a grid of two columns instead of one row, in which
// the blocks of the second column end at once. Neighbours of a grid are placed on the
// two multiprocessors of a cluster of them (TPC); so the blocks that stay have a
// cluster each, which carries 1 to 8 % more between GPUs than two on one (decision 7).

__device__ __forceinline__ bool spread() { return gridDim.y > 1; }
__device__ __forceinline__ bool spare_block() { return spread() && blockIdx.x != 0; }

// Which block this is, of those that stay, and how many they are.
__device__ __forceinline__ int block_index() { return spread() ? blockIdx.y : blockIdx.x; }
__device__ __forceinline__ int block_count() { return spread() ? gridDim.y : gridDim.x; }

// ---- words that peers write or read -------------------------------------
// "volatile" accesses are relaxed at system scope: never cached in L1, never
// torn within 8 bytes. They order nothing; fences do.

__device__ __forceinline__ u64 load_relaxed(const void *p) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed(void *p, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ u64 load_acquire(const void *p) {
  u64 v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void store_release(void *p, u64 v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// Orders everything this thread did or observed (its block's writes too, after
// __syncthreads) before everything it does next, for every GPU.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ uint4 load_packet(const void *p) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_packet(void *p, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ word2 load_line(const void *p) {
  word2 v;
  asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void store_line(void *p, word2 v) {
  asm volatile("st" SHUNT_LINE_STORE ".global.v2.u64 [%0], {%1,%2};" ::"l"(p), "l"(v.x), "l"(v.y) : "memory");
}

// ---- words that warps of a block share -------------------------------------
// All by atomic operations, which compute-sanitizer's racecheck understands.

__device__ __forceinline__ u32 shared_address(const void *p) { return u32(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ u32 load_acquire_shared(u32 *p) {
  u32 v;
  asm volatile("atom.acquire.cta.shared.or.b32 %0, [%1], 0;" : "=r"(v) : "r"(shared_address(p)) : "memory");
  return v;
}

__device__ __forceinline__ void store_release_shared(u32 *p, u32 v) {
  asm volatile("{ .reg .b32 before; atom.release.cta.shared.exch.b32 before, [%0], %1; }" ::"r"(shared_address(p)),
               "r"(v) : "memory");
}

// Adds one and returns what was there; acquires and releases.
__device__ __forceinline__ u32 count_shared(u32 *p) {
  u32 before;
  asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;" : "=r"(before) : "r"(shared_address(p)) : "memory");
  return before;
}

// A barrier among some warps of a block. 0 is that of the whole block.
template <int kBarrier, int kThreads>
__device__ __forceinline__ void join_warps() {
  asm volatile("barrier.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

// ---- launch order ---------------------------------------------------------

// With programmatic dependent launch the next kernel of the stream may be scheduled while
// this one runs. It holds multiprocessors while it waits for this one's end, and those may
// be the last ones that a kernel of another stream needs, for which a peer waits. So a
// kernel of many blocks lets the next one begin only when each of its blocks has heard from
// its peers' blocks of this call: then all of them run, need no more room to end, and a
// waiting kernel can delay nobody for long. Kernels without such a moment let the next one
// begin at their end, and kernels of few blocks as soon as the one before them has ended:
// there is room for two of them. No kernel does so before: of a graph of short calls each one
// would let the next begin, until all 128 kernels that a GPU can hold wait for a peer of the
// first, and no other one could begin. Nor would it gain a moment (decision 16).
constexpr int kFewBlocks = 16;

__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Every kernel begins with this: it goes on only when the previous kernel has ended and
// its writes are visible.
__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (block_count() <= kFewBlocks) let_next_begin();
}

// A block calls this when one of its threads has heard, in this call, from the blocks of
// all peers that it will wait for. One thread is enough, and more do no harm.
__device__ __forceinline__ void heard_from_peers() {
  if (block_count() > kFewBlocks) let_next_begin();
}

// Every kernel that waits for peers ends with this.
__device__ __forceinline__ void end() {
  if (block_count() <= kFewBlocks) return;
  __syncthreads();  // the whole block has waited for the last time
  let_next_begin();
}

// ---- waiting --------------------------------------------------------------

__device__ __forceinline__ u64 nanoseconds() {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__device__ __forceinline__ char *own(const shunt_kernel_args &a) { return reinterpret_cast<char *>(a.region[a.rank]); }

constexpr u32 kLook = 512;  // spins of a wait from one look at why it may be given up to the next
constexpr u64 kWatch = 100000;  // nanoseconds from one look at the watch page to the next, of all waits on a GPU

// The kind of this rank's fault: not SHUNT_FAULT_NONE once a wait was given up.
__device__ __forceinline__ u32 fault_of(const shunt_kernel_args &a) {
  return *reinterpret_cast<const volatile u32 *>(own(a) + SHUNT_OFF_FAULT);
}

// The same of the kernels before this one, which a kernel loads beside its epoch, before it
// stores to a peer; to be under way beside other loads, and not before them, it is used
// behind them. One word that every warp loads past L1 would cost up to 0.1 us.
__device__ __forceinline__ u32 earlier_fault(const shunt_kernel_args &a) {
  return *reinterpret_cast<const u32 *>(own(a) + SHUNT_OFF_FAULT);
}

// Sets the mark of every epoch, behind a fault.
__device__ __noinline__ void mark_epochs(const shunt_kernel_args &a) {
  for (int i = 0; i < SHUNT_CLASSES * SHUNT_MAX_BLOCKS; i++)
    store_relaxed(own(a) + SHUNT_OFF_EPOCH + i * SHUNT_EPOCH_BYTES + 8, 1);
}

// What a warp that has given up leaves in a word that other warps of its block wait for.
constexpr u32 kLost = ~0u;

// A bounded wait. Given up, it records why and which peer it waited for. A kernel that
// has given up publishes nothing and touches no peer: what it was to store depends on
// what has not come. So every function that waits returns whether it has met what it
// waited for. Threads that learn that a wait was given up run to the kernel's end without
// touching memory of peers: no thread leaves early, so no barrier of the block is missed.
// Threads that do not depend on the wait go on; their own waits give up soon.
class Wait {
 public:
  __device__ __forceinline__ explicit Wait(const shunt_kernel_args &args) : a(args), spins(0), since(0) {}

  // True when the wait must be given up. Looks at the clock and what the watch page says
  // only once in kLook spins, and whether an earlier wait was given up soon too: a
  // kernel may have thousands of them left.
  __device__ __forceinline__ bool over(int peer, u64 epoch) {
    return over(peer, epoch, [] { return false; });
  }
  // The same, and as often in_vain is asked whether what is waited for cannot come;
  // it then tells why.
  template <class InVain>
  __device__ __forceinline__ bool over(int peer, u64 epoch, InVain in_vain) {
    spins++;
    if (spins == 32) return fault_of(a) != SHUNT_FAULT_NONE;
    if (spins % kLook != 0) return false;
    since = look(a, peer, epoch, since);
    return since == kOver || in_vain();
  }
  // The same, and as often calls says what this rank and the peer call, alike if nothing says
  // otherwise; if they differ, that is told. It is no function, and look is the only one that
  // is called: what another one needs of registers would cost short messages 3 to 6 %.
  struct Calls {
    u64 mine, theirs;
  };
  template <class SayCalls>
  __device__ __forceinline__ bool over_unless(int peer, u64 epoch, SayCalls calls) {
    spins++;
    if (spins == 32) return fault_of(a) != SHUNT_FAULT_NONE;
    if (spins % kLook != 0) return false;
    const Calls c = calls();
    since = look(a, peer, epoch, since, c.mine, c.theirs);
    return since == kOver;
  }
  // The same, by a function that calls look and then tells why.
  template <u64 (*kLookToo)(const shunt_kernel_args &, int, u64, u64)>
  __device__ __forceinline__ bool over_by(int peer, u64 epoch) {
    spins++;
    if (spins == 32) return fault_of(a) != SHUNT_FAULT_NONE;
    if (spins % kLook != 0) return false;
    since = kLookToo(a, peer, epoch, since);
    return since == kOver;
  }

  static constexpr u64 kOver = ~0ull;

  // Returns when the wait began, or kOver. Apart from the loop, by value, so
  // that nothing of a wait lives in memory.
  static __device__ __noinline__ u64 look(const shunt_kernel_args &a, int peer, u64 epoch, u64 since, u64 mine = 0,
      u64 theirs = 0) {
    shunt_fault *fault = reinterpret_cast<shunt_fault *>(own(a) + SHUNT_OFF_FAULT);
    u32 kind = fault_of(a);
    if (kind != SHUNT_FAULT_NONE) return kOver;
    const u64 now = nanoseconds();
    if (since == 0) since = now;
    u64 limit = a.timeout;
    if (a.abort != 0) {
      // Reads over PCIe of one line wait for each other, and what else the GPU reads behind
      // them: a thousand warps that begin to wait together would stop it for milliseconds.
      // So one of them looks, and tells the others.
      volatile shunt_watched *watched = reinterpret_cast<volatile shunt_watched *>(own(a) + SHUNT_OFF_WATCHED);
      const u64 at = watched->at;
      if (now - at >= kWatch && atomicCAS(reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_WATCHED), at, now) == at) {
        const uint4 watch = load_packet(reinterpret_cast<const void *>(a.abort));
        if (watch.x != 0) kind = SHUNT_FAULT_ABORTED;
        watched->timeout = u64(watch.w) << 32 | watch.z;
      }
      if (limit == 0) limit = watched->timeout;
    }
    // Signed: the timer may step back, and then a wait only takes longer.
    if (kind == SHUNT_FAULT_NONE && limit != 0 && (long long)(now - since) > (long long)limit)
      kind = SHUNT_FAULT_TIMEOUT;
    if (mine != theirs) kind = SHUNT_FAULT_CALL;
    if (kind == SHUNT_FAULT_NONE) return since;
    if (atomicCAS(&fault->kind, u32(SHUNT_FAULT_NONE), kind) == SHUNT_FAULT_NONE) {
      mark_epochs(a);
      fault->peer = peer;
      fault->epoch = epoch;
      if (a.abort != 0) {
        volatile shunt_fault *told = &reinterpret_cast<shunt_watch *>(a.abort)->fault;
        told->peer = peer;
        told->epoch = epoch;
        volatile shunt_watch *watch = reinterpret_cast<shunt_watch *>(a.abort);
        watch->fault_own[0] = mine;
        watch->fault_theirs[0] = theirs;
        fence_system();  // release: the host that sees the kind sees the rest
        told->kind = kind;
      }
    }
    return kOver;
  }

 private:
  const shunt_kernel_args &a;
  u32 spins;
  u64 since;
};

// Tells that this rank and a peer contradict each other, in the region and in the
// watch page, where write puts the words of both; a fault that is there already stays.
template <class Write>
__device__ __forceinline__ void tell_contradiction(const shunt_kernel_args &a, u32 kind, int peer, u64 epoch,
    Write write) {
  shunt_fault *fault = reinterpret_cast<shunt_fault *>(own(a) + SHUNT_OFF_FAULT);
  if (atomicCAS(&fault->kind, u32(SHUNT_FAULT_NONE), kind) != SHUNT_FAULT_NONE) return;
  mark_epochs(a);
  fault->peer = peer;
  fault->epoch = epoch;
  if (a.abort == 0) return;
  volatile shunt_watch *watch = reinterpret_cast<volatile shunt_watch *>(a.abort);
  watch->fault.peer = peer;
  watch->fault.epoch = epoch;
  write(watch->fault_own, watch->fault_theirs);
  fence_system();  // release: the host that sees the kind sees the rest
  watch->fault.kind = kind;
}

// Waits until a counter has reached a value, by signed difference. Acquires:
// what the peer wrote before it raised the counter is visible afterwards.
// over(wait) asks the wait.
template <class Over>
[[nodiscard]] __device__ __forceinline__ bool wait_for(const shunt_kernel_args &a, const void *counter, u64 value,
    Over over) {
  Wait wait(a);
  while ((long long)(load_acquire(counter) - value) < 0)
    if (over(wait)) return false;
  return true;
}
[[nodiscard]] __device__ __forceinline__ bool wait_for(const shunt_kernel_args &a, const void *counter, u64 value,
    int peer) {
  return wait_for(a, counter, value, [&](Wait &wait) { return wait.over(peer, value); });
}

// ---- epochs ---------------------------------------------------------------
// Beside each block's epochs stands whether a wait was given up, for kernels to whom a load
// of its own, however early, is too much: every epoch's mark is set, once, with the fault.

__device__ __forceinline__ u64 *epoch_of(const shunt_kernel_args &a, int protocol) {
  return reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_EPOCH +
                                 (protocol * SHUNT_MAX_BLOCKS + block_index()) * SHUNT_EPOCH_BYTES);
}

// Ends a block: every thread has read the epoch and finished its rounds.
__device__ __forceinline__ void advance(u64 *epoch, u64 value) {
  __syncthreads();
  if (threadIdx.x == 0) *epoch = value;
}

// A block's epoch of a protocol, and what earlier_fault would say, in one load.
class Epoch {
 public:
  __device__ __forceinline__ Epoch(const shunt_kernel_args &a, int protocol) : place(epoch_of(a, protocol)) {
    const word2 w = *reinterpret_cast<const word2 *>(place);
    value = w.x;
    lost = w.y != 0;
  }
  __device__ __forceinline__ void advance(u64 to) const { shunt::advance(place, to); }

 private:
  u64 *place;

 public:
  u64 value;
  bool lost;
};

}  // namespace shunt
