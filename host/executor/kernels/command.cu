// command.cu: the kernel of an engine step. One thread posts a command to the proxy's ring and waits
// until it is done. It runs where the step stands in its stream, in an eager call or in a replay of a
// graph: so commands are posted in the order of streams, whatever the host does.
#include "command.h"

typedef shunt_word u64;
typedef unsigned int u32;

// The watch page (plugin.WatchAbort, shunt_watch_page).
struct Watch {
  u32 abort, reserved;
  u64 timeout, line0[6];
  u32 fault;
  int peer;
  u64 epoch;
};

constexpr u32 kAborted = 1, kEngine = 6;  // plugin.Fault
constexpr u64 kGrace = 1000000000;        // the proxy tells of a deadline first: it knows the peer
constexpr u32 kLook = 64;                 // spins from one look at the watch page to the next

__device__ __forceinline__ u64 load_acquire(const u64 *p) {
  u64 v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void store_release(u64 *p, u64 v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// The same among kernels of this GPU.
__device__ __forceinline__ u64 load_acquire_gpu(const u64 *p) {
  u64 v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void store_release_gpu(u64 *p, u64 v) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ u64 nanoseconds() {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

class Wait {
 public:
  __device__ Wait(shunt_command_counters *counters, volatile Watch *watch) : counters(counters), watch(watch) {}

  // Whether the wait must be given up: then the host knows why, and the kernels after this one post nothing.
  __device__ bool over(u64 number) {
    if (++spins % kLook != 0) return false;
    const u64 now = nanoseconds(), limit = watch->timeout;
    if (since == 0) since = now;
    const bool aborted = watch->abort != 0;
    if (!aborted && (limit == 0 || now - since <= limit + kGrace)) return false;
    *static_cast<volatile u64 *>(&counters->lost) = 1;
    if (watch->fault == 0) {
      watch->peer = -1;
      watch->epoch = number;
      __threadfence_system();  // release: the host that sees the fault sees the rest
      watch->fault = aborted ? kAborted : kEngine;
    }
    return true;
  }

 private:
  shunt_command_counters *counters;
  volatile Watch *watch;
  u32 spins = 0;
  u64 since = 0;
};

extern "C" __global__ void shunt_command(const shunt_command_args a) {
  shunt_command_counters *counters = reinterpret_cast<shunt_command_counters *>(a.counters);
  Wait wait(counters, reinterpret_cast<volatile Watch *>(a.watch));
  const u64 number = atomicAdd(&counters->next, 1ull);
  // Beside the addition, which takes as long. Kernels of one Device stand behind each other in streams, so this sees
  // what those before have left; a number that nobody posts holds up none that is still to be run.
  if (*static_cast<volatile u64 *>(&counters->lost) != 0) return;
  shunt_command_slot *slot = reinterpret_cast<shunt_command_slot *>(a.slots) + number % SHUNT_COMMANDS;
  u64 *ended = &counters->ended[number % SHUNT_COMMANDS];
  // Acquire: whoever had the slot before has read its word done.
  while (load_acquire_gpu(ended) != number / SHUNT_COMMANDS)
    if (wait.over(number)) return;
  constexpr int kFixed = sizeof(shunt_order) / sizeof(u64) - SHUNT_COMMAND_ARGS;
  const u64 *from = reinterpret_cast<const u64 *>(&a.order);
  u64 *to = reinterpret_cast<u64 *>(&slot->order);
#pragma unroll  // constant places of arguments, which then are operands
  for (int i = 0; i < kFixed + SHUNT_COMMAND_ARGS; i++)
    if (i < kFixed || i - kFixed < a.order.count) to[i] = from[i];
  // Release: the proxy that sees the number sees the order, and what kernels and copies before this one have
  // written for it, which the stream has ordered before this kernel.
  store_release(&slot->posted, number + 1);
  // Acquire: what the engine wrote before the command was done is visible to whatever follows in the stream.
  while (load_acquire(&slot->done) != number + 1)
    if (wait.over(number)) return;
  // Release: the next kernel with this slot posts after this one has seen done.
  store_release_gpu(ended, number / SHUNT_COMMANDS + 1);
}
