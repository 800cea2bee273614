/*
 * reduce_target.h: reduce_kernel.h for the instruction set SX_TARGET, by GCC or clang.
 */
/* Before the pragmas: these have functions of their own. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define SX_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define SX_PUSH(set) SX_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
SX_PUSH(SX_TARGET)
#include "reduce_kernel.h"
#pragma clang attribute pop
#else
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#define SX_PUSH(set) SX_PRAGMA(GCC target(set))
SX_PUSH(SX_TARGET)
#include "reduce_kernel.h"
#endif
