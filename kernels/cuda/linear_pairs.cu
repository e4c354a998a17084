// Linear layers of 9 to 32 rows with FP8 weights (-DW_FP8), as in linear.cu but for the order of
// parts. A
// warp has two tiles of outputs: rows, which have twice the bytes of one-byte weights, are read
// from shared memory half as often.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#include "linear.cuh"

/// `linear_<n>_pairs`: n rows per block. Grid: (rows / n, outputs / 128, parts), 128 threads; 64
/// outputs per block if gated. Otherwise as in linear.cu.
extern "C" __global__ void __launch_bounds__(128, 2) linear_16_pairs(PARAMETERS) { block_of<16, false, false, 2>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, 2) linear_32_pairs(PARAMETERS) { block_of<32, false, false, 2>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, 2) linear_16_pairs_gated(PARAMETERS) { block_of<16, true, false, 2>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, 2) linear_32_pairs_gated(PARAMETERS) { block_of<32, true, false, 2>(ARGUMENTS); }
