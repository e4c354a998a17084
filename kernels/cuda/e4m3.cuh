// Numbers of FP8 (e4m3): rounded from floats, and as pairs of T, which has all of them exactly.
#pragma once

/// The nearest number, ties to the even one; larger ones become ±448, and NaN stays NaN.
__device__ __forceinline__ u32 e4m3_bits(float value) {
  u32 sign = float_bits(value) >> 24 & 0x80, size = float_bits(value) & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7f;
  if (size >= 0x43e00000) return sign | 0x7e;
  // Below the smallest normal number, 2⁻⁶, numbers are multiples of 2⁻⁹: the sum rounds to them.
  if (size < 0x3c800000) return sign | (float_bits(bits_float(size) * 512.0f + 8388608.0f) & 0xf);
  return sign | (((size + 0x7ffff + (size >> 20 & 1)) >> 20) - 0x3c0);
}

/// Two numbers, the first one in the lower byte.
__device__ __forceinline__ u16 e4m3_pair(float low, float high) {
#if !defined(EMULATOR) && __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return (u16)(e4m3_bits(low) | e4m3_bits(high) << 8);
#endif
}

#ifdef T_PAIRS
/// The numbers in the odd bytes of a word as a pair of T. Exponent and mantissa are moved to the
/// lowest exponent bits and highest mantissa bits of T; multiplication by a power of two corrects
/// the difference of the biases, for subnormal numbers too.
__device__ __forceinline__ u32 odd_bytes(u32 word) {
#if defined(T_BF16)
  constexpr u32 SHIFT = 4, SIZE = 0x07f007f0u, BIAS = 0x7b807b80u;
#else
  constexpr u32 SHIFT = 1, SIZE = 0x3f803f80u, BIAS = 0x5c005c00u;
#endif
  return multiply_pair((word & 0x80008000u) | (word >> SHIFT & SIZE), BIAS);
}
/// Those in the even bytes.
__device__ __forceinline__ u32 even_bytes(u32 word) { return odd_bytes(word << 8); }
#endif
