// cuda_fp16.h: float16 as far as the kernels use it.
#pragma once

struct __half_raw {
  uint16_t x;
};
struct __half {
  uint16_t bits;
  __half() = default;
  __half(__half_raw raw) : bits(raw.x) {}
};
inline float __half2float(__half h) { return ::emulate::float_of_half(h.bits); }
inline __half __float2half_rn(float f) { return __half(__half_raw{::emulate::half_of_float(f)}); }
