// Linear layers of few rows: `y = x · wᵀ + bias`, x `[rows, inputs]`, w `[outputs, inputs]`, y `[rows, outputs]`.
// T is a 2-byte type; linear_float.cu has the same for float.
//
// With few rows the weights are all the traffic that matters, so they go straight from global memory into the tensor
// cores' registers, read once, 16 bytes a lane. The order of the inputs within a step is permuted, for weights and x
// alike, so that what a lane needs lies side by side: a sum does not care which index is called first.
//
// An output is summed over the inputs in an order that is fixed by the layer alone: the sixteen warps of a block take
// pieces of 64 inputs in turn, and their sums are added in order of the warps. So a row's result does not depend on the
// number of rows nor on the other rows (batch invariance). From 17 rows on, blocks are larger, but the order is the same.
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` of w `[2 · outputs, inputs]`, gate first: a tile of 16 outputs is
// then 8 of the gate and the 8 of the other half that belong to them. The bits are those of silu_gate after the layer.
#include "common.cuh"

#define WARPS 16
#define OUTPUTS 16  // of a block
#define PIECE 64    // inputs that a warp takes at once

/// An output of a gated layer from its two sums, rounded as if each were an operation of its own.
__device__ __forceinline__ float gate(float sum, float other) {
  float value = to_float(from_float(sum)), up = to_float(from_float(other));
  return to_float(from_float(value / (1.0f + exp_accurate(-value)))) * up;
}

/// One block: 16 outputs (8 if GATED), 8 · TILES rows. Weights stand for the matrix a (16 outputs), rows of x for b (8 columns).
/// AHEAD pieces are asked for before the first is used.
template <int TILES, int AHEAD, bool GATED = false>
__device__ __forceinline__ void linear_block(void* y, int y_is_float, int y_stride, const T* x, int x_stride,
                                             const int* source, const T* w, const T* bias, int rows, int inputs,
                                             int outputs) {
  __shared__ float sums[WARPS][TILES][OUTPUTS][8];
  release_successor();
  int group = lane() / 4, quarter = lane() % 4;
  constexpr int WRITTEN = GATED ? OUTPUTS / 2 : OUTPUTS;
  int first_output = (int)blockIdx.x * WRITTEN, first_row = (int)blockIdx.y * 8 * TILES;
  // Outputs past the end read the last one and are not written.
  int low = min(first_output + group, outputs - 1);
  int high = GATED ? low + outputs : min(first_output + group + 8, outputs - 1);
  const T* w_low = w + (u64)low * inputs + quarter * 8;
  const T* w_high = w + (u64)high * inputs + quarter * 8;
  const T* x_row[TILES];
  bool live[TILES];
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    int row = first_row + t * 8 + group;
    live[t] = row < rows;
    int place = live[t] ? row : 0;
    x_row[t] = x + (u64)place * x_stride + quarter * 8;
  }
  bool waited = false;
  float d[TILES][4];
#pragma unroll
  for (int t = 0; t < TILES; t++) d[t][0] = d[t][1] = d[t][2] = d[t][3] = 0.0f;
  const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll AHEAD
  for (int k = warp() * PIECE; k < inputs; k += WARPS * PIECE) {
    uint4 a_low[2], a_high[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int at = k + h * 32;
      bool inside = at + quarter * 8 < inputs;
      a_low[h] = inside ? load_16_streaming(w_low + at) : zero;
      a_high[h] = inside ? load_16_streaming(w_high + at) : zero;
    }
    if (!waited) {
      // Weights do not depend on the kernel before: they are under way while it ends.
      wait_for_predecessor();
      waited = true;
      if (source) {
#pragma unroll
        for (int t = 0; t < TILES; t++)
          if (live[t]) x_row[t] = x + (u64)source[first_row + t * 8 + group] * x_stride + quarter * 8;
      }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int at = k + h * 32;
        bool inside = live[t] && at + quarter * 8 < inputs;
        uint4 b = inside ? load_16(x_row[t] + at) : zero;
        const u32 a_first[4] = {a_low[h].x, a_high[h].x, a_low[h].y, a_high[h].y}, b_first[2] = {b.x, b.y};
        const u32 a_second[4] = {a_low[h].z, a_high[h].z, a_low[h].w, a_high[h].w}, b_second[2] = {b.z, b.w};
        mma_16816(d[t], a_first, b_first);
        mma_16816(d[t], a_second, b_second);
      }
    }
  }
  if (!waited) wait_for_predecessor();
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    sums[warp()][t][group][quarter * 2] = d[t][0];
    sums[warp()][t][group][quarter * 2 + 1] = d[t][1];
    sums[warp()][t][group + 8][quarter * 2] = d[t][2];
    sums[warp()][t][group + 8][quarter * 2 + 1] = d[t][3];
  }
  block_sync();
  for (int i = (int)threadIdx.x; i < TILES * 8 * WRITTEN; i += WARPS * WARP) {
    int output = i % WRITTEN, column = i / WRITTEN % 8, t = i / WRITTEN / 8;
    int row = first_row + t * 8 + column;
    if (row >= rows || first_output + output >= outputs) continue;
    float sum = 0.0f, other = 0.0f;
#pragma unroll
    for (int k = 0; k < WARPS; k++) sum += sums[k][t][output][column];
    if (bias) sum += to_float(bias[first_output + output]);
    if (GATED) {
#pragma unroll
      for (int k = 0; k < WARPS; k++) other += sums[k][t][output + 8][column];
      if (bias) other += to_float(bias[outputs + first_output + output]);
      sum = gate(sum, other);
    }
    u64 at = (u64)row * y_stride + first_output + output;
    if (y_is_float)
      ((float*)y)[at] = sum;
    else
      ((T*)y)[at] = from_float(sum);
  }
}

/// One block: 16 · WIDE outputs (half of it if GATED), 8 · TILES rows, summed in the order of `linear_block`. Each block
/// reads all of x from second-level cache, which for 16 outputs and 17 rows is more than it reads of weights: so a block
/// takes more outputs. HALVES of a piece are asked for at once, as registers allow.
template <int TILES, int WIDE, int HALVES, bool GATED = false>
__device__ __forceinline__ void linear_wide_block(void* y, int y_is_float, int y_stride, const T* x, int x_stride,
                                                  const int* source, const T* w, const T* bias, int rows, int inputs,
                                                  int outputs) {
  // Of one tile of rows at a time.
  __shared__ float sums[WARPS][WIDE * OUTPUTS][8];
  release_successor();
  int group = lane() / 4, quarter = lane() % 4;
  constexpr int WRITTEN = WIDE * (GATED ? OUTPUTS / 2 : OUTPUTS);
  int first_output = (int)blockIdx.y * WRITTEN, first_row = (int)blockIdx.x * 8 * TILES;
  // What lies past the last output counts as zero and is not written.
  int left = outputs - first_output - group;
  const T* w_own = w + (u64)(first_output + group) * inputs + quarter * 8;
  // Places of the rows in x, which has less than 2³² elements: pointers would not fit the registers.
  u32 x_place[TILES];
  bool live[TILES];
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    int row = first_row + t * 8 + group;
    live[t] = row < rows;
    x_place[t] = (u32)(live[t] ? row : 0) * (u32)x_stride + quarter * 8;
  }
  bool waited = false;
  float d[WIDE][TILES][4];
#pragma unroll
  for (int o = 0; o < WIDE; o++) {
#pragma unroll
    for (int t = 0; t < TILES; t++) d[o][t][0] = d[o][t][1] = d[o][t][2] = d[o][t][3] = 0.0f;
  }
  const uint4 zero = make_uint4(0, 0, 0, 0);
  for (int k = warp() * PIECE; k < inputs; k += WARPS * PIECE) {
#pragma unroll 1
    for (int begin = k; begin < k + PIECE; begin += HALVES * 32) {
      uint4 a[HALVES][WIDE][2];
#pragma unroll
      for (int h = 0; h < HALVES; h++) {
        int at = begin + h * 32;
        bool inside = at + quarter * 8 < inputs;
        const T* w_row = w_own + at;
#pragma unroll
        for (int e = 0; e < WRITTEN / 8; e++, w_row += (u64)8 * inputs) {
          bool real = inside && e * 8 < left;
          if (GATED) {
            a[h][e][0] = real ? load_16_streaming(w_row) : zero;
            a[h][e][1] = real ? load_16_streaming(w_row + (u64)outputs * inputs) : zero;
          } else {
            a[h][e / 2][e % 2] = real ? load_16_streaming(w_row) : zero;
          }
        }
      }
      if (!waited) {
        // Weights do not depend on the kernel before: they are under way while it ends.
        wait_for_predecessor();
        waited = true;
        if (source) {
#pragma unroll
          for (int t = 0; t < TILES; t++)
            if (live[t]) x_place[t] = (u32)source[first_row + t * 8 + group] * (u32)x_stride + quarter * 8;
        }
      }
#pragma unroll
      for (int h = 0; h < HALVES; h++) {
        int at = begin + h * 32;
        bool inside = at + quarter * 8 < inputs;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
          uint4 b = inside && live[t] ? load_16(x + (x_place[t] + at)) : zero;
          const u32 b_first[2] = {b.x, b.y}, b_second[2] = {b.z, b.w};
#pragma unroll
          for (int o = 0; o < WIDE; o++) {
            const u32 a_first[4] = {a[h][o][0].x, a[h][o][1].x, a[h][o][0].y, a[h][o][1].y};
            const u32 a_second[4] = {a[h][o][0].z, a[h][o][1].z, a[h][o][0].w, a[h][o][1].w};
            mma_16816(d[o][t], a_first, b_first);
            mma_16816(d[o][t], a_second, b_second);
          }
        }
      }
    }
  }
  if (!waited) wait_for_predecessor();
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    if (first_row + t * 8 >= rows) break;
    block_sync();
#pragma unroll
    for (int o = 0; o < WIDE; o++) {
      float(*own)[8] = sums[warp()] + o * OUTPUTS;
      *(float2*)&own[group][quarter * 2] = make_float2(d[o][t][0], d[o][t][1]);
      *(float2*)&own[group + 8][quarter * 2] = make_float2(d[o][t][2], d[o][t][3]);
    }
    block_sync();
    int output = (int)threadIdx.x % WRITTEN, column = (int)threadIdx.x / WRITTEN;
    int row = first_row + t * 8 + column;
    if (column >= 8 || row >= rows || first_output + output >= outputs) continue;
    float sum = 0.0f, other = 0.0f;
    int place = GATED ? output / 8 * OUTPUTS + output % 8 : output;
#pragma unroll
    for (int k = 0; k < WARPS; k++) sum += sums[k][place][column];
    if (bias) sum += to_float(bias[first_output + output]);
    if (GATED) {
#pragma unroll
      for (int k = 0; k < WARPS; k++) other += sums[k][place + 8][column];
      if (bias) other += to_float(bias[outputs + first_output + output]);
      sum = gate(sum, other);
    }
    u64 at = (u64)row * y_stride + first_output + output;
    if (y_is_float)
      ((float*)y)[at] = sum;
    else
      ((T*)y)[at] = from_float(sum);
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, int y_stride, const T *x, int x_stride, const int *source, const T *w, const T *bias,          \
      int rows, int inputs, int outputs
#define ARGUMENTS y, y_is_float, y_stride, x, x_stride, source, w, bias, rows, inputs, outputs

/// `linear_<n>`: n rows a block, and `linear_<n>_ahead` for layers of few outputs, whose few blocks have to ask for more at
/// once to keep memory busy. Grid: (outputs / 16, rows / n), 512 threads. `inputs` and `x_stride` are multiples of 8,
/// `source` (or null) maps a row to its row of x, `bias` may be null, y is float instead of T if `y_is_float`.
extern "C" __global__ void __launch_bounds__(512) linear_8(PARAMETERS) { linear_block<1, 1>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) linear_8_ahead(PARAMETERS) { linear_block<1, 4>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) linear_16(PARAMETERS) { linear_block<2, 1>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) linear_16_ahead(PARAMETERS) { linear_block<2, 4>(ARGUMENTS); }

/// `linear_<n>_wide`: n rows and more outputs a block, 32 for up to 16 rows and 64 for 32 rows. Grid: (rows / n, outputs /
/// 32 or 64), so that the blocks of the same weights run side by side and all but one find them in second-level cache; 512
/// threads; x has less than 2³² elements; otherwise as above.
extern "C" __global__ void __launch_bounds__(512) linear_8_wide(PARAMETERS) { linear_wide_block<1, 2, 2>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512, 2) linear_16_wide(PARAMETERS) { linear_wide_block<2, 2, 1>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) linear_32_wide(PARAMETERS) { linear_wide_block<4, 4, 1>(ARGUMENTS); }

/// Gated, with half as many outputs a block; `outputs` counts those of y, w and bias have twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(512) linear_8_gated(PARAMETERS) { linear_block<1, 1, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) linear_16_gated(PARAMETERS) { linear_block<2, 1, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512, 2) linear_8_wide_gated(PARAMETERS) {
  linear_wide_block<1, 2, 1, true>(ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(512, 2) linear_16_wide_gated(PARAMETERS) {
  linear_wide_block<2, 2, 1, true>(ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(512) linear_32_wide_gated(PARAMETERS) {
  linear_wide_block<4, 4, 1, true>(ARGUMENTS);
}
