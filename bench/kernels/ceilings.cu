// ceilings.cu: what the links carry, by the way bytes are moved: the numbers
// that large kernels are designed and judged against. One process, one thread,
// every GPU busy at once; no protocol. Prints GB/s out of (or into) each GPU.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(x)                                                                            \
  do {                                                                                      \
    cudaError_t error_ = (x);                                                                   \
    if (error_ != cudaSuccess) {                                                                \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(error_));   \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

constexpr int kMax = 8;
struct Args {
  char *local;             // this GPU's source
  char *peer[kMax];        // the others' buffers, mapped
  char *dest[kMax];
  long bytes;              // per peer
  int peers;
  int chunk;
};

__device__ __forceinline__ uint4 ldv(const void *p) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Same bytes to every peer: one load, a store per peer.
template <int U>
__global__ void __launch_bounds__(512) push_stores(const __grid_constant__ Args a) {
  long n = a.bytes / 16, step = long(gridDim.x) * blockDim.x;
  for (long i = long(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step * U) {
    uint4 v[U];
#pragma unroll
    for (int u = 0; u < U; u++)
      if (i + u * step < n) v[u] = reinterpret_cast<const uint4 *>(a.local)[i + u * step];
    for (int p = 0; p < a.peers; p++)
#pragma unroll
      for (int u = 0; u < U; u++)
        if (i + u * step < n) reinterpret_cast<uint4 *>(a.dest[p])[i + u * step] = v[u];
  }
}

template <int U>
__global__ void __launch_bounds__(512) pull_loads(const __grid_constant__ Args a) {
  long n = a.bytes / 16, step = long(gridDim.x) * blockDim.x;
  for (long i = long(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step * U) {
    uint4 v[3][U];
#pragma unroll
    for (int p = 0; p < 3; p++)
#pragma unroll
      for (int u = 0; u < U; u++)
        if (p < a.peers && i + u * step < n) v[p][u] = ldv(reinterpret_cast<const uint4 *>(a.peer[p]) + i + u * step);
#pragma unroll
    for (int u = 0; u < U; u++)
      if (i + u * step < n) {
        uint4 s = v[0][u];
        for (int p = 1; p < 3; p++)
          if (p < a.peers) s.x ^= v[p][u].x, s.y ^= v[p][u].y, s.z ^= v[p][u].z, s.w ^= v[p][u].w;
        reinterpret_cast<uint4 *>(a.local)[i + u * step] = s;
      }
  }
}

// Pull, combine, push to all: the inner loop of a two-shot all_reduce.
template <int U>
__global__ void __launch_bounds__(512) pull_push(const __grid_constant__ Args a) {
  long n = a.bytes / 16, step = long(gridDim.x) * blockDim.x;
  for (long i = long(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step * U) {
    uint4 v[3][U], l[U];
#pragma unroll
    for (int u = 0; u < U; u++)
      if (i + u * step < n) {
        l[u] = reinterpret_cast<const uint4 *>(a.local)[i + u * step];
#pragma unroll
        for (int p = 0; p < 3; p++)
          if (p < a.peers) v[p][u] = ldv(reinterpret_cast<const uint4 *>(a.peer[p]) + i + u * step);
      }
#pragma unroll
    for (int u = 0; u < U; u++)
      if (i + u * step < n) {
        uint4 s = l[u];
        for (int p = 0; p < 3; p++)
          if (p < a.peers) s.x ^= v[p][u].x, s.y ^= v[p][u].y, s.z ^= v[p][u].z, s.w ^= v[p][u].w;
        reinterpret_cast<uint4 *>(a.local)[i + u * step] = s;
        for (int p = 0; p < a.peers; p++) reinterpret_cast<uint4 *>(a.dest[p])[i + u * step] = s;
      }
  }
}

// ---- bulk copies through shared memory (TMA) --------------------------------
__device__ __forceinline__ unsigned smem(const void *p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void mbar_init(unsigned long long *b) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem(b)));
}
__device__ __forceinline__ void mbar_expect(unsigned long long *b, int n) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void mbar_wait(unsigned long long *b, int phase) {
  unsigned ok;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0,1,0,p;}"
                 : "=r"(ok)
                 : "r"(smem(b)), "r"(phase)
                 : "memory");
  } while (!ok);
}
__device__ __forceinline__ void bulk_load(void *dst, const void *src, int n, unsigned long long *b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(smem(dst)), "l"(src), "r"(n), "r"(smem(b))
               : "memory");
}
__device__ __forceinline__ void bulk_store(void *dst, const void *src, int n) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               ::"l"(dst), "r"(smem(src)), "r"(n)
               : "memory");
}

constexpr int kStages = 6;
extern __shared__ __align__(128) char pool[];

// One thread a block: local memory to shared memory to every peer. spread:
// each peer gets its own bytes.
template <bool kSpread>
__global__ void push_bulk(const __grid_constant__ Args a) {
  __shared__ unsigned long long full[kStages];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kStages; s++) mbar_init(&full[s]);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  long per = a.bytes / a.chunk, total = kSpread ? per * a.peers : per;
  long mine = (total - blockIdx.x + gridDim.x - 1) / gridDim.x;
  auto at = [&](long k) { return blockIdx.x + k * gridDim.x; };
  auto load = [&](long k) {
    int s = k % kStages;
    mbar_expect(&full[s], a.chunk);
    long c = at(k);
    bulk_load(pool + s * a.chunk, a.local + (kSpread ? (c % a.peers) * a.bytes + (c / a.peers) * a.chunk : c * a.chunk),
              a.chunk, &full[s]);
  };
  for (long k = 0; k < kStages - 2 && k < mine; k++) load(k);
  for (long k = 0; k < mine; k++) {
    int s = k % kStages;
    mbar_wait(&full[s], (k / kStages) & 1);
    long c = at(k);
    if (kSpread) {
      bulk_store(a.dest[c % a.peers] + (c / a.peers) * a.chunk, pool + s * a.chunk, a.chunk);
    } else {
      for (int p = 0; p < a.peers; p++) bulk_store(a.dest[p] + c * a.chunk, pool + s * a.chunk, a.chunk);
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (k + kStages - 2 < mine) {
      asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory");
      load(k + kStages - 2);
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// One thread a block pulls from every peer into shared memory and drops it.
__global__ void pull_bulk(const __grid_constant__ Args a) {
  __shared__ unsigned long long full[kStages];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kStages; s++) mbar_init(&full[s]);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  long per = a.bytes / a.chunk, total = per * a.peers;
  long mine = (total - blockIdx.x + gridDim.x - 1) / gridDim.x;
  auto load = [&](long k) {
    int s = k % kStages;
    mbar_expect(&full[s], a.chunk);
    long c = blockIdx.x + k * gridDim.x;
    bulk_load(pool + s * a.chunk, a.peer[c % a.peers] + (c / a.peers) * a.chunk, a.chunk, &full[s]);
  };
  for (long k = 0; k < kStages && k < mine; k++) load(k);
  for (long k = 0; k < mine; k++) {
    mbar_wait(&full[k % kStages], (k / kStages) & 1);
    if (k + kStages < mine) load(k + kStages);
  }
}

// Pull shards by bulk loads, combine in shared memory, push by bulk stores: the
// inner loop of a two-shot all_reduce. A stage holds peers + 1 chunks.
__global__ void __launch_bounds__(512) pull_push_bulk(const __grid_constant__ Args a) {
  constexpr int S = 3;
  __shared__ unsigned long long full[S];
  if (threadIdx.x == 0) {
    for (int s = 0; s < S; s++) mbar_init(&full[s]);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  long total = a.bytes / a.chunk, mine = (total - blockIdx.x + gridDim.x - 1) / gridDim.x;
  int stage = (a.peers + 1) * a.chunk;
  auto load = [&](long k) {
    int s = k % S;
    mbar_expect(&full[s], stage);
    long c = blockIdx.x + k * gridDim.x;
    bulk_load(pool + s * stage, a.local + c * a.chunk, a.chunk, &full[s]);
    for (int p = 0; p < a.peers; p++)
      bulk_load(pool + s * stage + (p + 1) * a.chunk, a.peer[p] + c * a.chunk, a.chunk, &full[s]);
  };
  if (threadIdx.x == 0)
    for (long k = 0; k < S - 1 && k < mine; k++) load(k);
  for (long k = 0; k < mine; k++) {
    int s = k % S;
    mbar_wait(&full[s], (k / S) & 1);
    float4 *base = reinterpret_cast<float4 *>(pool + s * stage);
    int n = a.chunk / 16;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      float4 x = base[i];
      for (int p = 1; p <= a.peers; p++) {
        float4 y = base[i + p * n];
        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
      }
      base[i] = x;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      long c = blockIdx.x + k * gridDim.x;
      for (int p = 0; p < a.peers; p++) bulk_store(a.dest[p] + c * a.chunk, base, a.chunk);
      bulk_store(a.local + c * a.chunk, base, a.chunk);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (k + S - 1 < mine) {
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        load(k + S - 1);
      }
    }
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

int main() {
  int n = 0;
  CHECK(cudaGetDeviceCount(&n));
  if (n > kMax) n = kMax;
  const long total = 192l << 20;  // bytes that leave (or enter) each GPU per run
  std::vector<char *> buffer(n);
  std::vector<cudaStream_t> stream(n);
  std::vector<cudaEvent_t> start(n), stop(n);
  for (int d = 0; d < n; d++) {
    CHECK(cudaSetDevice(d));
    for (int e = 0; e < n; e++)
      if (e != d) CHECK(cudaDeviceEnablePeerAccess(e, 0));
    CHECK(cudaMalloc(&buffer[d], total * 4));
    CHECK(cudaMemset(buffer[d], 1, total * 4));
    CHECK(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&start[d]));
    CHECK(cudaEventCreate(&stop[d]));
    for (auto k : {(void *)push_bulk<false>, (void *)push_bulk<true>, (void *)pull_bulk, (void *)pull_push_bulk})
      CHECK(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  }
  auto run = [&](const char *name, int peers, double factor, auto launch) {
    float best = 1e9;
    for (int it = 0; it < 4; it++) {
      for (int d = 0; d < n; d++) {
        CHECK(cudaSetDevice(d));
        Args a{};
        a.local = buffer[d];
        a.peers = peers;
        a.bytes = total / peers;
        for (int p = 0; p < peers; p++) {
          int e = (d + 1 + p) % n;
          a.peer[p] = buffer[e] + total;
          a.dest[p] = buffer[e] + total * 2 + p * a.bytes;
        }
        CHECK(cudaEventRecord(start[d], stream[d]));
        launch(a, stream[d]);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(stop[d], stream[d]));
      }
      float slow = 0;
      for (int d = 0; d < n; d++) {
        CHECK(cudaSetDevice(d));
        CHECK(cudaEventSynchronize(stop[d]));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, start[d], stop[d]));
        slow = ms > slow ? ms : slow;
      }
      best = slow < best ? slow : best;
    }
    printf("%-34s peers %d  %6.1f GB/s\n", name, peers, factor * total / best / 1e6);
    fflush(stdout);
  };
  char name[128];
  for (int peers : {n - 1, 1}) {
    for (int b : {16, 32, 48, 64}) {
      for (int t : {256, 512}) {
        sprintf(name, "push_stores<4> %dx%d", b, t);
        run(name, peers, 1, [&](Args a, cudaStream_t s) { push_stores<4><<<b, t, 0, s>>>(a); });
      }
      sprintf(name, "push_stores<8> %dx512", b);
      run(name, peers, 1, [&](Args a, cudaStream_t s) { push_stores<8><<<b, 512, 0, s>>>(a); });
      sprintf(name, "pull_loads<4> %dx512", b);
      run(name, peers, 1, [&](Args a, cudaStream_t s) { pull_loads<4><<<b, 512, 0, s>>>(a); });
      sprintf(name, "pull_push<2> %dx512", b);
      run(name, peers, 2, [&](Args a, cudaStream_t s) { pull_push<2><<<b, 512, 0, s>>>(a); });
    }
    for (int b : {8, 16, 32, 64})
      for (int c : {4096, 8192, 16384, 32768}) {
        sprintf(name, "push_bulk %d x %d", b, c);
        run(name, peers, 1, [&](Args a, cudaStream_t s) {
          a.chunk = c;
          push_bulk<false><<<b, 32, kStages * c, s>>>(a);
        });
        sprintf(name, "push_bulk spread %d x %d", b, c);
        if (c == 16384 || c == 8192)
          run(name, peers, 1, [&](Args a, cudaStream_t s) {
            a.chunk = c;
            push_bulk<true><<<b, 32, kStages * c, s>>>(a);
          });
        sprintf(name, "pull_bulk %d x %d", b, c);
        run(name, peers, 1, [&](Args a, cudaStream_t s) { a.chunk = c; pull_bulk<<<b, 32, kStages * c, s>>>(a); });
        if (c <= 16384) {
          sprintf(name, "pull_push_bulk %d x %d", b, c);
          run(name, peers, 2, [&](Args a, cudaStream_t s) {
            a.chunk = c;
            pull_push_bulk<<<b, 512, 3 * (peers + 1) * c, s>>>(a);
          });
        }
      }
    run("copy engines", peers, 1, [&](Args a, cudaStream_t s) {
      static cudaStream_t side[kMax][kMax];
      static cudaEvent_t fork[kMax], join[kMax][kMax];
      int d;
      CHECK(cudaGetDevice(&d));
      if (!fork[d]) {
        CHECK(cudaEventCreateWithFlags(&fork[d], cudaEventDisableTiming));
        for (int p = 0; p < kMax; p++) {
          CHECK(cudaStreamCreateWithFlags(&side[d][p], cudaStreamNonBlocking));
          CHECK(cudaEventCreateWithFlags(&join[d][p], cudaEventDisableTiming));
        }
      }
      CHECK(cudaEventRecord(fork[d], s));
      for (int p = 0; p < a.peers; p++) {
        CHECK(cudaStreamWaitEvent(side[d][p], fork[d], 0));
        CHECK(cudaMemcpyAsync(a.dest[p], a.local, a.bytes, cudaMemcpyDeviceToDevice, side[d][p]));
        CHECK(cudaEventRecord(join[d][p], side[d][p]));
        CHECK(cudaStreamWaitEvent(s, join[d][p], 0));
      }
    });
  }
  return 0;
}
