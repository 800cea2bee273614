// reduce_scatter.cu: recv = op over block rank of every rank's send, in rank
// order. recv may be block rank of send.
#include "combine.cuh"
#include "exchange.cuh"

namespace shunt {

template <class T>
__device__ __forceinline__ void reduce_scatter_ll(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll<T, true>(
      a, [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](int64_t offset, const u64(&words)[SHUNT_MAX_RANKS]) { store_word<T>(recv, offset, a.bytes, reduce_words<T>(a, words)); });
}

template <class T>
__device__ __forceinline__ void reduce_scatter_ll128(const shunt_kernel_args &a) {
  begin();
  char *recv = reinterpret_cast<char *>(a.recv);
  exchange_ll128<T, true>(
      a, [&](u64 word) { return premultiply<T>(a.op, a.scalar, word); },
      [&](const Lane &l, int64_t offset, const word2(&lines)[SHUNT_MAX_RANKS]) {
        store_unit<T>(l, recv, offset, a.bytes, reduce_lines<T>(a, lines));
      });
}

}  // namespace shunt

SHUNT_KERNEL_EVERY_DTYPE(shunt_reduce_scatter_ll, shunt::reduce_scatter_ll)
SHUNT_KERNEL_EVERY_DTYPE(shunt_reduce_scatter_ll128, shunt::reduce_scatter_ll128)
