// symmetric.cu: how an operation begins whose copy engines write into the receive
// memory of peers. As with a barrier, no rank's kernel ends before every rank's
// has begun: from then on peers may write. And every rank tells its peers where
// its receive memory lies (the number of the symmetric range, the offset there,
// and the bytes), because the copies behind this kernel go where this rank's own
// place says that a peer's must be. Grid: one block of one warp.
//
// Copies that were enqueued cannot be called back. Where a peer's place differs
// the kernel says so in the watch page and stays until the host has aborted the
// communicator; the copies then land within ranges that the peers registered.
//
// And what stands between the copies of an all_reduce; see delivered.cuh.
#include "delivered.cuh"
#include "exchange.cuh"

namespace shunt {

// The warp's view of what differs: told by one thread, once for this rank's
// region, like any other fault.
__device__ __noinline__ void tell_asymmetric(const shunt_kernel_args &a, int peer, u64 epoch,
    const u64 (&own_words)[3], const u64 (&theirs)[3]) {
  tell_contradiction(a, SHUNT_FAULT_ASYMMETRIC, peer, epoch,
      [&](volatile uint64_t *own_place, volatile uint64_t *their_place) {
        for (int i = 0; i < 3; i++) {
          own_place[i] = own_words[i];
          their_place[i] = theirs[i];
        }
      });
}

// Until the communicator is aborted, or as long as any wait may last.
__device__ __noinline__ void stay(const shunt_kernel_args &a) {
  if (a.abort == 0) return;
  const u64 since = nanoseconds();
  for (;;) {
    const uint4 watch = load_packet(reinterpret_cast<const void *>(a.abort));  // one read over PCIe
    const u64 limit = a.timeout != 0 ? a.timeout : u64(watch.w) << 32 | watch.z;
    // Signed: the timer may step back.
    if (watch.x != 0 || (limit != 0 && (long long)(nanoseconds() - since) > (long long)limit)) return;
    __nanosleep(1000);
  }
}

// send is the range's number and recv the offset there, as numbers; bytes is the
// length of the receive memory.
__device__ __forceinline__ void symmetric_begin(const shunt_kernel_args &a) {
  begin();
  u64 *epoch = epoch_of(a, SHUNT_CLASS_LL);
  const u64 e = *epoch + 1;
  const int lane = threadIdx.x;
  const bool active = lane < 3;
  const u64 mine = lane == 0 ? a.send : lane == 1 ? a.recv : u64(a.bytes);
  bool met = !__any_sync(~0u, earlier_fault(a) != SHUNT_FAULT_NONE);  // a wait of an earlier kernel
  const Flags flags = ll_flags(a, e, 0);  // the bytes are compared as the words below
  if (met) ll_refresh(a, e, flags, active);
  u32 differing = 0;
  u64 words[SHUNT_MAX_RANKS];
  if (active && met) {
    fence_system();  // what this stream wrote or read before is done, for all, before the packets are there
    const int64_t slot = ll_offset(a.world, e, a.rank);
#pragma unroll
    for (int p = 0; p < SHUNT_MAX_RANKS; p++)
      if (p < a.world && p != a.rank) ll_store(a.region[p] + slot, mine, flags);
    met = ll_wait_all(a, e, flags, words);
#pragma unroll
    for (int p = 0; p < SHUNT_MAX_RANKS; p++)
      if (p < a.world && p != a.rank && met && words[p] != mine) differing |= 1u << p;
    fence_system();  // acquire: what peers did before their packets is done before the copies
  }
  differing = __reduce_or_sync(0xFFFFFFFFu, differing);
  // A wait that was given up has left nothing to compare.
  if (differing != 0 && !__any_sync(0xFFFFFFFFu, !met)) {
    const int peer = __ffs(differing) - 1;
    u64 word = 0;
#pragma unroll
    for (int p = 0; p < SHUNT_MAX_RANKS; p++)
      if (p == peer && active) word = words[p];
    u64 own_words[3], theirs[3];
    for (int i = 0; i < 3; i++) {
      own_words[i] = __shfl_sync(0xFFFFFFFFu, mine, i);
      theirs[i] = __shfl_sync(0xFFFFFFFFu, word, i);
    }
    if (lane == 0) {
      tell_asymmetric(a, peer, e, own_words, theirs);
      stay(a);
    }
    __syncwarp();
  }
  advance(epoch, e);
}

// Between the copies of an all_reduce: root says which turn it is. The first two come
// behind the copies that have delivered a chunk of every peer's shard, the last two
// before those of a chunk of results. Grid: one block of one warp.
__device__ __forceinline__ void symmetric_turn(const shunt_kernel_args &a) {
  begin();
  u64 *turn = turn_of(a);
  const u64 base = *turn;
  const int p = threadIdx.x;
  const bool peer = p < a.world && p != a.rank;
  bool met = !__any_sync(~0u, earlier_fault(a) != SHUNT_FAULT_NONE);  // a wait of an earlier kernel
  if (a.root < kDeliveries && peer && met) {
    fence_system();  // release: the copies before this kernel come before the count
    store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_DELIVERED + a.rank * 8), base + a.root + 1);
  }
  if (a.root > 0) {
    const char *combined = own(a) + SHUNT_OFF_COMBINED;
    // Acquire: peers have read what the copies behind this kernel overwrite.
    if (peer) met = wait_for(a, combined + p * 8, base + a.root, p);
    __syncwarp();
    // And this rank's results, which they copy, are there.
    if (p == 0) met = wait_for(a, combined + a.rank * 8, base + a.root, a.rank) && met;
    fence_system();
  }
  __syncwarp();
  if (a.root == kDeliveries && p == 0) *turn = base + kDeliveries;
}

}  // namespace shunt

SHUNT_KERNEL_BYTES(shunt_symmetric_turn, shunt::symmetric_turn)
SHUNT_KERNEL_BYTES(shunt_symmetric_begin, shunt::symmetric_begin)
