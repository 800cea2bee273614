// job.h: one process per GPU, forked before CUDA is touched: shared memory,
// barriers and the mapping of every rank's memory in every other.
#pragma once

#include <cuda_runtime.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../kernels/layout.h"

#define CHECK(x)                                                                                                 \
  do {                                                                                                           \
    cudaError_t error_ = (x);                                                                                    \
    if (error_ != cudaSuccess) {                                                                                 \
      fprintf(stderr, "rank %d: %s:%d: %s: %s\n", job::rank, __FILE__, __LINE__, #x, cudaGetErrorString(error_)); \
      _exit(1);                                                                                                  \
    }                                                                                                            \
  } while (0)

namespace job {

constexpr int kMaxRanks = SHUNT_MAX_RANKS;

struct Shared {
  std::atomic<int> arrived[2];
  std::atomic<int> generation;
  std::atomic<int> failed;
  char unique_id[128];
  cudaIpcMemHandle_t handle[kMaxRanks];
  double value[kMaxRanks][4096];
};

inline Shared *shared;
inline int rank = -1, world = 0;

inline double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

// Ends the process when a peer stays away for a minute.
inline void barrier() {
  static int generation = 0;
  int g = generation++ & 1;
  int want = generation;
  if (shared->arrived[g].fetch_add(1) == world - 1) {
    shared->arrived[g] = 0;
    shared->generation = want;
    return;
  }
  double start = seconds();
  for (long spins = 0; shared->generation.load() - want < 0; spins++)
    if ((spins & 1023) == 0) {
      if (seconds() - start > 60 || shared->failed.load()) {
        fprintf(stderr, "rank %d: gave up waiting for the other ranks\n", rank);
        _exit(3);
      }
    }
}

// Forks the ranks and answers in each; the parent exits with their status.
inline void start(int ranks) {
  world = ranks;
  shared = static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  fflush(nullptr);
  for (int r = 0; r < ranks; r++) {
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      rank = r;
      return;
    }
  }
  int status = 0;
  for (int r = 0; r < ranks; r++) {
    int s;
    wait(&s);
    if (s != 0) {
      shared->failed = 1;
      status = 1;
    }
  }
  _exit(status);
}

// Memory of this rank, and where every rank's is mapped here.
struct Memory {
  char *own = nullptr;
  char *of[kMaxRanks] = {};
  size_t bytes = 0;
};

inline Memory allocate(size_t bytes) {
  Memory m;
  m.bytes = bytes;
  CHECK(cudaMalloc(&m.own, bytes));
  CHECK(cudaMemset(m.own, 0, bytes));
  CHECK(cudaIpcGetMemHandle(&shared->handle[rank], m.own));
  CHECK(cudaDeviceSynchronize());
  barrier();
  for (int r = 0; r < world; r++) {
    if (r == rank) {
      m.of[r] = m.own;
    } else {
      void *p;
      CHECK(cudaIpcOpenMemHandle(&p, shared->handle[r], cudaIpcMemLazyEnablePeerAccess));
      m.of[r] = static_cast<char *>(p);
    }
  }
  barrier();
  return m;
}

}  // namespace job
