// The type of the elements of a cache of keys and values: T, or with -DKV_FP8 bytes of FP8 (e4m3),
// times one scale for all keys and one for all values.
//
// An element in FP8 is exact in T, so that it is converted in registers, and products are those of
// T. The host multiplies the scale of the scores by the keys' scale; results are multiplied by the
// values'.
#pragma once
#include "e4m3.cuh"

#ifdef KV_FP8
typedef unsigned char C;
#define CACHE_PARAMETERS , float key_scale, float value_scale
#define CACHE_ARGUMENTS , key_scale, value_scale

/// The values of the four numbers of a word, without the scale. They have the same bits in float,
/// but for the bias of the exponent.
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
#else
/// Four of the eight bytes of two words, one for each digit of `which`, the lowest first.
__device__ __forceinline__ u32 bytes_of(u32 low, u32 high, u32 which) { return __byte_perm(low, high, which); }
#endif

/// The numbers in the first two bytes as a pair of T, and those in the last two.
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
