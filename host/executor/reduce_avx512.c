/* reduce_avx512.c: reductions for x86-64 with AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,fma,prefer-vector-width=512")
#define SX_TABLE sx_kernels_avx512
#include "reduce_kernel.h"
#else
typedef int sx_no_avx512;
#endif
