/* reduce_baseline.c: reductions for any processor. */
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#define SX_TABLE sx_kernels_baseline
#include "reduce_kernel.h"
