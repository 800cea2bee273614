// job.h: one process per GPU, forked before CUDA is touched: shared memory,
// barriers and the mapping of every rank's memory in every other.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "../../transports/cudaipc/kernels/layout.h"

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
  int descriptor[kMaxRanks];
  pid_t process[kMaxRanks];
  double value[kMaxRanks][4096];
};

inline Shared *shared;
inline int rank = -1, world = 0;

// The rank's GPU. More ranks than GPUs share them, by time slices: results are the
// same then, times are not.
inline int device() {
  int gpus = 1;
  CHECK(cudaGetDeviceCount(&gpus));
  return rank % gpus;
}

inline double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

// Ends the process when a peer stays away for 20 seconds.
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
      if (seconds() - start > 20 || shared->failed.load()) {
        fprintf(stderr, "rank %d: gave up waiting for the other ranks\n", rank);
        _exit(3);
      }
    }
}

// Forks the ranks and returns in each; the parent exits with their status.
inline void start(int ranks) {
  world = ranks;
  shared =
      static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
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

// Memory of cuMemCreate, whose descriptor each peer fetches from this process,
// as the transport exports it; with SHUNT_BENCH_IPC=1, cudaMalloc and legacy IPC.
struct Virtual {
  CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
  CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
  CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
  CUresult (*out)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
  CUresult (*in)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
  Virtual() {
    auto find = [](auto &f, const char *name) {
      void *p;
      cudaDriverEntryPointQueryResult found;
      CHECK(cudaGetDriverEntryPointByVersion(name, &p, 12000, cudaEnableDefault, &found));
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(p);
    };
    find(granularity, "cuMemGetAllocationGranularity");
    find(create, "cuMemCreate");
    find(reserve, "cuMemAddressReserve");
    find(map, "cuMemMap");
    find(access, "cuMemSetAccess");
    find(out, "cuMemExportToShareableHandle");
    find(in, "cuMemImportFromShareableHandle");
  }
};

#define CHECK_DRIVER(x)                                                                          \
  do {                                                                                           \
    CUresult result_ = (x);                                                                      \
    if (result_ != CUDA_SUCCESS) {                                                               \
      fprintf(stderr, "rank %d: %s:%d: %s: %d\n", job::rank, __FILE__, __LINE__, #x, int(result_)); \
      _exit(1);                                                                                  \
    }                                                                                            \
  } while (0)

inline char *map_handle(const Virtual &v, CUmemGenericAllocationHandle handle, size_t bytes) {
  CUdeviceptr p;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK_DRIVER(v.reserve(&p, bytes, 0, 0, 0));
  CHECK_DRIVER(v.map(p, bytes, 0, handle, 0));
  CHECK_DRIVER(v.access(p, bytes, &access, 1));
  return reinterpret_cast<char *>(p);
}

inline Memory allocate_virtual(size_t bytes) {
  static const Virtual v;
  Memory m;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device();
  size_t grain;
  CHECK_DRIVER(v.granularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  m.bytes = (bytes + grain - 1) / grain * grain;
  CUmemGenericAllocationHandle handle;
  CHECK_DRIVER(v.create(&handle, m.bytes, &prop, 0));
  m.own = m.of[rank] = map_handle(v, handle, m.bytes);
  CHECK(cudaMemset(m.own, 0, m.bytes));
  CHECK(cudaDeviceSynchronize());
  int fd;
  CHECK_DRIVER(v.out(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  shared->descriptor[rank] = fd;
  shared->process[rank] = getpid();
  barrier();
  for (int r = 0; r < world; r++) {
    if (r == rank) continue;
    int pid = syscall(SYS_pidfd_open, shared->process[r], 0);
    int theirs = syscall(SYS_pidfd_getfd, pid, shared->descriptor[r], 0);
    if (theirs < 0) {
      perror("pidfd_getfd");
      _exit(1);
    }
    CUmemGenericAllocationHandle imported;
    CHECK_DRIVER(v.in(&imported, reinterpret_cast<void *>(static_cast<intptr_t>(theirs)),
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    m.of[r] = map_handle(v, imported, m.bytes);
    close(theirs);
    close(pid);
  }
  barrier();
  close(fd);
  return m;
}

inline Memory allocate(size_t bytes) {
  const char *legacy = getenv("SHUNT_BENCH_IPC");
  if (!legacy || !atoi(legacy)) return allocate_virtual(bytes);
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

// Loads every image of a folder.
inline std::vector<cudaLibrary_t> load_images(const std::string &folder) {
  std::vector<cudaLibrary_t> libraries;
  glob_t found{};
  glob((folder + "/*.fatbin").c_str(), 0, nullptr, &found);
  glob((folder + "/*.cubin").c_str(), GLOB_APPEND, nullptr, &found);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    cudaLibrary_t library;
    CHECK(cudaLibraryLoadFromFile(&library, found.gl_pathv[i], nullptr, nullptr, 0, nullptr, nullptr, 0));
    libraries.push_back(library);
  }
  globfree(&found);
  return libraries;
}

// The grid of shunt_broadcast_ll128, as plans.go has it.
struct Grid {
  int blocks, threads;
};
inline Grid broadcast_grid(long bytes, int world) {
  const long owners = world - 1, units = std::max(((bytes + 479) / 480 + owners - 1) / owners, 1l);
  const long most =
      world == 2 && units > SHUNT_CHANNEL_BLOCKS * SHUNT_MAX_WARPS ? 2 * SHUNT_CHANNEL_BLOCKS : SHUNT_CHANNEL_BLOCKS;
  const long each = std::min(units, std::min(most, SHUNT_MAX_BLOCKS / owners));
  return {int(each * owners), int(std::min((units + each - 1) / each, long(SHUNT_MAX_WARPS)) * 32)};
}

}  // namespace job
