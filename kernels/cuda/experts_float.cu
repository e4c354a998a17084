// Experts in float, on CUDA cores, for tests and for `--dtype float32`. See route.cu for pairs.
#include "common.cuh"

#define WARPS 8

/// The product of a row with an output's weights, in an order that depends on the number of inputs alone.
__device__ __forceinline__ float product(const float* x, const float* w, int inputs) {
  float sum = 0.0f;
  for (int k = lane(); k < inputs; k += WARP) sum = multiply_add(x[k], w[k], sum);
  return warp_sum(sum);
}

/// As experts_gated_8 of experts.cu. Grid: (outputs / 8, pairs), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
experts_gated_float(float* y, const float* x, int x_stride, const float* w, const int* expert, int chosen, int inputs, int outputs) {
  wait_for_predecessor();
  int output = (int)blockIdx.x * WARPS + warp(), pair = (int)blockIdx.y;
  if (output >= outputs) return;
  const float* own = w + ((u64)expert[pair] * 2 * outputs + output) * inputs;
  const float* row = x + (u64)(pair / chosen) * x_stride;
  float gate = product(row, own, inputs), up = product(row, own + (u64)outputs * inputs, inputs);
  if (lane() == 0) y[(u64)pair * outputs + output] = gated(gate, up);
}

/// As experts_down_8 of experts.cu. Grid: (outputs / 8, pairs), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
experts_down_float(float* y, const float* x, int x_stride, const float* w, const int* expert, const float* weight, int rows,
                   int chosen, int inputs, int outputs) {
  wait_for_predecessor();
  int output = (int)blockIdx.x * WARPS + warp(), pair = (int)blockIdx.y;
  if (output >= outputs) return;
  float sum = product(x + (u64)pair * x_stride, w + ((u64)expert[pair] * outputs + output) * inputs, inputs);
  int row = pair / chosen, place = pair - row * chosen;
  if (lane() == 0) y[((u64)place * rows + row) * outputs + output] = weight[pair] * sum;
}
