// What a row of a gated delta net is made of: shared by the convolution (delta_convolve.cu), the
// recurrence (delta.cu) and chunks of prompts (delta_chunks.cu). Included after common.cuh.
//
// -DKEY_DIM, -DVALUE_DIM: elements of a head of queries and keys, and of values: multiples of 32.
// -DTAPS: rows that the convolution reads, including the row itself.
#pragma once

// Added to the sum of squares of a query or key before the square root.
#define EPSILON 1e-6f

/// Channels of the convolution: queries, then keys, then values.
__device__ __forceinline__ int channels_of(int key_heads, int value_heads) {
  return 2 * key_heads * KEY_DIM + value_heads * VALUE_DIM;
}

/// ln(1 + e^x); above 20 that is x.
__device__ __forceinline__ float softplus(float x) {
  if (x > 20.0f) return x;
  float power = exp_accurate(x), sum = 1.0f + power;
  return sum == 1.0f ? power : log_accurate(sum) * (power / (sum - 1.0f));
}

/// The logarithm of a row's decay, from what its projection yields.
__device__ __forceinline__ float log_decay(float rate, float offset, T projected) {
  return -exp_accurate(rate) * softplus(to_float(projected) + offset);
}

/// β of a row, from what its projection yields.
__device__ __forceinline__ float beta_of(T projected) { return 1.0f / (1.0f + exp_accurate(-to_float(projected))); }
