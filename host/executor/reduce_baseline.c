/* reduce_baseline.c: reductions for any processor. */
#pragma GCC optimize("fp-contract=off")
#define SX_TABLE sx_kernels_baseline
#include "reduce_kernel.h"
