// Linear layers in float, on CUDA cores; arguments as in linear.cu, up to `outputs`. For tests and
// for `--dtype float32`.
#include "common.cuh"

#define WARPS 8

/// One warp per output, eight rows at a time; the order of each sum does not depend on the rows.
/// Grid: (outputs / 8, rows / 8).
extern "C" __global__ void __launch_bounds__(256)
linear_float(void* y, int y_is_float, const T* x, int x_stride, const T* w, const T* bias, int rows, int inputs,
             int outputs) {
  wait_for_predecessor();
  int output = (int)blockIdx.x * WARPS + warp(), first_row = (int)blockIdx.y * 8;
  if (output >= outputs) return;
  int count = min(8, rows - first_row);
  const float* x_row[8];
  for (int r = 0; r < 8; r++) {
    int row = first_row + (r < count ? r : 0);
    x_row[r] = x + (u64)row * x_stride;
  }
  float d[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int k = lane(); k < inputs; k += WARP) {
    float weight = w[(u64)output * inputs + k];
#pragma unroll
    for (int r = 0; r < 8; r++)
      if (r < count) d[r] += weight * x_row[r][k];
  }
  float add = bias ? bias[output] : 0.0f;
  warp_sums(d);
  if (lane() != 0) return;
#pragma unroll
  for (int r = 0; r < 8; r++)
    if (r < count) ((float*)y)[(u64)(first_row + r) * outputs + output] = d[r] + add;
}
