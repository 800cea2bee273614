// barrier.cu: no rank's kernel ends before every rank's has begun; what a rank
// wrote anywhere before its barrier, its copy engines included, every rank may
// read after it. Grid: one block.
#include "exchange.cuh"

namespace shunt {

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

}  // namespace shunt

SHUNT_KERNEL_BYTES(shunt_barrier, shunt::barrier)
