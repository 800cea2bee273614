// barrier.cu: kernels of one block that move nothing and wait for every rank.
#include "exchange.cuh"

namespace shunt {

// No rank's kernel ends before every rank's has begun; what a rank wrote anywhere before
// its barrier, its copy engines included, every rank may read after it.
__device__ __forceinline__ void barrier(const shunt_kernel_args &a) {
  begin();
  u64 *epoch = epoch_of(a, SHUNT_CLASS_LL);
  const u64 e = *epoch + 1;
  const bool lost = earlier_fault(a) != SHUNT_FAULT_NONE;  // a wait of an earlier kernel
  if (!lost) ll_refresh(a, e, threadIdx.x == 0);
  if (threadIdx.x == 0 && !lost) {
    fence_system();  // what this stream wrote before is visible to all before the packets are
    const int64_t slot = ll_offset(a.world, e, a.rank);
#pragma unroll
    for (int p = 0; p < SHUNT_MAX_RANKS; p++)
      if (p < a.world && p != a.rank) ll_store(a.region[p] + slot, 0, ll_flag(e));
    u64 words[SHUNT_MAX_RANKS];
    (void)ll_wait_all(a, e, words);  // nothing that follows touches a peer
    fence_system();  // what peers wrote before their packets is visible to whatever follows
  }
  advance(epoch, e);
}

// Waits, in the place of all blocks of the kernel behind it, until every peer has come to
// that call: until the peer is in a gate of its own, or the first block of its kernel has
// spoken to the one here, which this kernel leaves for it to hear. So a rank may have a gate
// or not, whatever its peers do. root says which kernel follows. It must be one whose first
// block waits for every peer, so that none is a call ahead; where it stages, there are bytes.
__device__ __forceinline__ void gate(const shunt_kernel_args &a) {
  begin();
  const bool stages = a.root == SHUNT_GATE_STAGED;
  const u64 e = *epoch_of(a, stages ? SHUNT_CLASS_STAGED : SHUNT_CLASS_DIRECT) + 1;
  const int p = threadIdx.x;
  if (p >= a.world || p == a.rank || earlier_fault(a) != SHUNT_FAULT_NONE) return;
  const int64_t gates = SHUNT_OFF_GATE + a.root * SHUNT_MAX_RANKS * 8;
  store_relaxed(reinterpret_cast<void *>(a.region[p] + gates + a.rank * 8), e);
  auto reached = [&](int64_t word) { return (long long)(load_relaxed(own(a) + word) - e) >= 0; };
  auto come = [&] {
    if (reached(gates + p * 8)) return true;
    if (stages) return reached(SHUNT_OFF_STAGED + p * 8);
    return load_packet(own(a) + SHUNT_OFF_HELLO + p * 64).y == ll_flag(e);
  };
  Wait wait(a);
  while (!come() && !wait.over(p, e)) {
  }
}

}  // namespace shunt

SHUNT_KERNEL_BYTES(shunt_barrier, shunt::barrier)
SHUNT_KERNEL_BYTES(shunt_gate, shunt::gate)
