// Linear layers for small numbers of rows: `y = x · wᵀ + bias`, x `[rows, inputs]`, w
// `[outputs, inputs]`. T is a 2-byte type; weights are T, or FP8 with scales (weights.cuh).
//
// Weights stream through a ring of stages in shared memory: as many bytes are in flight as the ring
// holds, whatever the warps are doing, and the ring is filled before the previous kernel has ended.
// A warp multiplies 16 outputs with all rows of the block; a stage holds PIECE inputs of the
// block's weights and rows. Rows of a stage are 128 bytes, whose 16-byte chunks are swizzled by the
// row (`chunk ^ row % 8`), so that the eight rows of an 8×8 tile are in different banks.
//
// To give every multiprocessor a share, a layer's inputs may be divided into parts of `share`
// inputs (split-k). An output's sum runs over the inputs of a part in order, and over the parts in
// order; the bias comes first. A block either computes one part, and leaves its float sum for the
// next kernel to add, or all of them, with the same bits. So a row's result depends on the layer
// alone, not on the number of rows nor on the other rows (batch invariance).
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` with w `[2 · outputs, inputs]`, gate
// first: the 16 outputs of a warp are then 8 of the gate and the corresponding 8 of the up half.
// The bits are those of silu_gate after the layer.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#include "linear.cuh"

/// `linear_<n>`: n rows per block. Grid: (rows / n, outputs / (16 · warps), parts), 4 to 8 warps;
/// row blocks of the same weights run next to each other, so that all but one find them in the L2
/// cache. `inputs` (16 for FP8) and `x_stride` are multiples of 8, `share` of PIECE; `bias` may be
/// null; y is float instead of T if `y_is_float`, and with more than one part in the grid it is
/// float `[parts, rows, outputs]`. If n is at most 32, rows may be unscaled (ring.cuh). Dynamic
/// shared memory: STAGES(n) · (16 · warps · ROW_BYTES + n · X_ROW_BYTES).
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_8(PARAMETERS) { block_of<8, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_16(PARAMETERS) { block_of<16, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_32(PARAMETERS) { block_of<32, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_64(PARAMETERS) { block_of<64, false, false>(ARGUMENTS); }

/// A block computes all parts; the grid has one. Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, 2) linear_64_all(PARAMETERS) { block_of<64, false, true>(ARGUMENTS); }

/// Gated: 8 outputs per warp, one part; `outputs` counts those of y, w and bias have twice as many.
/// Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_8_gated(PARAMETERS) { block_of<8, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_16_gated(PARAMETERS) { block_of<16, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_32_gated(PARAMETERS) { block_of<32, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_64_gated(PARAMETERS) { block_of<64, true, false>(ARGUMENTS); }
