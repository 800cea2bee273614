// cuda_fp8.h: the 8-bit floats as far as the kernels use them.
#pragma once

typedef uint8_t __nv_fp8_storage_t;
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };

inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  return __half_raw{
      ::emulate::half_of_float(kind == __NV_E4M3 ? ::emulate::float_of_e4m3(x) : ::emulate::float_of_e5m2(x))};
}
// e4m3 saturates and e5m2 does not: the kernels use no other combination.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float f, __nv_saturation_t, __nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? ::emulate::e4m3_of_float(f) : ::emulate::e5m2_of_float(f);
}
