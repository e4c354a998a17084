// Linear layers of 17 and more rows whose weights and rows are both in FP8, on Hopper:
// `y = x · wᵀ + bias`, x `[rows, inputs]` and w `[outputs, inputs]` numbers in the same order
// (numbers.cuh, weights.cuh). T is the type of bias and result.
//
// As linear_wide.cu, with tiles of 128 numbers where those have 64 elements: the copy engine copies
// pairs of numbers. The products' sums have fewer bits than floats, so they are added to separate
// sums every 128 inputs, PASS columns at a time; the other warp group multiplies meanwhile. More
// than ROWS rows are further units, next to those that read the same weights, which are then in the
// L2 cache.
//
// With a scale per row and per output (BLOCKS false) the scales multiply whole sums at the end.
// Otherwise those of 128 inputs multiply their sum: three warps write them behind the stages, as
// each becomes empty.
//
// A row's result depends on how a layer is divided, and not on the other rows.
#define W_FP8 1
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#if defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "wgmma.cuh"
#include "bulk.cuh"
#include "tile_ring.cuh"
#include "units.cuh"

/// Threads of a block: its third warp group copies, writes scales, and gives up registers for the
/// two that multiply.
#define BLOCK_THREADS (MULTIPLIERS + 128)
#define REGISTERS 232
#define OTHER_REGISTERS 40
/// Warps that write scales.
#define SCALE_WARPS 3
/// Bytes of a stage with this many rows and columns.
#define STAGE_BYTES(rows, columns) (((rows) + (columns)) * ROW_BYTES)

/// The scales of rows: `[rows]` if `stride` is 0, else `[blocks, stride]`.
struct RowScales {
  const float* at;
  int stride;
  __device__ __forceinline__ float of(int row, int input) const { return at[(u64)(input / W_BLOCK) * (u32)stride + (u32)row]; }
};

/// One block. It takes every n-th unit, and its ring continues from one to the next. A thread
/// writes two neighbours of a row at once.
template <int ROWS, int COLUMNS, bool GATED, bool BLOCKS>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const Tiles* x, const Tiles* w, const T* bias, int rows,
                                         int inputs, int outputs, RowScales of_rows, const int* needed, int share, int parts,
                                         int stages W_PARAMETERS) {
  if (left_out(needed)) return;
  // Columns of a warp group, the length of a run of neighbours among them, and columns of a
  // product.
  constexpr bool SHARE_ROWS = ROWS <= 64;
  constexpr int OWN = SHARE_ROWS ? COLUMNS / 2 : COLUMNS, RUN = GATED ? OWN / 2 : OWN, OUTPUTS = GATED ? COLUMNS / 2 : COLUMNS;
  constexpr int PASS = OWN > 128 ? OWN / 2 : OWN, PASSES = OWN / PASS, BYTES = STAGE_BYTES(ROWS, COLUMNS);
  // Floats of a stage's scales: of columns in the order of the tile, then of rows.
  constexpr int SCALES = BLOCKS ? COLUMNS + ROWS : 0;
  static_assert(ROWS % 8 == 0 && RUN % 8 == 0, "tiles are whole");
  DYNAMIC_SHARED(shared);
  TileRing ring(shared + stages * BYTES, stages);
  float* scales = ring.scales;
  int row_blocks = (rows + ROWS - 1) / ROWS, across = (outputs + OUTPUTS - 1) / OUTPUTS;
  int units = across * parts * row_blocks, first_place = (int)blockIdx.x;
  auto unit_of = [&](int place) { return unit_at<ROWS, OUTPUTS>(place, row_blocks, across, share, inputs); };
  // The first of a run of columns among the rows of w.
  auto run_of = [&](const Unit& unit, int i) { return unit.first_output + (GATED ? i / 2 * RUN + i % 2 * outputs : i * RUN); };
  ring.make(stages, BLOCKS ? 1 + SCALE_WARPS : 1);

  if (threadIdx.x >= MULTIPLIERS) {
    give_up_registers<OTHER_REGISTERS>();
    if (threadIdx.x >= MULTIPLIERS + WARP) {
      if (!BLOCKS) return;
      wait_for_predecessor();
      int most_column = (GATED ? 2 * outputs : outputs) - 1;
      Slot slot = {0, 1};
      for (int place = first_place; place < units; place += (int)gridDim.x) {
        Unit unit = unit_of(place);
        for (int step = 0; step < unit.steps; step++) {
          int input = unit.begin + step * PIECE;
          barrier_await(ring.empty + slot.at, slot.turn);
          for (int i = (int)threadIdx.x - MULTIPLIERS - WARP; i < SCALES; i += SCALE_WARPS * WARP) {
            int column = min(run_of(unit, i / RUN) + i % RUN, most_column), row = min(unit.first_row + i - COLUMNS, rows - 1);
            scales[slot.at * SCALES + i] =
                i < COLUMNS ? w_scales[(u64)(column >> w_shift) * (u32)w_columns + (w_columns > 1 ? input / W_BLOCK : 0)]
                            : of_rows.of(row, input);
          }
          warp_sync();
          if (lane() == 0) barrier_arrive(ring.full + slot.at);
          advance(slot, stages);
        }
      }
      return;
    }
    if (threadIdx.x > MULTIPLIERS) return;
    // Descriptors have 2-byte elements: pairs of numbers.
    auto load_weights = [&](const Unit& unit, int step, int at) {
      barrier_expect(ring.full + at, BYTES);
#pragma unroll
      for (int i = 0; i < COLUMNS / RUN; i++) {
        copy_tile(shared + at * BYTES + (ROWS + i * RUN) * ROW_BYTES, w, (unit.begin + step * PIECE) / 2, run_of(unit, i),
                  ring.full + at, row_blocks > 1 ? staying() : passing());
      }
    };
    auto load_rows = [&](const Unit& unit, int step, int at) {
      copy_tile(shared + at * BYTES, x, (unit.begin + step * PIECE) / 2, unit.first_row, ring.full + at, staying());
    };
    feed_units(ring, units, stages, 0, x, unit_of, load_weights, load_rows);
    return;
  }

  take_registers<REGISTERS>();
  wait_for_predecessor();
  int group = same(warp() / 4), own_rows = SHARE_ROWS ? 0 : group * 64, own_columns = SHARE_ROWS ? group : 0;
  int first_row = own_rows + warp() % 4 * 16 + lane() / 4;
  Place left = shared + own_rows * ROW_BYTES, right = shared + (ROWS + own_columns * OWN) * ROW_BYTES;
  Slot slot = {0, 0};
  float piece[PASS / 2];
#pragma unroll
  for (int i = 0; i < PASS / 2; i++) piece[i] = 0.0f;
  for (int place = first_place; place < units; place += (int)gridDim.x) {
    Unit unit = unit_of(place);
    float sum[OWN / 2];
#pragma unroll
    for (int i = 0; i < OWN / 2; i++) sum[i] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < unit.steps; step++) {
      barrier_await(ring.full + slot.at, slot.turn);
      u32 stage = (u32)(slot.at * BYTES);
#pragma unroll
      for (int pass = 0; pass < PASSES; pass++) {
        products_begin();
#pragma unroll
        for (u32 k = 0; k < PIECE / 32; k++) {
          product_of_numbers_start<PASS>(piece, left + stage + k * 32, right + stage + (u32)(pass * PASS * ROW_BYTES) + k * 32, k > 0);
        }
        products_commit();
        products_wait(piece);
        if (!BLOCKS && pass + 1 == PASSES) ring.leave(slot.at);
        float by[2] = {1.0f, 1.0f};
        const float* of_columns = scales + slot.at * SCALES + own_columns * OWN + pass * PASS + lane() % 4 * 2;
        if (BLOCKS) {
#pragma unroll
          for (int h = 0; h < 2; h++) by[h] = scales[slot.at * SCALES + COLUMNS + min(first_row + 8 * h, ROWS - 1)];
        }
#pragma unroll
        for (int t = 0; t < PASS / 8; t++) {
          float* to = sum + pass * (PASS / 2) + 4 * t;
          float2 of_two = BLOCKS ? *(const float2*)(of_columns + 8 * t) : make_float2(1.0f, 1.0f);
#pragma unroll
          for (int i = 0; i < 4; i++) {
            float own = piece[4 * t + i];
            to[i] = BLOCKS ? multiply_add(own, by[i / 2] * (i % 2 ? of_two.y : of_two.x), to[i]) : to[i] + own;
          }
        }
        if (BLOCKS && pass + 1 == PASSES) {
          warp_sync();
          ring.leave(slot.at);
        }
      }
      advance(slot, stages);
    }

    void* to = parts > 1 ? (float*)y + (u64)unit.part * rows * outputs : y;
    float scale[2] = {1.0f, 1.0f};
    if (!BLOCKS) {
#pragma unroll
      for (int h = 0; h < 2; h++) scale[h] = of_rows.of(min(unit.first_row + first_row + 8 * h, rows - 1), 0);
    }
#pragma unroll
    for (int i = 0; i < RUN / 8; i++) {
      int output = unit.first_output + own_columns * RUN + i * 8 + lane() % 4 * 2;
      if (output >= outputs) continue;
      float2 own_bias = make_float2(0.0f, 0.0f), other_bias = own_bias, own_scale = make_float2(1.0f, 1.0f), other_scale = own_scale;
      if (bias && unit.part == 0) {
        own_bias = unpack(*(const u32*)(bias + output));
        if (GATED) other_bias = unpack(*(const u32*)(bias + outputs + output));
      }
      if (!BLOCKS) {
        own_scale = *(const float2*)(w_scales + output);
        if (GATED) other_scale = *(const float2*)(w_scales + outputs + output);
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float* own = sum + 4 * i + 2 * h;
        int row = unit.first_row + first_row + 8 * h;
        if (row >= rows || first_row + 8 * h >= ROWS) continue;
        float2 two = make_float2(own[0] * (scale[h] * own_scale.x) + own_bias.x, own[1] * (scale[h] * own_scale.y) + own_bias.y);
        if (GATED) {
          const float* other = own + RUN / 2;
          two = make_float2(gate(two.x, other[0] * (scale[h] * other_scale.x) + other_bias.x),
                            gate(two.y, other[1] * (scale[h] * other_scale.y) + other_bias.y));
        }
        u64 at = (u64)row * outputs + output;
        if (y_is_float)
          *(float2*)((float*)to + at) = two;
        else
          *(u32*)((T*)to + at) = pack(two.x, two.y);
      }
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const __grid_constant__ Tiles x, const __grid_constant__ Tiles w, const T *bias, int rows,     \
      int inputs, int outputs, const float *row_scales, int row_scale_stride, const int *needed, int share, int parts,  \
      int stages W_PARAMETERS
#define ARGUMENTS                                                                                                       \
  y, y_is_float, &x, &w, bias, rows, inputs, outputs, RowScales{row_scales, row_scale_stride}, needed, share, parts, stages W_ARGUMENTS

/// `products_<r>_<c>`: units of r rows and c columns; one scale per row, and per output. Grid: at
/// most as many blocks as there are units, outputs / c · parts · rows / r; BLOCK_THREADS threads.
/// Descriptors are of matrices of pairs of numbers; tiles of x have r rows, those of w as many as a
/// warp group has columns. `inputs` is a multiple of 16, `outputs` of 8, `share` of PIECE; `bias`
/// may be null; y is `[rows, outputs]` of T, or of float if `y_is_float`, and with more than one
/// part float `[parts, rows, outputs]`. If `needed`, which may be null, points at 0, nothing is
/// read or written. Dynamic shared memory: stages · (STAGE_BYTES(r, c) + 16) + 8.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_64(PARAMETERS) { block_of<32, 64, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_128(PARAMETERS) { block_of<32, 128, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_192(PARAMETERS) { block_of<32, 192, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_224(PARAMETERS) { block_of<32, 224, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_64(PARAMETERS) { block_of<64, 64, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_128(PARAMETERS) { block_of<64, 128, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_192(PARAMETERS) { block_of<64, 192, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_224(PARAMETERS) { block_of<64, 224, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_128(PARAMETERS) { block_of<128, 128, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_192(PARAMETERS) { block_of<128, 192, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_224(PARAMETERS) { block_of<128, 224, false, false>(ARGUMENTS); }

/// Gated: one part; `outputs` counts those of y, of which a unit has c / 2; tiles of w have half as
/// many rows, and w, bias and scales twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_64_gated(PARAMETERS) { block_of<32, 64, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_128_gated(PARAMETERS) { block_of<32, 128, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_192_gated(PARAMETERS) { block_of<32, 192, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_224_gated(PARAMETERS) { block_of<32, 224, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_64_gated(PARAMETERS) { block_of<64, 64, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_128_gated(PARAMETERS) { block_of<64, 128, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_192_gated(PARAMETERS) { block_of<64, 192, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_224_gated(PARAMETERS) { block_of<64, 224, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_128_gated(PARAMETERS) { block_of<128, 128, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_192_gated(PARAMETERS) { block_of<128, 192, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_224_gated(PARAMETERS) { block_of<128, 224, true, false>(ARGUMENTS); }

/// The same two with any scales of weights and rows. Additional shared memory: stages · 4 (r + c).
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_64_blocks(PARAMETERS) { block_of<32, 64, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_128_blocks(PARAMETERS) { block_of<32, 128, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_192_blocks(PARAMETERS) { block_of<32, 192, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_224_blocks(PARAMETERS) { block_of<32, 224, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_64_blocks(PARAMETERS) { block_of<64, 64, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_128_blocks(PARAMETERS) { block_of<64, 128, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_192_blocks(PARAMETERS) { block_of<64, 192, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_224_blocks(PARAMETERS) { block_of<64, 224, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_128_blocks(PARAMETERS) { block_of<128, 128, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_192_blocks(PARAMETERS) { block_of<128, 192, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_224_blocks(PARAMETERS) { block_of<128, 224, false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_64_gated_blocks(PARAMETERS) { block_of<32, 64, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_128_gated_blocks(PARAMETERS) { block_of<32, 128, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_192_gated_blocks(PARAMETERS) { block_of<32, 192, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_32_224_gated_blocks(PARAMETERS) { block_of<32, 224, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_64_gated_blocks(PARAMETERS) { block_of<64, 64, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_128_gated_blocks(PARAMETERS) { block_of<64, 128, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_192_gated_blocks(PARAMETERS) { block_of<64, 192, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_64_224_gated_blocks(PARAMETERS) { block_of<64, 224, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_128_gated_blocks(PARAMETERS) { block_of<128, 128, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_192_gated_blocks(PARAMETERS) { block_of<128, 192, true, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) products_128_224_gated_blocks(PARAMETERS) { block_of<128, 224, true, true>(ARGUMENTS); }
#endif
