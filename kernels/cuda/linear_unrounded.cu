// Linear layers of up to 8 rows with FP8 weights, as in linear.cu, that quantise their rows (own_rows_fp8.cuh).
#define W_FP8 1
#define ROWS_FP8 1
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#include "linear.cuh"

/// As `linear_8` and `linear_8_gated`, with the same bits as these over rows that were quantised before.
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_8_unrounded(PARAMETERS) { block_of<8, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_8_unrounded_gated(PARAMETERS) {
  block_of<8, true, false>(ARGUMENTS);
}
