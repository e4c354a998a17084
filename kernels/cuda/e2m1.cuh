// Numbers of four bits (e2m1) of MXFP4 weights. Included after common.cuh.
//
// In memory each 32 numbers of a row are in the order in which lanes of experts.cu need them
// (`mxfp4_order` of the host): of four words, word i is of the lanes with lane % 4 = i. It has four
// pairs, of inputs 2i and 2i + 1 from input 0, 8, 16 or 24 on. Their bits are where few
// instructions bring them to those of two bfloat16: sign, exponent and mantissa of a pair are moved
// and masked together, only the mantissa of the last one comes by itself.
#pragma once

#define E2M1_SIGN 0x80008000u

/// A word whose bits are 4 lower, in a ring.
__device__ __forceinline__ u32 turned_e2m1(u32 word) { return word >> 4 | word << 28; }

/// Pair j of a word as two bfloat16, times 2^−126. Exponent and mantissa become the lowest exponent
/// bits and the highest mantissa bit, which is right for subnormal numbers too.
__device__ __forceinline__ u32 pair_as_bf16(u32 word, int j) {
  constexpr u32 EXPONENT = 0x01800180u, MANTISSA = 0x00400040u, ALL = E2M1_SIGN | EXPONENT | MANTISSA;
  return j == 0   ? word << 2 & ALL
         : j == 1 ? word << 6 & ALL
         : j == 2 ? turned_e2m1(word) & ALL
                  : (word & (E2M1_SIGN | EXPONENT)) | (word >> 8 & MANTISSA);
}

/// The same as two float16, times 2^−14.
__device__ __forceinline__ u32 pair_as_f16(u32 word, int j) {
  constexpr u32 EXPONENT = 0x0c000c00u, MANTISSA = 0x02000200u, SIZE = EXPONENT | MANTISSA;
  return j == 0   ? (word << 2 & E2M1_SIGN) | (word << 5 & SIZE)
         : j == 1 ? (word << 6 & E2M1_SIGN) | (word << 9 & SIZE)
         : j == 2 ? (turned_e2m1(word) & E2M1_SIGN) | (word >> 1 & SIZE)
                  : (word & E2M1_SIGN) | (word << 3 & EXPONENT) | (word >> 5 & MANTISSA);
}
