/* reduce_avx2.c: reductions for x86-64 with AVX2. */
#if defined(__x86_64__)
#define SX_TARGET "avx2,f16c,fma"
#define SX_F16C
#define SX_TABLE sx_kernels_avx2
#include "reduce_target.h"
#else
typedef int sx_no_avx2;
#endif
