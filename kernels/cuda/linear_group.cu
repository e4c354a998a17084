// Linear layers of up to 32 rows on Hopper: `y = x · wᵀ + bias`, x `[rows, inputs]`, w
// `[outputs, inputs]`. T is a 2-byte type; with -DW_FP8 -DX_FP8 w and x are FP8 numbers with scales
// (weights.cuh).
//
// As in linear.cu weights stream through a ring of stages in shared memory, with one or two blocks
// per multiprocessor, and the ring is filled before the previous kernel has ended; for a narrow
// layer at a limited rate, one stage every `pause` cycles (ring.cuh). But one thread makes the copy
// engine copy whole tiles (bulk.cuh), after the wait only the tiles of rows; and warp groups
// multiply (wgmma.cuh): both factors are read from shared memory once, whereas warps with operands
// in registers would each read all rows. A group has 64 outputs; if a block has fewer, it
// multiplies whatever is in memory after them: outputs do not mix, and the excess results are not
// written. Rows are rounded up to 8, 16, 24 or 32; linear_wide.cu always multiplies 64. Hopper adds
// up products of FP8 numbers with about 14 bits, so those of a stage are added to sums of floats.
//
// A layer with few outputs is divided into parts of `share` inputs, whose float sums the next
// kernel adds. An output's sum runs over the inputs of a part in the order of the instruction; the
// bias belongs to the first part. So a row's result depends on how a layer is divided, and not on
// the other rows.
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` with w `[2 · outputs, inputs]`, gate
// first: the 16 outputs of a warp are eight of the gate and the corresponding eight of the up half.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#if defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "wgmma.cuh"
#include "bulk.cuh"
#include "tile_ring.cuh"

/// Outputs of two warp groups, 16 per warp.
#define GROUPS_OUTPUTS 128

/// One block: `tile` sums (a multiple of 16) of up to ROWS rows, over one part of the inputs.
template <int ROWS, bool GATED>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const Tiles* x, const Tiles* w, const T* bias, int rows,
                                         int inputs, int outputs, SCALE_PARAMETERS, const int* needed, int share, int tile,
                                         int pause, int stages W_PARAMETERS) {
  if (left_out(needed)) return;
  DYNAMIC_SHARED(shared);
  int stage_bytes = (tile + ROWS) * ROW_BYTES;
  // The space after the last stage is what the groups multiply for outputs that the block does not
  // have.
  TileRing ring(shared + stages * stage_bytes + max(GROUPS_OUTPUTS - tile - ROWS, 0) * ROW_BYTES, stages);
  int first_output = (int)blockIdx.x * (GATED ? tile / 2 : tile);
  int part = (int)blockIdx.y, begin = part * share, steps = (min(share, inputs - begin) + PIECE - 1) / PIECE;
  ring.make(stages);

  // Numbers have scales of their own.
  bool unscaled = sizeof(X) > 1 && squares;
  if (threadIdx.x >= MULTIPLIERS + WARP) {
    if (unscaled) ring.find_scales(rows, inputs, SCALE_ARGUMENTS);
    return;
  }
  if (threadIdx.x >= MULTIPLIERS) {
    if (threadIdx.x > MULTIPLIERS) return;
    // Tiles have 2-byte elements: numbers are in pairs.
    auto column_of = [&](int step) { return (begin + step * PIECE) * (int)sizeof(X) / 2; };
    auto load_weights = [&](int step, int at) {
      barrier_expect(ring.full + at, stage_bytes);
      unsigned char* to = shared + at * stage_bytes;
      if (GATED)
        copy_tile_of_halves(to, w, column_of(step), first_output / 8, ring.full + at, passing());
      else
        copy_tile(to, w, column_of(step), first_output, ring.full + at, passing());
    };
    auto load_rows = [&](int step, int at) {
      copy_tile(shared + at * stage_bytes + tile * ROW_BYTES, x, column_of(step), 0, ring.full + at, staying());
    };
    int ahead = min(stages, steps);
    fill_tiles(ahead, pause, x, load_weights, load_rows);
    Slot slot = {0, 0};
    for (int step = ahead; step < steps; step++) {
      barrier_await(ring.empty + slot.at, slot.turn);
      load_weights(step, slot.at);
      load_rows(step, slot.at);
      advance(slot, stages);
    }
    return;
  }

  // A lane's sums are lane / 4 and lane / 4 + 8 of its warp's; of eight rows it has 2 · (lane % 4)
  // and the next.
  int own_sum = warp() * 16 + lane() / 4;
  int output = first_output + (GATED ? own_sum / 16 * 8 + own_sum % 8 : own_sum);
  float low, high;
  find_bias<GATED>(low, high, bias, part, output, outputs);
  float sum[ROWS / 2];
#pragma unroll
  for (int i = 0; i < ROWS / 2; i++) sum[i] = 0.0f;
  Place own_weights = shared + same(warp() / 4) * 64 * ROW_BYTES, all_rows = shared + tile * ROW_BYTES;
  Slot slot = {0, 0};
#ifdef X_FP8
  int low_row = output < outputs ? output : 0, high_row = GATED ? outputs + low_row : output + 8 < outputs ? output + 8 : 0;
  Scaled<ROWS / 8> scaled;
  scaled.start(w_scales, w_shift, w_columns, low_row, high_row, begin, 1);
  wait_for_predecessor();
  multiply_numbers<ROWS>(sum, scaled, scales_of_blocks(squares, count, begin), -count, ring, slot, steps, stages, stage_bytes,
                         own_weights, all_rows);
#else
  wait_for_predecessor();
  multiply_tiles<ROWS>(sum, ring, slot, steps, stages, stage_bytes, own_weights, all_rows);
#endif

  if (unscaled) barrier_await(ring.scaled, 0);
  if (gridDim.y > 1) y = (float*)y + (u64)part * rows * outputs;
  if (own_sum >= tile) return;
#pragma unroll
  for (int t = 0; t < ROWS / 8; t++) {
#pragma unroll
    for (int i = 0; i < (GATED ? 2 : 4); i++) {
      int row = t * 8 + lane() % 4 * 2 + i % 2, to = output + i / 2 * 8;
      if (row >= rows || to >= outputs) continue;
      float scale = unscaled ? ring.scales[row] : squares && count == 0 ? squares[row] : 1.0f;
      float value = sum[4 * t + i] * scale + (i < 2 ? low : high);
      if (GATED) value = gate(value, sum[4 * t + (GATED ? i + 2 : i)] * scale + high);
      write_result(y, y_is_float, (u64)row * outputs + to, value);
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const __grid_constant__ Tiles x, const __grid_constant__ Tiles w, const T *bias, int rows,     \
      int inputs, int outputs, SCALE_PARAMETERS, const int *needed, int share, int tile, int pause, int stages W_PARAMETERS
#define ARGUMENTS y, y_is_float, &x, &w, bias, rows, inputs, outputs, SCALE_ARGUMENTS, needed, share, tile, pause, stages W_ARGUMENTS

/// Blocks per multiprocessor for which kernels of more than 16 rows leave registers: numbers have
/// sums of stages too.
#ifdef X_FP8
#define MANY_BESIDE 3
#else
#define MANY_BESIDE 4
#endif

/// `group_<r>`: up to r rows. Grid: (outputs / tile, parts); THREADS threads. `inputs` is a
/// multiple of 8 (16 for FP8), `share` of PIECE, `tile` of 16 up to GROUPS_OUTPUTS. Tiles of x have
/// r rows, those of w `tile`; `bias` may be null; y is `[rows, outputs]` of T, or of float if
/// `y_is_float`, and with more than one part float `[parts, rows, outputs]`. If `needed`, which may
/// be null, points at 0, nothing is read or written. Dynamic shared memory: stages · ((tile + r) ·
/// ROW_BYTES + 16) + 8 + 4 r, plus ROW_BYTES for each row by which `tile` + r is less than
/// GROUPS_OUTPUTS.
extern "C" __global__ void __launch_bounds__(THREADS, 4) group_8(PARAMETERS) { block_of<8, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 4) group_16(PARAMETERS) { block_of<16, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, MANY_BESIDE) group_24(PARAMETERS) { block_of<24, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, MANY_BESIDE) group_32(PARAMETERS) { block_of<32, false>(ARGUMENTS); }

/// Gated: one part; `outputs`, a multiple of 8, counts those of y, of which a block has tile / 2; w
/// and bias have twice as many, and tiles of w are `Tile::OfHalves`. Otherwise as above.
extern "C" __global__ void __launch_bounds__(THREADS, 4) group_8_gated(PARAMETERS) { block_of<8, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 4) group_16_gated(PARAMETERS) { block_of<16, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, MANY_BESIDE) group_24_gated(PARAMETERS) { block_of<24, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, MANY_BESIDE) group_32_gated(PARAMETERS) { block_of<32, true>(ARGUMENTS); }
#endif
