// Rows as FP8 numbers (e4m3) times float scales, for products in FP8. Included after weights.cuh
// with -DW_FP8, and vectors.cuh.
//
// A row has one scale, or one for each W_BLOCK numbers of it. Scales of blocks are
// `[blocks, stride]`, so that those of neighbouring rows lie side by side; `row_stride` rows fit
// 16-byte accesses. Numbers are in the order of weights (weights.cuh): products need no other order
// as long as both factors have the same. Kernels that multiply in T take the numbers as T instead,
// which is exact, in their plain order.
#pragma once

/// The largest number, and the least that the largest of some values counts as.
#define LARGEST_NUMBER 448.0f
#define LEAST_AMAX 1e-10f

/// Elements that a thread quantises together.
#define NUMBERS 16

__device__ __forceinline__ int row_stride(int rows) { return (rows + 3) / 4 * 4; }

/// The largest magnitude of some values, as bits.
__device__ __forceinline__ u32 largest_of(const float (&values)[NUMBERS]) {
  u32 most = 0;
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) most = max(most, magnitude(values[i]));
  return most;
}

/// The largest of a block's threads; `scratch` is 32 words of shared memory.
__device__ __forceinline__ u32 largest_of_block(u32 most, u32* scratch) {
  most = largest_of_lanes<WARP>(most);
  if (lane() == 0) scratch[warp()] = most;
  block_sync();
  most = largest_of_lanes<WARP>(lane() < (int)blockDim.x / WARP ? scratch[lane()] : 0);
  block_sync();
  return most;
}

/// The scale for values up to such a magnitude: the given one, or that which maps it to the largest
/// number. If it is not finite neither is the scale, and so are all results.
__device__ __forceinline__ float scale_for(u32 most, const float* fixed) {
  if (fixed && most < 0x7f800000u) return *fixed;
  float size = bits_float(most);
  return (size < LEAST_AMAX ? LEAST_AMAX : size) / LARGEST_NUMBER;
}

/// Writes values over a scale as numbers or, if `as_values`, as T, from element `at` on.
__device__ __forceinline__ void write_numbers(void* out, int as_values, u64 at, const float (&values)[NUMBERS], float scale) {
  u32 words[4], low[4], high[4];
  float by = 1.0f / scale;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    words[i] = (u32)e4m3_pair(values[2 * i + 8] * by, values[2 * i] * by) |
               (u32)e4m3_pair(values[2 * i + 9] * by, values[2 * i + 1] * by) << 16;
  }
  if (!as_values) {
    *(uint4*)((W*)out + at) = make_uint4(words[0], words[1], words[2], words[3]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) decode(low[i], high[i], words[i]);
  uint4* to = (uint4*)((T*)out + at);
  to[0] = make_uint4(low[0], low[1], low[2], low[3]);
  to[1] = make_uint4(high[0], high[1], high[2], high[3]);
}

/// Writes the four values of each lane over a scale, as numbers or as T; `at` is that of a lane's
/// first. Lanes exchange values for numbers that lie side by side, so whole warps call this.
/// Nothing is written for lanes that are not `real`.
__device__ __forceinline__ void write_four_numbers(void* out, int as_values, u64 at, bool real, float4 values, float scale) {
  float by = 1.0f / scale, a = values.x * by, b = values.y * by, c = values.z * by, d = values.w * by;
  if (as_values) {
    u32 first, last;
    decode(first, last, (u32)e4m3_pair(c, a) | (u32)e4m3_pair(d, b) << 16);
    if (real) *(uint2*)((T*)out + at) = make_uint2(first, last);
    return;
  }
  bool second_half = lane() & 2;
  float one = shuffle_xor(second_half ? a : c, 2), other = shuffle_xor(second_half ? b : d, 2);
  u32 word = second_half ? (u32)e4m3_pair(c, one) | (u32)e4m3_pair(d, other) << 16
                         : (u32)e4m3_pair(one, a) | (u32)e4m3_pair(other, b) << 16;
  int place = (lane() & 1) * 2 + (second_half ? 1 : 0);
  if (real) *(u32*)((W*)out + at / NUMBERS * NUMBERS + place * 4) = word;
}
