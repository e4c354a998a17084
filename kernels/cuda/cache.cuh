// The type of the elements of a cache of keys and values: T, or with -DKV_FP8 bytes of FP8 (e4m3), times one scale for
// all keys and one for all values.
//
// An element in FP8 is exact in T, so that it is converted in registers, and products are those of T. The host
// multiplies the scale of the scores by the keys' scale; results are multiplied by the values'.
#pragma once

#ifdef KV_FP8
typedef unsigned char C;
#define CACHE_PARAMETERS , float key_scale, float value_scale
#define CACHE_ARGUMENTS , key_scale, value_scale

/// The nearest number of e4m3, ties to the even one; larger ones become ±448.
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

/// The values of the four numbers of a word, without the scale. They have the same bits in float, but for the bias of
/// the exponent.
__device__ __forceinline__ void e4m3_values(float* values, u32 four) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 at = i == 0 ? four << 24 : i == 1 ? four << 16 : i == 2 ? four << 8 : four;
    // 2¹²⁰.
    values[i] = bits_float((at & 0x80000000) | (at >> 4 & 0x07f00000)) * 1.329227995784916e36f;
  }
}

#ifdef T_PAIRS
#ifdef EMULATOR
inline u32 bytes_of(u32 low, u32 high, u32 which) {
  u64 both = (u64)high << 32 | low;
  u32 word = 0;
  for (int i = 0; i < 4; i++) word |= (u32)(both >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return word;
}
inline u32 times(u32 pair, u32 by) {
  float2 one = unpack(pair), other = unpack(by);
  return pack(one.x * other.x, one.y * other.y);
}
#else
/// Four of the eight bytes of two words, one for each digit of `which`, the lowest first.
__device__ __forceinline__ u32 bytes_of(u32 low, u32 high, u32 which) { return __byte_perm(low, high, which); }
/// Products of two pairs of T.
__device__ __forceinline__ u32 times(u32 pair, u32 by) {
  u32 product;
#if defined(T_BF16)
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(pair), "r"(by), "r"(0x80008000u));
#else
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
#endif
  return product;
}
#endif

/// The numbers in the odd bytes of a word as a pair of T, without the scale: exponent and mantissa are moved, and a
/// power of two corrects the bias, for subnormal numbers too.
__device__ __forceinline__ u32 odd_bytes(u32 word) {
#if defined(T_BF16)
  constexpr u32 SHIFT = 4, SIZE = 0x07f007f0u, BIAS = 0x7b807b80u;
#else
  constexpr u32 SHIFT = 1, SIZE = 0x3f803f80u, BIAS = 0x5c005c00u;
#endif
  return times((word & 0x80008000u) | (word >> SHIFT & SIZE), BIAS);
}
/// Those in the even bytes.
__device__ __forceinline__ u32 even_bytes(u32 word) { return odd_bytes(word << 8); }
/// Those in the first two bytes, and in the last two.
__device__ __forceinline__ uint2 in_pairs(u32 word) {
  return make_uint2(odd_bytes(bytes_of(word, word, 0x1000)), odd_bytes(bytes_of(word, word, 0x3222)));
}
#endif

#else
typedef T C;
#define CACHE_PARAMETERS
#define CACHE_ARGUMENTS
#endif

/// Elements of the cache in 16 bytes.
#define CACHE_VECTOR (16 / (int)sizeof(C))
