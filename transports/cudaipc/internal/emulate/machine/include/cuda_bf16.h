// cuda_bf16.h: bfloat16 as far as the kernels use it.
#pragma once

struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 h) { return ::emulate::float_of_bfloat(h.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16{::emulate::bfloat_of_float(f)}; }
