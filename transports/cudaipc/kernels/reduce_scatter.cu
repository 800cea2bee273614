// reduce_scatter.cu: recv = op over block rank of every rank's send, in rank
// order. recv may be block rank of send.
#include "staged.cuh"

namespace shunt {

template <class T>
__device__ __forceinline__ void reduce_scatter_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<T, true>(
      a, a.send, [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) { store_word<T>(recv, offset, a.bytes, reduce_words<T>(a, words)); });
}

template <class T>
__device__ __forceinline__ void reduce_scatter_ll128(const shunt_kernel_args &a) {
  begin();
  reduce_scatter_ll128_body<T>(a);
}

}  // namespace shunt

SHUNT_KERNEL_TYPED(shunt_reduce_scatter_ll, shunt::reduce_scatter_ll)
SHUNT_KERNEL_TYPED(shunt_reduce_scatter_ll128, shunt::reduce_scatter_ll128)
SHUNT_KERNEL_TYPED(shunt_reduce_scatter_direct, shunt::reduce_scatter_direct_aligned)
SHUNT_KERNEL_HOT(shunt_reduce_scatter_direct_any, shunt::reduce_scatter_direct_any)
SHUNT_KERNEL_TYPED(shunt_reduce_scatter_staged, shunt::reduce_scatter_staged_aligned)
SHUNT_KERNEL_HOT(shunt_reduce_scatter_staged_any, shunt::reduce_scatter_staged_any)
