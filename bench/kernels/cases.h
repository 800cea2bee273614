// cases.h: the options of bench.cu, the data that its collectives move, and a case: one size of one
// collective, with the ways of doing it.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "job.h"
#include "nccl.h"

using job::rank;
using job::world;

// ---- options ----------------------------------------------------------------
static std::string images = "transports/cudaipc/images", nccl_path, only, json_path, table_path;
static long min_bytes = 8, max_bytes = 1l << 30;
static int samples = 21;
static bool eager = false, variants = false;

// ---- data -------------------------------------------------------------------
enum Collective { kNothing, kBarrier, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kReduce, kSendRecv,
                  kCollectives };
static const char *const kNames[] = {"nothing",    "barrier",   "all_reduce", "all_gather", "reduce_scatter",
                                     "all_to_all", "broadcast", "reduce",     "sendrecv"};

// Random floats in [-1, 1) from (rank, index, seed).
__device__ __forceinline__ float value_of(int r, long i, unsigned seed) {
  unsigned long long x =
      (unsigned long long)(i + 1) * 0x9E3779B97F4A7C15ull + (unsigned long long)(r + 1) * 0xBF58476D1CE4E5B9ull + seed;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 29;
  return int(x >> 32) * (1.0f / 2147483648.0f);
}

__global__ void fill(float *p, long n, int r, unsigned seed) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)
    p[i] = value_of(r, i, seed);
}

constexpr unsigned kPoison = 0xFFBADBADu;  // a NaN
__global__ void poison(unsigned *p, long n) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) p[i] = kPoison;
}

// Counts elements of recv that are wrong, guards included. n is elements of
// recv, block elements of one block.
__global__ void verify(const unsigned *recv, long n, long block, long guard, int coll, int me, int ranks, int root,
                       unsigned seed, float tolerance, unsigned long long *wrong) {
  unsigned long long bad = 0;
  for (long k = blockIdx.x * (long)blockDim.x + threadIdx.x; k < n + 2 * guard; k += (long)gridDim.x * blockDim.x) {
    long i = k - guard;
    unsigned got = recv[i];
    if (i < 0 || i >= n) {
      bad += got != kPoison;
      continue;
    }
    float want = 0;
    switch (coll) {
      case kNothing:
      case kBarrier:
        bad += got != kPoison;
        continue;
      case kAllReduce:
      case kReduce:
        if (coll == kReduce && me != root) {
          bad += got != kPoison;
          continue;
        }
        want = value_of(0, i, seed);
        for (int r = 1; r < ranks; r++) want = __fadd_rn(want, value_of(r, i, seed));
        break;
      case kReduceScatter:
        want = value_of(0, me * block + i, seed);
        for (int r = 1; r < ranks; r++) want = __fadd_rn(want, value_of(r, me * block + i, seed));
        break;
      case kAllGather:
        want = value_of(i / block, i % block, seed);
        break;
      case kAllToAll:
        want = value_of(i / block, me * block + i % block, seed);
        break;
      case kBroadcast:
        want = value_of(root, i, seed);
        break;
      case kSendRecv:
        want = value_of((me + ranks - 1) % ranks, i, seed);
        break;
    }
    float x = __uint_as_float(got);
    bad += tolerance == 0 ? got != __float_as_uint(want) : !(fabsf(x - want) <= tolerance);
  }
  if (bad) atomicAdd(wrong, bad);
}

// Holds the stream until the host lets it go, at most 5 s.
__global__ void gate(volatile unsigned *word, unsigned value) {
  unsigned long long t0, t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0));
  while (int(*word - value) < 0) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    if (t - t0 > 5000000000ull) return;
  }
}

// ---- one size of one collective ----------------------------------------------
struct Case {
  Collective coll;
  long bytes;  // as nccl-tests counts: the larger of what a rank sends and receives
  long block;  // shunt_kernel_args.bytes
  long send_bytes, recv_bytes;
  int slots;   // buffers in rotation
  int root = 0;
};

constexpr long kGuard = 4096;
static job::Memory send_arena, recv_arena;
static char *window_send, *window_recv;
static long arena_bytes;
static nccl::Comm comm;
static cudaStream_t stream;
static unsigned *gate_word;
static unsigned gate_count;
static unsigned long long *wrong;

static long send_offset(const Case &c, int slot) { return slot * ((c.send_bytes + 511) / 512 * 512); }
static long recv_offset(const Case &c, int slot) {
  return kGuard + slot * ((c.recv_bytes + 511) / 512 * 512 + 2 * kGuard);
}

// A folder of images, with regions of their own, laid out as layout.h of their sources
// has it: the folder's file layout says so where that is another one than this program's.
struct Images {
  std::string name;
  std::vector<cudaLibrary_t> libraries;
  std::map<std::string, cudaKernel_t> known;
  job::Memory region;
  long region_bytes, exports, imports;
};
static std::list<Images> folders;
static Images *now;  // those whose kernels are launched

// One way of doing a case.
struct Candidate {
  std::string name;
  bool window;
  bool ours;
  std::function<void(const Case &, int slot)> how;
  Images *images = now;
  std::string label() const { return ours && folders.size() > 1 ? images->name + ": " + name : name; }
  void launch(const Case &c, int slot) const {
    now = images;
    how(c, slot);
  }
};

static void make_case(Case &c, Collective coll, long bytes) {
  c.coll = coll;
  bool split = coll == kAllGather || coll == kReduceScatter || coll == kAllToAll;
  c.block = split ? std::max(bytes / world / 4 * 4, 4l) : bytes;
  c.bytes = split ? c.block * world : bytes;
  c.send_bytes = coll == kAllGather ? c.block : c.bytes;
  c.recv_bytes = coll == kReduceScatter ? c.block : c.bytes;
  long each = (std::max(c.send_bytes, c.recv_bytes) + 511) / 512 * 512 + 2 * kGuard;
  c.slots = int(std::min(16l, (arena_bytes - kGuard) / each));
  if (c.slots < 1) {
    fprintf(stderr, "arena too small for %ld bytes\n", bytes);
    _exit(1);
  }
}
