// Linear layers of some rows: `y = x · wᵀ + bias`, x `[rows, inputs]`, w `[outputs, inputs]`. T is a 2-byte type; weights are of it, or
// FP8 with scales (weights.cuh).
//
// Weights stream through a ring of stages in shared memory: as many bytes are under way as the ring holds, whatever the
// warps are doing, and the ring is filled before the kernel ahead has ended. A warp multiplies 16 outputs with all rows of
// the block; a stage holds PIECE inputs of the block's weights and rows. Rows of a stage are 128 bytes, whose 16-byte chunks
// are permuted by the row (`chunk ^ row % 8`), so that the eight rows of an 8×8 tile lie in different banks.
//
// To give every multiprocessor its share, a layer's inputs may be dealt in parts of `share` inputs. An output's sum runs
// over the inputs of a part in order, and over the parts in order; the bias comes first. Either a block does one part, and
// leaves its float sum for the next kernel to add, or all of them, with the same bits. So a row's result depends on
// the layer alone, not on the number of rows nor on the other rows (batch invariance).
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` of w `[2 · outputs, inputs]`, gate first: the 16 outputs of a warp
// are then 8 of the gate and the 8 of the other half that belong to them. The bits are those of silu_gate after the layer.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#include "linear.cuh"

/// `linear_<n>`: n rows a block. Grid: (rows / n, outputs / (16 · warps), parts), 4 to 8 warps; row blocks of the same
/// weights run side by side, so that all but one find them in second-level cache. `inputs` (of FP8 of 16) and `x_stride` are multiples
/// of 8, `share` of PIECE; `bias` may be null; y is float instead of T if `y_is_float`, and with more than one part in the grid it
/// is float `[parts, rows, outputs]`. Rows may be yet to be scaled if n is at most 32. Dynamic shared memory: STAGES(n) ·
/// (16 · warps · ROW_BYTES + n · X_ROW_BYTES).
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_8(PARAMETERS) { block_of<8, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_16(PARAMETERS) { block_of<16, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_32(PARAMETERS) { block_of<32, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_64(PARAMETERS) { block_of<64, false, false>(ARGUMENTS); }

/// A block does all parts; the grid has one. Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, 2) linear_64_all(PARAMETERS) { block_of<64, false, true>(ARGUMENTS); }

/// Gated: 8 outputs a warp, one part; `outputs` counts those of y, w and bias have twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_8_gated(PARAMETERS) { block_of<8, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_16_gated(PARAMETERS) { block_of<16, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_32_gated(PARAMETERS) { block_of<32, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_64_gated(PARAMETERS) { block_of<64, true, false>(ARGUMENTS); }
