// barrier.cu: kernels of one block that move nothing and wait for every rank.
#include "exchange.cuh"

namespace shunt {

// Whether a word that only grows, by signed difference, has reached a value.
__device__ __forceinline__ bool reached(const void *word, u64 value) {
  return (long long)(load_relaxed(word) - value) >= 0;
}

// No rank's kernel ends before every rank's has begun; what a rank wrote anywhere before
// its barrier, its copy engines included, every rank may read after it.
__device__ __forceinline__ void barrier(const shunt_kernel_args &a) {
  begin();
  u64 *epoch = epoch_of(a, SHUNT_CLASS_LL);
  const u64 e = *epoch + 1;
  const bool lost = earlier_fault(a) != SHUNT_FAULT_NONE;  // a wait of an earlier kernel
  const Flags flags = ll_flags(a, e, 0);
  if (!lost) ll_refresh(a, e, flags, threadIdx.x == 0);
  if (threadIdx.x == 0 && !lost) {
    fence_system();  // what this stream wrote before is visible to all before the packets are
    const int64_t slot = ll_offset(a.world, e, a.rank);
#pragma unroll
    for (int p = 0; p < SHUNT_MAX_RANKS; p++)
      if (p < a.world && p != a.rank) ll_store(a.region[p] + slot, 0, flags);
    u64 words[SHUNT_MAX_RANKS];
    (void)ll_wait_all(a, e, flags, words);  // nothing that follows touches a peer
    fence_system();  // what peers wrote before their packets is visible to whatever follows
  }
  advance(epoch, e);
}

// Waits, in the place of all blocks of the kernel behind it, until every peer has come to
// that call: until the peer is in a gate of its own, or the first block of its kernel has
// spoken to the one here, which this kernel leaves for it to hear. So a rank may have a gate
// or not, whatever its peers do. The kernel must be one whose first block waits for every
// peer, so that none is a call ahead; where it stages, there are bytes.
template <int kGate, int kClass, class Spoken>
__device__ __forceinline__ void gate(const shunt_kernel_args &a, Spoken spoken) {
  begin();
  const u64 e = *epoch_of(a, kClass) + 1;
  const int p = threadIdx.x;
  if (p >= a.world || p == a.rank || earlier_fault(a) != SHUNT_FAULT_NONE) return;
  const u64 call = call_word(a, a.bytes);
  const int64_t gates = SHUNT_OFF_GATE + kGate * SHUNT_MAX_RANKS * 16;
  store_line(reinterpret_cast<void *>(a.region[p] + gates + a.rank * 16), word2{e, call});
  auto there = [&] { return reached(own(a) + gates + p * 16, e) || spoken(p, e); };
  Wait wait(a);
  while (!there() && !wait.over(p, e, [&] {
    return in_another_call(a, p, e, call, [&] { return there() ? call : kNoCall; });
  })) {
  }
}

// Before a kernel that meets: its hello.
__device__ __forceinline__ void gate_direct(const shunt_kernel_args &a) {
  gate<SHUNT_GATE_DIRECT, SHUNT_CLASS_DIRECT>(
      a, [&](int p, u64 e) { return load_packet(own(a) + SHUNT_OFF_HELLO + p * 64).y == ll_flag(e); });
}

// Before one that stages at once: its first chunk.
__device__ __forceinline__ void gate_staged(const shunt_kernel_args &a) {
  gate<SHUNT_GATE_STAGED, SHUNT_CLASS_STAGED>(
      a, [&](int p, u64 e) { return reached(own(a) + SHUNT_OFF_STAGED + p * 8, e); });
}

// Before one in LL128: the number in the first line of its first warp's first unit, which stays
// until the peer has heard from here. Whether that is of the same call the kernel says.
__device__ __forceinline__ void gate_ll128(const shunt_kernel_args &a) {
  constexpr int kFirstFlag = 7 * 16 + 8;  // of lane 7, the last one of a line
  gate<SHUNT_GATE_LL128, SHUNT_CLASS_LL128>(a, [&](int p, u64 e) {
    const char *first = own(a) + SHUNT_OFF_LL128(a.world) + p * kLL128SourceStride + ring(e);
    return ((load_relaxed(first + kFirstFlag) ^ e) & kNumber) == 0;
  });
}

}  // namespace shunt

SHUNT_KERNEL_BYTES(shunt_barrier, shunt::barrier)
SHUNT_KERNEL_BYTES(shunt_gate_direct, shunt::gate_direct)
SHUNT_KERNEL_BYTES(shunt_gate_staged, shunt::gate_staged)
SHUNT_KERNEL_BYTES(shunt_gate_ll128, shunt::gate_ll128)
