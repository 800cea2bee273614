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

// Two words, each of them whole.
__device__ __forceinline__ void store_pair(u64 *p, u64 v, u64 w) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v), "l"(w) : "memory");
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
    // Signed: the timer may step back.
    if (!aborted && (limit == 0 || (long long)(now - since) - (long long)kGrace <= (long long)limit)) return false;
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
  const u64 lost = *static_cast<volatile u64 *>(&counters->lost);
  // Release, while the number is on its way: whoever sees the order sees what kernels and copies before this one have
  // written for it, which the stream has ordered before this kernel.
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  // Kernels of one Device stand behind each other in streams, so this is what those before have left; a number that
  // nobody posts holds up none that is still to be run.
  if (lost != 0) return;
  shunt_command_slot *slot = reinterpret_cast<shunt_command_slot *>(a.slots) + number % SHUNT_COMMANDS;
  const u64 *order = reinterpret_cast<const u64 *>(&a.order), flag = (number + 1) << 32;
#pragma unroll  // constant places of arguments, which then are operands
  for (int i = 0; i < SHUNT_ORDER_WORDS; i++)
    if (i < SHUNT_ORDER_FIXED || i < SHUNT_ORDER_FIXED + a.order.count)
      store_pair(slot->order + 2 * i, flag | u32(order[i]), flag | order[i] >> 32);
  // Acquire: what the engine wrote before the command was done is visible to whatever follows in the stream.
  while (static_cast<long long>(load_acquire(&slot->done) - (number + 1)) < 0)
    if (wait.over(number)) return;
}
