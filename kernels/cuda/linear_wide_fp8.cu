// Linear layers of 33 and more rows with FP8 weights on Hopper: `y = x · wᵀ + bias`, x
// `[rows, inputs]`, w `[outputs, inputs]` in the order of weights.cuh. T is a 2-byte type.
//
// As in linear_wide.cu a block has a multiprocessor to itself, and its shared memory is one ring
// that the copy engine fills (bulk.cuh) and two warp groups consume. But outputs are the 64 rows of
// a product's left factor, which a warp converts to T in registers, and rows are its columns: only
// the left factor of a warp-group product can come from registers, so converted weights need not be
// written to shared memory first. A group multiplies 64 inputs while it converts the next 64.
//
// A block computes COLUMNS outputs of ROWS rows over one part of the inputs at a time. More rows
// are further units, next to those that read the same weights, which are then in the L2 cache.
//
// Scales multiply sums of 128 inputs, or if an output has a single scale, its whole sum at the end:
// sums of products that are not scaled yet need separate registers, which leaves room for half as
// many outputs.
//
// A layer with few columns is divided into parts of `share` inputs, whose float sums the next
// kernel adds. The bias belongs to the first part. A row's result depends on how a layer is
// divided, and not on the other rows.
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` with w `[2 · outputs, inputs]`, gate
// first: the 16 outputs of a warp are eight of the gate and the corresponding eight of the up half.
#define W_FP8 1
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#if defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "wgmma.cuh"
#include "bulk.cuh"
#include "tile_ring.cuh"
#include "units.cuh"

/// Threads of a block: its third warp group copies, computes scales, and gives up registers for the
/// two that multiply.
#define BLOCK_THREADS (MULTIPLIERS + 128)
#define REGISTERS 232
#define OTHER_REGISTERS 40
/// Outputs of two warp groups with one product each.
#define GROUPS_OUTPUTS 128
/// Inputs that a group converts together.
#define CONVERTED 64
/// Bytes of a stage with this many rows and columns: two tiles of rows of 64 inputs each, and one
/// of weights.
#define STAGE_BYTES(rows, columns) ((rows) * X_ROW_BYTES + (columns) * ROW_BYTES)

/// Starts the products of 64 inputs of a tile of weights with all rows. A lane's row of the left
/// factor begins at `weights`; its inputs start at chunk `chunk` of 16 each. `left` holds the left
/// factor until the products are done.
template <int ROWS>
__device__ __forceinline__ void multiply_converted(float (&sum)[ROWS / 2], u32 (&left)[CONVERTED / 16][4],
                                                   const unsigned char* weights, int chunk, Place rows) {
#pragma unroll
  for (int k = 0; k < CONVERTED / 16; k += 2) {
    u32 raw[4];
    ldmatrix_x4(raw, weights + ((chunk + k + lane() / 16) ^ (lane() & 7)) * 16);
#pragma unroll
    for (int h = 0; h < 2; h++) convert(left[k + h], raw[2 * h], raw[2 * h + 1]);
  }
  products_begin();
#pragma unroll
  for (int k = 0; k < CONVERTED / 16; k++) product_with_registers_start<ROWS>(sum, left[k], rows + (u32)(k * 32));
  products_commit();
}

/// One block. It takes every n-th unit, and its ring continues from one to the next. A group has
/// the outputs of TILES products; with one, sums are scaled every 128 inputs, and with two at the
/// end, by the only scale of an output.
template <int ROWS, int TILES, bool GATED>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const Tiles* x, const Tiles* w, const T* bias, int rows,
                                         int inputs, int outputs, SCALE_PARAMETERS, const int* needed, int share, int parts,
                                         int pause, int stages W_PARAMETERS) {
  if (left_out(needed)) return;
  constexpr int COLUMNS = TILES * GROUPS_OUTPUTS, OUTPUTS = GATED ? COLUMNS / 2 : COLUMNS;
  constexpr int X_TILE = ROWS * 128, BYTES = STAGE_BYTES(ROWS, COLUMNS);
  // Outputs per warp and per product that belong to one half of the weights.
  constexpr int OF_WARP = GATED ? 8 : 16, OF_PRODUCT = 4 * OF_WARP;
  DYNAMIC_SHARED(shared);
  TileRing ring(shared + stages * BYTES, stages);
  int row_blocks = (rows + ROWS - 1) / ROWS, across = (outputs + OUTPUTS - 1) / OUTPUTS;
  int units = across * parts * row_blocks, first_place = (int)blockIdx.x;
  auto unit_of = [&](int place) { return unit_at<ROWS, OUTPUTS>(place, row_blocks, across, share, inputs); };
  ring.make(stages);

  if (threadIdx.x >= MULTIPLIERS) {
    give_up_registers<OTHER_REGISTERS>();
    if (threadIdx.x >= MULTIPLIERS + WARP) {
      if (threadIdx.x < MULTIPLIERS + 2 * WARP) ring.find_scales(min(rows, ROWS), inputs, SCALE_ARGUMENTS);
      return;
    }
    if (threadIdx.x > MULTIPLIERS) return;
    // Descriptors of weights have 2-byte elements: pairs of bytes.
    auto load_weights = [&](const Unit& unit, int step, int at) {
      barrier_expect(ring.full + at, BYTES);
      unsigned char* to = shared + at * BYTES + 2 * X_TILE;
#pragma unroll
      for (int half = 0; half < (GATED ? 2 : 1); half++) {
        copy_tile(to + half * OUTPUTS * ROW_BYTES, w, (unit.begin + step * PIECE) / 2, unit.first_output + half * outputs,
                  ring.full + at, row_blocks > 1 ? staying() : passing());
      }
    };
    auto load_rows = [&](const Unit& unit, int step, int at) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        copy_tile(shared + at * BYTES + half * X_TILE, x, unit.begin + step * PIECE + half * PIECE / 2, unit.first_row,
                  ring.full + at, staying());
      }
    };
    feed_units(ring, units, stages, pause, x, unit_of, load_weights, load_rows);
    return;
  }

  take_registers<REGISTERS>();
  wait_for_predecessor();
  int group = same(warp() / 4), sums = GATED ? 2 * outputs : outputs;
  // A lane's first output of its group's first product, and its row of that product's left factor.
  int own_output = group * TILES * OF_PRODUCT + warp() % 4 * OF_WARP + lane() / 4;
  int own_row = group * TILES * OF_PRODUCT + warp() % 4 * OF_WARP + lane() % 8 + lane() % 16 / 8 * (GATED ? OUTPUTS : 8);
  const unsigned char* own_weights = shared + 2 * X_TILE + own_row * ROW_BYTES;
  Place all_rows = shared;
  u32 left[2][CONVERTED / 16][4];
  Slot slot = {0, 0};
  for (int place = first_place; place < units; place += (int)gridDim.x) {
    Unit unit = unit_of(place);
    float sum[TILES][ROWS / 8][4];
#pragma unroll
    for (int i = 0; i < TILES * ROWS / 2; i++) (&sum[0][0][0])[i] = 0.0f;
    int low_output = unit.first_output + own_output, high_apart = GATED ? outputs : 8;
    if constexpr (TILES == 1) {
      Scaled<ROWS / 8> scaled;
      scaled.start(w_scales, w_shift, w_columns, min(low_output, sums - 1), min(low_output + high_apart, sums - 1), unit.begin, 1);
      for (int step = 0; step < unit.steps; step++) {
        barrier_await(ring.full + slot.at, slot.turn);
        scaled.ask(step + 1 < unit.steps);
        u32 stage = (u32)(slot.at * BYTES);
        auto& piece = (float(&)[ROWS / 2])scaled.piece;
#pragma unroll
        for (int half = 0; half < 2; half++) {
          multiply_converted<ROWS>(piece, left[half], own_weights + stage, half * 4, all_rows + stage + (u32)(half * X_TILE));
        }
        products_wait(piece);
        ring.leave(slot.at);
        scaled.add(sum[0]);
        advance(slot, stages);
      }
    } else {
      int before = 0;
      for (int step = 0; step < unit.steps; step++) {
        barrier_await(ring.full + slot.at, slot.turn);
        u32 stage = (u32)(slot.at * BYTES);
#pragma unroll
        for (int c = 0; c < 2 * TILES; c++) {
          int half = c % 2, tile = c / 2;
          // All but the last are done, and their left factors no longer needed.
          products_wait_but<1>();
          if (c == 1 && step > 0) ring.leave(before);
          multiply_converted<ROWS>((float(&)[ROWS / 2])sum[tile], left[half], own_weights + stage + tile * OF_PRODUCT * ROW_BYTES,
                                   half * 4, all_rows + stage + (u32)(half * X_TILE));
        }
        before = slot.at;
        advance(slot, stages);
      }
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) products_wait((float(&)[ROWS / 2])sum[tile]);
      ring.leave(before);
    }

    if (squares) barrier_await(ring.scaled, 0);
    void* to = parts > 1 ? (float*)y + (u64)unit.part * rows * outputs : y;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      int output = low_output + tile * OF_PRODUCT;
      if (output >= outputs) continue;
      float low, high, low_scale = 1.0f, high_scale = 1.0f;
      find_bias<GATED>(low, high, bias, unit.part, output, outputs);
      if (TILES > 1) {
        low_scale = w_scales[output];
        high_scale = w_scales[min(output + high_apart, sums - 1)];
      }
#pragma unroll
      for (int t = 0; t < ROWS / 8; t++) {
#pragma unroll
        for (int i = 0; i < (GATED ? 2 : 4); i++) {
          int own = t * 8 + lane() % 4 * 2 + i % 2, row = unit.first_row + own, at = output + i / 2 * 8;
          if (row >= rows || at >= outputs) continue;
          float scale = squares ? ring.scales[own] : 1.0f;
          float value = sum[tile][t][i] * (i < 2 ? low_scale : high_scale) * scale + (i < 2 ? low : high);
          if (GATED) value = gate(value, sum[tile][t][GATED ? i + 2 : i] * high_scale * scale + high);
          write_result(to, y_is_float, (u64)row * outputs + at, value);
        }
      }
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const __grid_constant__ Tiles x, const __grid_constant__ Tiles w, const T *bias, int rows,     \
      int inputs, int outputs, SCALE_PARAMETERS, const int *needed, int share, int parts, int pause, int stages W_PARAMETERS
#define ARGUMENTS \
  y, y_is_float, &x, &w, bias, rows, inputs, outputs, SCALE_ARGUMENTS, needed, share, parts, pause, stages W_ARGUMENTS

/// `wide_fp8_<r>_<c>`: units of r rows and c columns; with 256, weights have one scale per output.
/// Grid: at most as many blocks as there are units, outputs / c · parts · rows / r; BLOCK_THREADS
/// threads. Tiles of x have r rows; the descriptor of w is a matrix of pairs of bytes, in tiles of
/// c rows. `inputs` and `outputs` are multiples of 16 and 8, `share` of PIECE; `bias` may be null;
/// there are at most r rows if they are unscaled; y is `[rows, outputs]` of T, or of float if
/// `y_is_float`, and with more than one part float `[parts, rows, outputs]`. If `needed`, which may
/// be null, points at 0, nothing is read or written. Dynamic shared memory: stages ·
/// (STAGE_BYTES(r, c) + 16) + 8 + 4 r.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) wide_fp8_64_128(PARAMETERS) { block_of<64, 1, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) wide_fp8_128_128(PARAMETERS) { block_of<128, 1, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) wide_fp8_128_256(PARAMETERS) { block_of<128, 2, false>(ARGUMENTS); }

/// Gated: one part; `outputs` counts those of y, of which a unit has c / 2; tiles of w have half as
/// many rows, and w and bias twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) wide_fp8_64_128_gated(PARAMETERS) { block_of<64, 1, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) wide_fp8_128_128_gated(PARAMETERS) { block_of<128, 1, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) wide_fp8_128_256_gated(PARAMETERS) { block_of<128, 2, true>(ARGUMENTS); }
#endif
