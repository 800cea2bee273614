// bench.cu: what the benchmark itself runs on a GPU: filling buffers with the
// pattern, counting what is not the pattern, holding a stream until the host
// has put everything into it, and work beside which operations run. Every
// parameter is 64 bits wide. The script compile makes bench.fatbin of it.

typedef unsigned long long u64;
typedef long long i64;

template <class T>
__device__ void fill_as(T *to, i64 count, const T *block, i64 first, i64 period) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x)
    to[i] = block[(first + i) % period];
}

template <class T>
__device__ u64 wrong_as(const T *have, i64 count, const T *block, i64 first, i64 period) {
  u64 wrong = 0;
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x)
    wrong += have[i] != block[(first + i) % period];
  return wrong;
}

#define BY_SIZE(call)                                          \
  switch (size) {                                              \
    case 1: { typedef unsigned char T; call; break; }          \
    case 2: { typedef unsigned short T; call; break; }         \
    case 4: { typedef unsigned int T; call; break; }           \
    case 8: { typedef u64 T; call; break; }                    \
  }

// Writes count elements of the pattern, from its element first on.
extern "C" __global__ void bench_fill(void *to, i64 count, const void *block, i64 first, i64 period, i64 size) {
  BY_SIZE(fill_as((T *)to, count, (const T *)block, first, period));
}

// Adds to *wrong the number of elements that are not the pattern's.
extern "C" __global__ void bench_wrong(const void *have, i64 count, const void *block, i64 first, i64 period, i64 size,
                                       u64 *wrong) {
  u64 mine = 0;
  BY_SIZE(mine = wrong_as((const T *)have, count, (const T *)block, first, period));
  if (mine != 0) atomicAdd(wrong, mine);
}

__device__ __forceinline__ u64 now() {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Holds the stream until the host has written value to a pinned word, or the
// limit in nanoseconds is over.
extern "C" __global__ void bench_gate(volatile u64 *word, u64 value, u64 limit) {
  for (u64 start = now(); *word != value && now() - start < limit;) {}
}

// What an application's own kernels are like: every block computes for so many
// nanoseconds, and then ends, whoever waits for it. Blocks that come to a
// multiprocessor beyond the first so many leave it at once.
extern "C" __global__ void __launch_bounds__(1024, 2) bench_busy(u64 time, u64 multiprocessors, float *sink) {
  unsigned here;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
  if (here >= multiprocessors) return;
  float x = threadIdx.x, y = blockIdx.x;
  for (u64 start = now(); now() - start < time;)
    for (int i = 0; i < 1024; i++) {
      x = __fmaf_rn(x, 1.0001f, y);
      y = __fmaf_rn(y, 0.9999f, x);
    }
  if (x + y == 0.123f) *sink = x;  // never; so that the arithmetic stays
}
