// nccl.h: the few calls of NCCL that the benchmark compares with, found at run
// time, so that building needs no NCCL.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "job.h"

namespace nccl {

typedef struct Comm_ *Comm;
typedef struct Window_ *Window;
struct UniqueId {
  char bytes[128];
};
enum { kUint8 = 1, kFloat32 = 7, kSum = 0, kSymmetric = 1 };

inline int (*GetVersion)(int *);
inline int (*GetUniqueId)(UniqueId *);
inline int (*CommInitRank)(Comm *, int, UniqueId, int);
inline int (*MemAlloc)(void **, size_t);
inline int (*CommWindowRegister)(Comm, void *, size_t, Window *, int);
inline int (*AllReduce)(const void *, void *, size_t, int, int, Comm, cudaStream_t);
inline int (*AllGather)(const void *, void *, size_t, int, Comm, cudaStream_t);
inline int (*ReduceScatter)(const void *, void *, size_t, int, int, Comm, cudaStream_t);
inline int (*Broadcast)(const void *, void *, size_t, int, int, Comm, cudaStream_t);
inline int (*Reduce)(const void *, void *, size_t, int, int, int, Comm, cudaStream_t);
inline int (*AlltoAll)(const void *, void *, size_t, int, Comm, cudaStream_t);
inline int (*Send)(const void *, size_t, int, int, Comm, cudaStream_t);
inline int (*Recv)(void *, size_t, int, int, Comm, cudaStream_t);
inline int (*GroupStart)();
inline int (*GroupEnd)();
inline const char *(*GetErrorString)(int);

#define NCCL_CHECK(x)                                                                                               \
  do {                                                                                                              \
    int error_ = (x);                                                                                               \
    if (error_ != 0) {                                                                                              \
      fprintf(stderr, "rank %d: %s:%d: %s: %s\n", job::rank, __FILE__, __LINE__, #x, nccl::GetErrorString(error_)); \
      _exit(1);                                                                                                     \
    }                                                                                                               \
  } while (0)

// Loads the library; false if there is none at path.
inline bool load(const char *path) {
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    fprintf(stderr, "no NCCL: %s\n", dlerror());
    return false;
  }
  auto find = [&](auto &f, const char *name) {
    f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(lib, name));
    if (!f) fprintf(stderr, "NCCL lacks %s\n", name);
  };
  find(GetVersion, "ncclGetVersion");
  find(GetUniqueId, "ncclGetUniqueId");
  find(CommInitRank, "ncclCommInitRank");
  find(MemAlloc, "ncclMemAlloc");
  find(CommWindowRegister, "ncclCommWindowRegister");
  find(AllReduce, "ncclAllReduce");
  find(AllGather, "ncclAllGather");
  find(ReduceScatter, "ncclReduceScatter");
  find(Broadcast, "ncclBroadcast");
  find(Reduce, "ncclReduce");
  find(AlltoAll, "ncclAlltoAll");
  find(Send, "ncclSend");
  find(Recv, "ncclRecv");
  find(GroupStart, "ncclGroupStart");
  find(GroupEnd, "ncclGroupEnd");
  find(GetErrorString, "ncclGetErrorString");
  return true;
}

}  // namespace nccl
