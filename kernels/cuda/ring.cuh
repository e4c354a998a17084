// What the linear layers that stream weights through shared memory share: stages of a ring, scales of rows, and what they write.
//
// Two of their blocks fill a multiprocessor's shared memory. Those that attention stands beside are bounded to 48 or 64 registers
// nevertheless, so that its blocks find room.
#pragma once

/// What rows that are normed but for their scale are multiplied with, which multiplies a layer's sums instead: `squares`
/// `[rows, count]`, rows a multiple of 4 apart, are sums of squares of pieces of a row's `inputs` elements; null for rows as
/// they are.
#define SCALE_PARAMETERS const float *squares, int count, float epsilon
#define SCALE_ARGUMENTS squares, count, epsilon

/// -DRING: bytes of the ring of one of two blocks. The stages that it holds with 128 outputs, for this many rows.
#define STAGES(rows) (RING / (8 * 16 * ROW_BYTES + (rows) * X_ROW_BYTES) < 6 ? RING / (8 * 16 * ROW_BYTES + (rows) * X_ROW_BYTES) : 6)

/// Fills all but one stage of a ring: weights, which do not depend on the kernel before, are under way while that ends; rows are
/// asked for after it. Of steps that there are not, both ask for zeros.
///
/// A ring may be filled at a pace, a stage of weights every `pause` cycles. All of a narrow layer is asked for within a microsecond
/// else, and what the kernel ahead is still to load then waits after it.
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

/// Goes through the steps of a ring that is filled so: `multiply` with a step and its stage, while the stage before takes the next
/// that is asked for.
template <int COUNT, class Weights, class Rows, class Multiply>
__device__ __forceinline__ void go_round(unsigned char* ring, int stage_bytes, int steps, Weights&& load_weights,
                                         Rows&& load_rows, Multiply&& multiply) {
  unsigned char* stage = ring;
  unsigned char* next = ring + (COUNT - 1) * stage_bytes;
  unsigned char* behind = ring + COUNT * stage_bytes;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    copy_async_wait<COUNT - 2>();
    // All have also multiplied what `next` holds.
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

/// Adds to a sum those of four sums of squares that a row has, of which the first is its `at`-th of this many `pieces`.
__device__ __forceinline__ void add_squares(float& sum, uint4 four, int at, int pieces) {
  const u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int k = 0; k < 4; k++) sum += at + k < pieces ? bits_float(words[k]) : 0.0f;
}

/// The sums of squares of a block's ROWS rows from `first_row` on, of which a thread has every so manieth four of a row; the
/// first AT_HAND of them arrive while products run.
template <int ROWS, int AT_HAND>
struct Scales {
  uint4 at_hand[AT_HAND];
  const float* from;
  int sharers, first, pieces;

  /// Finds where they are, which takes a division. Whole blocks call this and the next.
  __device__ __forceinline__ Scales(int first_row, int rows, const float* squares, int count) {
    sharers = (int)blockDim.x / ROWS / 4 * 4;
    int own = (int)threadIdx.x / sharers;
    bool real = squares && own < ROWS && first_row + own < rows;
    first = (int)threadIdx.x % sharers * 4;
    pieces = real ? count : 0;
    from = squares + (u64)(real ? first_row + own : 0) * squares_stride(count);
  }
  /// Asks for them, after the wait.
  __device__ __forceinline__ void ask() {
#pragma unroll
    for (int i = 0; i < AT_HAND; i++) {
      at_hand[i] = make_uint4(0, 0, 0, 0);
      if (first + i * sharers * 4 < pieces) at_hand[i] = load_fresh_16(from + first + i * sharers * 4);
    }
  }
  /// The rows' scales, in memory of the ring, when no warp reads that any more.
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

/// What the bias adds to two sums of a thread, in the first part: of an output and the one 8 after, or if GATED of gate and up.
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
