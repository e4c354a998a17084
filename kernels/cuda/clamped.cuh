// How experts join gate and up. With -DBIASED they have biases `[experts, outputs]` of T (null for
// none), and for a limit above 0 the clamped form of reference/activation.rs, else
// `silu(gate) · up`.
#pragma once

#ifdef BIASED
#define BIAS_PARAMETERS , const T *bias, float alpha, float limit
#define BIAS_ARGUMENTS , bias, alpha, limit
#define BIAS_OF_EXPERTS , bias
#define BIAS_FORM , alpha, limit

__device__ __forceinline__ float with_bias(float sum, int at, const T* bias) { return bias ? sum + to_float(bias[at]) : sum; }

/// Both are rounded first, as if each were a separate operation. NaN stays NaN.
__device__ __forceinline__ float join(float gate, float up, float alpha, float limit) {
  gate = to_float(from_float(gate));
  up = to_float(from_float(up));
  if (limit <= 0.0f) return gated(gate, up);
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
#if defined(T_PAIRS)
  float own = gate * inverse_fast(1.0f + exp_fast(-alpha * gate));
#else
  float own = gate / (1.0f + exp_accurate(-alpha * gate));
#endif
  return to_float(from_float(own)) * (up + 1.0f);
}
#else
#define BIAS_PARAMETERS
#define BIAS_ARGUMENTS
#define BIAS_OF_EXPERTS
#define BIAS_FORM

__device__ __forceinline__ float with_bias(float sum, int) { return sum; }
/// An output of a gated layer from its two sums, rounded as if each were a separate operation.
__device__ __forceinline__ float join(float gate, float up) {
  return gated(to_float(from_float(gate)), to_float(from_float(up)));
}
#endif
