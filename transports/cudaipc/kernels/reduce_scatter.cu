// reduce_scatter.cu: recv = op over block rank of every rank's send, in rank
// order. recv may be block rank of send. Kernels with v take blocks of any lengths, as the
// counts and displacements of send say; those of recv they do not look at.
#include "staged.cuh"

namespace shunt {

template <class T, class Blocks>
__device__ __forceinline__ void reduce_scatter_ll_body(const shunt_kernel_args &a, const Blocks &blocks) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<T, true>(
      a, blocks, [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) {
        store_word<T>(recv, offset, blocks.length(a.rank), reduce_words<T>(a, words));
      });
}

template <class T>
__device__ __forceinline__ void reduce_scatter_ll(const shunt_kernel_args &a) {
  reduce_scatter_ll_body<T>(a, EqualBlocks(a));
}
template <class T>
__device__ __forceinline__ void reduce_scatter_v_ll(const shunt_kernel_args_v &v) {
  reduce_scatter_ll_body<T>(v.base, UnequalBlocks{v});
}

template <class T>
__device__ __forceinline__ void reduce_scatter_ll128(const shunt_kernel_args &a) {
  begin();
  reduce_scatter_ll128_body<T>(a, EqualBlocks(a));
}
template <class T>
__device__ __forceinline__ void reduce_scatter_v_ll128(const shunt_kernel_args_v &v) {
  begin();
  reduce_scatter_ll128_body<T>(v.base, UnequalBlocks{v});
}

}  // namespace shunt

SHUNT_KERNEL_TYPED(shunt_reduce_scatter_ll, shunt::reduce_scatter_ll)
SHUNT_KERNEL_TYPED(shunt_reduce_scatter_ll128, shunt::reduce_scatter_ll128)
SHUNT_KERNEL_TYPED(shunt_reduce_scatter_direct, shunt::reduce_scatter_direct_aligned)
SHUNT_KERNEL_HOT(shunt_reduce_scatter_direct_any, shunt::reduce_scatter_direct_any)
SHUNT_KERNEL_TYPED(shunt_reduce_scatter_staged, shunt::reduce_scatter_staged_aligned)
SHUNT_KERNEL_HOT(shunt_reduce_scatter_staged_any, shunt::reduce_scatter_staged_any)
SHUNT_KERNEL_HOT_V(shunt_reduce_scatter_v_ll, shunt::reduce_scatter_v_ll)
SHUNT_KERNEL_HOT_V(shunt_reduce_scatter_v_ll128, shunt::reduce_scatter_v_ll128)
SHUNT_KERNEL_HOT_V(shunt_reduce_scatter_v_direct, shunt::reduce_scatter_v_direct_aligned)
SHUNT_KERNEL_HOT_V(shunt_reduce_scatter_v_direct_any, shunt::reduce_scatter_v_direct_any)
