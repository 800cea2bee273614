// one_sided.cu: copies between the caller's memory and a peer's, whose address the
// caller of the kernel has worked out, and signals, of the communicator's own
// counters and of a window's. Grid of the copy: up to SHUNT_MAX_BLOCKS; of the
// others: one block of one warp.
#include "copy.cuh"

namespace shunt {

// recv = send, bytes long. One of them is memory of a peer. It copies whatever became of
// earlier kernels, as an engine does, which nobody can stop: the signal behind it does
// not come.
__device__ __forceinline__ void one_sided_copy(const shunt_kernel_args &a) {
  begin();
  copy_bytes(reinterpret_cast<char *>(a.recv), reinterpret_cast<const char *>(a.send), a.bytes,
             int64_t(block_index()) * blockDim.x + threadIdx.x, int64_t(block_count()) * blockDim.x);
  // Release: what this thread stored at a peer is there before this kernel ends, and so
  // before a signal of the next one. A fence of that kernel waits for its own stores alone.
  fence_system();
}

// Raises this rank's counter at peer root.
__device__ __forceinline__ void one_sided_signal(const shunt_kernel_args &a) {
  begin();
  if (threadIdx.x != 0) return;
  u64 *raised = reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SIGNALED) + a.root;
  const u32 fault = earlier_fault(a);  // of an earlier kernel
  const u64 value = *raised + 1;
  if (fault != SHUNT_FAULT_NONE) return;
  *raised = value;
  // Release: puts of earlier kernels and copies of this stream are visible to
  // who sees the counter.
  fence_system();
  store_release(reinterpret_cast<u64 *>(a.region[a.root] + SHUNT_OFF_SIGNAL) + a.rank, value);
}

// Waits for the next `bytes` raises of peer root's counter here.
__device__ __forceinline__ void one_sided_wait(const shunt_kernel_args &a) {
  begin();
  if (threadIdx.x != 0) return;
  u64 *consumed = reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_WAITED) + a.root;
  const u64 value = *consumed + u64(a.bytes);
  *consumed = value;
  // wait_for acquires: the peer's puts before the signal are visible to what
  // follows in this stream.
  (void)wait_for(a, reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_SIGNAL) + a.root, value, a.root);
  fence_system();
}

// The same on a window, whose counters are of its own (plugin/window.go). send
// is the address of this rank's counter, recv that of the semaphore: at the peer
// for signal, here for wait.
__device__ __forceinline__ void window_signal(const shunt_kernel_args &a) {
  begin();
  if (threadIdx.x != 0) return;
  u64 *raised = reinterpret_cast<u64 *>(a.send);
  const u32 fault = earlier_fault(a);  // of an earlier kernel
  const u64 value = *raised + 1;
  if (fault != SHUNT_FAULT_NONE) return;
  *raised = value;
  // Release: puts before it in this stream are visible to who sees the count.
  fence_system();
  store_release(reinterpret_cast<void *>(a.recv), value);
}

__device__ __forceinline__ void window_wait(const shunt_kernel_args &a) {
  begin();
  if (threadIdx.x != 0) return;
  u64 *consumed = reinterpret_cast<u64 *>(a.send);
  const u64 value = *consumed + u64(a.bytes);
  *consumed = value;
  // wait_for acquires: the peer's puts before the signal are visible to what
  // follows in this stream.
  (void)wait_for(a, reinterpret_cast<const void *>(a.recv), value, a.root);
  fence_system();
}

}  // namespace shunt

extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1) shunt_copy(
    const __grid_constant__ shunt_kernel_args args) {
  shunt::one_sided_copy(args);
}
extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1) shunt_signal(
    const __grid_constant__ shunt_kernel_args args) {
  shunt::one_sided_signal(args);
}
extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1) shunt_wait(
    const __grid_constant__ shunt_kernel_args args) {
  shunt::one_sided_wait(args);
}
extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1) shunt_window_signal(
    const __grid_constant__ shunt_kernel_args args) {
  shunt::window_signal(args);
}
extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1) shunt_window_wait(
    const __grid_constant__ shunt_kernel_args args) {
  shunt::window_wait(args);
}
