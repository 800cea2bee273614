// all_reduce.cu: recv of every rank = op over send of all ranks, combined in
// rank order, so that every rank gets the same bits. send may equal recv.
//
//   one_shot_ll     every rank sends everything to everyone; LL packets
//   one_shot_ll128  the same with LL128 lines
//   two_shot_ll128  rank r reduces shard r and sends the result to everyone
//   direct          the same between the users' buffers, pulling
//   staged          the same by pushing; see staged.cuh
//   delivered       the shards of results of copy engines; see delivered.cuh
#include "delivered.cuh"
#include "staged.cuh"

namespace shunt {

template <class T>
__device__ __forceinline__ void all_reduce_one_shot_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<T, false>(
      a, EqualBlocks(a), [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) {
        store_word<T>(recv, offset, a.bytes, reduce_words<T>(a, words));
      });
}

template <class T>
__device__ __forceinline__ void all_reduce_one_shot_ll128(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll128<T, false>(
      a, EqualBlocks(a), [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](const Lane &l, int64_t offset, const word2(&lines)[SHUNT_MAX_RANKS]) {
        store_unit<T>(l, recv, offset, a.bytes, reduce_lines<T>(a, lines));
      });
}

template <class T>
__device__ __forceinline__ void all_reduce_two_shot_ll128(const shunt_kernel_args &a) {
  begin();
  two_shot_ll128<T, false>(a);
}

}  // namespace shunt

SHUNT_KERNEL_TYPED(shunt_all_reduce_one_shot_ll, shunt::all_reduce_one_shot_ll)
SHUNT_KERNEL_TYPED(shunt_all_reduce_one_shot_ll128, shunt::all_reduce_one_shot_ll128)
SHUNT_KERNEL_TYPED(shunt_all_reduce_two_shot_ll128, shunt::all_reduce_two_shot_ll128)
SHUNT_KERNEL_TYPED(shunt_all_reduce_direct, shunt::all_reduce_direct_aligned)
SHUNT_KERNEL_HOT(shunt_all_reduce_direct_any, shunt::all_reduce_direct_any)
SHUNT_KERNEL_TYPED(shunt_all_reduce_staged, shunt::all_reduce_staged_aligned)
SHUNT_KERNEL_HOT(shunt_all_reduce_staged_any, shunt::all_reduce_staged_any)
SHUNT_KERNEL_TYPED(shunt_all_reduce_delivered, shunt::all_reduce_delivered_aligned)
SHUNT_KERNEL_TYPED(shunt_all_reduce_delivered_any, shunt::all_reduce_delivered_any)
