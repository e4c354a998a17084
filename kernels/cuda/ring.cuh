// Shared by the linear layers that stream weights through shared memory: stages of a ring, scales
// of rows, and writing of results.
//
// Two of their blocks fill a multiprocessor's shared memory. Kernels that run next to attention are
// still limited to 48 or 64 registers, so that attention's blocks fit.
#pragma once

/// The scale of rows, which multiplies a layer's sums; `squares` is null for rows that need none.
/// Of rows that are normed except for it, if `count` is above 0: `squares` `[rows, count]`, rows a
/// multiple of 4 apart, are sums of squares of pieces of a row's `inputs` elements. If `count` is
/// 0, `squares` are the scales of the rows, and below 0 the scales of each 128 inputs,
/// `[inputs / 128, -count]`: of rows in FP8 (numbers.cuh).
#define SCALE_PARAMETERS const float *squares, int count, float epsilon
#define SCALE_ARGUMENTS squares, count, epsilon

/// -DRING: bytes of the ring of each of two blocks. STAGES is the number of stages that fit for 128
/// outputs and `rows` rows.
#define STAGES(rows) (RING / (8 * 16 * ROW_BYTES + (rows) * X_ROW_BYTES) < 6 ? RING / (8 * 16 * ROW_BYTES + (rows) * X_ROW_BYTES) : 6)

/// Fills all but one stage of a ring: weights, which do not depend on the previous kernel, are
/// loaded while that ends; rows are loaded after it. For steps past the end both load zeros.
///
/// The filling may be paced, one stage of weights every `pause` cycles. Otherwise all loads of a
/// narrow layer are issued within a microsecond, and the remaining loads of the previous kernel
/// queue behind them.
template <int COUNT, class Weights, class Rows>
__device__ __forceinline__ void fill_ring(unsigned char* ring, int stage_bytes, int steps, int pause, Weights&& load_weights,
                                          Rows&& load_rows) {
#pragma unroll
  for (int s = 0; s < COUNT - 1; s++) {
    load_weights(s, ring + s * stage_bytes);
    if (pause > 0 && s + 1 < min(steps, COUNT - 1)) let_pass(pause);
  }
  wait_for_predecessor();
#pragma unroll
  for (int s = 0; s < COUNT - 1; s++) {
    load_rows(s, ring + s * stage_bytes);
    copy_async_commit();
  }
}

/// Runs the steps of a ring filled this way: calls `multiply` with a step and its stage, while the
/// previous stage is refilled.
template <int COUNT, class Weights, class Rows, class Multiply>
__device__ __forceinline__ void go_round(unsigned char* ring, int stage_bytes, int steps, Weights&& load_weights,
                                         Rows&& load_rows, Multiply&& multiply) {
  unsigned char* stage = ring;
  unsigned char* next = ring + (COUNT - 1) * stage_bytes;
  unsigned char* behind = ring + COUNT * stage_bytes;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    copy_async_wait<COUNT - 2>();
    // All warps have also multiplied what `next` holds.
    block_sync();
    if (step + COUNT - 1 < steps) {
      load_weights(step + COUNT - 1, next);
      load_rows(step + COUNT - 1, next);
    }
    copy_async_commit();
    multiply(step, stage);
    next = stage;
    stage = stage + stage_bytes == behind ? ring : stage + stage_bytes;
  }
  copy_async_wait<0>();
}

/// Adds to a sum up to four sums of squares of a row, the first of which is at index `at` of
/// `pieces`.
__device__ __forceinline__ void add_squares(float& sum, uint4 four, int at, int pieces) {
  const u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int k = 0; k < 4; k++) sum += at + k < pieces ? bits_float(words[k]) : 0.0f;
}

/// The sums of squares of a block's ROWS rows from `first_row` on. A row has `sharers` threads,
/// each of which loads every `sharers`-th group of four; the first AT_HAND groups arrive while
/// products run.
template <int ROWS, int AT_HAND>
struct Scales {
  uint4 at_hand[AT_HAND];
  const float* from;
  int sharers, first, pieces;

  /// Computes the addresses, which takes a division. Called by whole blocks, as are the next two.
  __device__ __forceinline__ Scales(int first_row, int rows, const float* squares, int count) {
    sharers = (int)blockDim.x / ROWS / 4 * 4;
    int own = (int)threadIdx.x / sharers;
    bool real = squares && count > 0 && own < ROWS && first_row + own < rows;
    first = (int)threadIdx.x % sharers * 4;
    pieces = real ? count : 0;
    from = squares + (u64)(real ? first_row + own : 0) * squares_stride(count);
  }
  /// Loads the first of them, after the wait.
  __device__ __forceinline__ void ask() {
#pragma unroll
    for (int i = 0; i < AT_HAND; i++) {
      at_hand[i] = make_uint4(0, 0, 0, 0);
      if (first + i * sharers * 4 < pieces) at_hand[i] = load_fresh_16(from + first + i * sharers * 4);
    }
  }
  /// The rows' scales, in the memory of the ring once no warp reads that any more.
  __device__ __forceinline__ const float* find(float* ring, int inputs, float epsilon) const {
    float own = 0.0f;
#pragma unroll
    for (int i = 0; i < AT_HAND; i++) add_squares(own, at_hand[i], first + i * sharers * 4, pieces);
#pragma unroll 1
    for (int at = first + AT_HAND * sharers * 4; at < pieces; at += sharers * 4) {
      add_squares(own, load_fresh_16(from + at), at, pieces);
    }
    float* scales = ring + blockDim.x;
    block_sync();
    ring[threadIdx.x] = own;
    block_sync();
    if (threadIdx.x < ROWS) {
      float sum = 0.0f;
#pragma unroll 4
      for (int i = 0; i < sharers; i += 4) {
        float4 four = *(const float4*)(ring + (int)threadIdx.x * sharers + i);
        sum += (four.x + four.y) + (four.z + four.w);
      }
      scales[threadIdx.x] = inverse_root(sum / (float)inputs + epsilon);
    }
    block_sync();
    return scales;
  }
};

/// The scales of rows for 128 inputs from `input` on, if each 128 have their own; else null.
__device__ __forceinline__ const float* scales_of_blocks(const float* squares, int count, int input) {
  return squares && count < 0 ? squares + (u64)(input / 128) * (u32)-count : nullptr;
}

/// The bias for two sums of a thread, in the first part: of an output and the one 8 after, or if
/// GATED of gate and up.
template <bool GATED>
__device__ __forceinline__ void find_bias(float& low, float& high, const T* bias, int part, int output, int outputs) {
  low = high = 0.0f;
  if (bias && part == 0) {
    low = output < outputs ? to_float(bias[output]) : 0.0f;
    high = GATED ? output < outputs ? to_float(bias[outputs + output]) : 0.0f
                 : output + 8 < outputs ? to_float(bias[output + 8]) : 0.0f;
  }
}

/// An output of a gated layer from its two sums, rounded as if each were a separate operation.
__device__ __forceinline__ float gate(float sum, float other) {
  return gated(to_float(from_float(sum)), to_float(from_float(other)));
}

__device__ __forceinline__ void write_result(void* y, int y_is_float, u64 at, float value) {
  if (y_is_float)
    ((float*)y)[at] = value;
  else
    ((T*)y)[at] = from_float(value);
}
