// cuda.h: what the kernels' sources take from CUDA C++, for g++. It is included
// before every kernel source. Threads are fibers of the machine (machine.h);
// inline assembly has become calls of emulate::ptx (../translate.go), one
// function an instruction.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace emulate {

typedef unsigned long long u64;
typedef unsigned int u32;

struct Index {
  unsigned x, y, z;
};

// What a thread sees of itself, of the one that runs.
struct Place {
  Index thread, block, block_size, grid_size;
};
extern const Place *place;

enum class Vote { kAny, kAll, kBallot, kShuffle, kShuffleXor, kOr, kSync };

// The warp's threads meet, and each gets what the vote has for it.
u64 vote(Vote kind, u64 value, int argument);
// Barrier `id` of the block; threads 0: all that have not ended. Whether any of them
// says so.
bool join(int id, int threads, bool says = false);
// Storage of a __shared__ variable of this block.
void *shared(const void *variable, size_t bytes, size_t alignment);
u32 shared_address(const void *p);
u64 compare_and_swap(void *p, u64 expected, u64 value, int bytes);
u64 add(void *p, u64 value, int bytes);
void pause();

float float_of_half(uint16_t);
uint16_t half_of_float(float);
float float_of_bfloat(uint16_t);
uint16_t bfloat_of_float(float);
float float_of_e4m3(uint8_t);
uint8_t e4m3_of_float(float);
float float_of_e5m2(uint8_t);
uint8_t e5m2_of_float(float);

// ---- instructions -----------------------------------------------------------
namespace ptx {

void load(const void *p, void *v, int bytes);           // may pause: others run before it
void load_line(const void *p, void *v);                 // 16 bytes; the warp's at once
void store(const void *p, const void *v, int bytes);    // visible to others later, in any order
void store_line(const void *p, const void *v);          // 16 bytes; a line of 128 at once
void fence();

template <class P>
inline void ld_relaxed_sys_global_u64(u64 &v, P p) { load(p, &v, 8); }
template <class P>
inline void ld_acquire_sys_global_u64(u64 &v, P p) { load(p, &v, 8); }
template <class P>
inline void st_relaxed_sys_global_u64(P p, u64 v) { store(p, &v, 8); }
template <class P>
inline void st_release_sys_global_u64(P p, u64 v) { fence(), store(p, &v, 8); }
inline void fence_acq_rel_sys() { fence(); }

template <class P>
inline void ld_volatile_global_v4_u32(u32 &x, u32 &y, u32 &z, u32 &w, P p) {
  u32 v[4];
  load(p, v, 16);
  x = v[0], y = v[1], z = v[2], w = v[3];
}
// A packet: two halves that may arrive apart.
template <class P>
inline void st_volatile_global_v4_u32(P p, u32 x, u32 y, u32 z, u32 w) {
  const u32 v[4] = {x, y, z, w};
  store(p, v, 8);
  store(reinterpret_cast<const char *>(p) + 8, v + 2, 8);
}
template <class P>
inline void ld_volatile_global_v2_u64(u64 &x, u64 &y, P p) {
  u64 v[2];
  load_line(p, v);
  x = v[0], y = v[1];
}
template <class P>
inline void st_volatile_global_v2_u64(P p, u64 x, u64 y) {
  const u64 v[2] = {x, y};
  store_line(p, v);
}

// Words of a block's shared memory.
void atom_acquire_cta_shared_or_b32(u32 &v, u32 address, u32 bits);
void atom_release_cta_shared_exch_b32(u32 address, u32 v);
void atom_acq_rel_cta_shared_add_u32(u32 &before, u32 address, u32 v);
inline void barrier_sync(int id, int threads) { join(id, threads); }

void griddepcontrol_wait();
void griddepcontrol_launch_dependents();

void mov_u64_globaltimer(u64 &t);

}  // namespace ptx
}  // namespace emulate

// ---- the language -------------------------------------------------------------
#define __global__
#define __device__
#define __CUDA_ARCH__ 900
#define __host__
#define __forceinline__ inline
#define __noinline__ inline __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (::emulate::place->thread)
#define blockIdx (::emulate::place->block)
#define blockDim (::emulate::place->block_size)
#define gridDim (::emulate::place->grid_size)

struct uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }

template <class T>
inline T min(T a, T b) { return b < a ? b : a; }
template <class T>
inline T max(T a, T b) { return a < b ? b : a; }

inline size_t __cvta_generic_to_shared(const void *p) { return ::emulate::shared_address(p); }

inline void __syncthreads() { ::emulate::join(0, 0); }
inline int __syncthreads_or(int v) { return ::emulate::join(0, 0, v != 0); }
inline void __syncwarp(unsigned = ~0u) { ::emulate::vote(::emulate::Vote::kSync, 0, 0); }
inline int __any_sync(unsigned, bool v) { return int(::emulate::vote(::emulate::Vote::kAny, v, 0)); }
inline int __all_sync(unsigned, bool v) { return int(::emulate::vote(::emulate::Vote::kAll, v, 0)); }
inline unsigned __ballot_sync(unsigned, bool v) { return unsigned(::emulate::vote(::emulate::Vote::kBallot, v, 0)); }
inline unsigned __reduce_or_sync(unsigned, unsigned v) { return unsigned(::emulate::vote(::emulate::Vote::kOr, v, 0)); }
template <class T>
inline T __shfl_sync(unsigned, T v, int lane) {
  return T(::emulate::vote(::emulate::Vote::kShuffle, ::emulate::u64(v), lane));
}
template <class T>
inline T __shfl_xor_sync(unsigned, T v, int lanes) {
  return T(::emulate::vote(::emulate::Vote::kShuffleXor, ::emulate::u64(v), lanes));
}
inline int __ffs(int v) { return __builtin_ffs(v); }
inline void __nanosleep(unsigned) { ::emulate::pause(); }

template <class T>
inline T atomicCAS(T *p, T expected, T v) { return T(::emulate::compare_and_swap(p, expected, v, sizeof(T))); }
template <class T>
inline T atomicAdd(T *p, T v) { return T(::emulate::add(p, v, sizeof(T))); }

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline long long __double_as_longlong(double x) {
  long long v;
  memcpy(&v, &x, sizeof v);
  return v;
}
inline double __longlong_as_double(long long x) {
  double v;
  memcpy(&v, &x, sizeof v);
  return v;
}
