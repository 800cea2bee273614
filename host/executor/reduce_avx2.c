/* reduce_avx2.c: reductions for x86-64 with AVX2. */
#if defined(__x86_64__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#pragma GCC target("avx2,f16c,fma")
#define SX_TABLE sx_kernels_avx2
#include "reduce_kernel.h"
#else
typedef int sx_no_avx2;
#endif
