// Weights in MXFP4 for experts.cu: numbers of four bits (e2m1), each 32 inputs of a row with a
// power of two as scale.
//
// They are expanded between shared memory and the products, times their scale, which is exact
// unless T is too narrow for the result.
//
// e2m1.cuh has their order in memory. Scales are exponents plus 127, four of a row in a word: for
// each step of PIECE inputs a word per row, `[experts, steps, rows]`; those of inputs after the
// last are 0.
#pragma once
#include "e2m1.cuh"

typedef unsigned char W;
/// Inputs of a stage of a ring, and of 16 bytes of weights.
#define PIECE 128
#define W_CHUNK 32
/// Weights of an element of W.
#define W_PACK 2
/// Rows are T; as in weights.cuh.
typedef T X;
#define X_CHUNK 8
#define STEP 32
#define W_PARAMETERS , const u32 *w_scales
#define W_ARGUMENTS , w_scales
/// Bytes of a row of weights in a stage (ROW_BYTES) and of a row of x (X_ROW_BYTES), and their
/// numbers of 16-byte chunks; bytes of the scales of such a row.
#define ROW_BYTES (PIECE / W_PACK)
#define W_CHUNKS (PIECE / W_CHUNK)
#define X_ROW_BYTES (PIECE * 2)
#define CHUNKS (PIECE / X_CHUNK)
#define SCALE_BYTES 4

/// Where a chunk of a row of weights is in a stage. Two rows are a line of 128 bytes; chunks of
/// eight rows that are read together are in different banks.
__device__ __forceinline__ u32 place_of_weights(int row, int chunk) {
  return (u32)(row / 2 * 128 + ((row % 2 * 4 + chunk) ^ (row / 2 & 7)) * 16);
}

/// A pair of T by which `expand` multiplies: a scale, times the difference of the biases of e2m1
/// and T. The host lets no scale pass that is above 2.
__device__ __forceinline__ u32 factor_of(u32 exponent) {
#if defined(T_BF16)
  // 2^(exponent − 127) · 2^126.
  return (exponent + 126) * 0x00800080u;
#else
  // 2^(exponent − 127) · 2^14, which is subnormal below 99, and 0 below 89.
  u32 one = exponent >= 99 ? (exponent - 98) << 10 : exponent >= 89 ? 1u << (exponent - 89) : 0u;
  return one * 0x00010001u;
#endif
}

/// Pair j of a word, times `factor`.
__device__ __forceinline__ u32 expand(u32 word, int j, u32 factor) {
#if defined(T_BF16)
  return multiply_pair(pair_as_bf16(word, j), factor);
#else
  return multiply_pair(pair_as_f16(word, j), factor);
#endif
}

/// The scales of a lane's rows of 16, lane / 4 and lane / 4 + 8, for the inputs of a stage.
struct RowScales {
  u32 low, high;
  __device__ __forceinline__ RowScales(const unsigned char* scales, int first_row) {
    const u32* own = (const u32*)scales + first_row + lane() / 4;
    low = own[0];
    high = own[8];
  }
};

/// Left factors of 16 rows of weights for the 32 inputs from 16 · `inputs_16` on. The first row of
/// `rows` is a multiple of 16.
template <int BYTES>
__device__ __forceinline__ void load_weights_32(u32 (&a)[2][4], const unsigned char* rows, int inputs_16,
                                                const RowScales& scales) {
  int chunk = inputs_16 / 2, own = lane() / 4;
  u32 low = *(const u32*)(rows + place_of_weights(own, chunk) + lane() % 4 * 4);
  u32 high = *(const u32*)(rows + place_of_weights(own + 8, chunk) + lane() % 4 * 4);
  u32 by_low = factor_of(scales.low >> 8 * chunk & 255), by_high = factor_of(scales.high >> 8 * chunk & 255);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    a[h][0] = expand(low, 2 * h, by_low);
    a[h][1] = expand(high, 2 * h, by_high);
    a[h][2] = expand(low, 2 * h + 1, by_low);
    a[h][3] = expand(high, 2 * h + 1, by_high);
  }
}

template <int BYTES>
__device__ __forceinline__ void load_step(u32 (&a)[2][4], const unsigned char* rows, int inputs_16, const RowScales& scales) {
  load_weights_32<BYTES>(a, rows, inputs_16, scales);
}
__device__ __forceinline__ void multiply_step(float (&sum)[4], const u32 (&a)[2][4], const u32 (&b)[4]) {
  mma_16816(sum, a[0], b);
  mma_16816(sum, a[1], b + 2);
}

/// Inputs whose left factors are loaded together, in units of 16.
#define W_LEFT 2
template <int BYTES>
__device__ __forceinline__ void load_left(u32 (&a)[2][4], const unsigned char* rows, int inputs_16, const RowScales& scales) {
  load_weights_32<BYTES>(a, rows, inputs_16, scales);
}

/// Sums that need no scales.
template <int TILES>
struct Scaled {
  __device__ __forceinline__ void ask(bool) {}
  __device__ __forceinline__ float (&of(float (&sum)[TILES][4], int t))[4] { return sum[t]; }
  __device__ __forceinline__ void add(float (&)[TILES][4]) {}
};
