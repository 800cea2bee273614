/* reduce_baseline.c: reductions for any processor. */
#if !defined(__clang__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif
#define SX_TABLE sx_kernels_baseline
#include "reduce_kernel.h"
