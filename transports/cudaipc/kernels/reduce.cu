// reduce.cu: recv of the root = op over send of all ranks, in rank order; recv
// of others is ignored. On the root send may equal recv.
//
//   one_shot_ll, one_shot_ll128
//                   everyone sends everything to everyone, the root keeps it
//   two_shot_ll128  the ranks but the root reduce a shard each and send the result
//                   to the root; of two ranks, both do
//   ll128           the ranks but the root combine; see fallback.cuh. Grid:
//                   (world - 1) * reduce_blocks(world)
//   staged          the same by pushing; see staged.cuh
#include "staged.cuh"

namespace shunt {

template <class T>
__device__ __forceinline__ void reduce_one_shot_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<T, false>(
      a, EqualBlocks(a), [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) {
        if (a.rank == a.root) store_word<T>(recv, offset, a.bytes, reduce_words<T>(a, words));
      });
}

template <class T>
__device__ __forceinline__ void reduce_one_shot_ll128(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll128<T, false>(
      a, EqualBlocks(a), [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](const Lane &l, int64_t offset, const word2(&lines)[SHUNT_MAX_RANKS]) {
        if (a.rank == a.root) store_unit<T>(l, recv, offset, a.bytes, reduce_lines<T>(a, lines));
      });
}

template <class T>
__device__ __forceinline__ void reduce_two_shot_ll128(const shunt_kernel_args &a) {
  begin();
  two_shot_ll128<T, true>(a);
}

template <class T>
__device__ __forceinline__ void reduce_ll128(const shunt_kernel_args &a) {
  begin();
  reduce_ll128_body<T>(a);
}

}  // namespace shunt

SHUNT_KERNEL_TYPED(shunt_reduce_one_shot_ll, shunt::reduce_one_shot_ll)
SHUNT_KERNEL_TYPED(shunt_reduce_one_shot_ll128, shunt::reduce_one_shot_ll128)
SHUNT_KERNEL_TYPED(shunt_reduce_two_shot_ll128, shunt::reduce_two_shot_ll128)
SHUNT_KERNEL_TYPED(shunt_reduce_ll128, shunt::reduce_ll128)
SHUNT_KERNEL_TYPED(shunt_reduce_staged, shunt::reduce_staged_aligned)
SHUNT_KERNEL_HOT(shunt_reduce_staged_any, shunt::reduce_staged_any)
