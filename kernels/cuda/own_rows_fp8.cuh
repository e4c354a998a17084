// Rows that a layer of few rows quantises itself (-DROWS_FP8, numbers.cuh): each block finds the scales of its rows, and rounds
// right factors as it multiplies them. So no kernel is needed between that which computes the rows and the layer, whose weights
// are on their way meanwhile; each block reads the rows once more. Numbers and scales are those of quantise.cu, with one scale
// per row, and sums have the order of the same kernel without the option: results have the same bits.
//
// Rows may lack the scale of a norm (ring.cuh), which then multiplies them before they are rounded.
#pragma once

#ifdef ROWS_FP8
#include "numbers.cuh"

/// `fixed` is the scale of all rows, or null.
#define OWN_PARAMETERS , const float *fixed
#define OWN_ARGUMENTS , fixed
#define ROUNDS_ROWS true

/// The largest magnitude of eight elements of T, as its bits, or `most` if that is larger.
__device__ __forceinline__ u32 largest_of_eight(u32 most, uint4 raw) {
  const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; i++) most = max(most, max(words[i] & 0x7fffu, words[i] >> 16 & 0x7fffu));
  return most;
}

/// What a thread has met of COUNT rows. All loads are in flight together.
template <int COUNT>
__device__ __forceinline__ void meet_rows(u32* most, const T* x, int x_stride, int rows, int inputs) {
#pragma unroll 4
  for (int i = (int)threadIdx.x * 8; i < inputs; i += (int)blockDim.x * 8) {
    uint4 raw[COUNT];
#pragma unroll
    for (int r = 0; r < COUNT; r++) raw[r] = load_fresh_16(x + (u64)min(r, rows - 1) * x_stride + i);
#pragma unroll
    for (int r = 0; r < COUNT; r++) most[r] = largest_of_eight(most[r], raw[r]);
  }
}

/// How a lane rounds the right factors of its row, row lane / 4 of each eight.
template <int ROWS>
struct OwnRows {
  float pending, by;
  const float* scale_of;

  /// Finds the scales of up to ROWS rows. Called by whole blocks of 4 to 8 warps after the wait; `scratch` is 10 · ROWS words
  /// of shared memory, in which `scale_of` stays valid until it is overwritten.
  __device__ __forceinline__ OwnRows(unsigned char* scratch, const T* x, int x_stride, int rows, int inputs, SCALE_PARAMETERS,
                                     const float* fixed) {
    int warps = (int)blockDim.x / WARP, thread = (int)threadIdx.x;
    u32* most_of = (u32*)scratch;
    float* pending_of = (float*)scratch + 8 * ROWS;
    float* scales = pending_of + ROWS;
    u32 most[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) most[r] = 0;
    if (rows == 1) {
      meet_rows<1>(most, x, x_stride, rows, inputs);
    } else {
      meet_rows<ROWS>(most, x, x_stride, rows, inputs);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (r >= rows) break;
      u32 of_warp = largest_of_lanes<WARP>(most[r]);
      if (lane() == 0) most_of[warp() * ROWS + r] = of_warp;
    }
    for (int r = warp(); r < rows; r += warps) {
      float of_norm = pending_scale(r, inputs, SCALE_ARGUMENTS);
      if (lane() == 0) pending_of[r] = of_norm;
    }
    block_sync();
    if (thread < ROWS) {
      u32 of_row = 0;
      for (int w = 0; w < warps && thread < rows; w++) of_row = max(of_row, most_of[w * ROWS + thread]);
      if (thread >= rows) pending_of[thread] = 1.0f;
      float size = to_float(T{(u16)of_row}) * pending_of[thread];
      scales[thread] = scale_for(float_bits(size) & 0x7fffffffu, fixed);
    }
    block_sync();
    int row = lane() / 4 % ROWS;
    pending = pending_of[row];
    by = 1.0f / scales[row];
    scale_of = scales;
  }

  /// Rounds right factors of eight rows and 32 inputs.
  __device__ __forceinline__ void round(u32 (&b)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      float2 one = unpack(b[i]), other = unpack(b[i + 1]);
      u32 four = (u32)e4m3_pair(one.x * pending * by, other.x * pending * by) |
                 (u32)e4m3_pair(one.y * pending * by, other.y * pending * by) << 16;
      decode(b[i + 1], b[i], four);
    }
  }
};

#else
#define OWN_PARAMETERS
#define OWN_ARGUMENTS
#define ROUNDS_ROWS false
#endif
