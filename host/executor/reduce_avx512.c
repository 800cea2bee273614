/* reduce_avx512.c: reductions for x86-64 with AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#if defined(__clang__)
#define SX_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,fma"
#else
#define SX_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,fma,prefer-vector-width=512"
#endif
#define SX_F16C
#define SX_AVX512
#define SX_TABLE sx_kernels_avx512
#include "reduce_target.h"
#else
typedef int sx_no_avx512;
#endif
