// What the linear layers that stream weights through shared memory share: stages of a ring, and what they write.
#pragma once

/// Inputs of a stage, and the bytes of a row of them.
#define PIECE 64
#define ROW_BYTES (PIECE * 2)
#define CHUNKS (PIECE / 8)

/// Where a row's 16-byte chunk of a stage lies, whose rows have so many bytes.
template <int BYTES = ROW_BYTES>
__device__ __forceinline__ u32 place_of(int row, int chunk) {
  return (u32)(row * BYTES + (chunk ^ (row & 7)) * 16);
}

/// An output of a gated layer from its two sums, rounded as if each were an operation of its own.
__device__ __forceinline__ float gate(float sum, float other) {
  float value = to_float(from_float(sum)), up = to_float(from_float(other));
  return to_float(from_float(value / (1.0f + exp_accurate(-value)))) * up;
}

__device__ __forceinline__ void write_result(void* y, int y_is_float, u64 at, float value) {
  if (y_is_float)
    ((float*)y)[at] = value;
  else
    ((T*)y)[at] = from_float(value);
}
