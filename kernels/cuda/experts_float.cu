// Experts in float, on CUDA cores, for tests and for `--dtype float32`. See route.cu for pairs.
//
// -DW_MXFP4: weights as in mxfp4.cuh, else float.
#include "common.cuh"
#include "clamped.cuh"

#define WARPS 8

#ifdef W_MXFP4
#include "e2m1.cuh"
typedef unsigned char W;
#define SCALES_PARAMETERS , const u32 *w_scales
#define SCALES_ARGUMENTS , w_scales

/// The weight of an input in row `row` of the `outputs` rows of an expert.
__device__ __forceinline__ float weight_at(const W* w, int expert, int outputs, int row, int inputs, int input,
                                           const u32* w_scales) {
  int within = input % 32;
  const u32* words = (const u32*)(w + (((u64)expert * outputs + row) * inputs + input - within) / 2);
  u32 pair = pair_as_bf16(words[within % 8 / 2], within / 8), bits = within % 2 ? pair >> 16 : pair & 0xffff;
  int steps = (inputs + 127) / 128;
  u32 exponent = w_scales[((u64)expert * steps + input / 128) * outputs + row] >> input / 32 % 4 * 8 & 255;
  // 2^−127 is subnormal.
  float scale = bits_float(exponent == 0 ? 1u << 22 : exponent << 23);
  // Times 2^126.
  return bits_float(bits << 16) * bits_float(253u << 23) * scale;
}
#else
typedef float W;
#define SCALES_PARAMETERS
#define SCALES_ARGUMENTS

__device__ __forceinline__ float weight_at(const W* w, int expert, int outputs, int row, int inputs, int input) {
  return w[((u64)expert * outputs + row) * inputs + input];
}
#endif

/// The product of a row of x with an output's weights, in an order that depends on the number of
/// inputs alone.
__device__ __forceinline__ float product(const float* x, const W* w, int expert, int outputs, int row,
                                         int inputs SCALES_PARAMETERS) {
  float sum = 0.0f;
  for (int k = lane(); k < inputs; k += WARP) {
    sum = multiply_add(x[k], weight_at(w, expert, outputs, row, inputs, k SCALES_ARGUMENTS), sum);
  }
  return warp_sum(sum);
}

/// As experts_gated_8 of experts.cu. Grid: (outputs / 8, pairs), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
experts_gated_float(float* y, const float* x, int x_stride, const W* w, const int* expert, int chosen, int inputs,
                    int outputs SCALES_PARAMETERS BIAS_PARAMETERS) {
  wait_for_predecessor();
  int output = (int)blockIdx.x * WARPS + warp(), pair = (int)blockIdx.y;
  if (output >= outputs) return;
  int own = expert[pair], all = 2 * outputs;
  const float* row = x + (u64)(pair / chosen) * x_stride;
  float gate = product(row, w, own, all, output, inputs SCALES_ARGUMENTS);
  float up = product(row, w, own, all, outputs + output, inputs SCALES_ARGUMENTS);
  gate = with_bias(gate, own * all + output BIAS_OF_EXPERTS);
  up = with_bias(up, own * all + outputs + output BIAS_OF_EXPERTS);
  if (lane() == 0) y[(u64)pair * outputs + output] = join(gate, up BIAS_FORM);
}

/// As experts_down_8 of experts.cu. Grid: (outputs / 8, pairs), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
experts_down_float(float* y, const float* x, int x_stride, const W* w, const int* expert, const float* weight, int rows,
                   int chosen, int inputs, int outputs SCALES_PARAMETERS BIAS_PARAMETERS) {
  wait_for_predecessor();
  int output = (int)blockIdx.x * WARPS + warp(), pair = (int)blockIdx.y;
  if (output >= outputs) return;
  float sum = product(x + (u64)pair * x_stride, w, expert[pair], outputs, output, inputs SCALES_ARGUMENTS);
  sum = with_bias(sum, expert[pair] * outputs + output BIAS_OF_EXPERTS);
  int row = pair / chosen, place = pair - row * chosen;
  if (lane() == 0) y[((u64)place * rows + row) * outputs + output] = weight[pair] * sum;
}
