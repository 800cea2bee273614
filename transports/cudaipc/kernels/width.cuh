// width.cuh: how many of a kernel's blocks work. Blocks of the same number meet, so as many
// must work on every rank; but what is best depends on what runs beside the kernel, which is
// a rank's own matter. So each rank tells in the start barrier how many blocks it wishes for.
// All hear the same, and that holds for the next call of the kind: its blocks beyond that
// number end at once.
//
// root of the arguments: 0: all blocks work, and nothing is agreed; else one more than the
// number of blocks that this rank wishes for, where 0 wishes for all.
#pragma once

#include "direct.cuh"

namespace shunt {

__device__ __forceinline__ volatile shunt_width *width_of(const shunt_kernel_args &a) {
  return reinterpret_cast<volatile shunt_width *>(own(a) + SHUNT_OFF_WIDTH);
}

// How many blocks of this call work, the first ones.
__device__ __forceinline__ int working_blocks(const shunt_kernel_args &a) {
  const int agreed = a.root == 0 ? 0 : int(width_of(a)->blocks);
  return agreed == 0 ? block_count() : min(agreed, block_count());
}

// What peers hear in the place of the factor.
struct Wish : Alike {
  __device__ __forceinline__ double scalar(double) const { return a.root - 1; }
};

// What all wish for, once they have met: the fewest blocks, or all where somebody wishes for
// all. One thread of the kernel calls it.
__device__ __forceinline__ void agree_width(const shunt_kernel_args &a, const Meeting &m) {
  u32 least = SHUNT_MAX_BLOCKS;
  for (int p = 0; p < a.world; p++) least = min(least, u32(m.scalar[p]));  // 0: somebody wishes for all
  width_of(a)->next = least;
}

// Every block ends with this, and the last of them puts in force what was agreed: until then
// one may begin that has to know how many work in this call.
__device__ __forceinline__ void settle_width(const shunt_kernel_args &a) {
  if (a.root == 0) return;
  __syncthreads();  // all of the block's threads have read how many work
  if (threadIdx.x != 0) return;
  volatile shunt_width *width = width_of(a);
  fence_system();  // what was agreed comes before the count
  if (atomicAdd(const_cast<u32 *>(&width->ended), 1u) != block_count() - 1) return;
  fence_system();
  width->ended = 0;
  width->blocks = width->next;
}

}  // namespace shunt
