// The layers of experts: a block for each tile of pairs and each 128 outputs. T is a 2-byte type.
// See route.cu for pairs and tiles.
//
// A sum adds its inputs in their order, or in narrow kernels those of each share, so it depends
// neither on the size of tiles nor on the other rows.
#include "common.cuh"
#ifdef W_MXFP4
#include "mxfp4.cuh"
#else
#include "weights.cuh"
#endif
#include "ring.cuh"
#include "clamped.cuh"

#ifndef W_MXFP4
#define W_PACK 1
#define SCALE_BYTES 0
__device__ __forceinline__ u32 place_of_weights(int row, int chunk) { return place_of<ROW_BYTES>(row, chunk); }

/// A stage has no scales.
struct RowScales {
  __device__ __forceinline__ RowScales(const unsigned char*, int) {}
};
template <int BYTES>
__device__ __forceinline__ void load_step(u32 (&a)[2][4], const unsigned char* rows, int inputs_16, const RowScales&) {
  load_step<BYTES>(a, rows, inputs_16);
}
template <int BYTES>
__device__ __forceinline__ void load_left(u32 (&a)[W_LEFT][4], const unsigned char* rows, int inputs_16, const RowScales&) {
  load_left<BYTES>(a, rows, inputs_16);
}
#endif

/// With -DROWS_FP8, rows are FP8 numbers, with -DX_FP8 as such and else as values of T, and
/// `x_scales` their scales (numbers.cuh): `[rows]` if `x_scale_stride` is 0, else
/// `[inputs / 128, x_scale_stride]`.
#ifdef ROWS_FP8
#define X_PARAMETERS , const float *x_scales, int x_scale_stride
#define X_ARGUMENTS , x_scales, x_scale_stride
#else
#define X_PARAMETERS
#define X_ARGUMENTS
#endif

#define RECORD_HEAD 4
/// Outputs of a warp, gate and up counted separately, and warps of a block with different outputs.
#define WARP_OUTPUTS 16
#define BLOCK_WARPS 8

/// Blocks for few tiles, of up to NARROW_PAIRS pairs: -DNARROW_GATED and -DNARROW_DOWN are their
/// warps with different outputs, shares of inputs and stages, as `NarrowBlock` of the host has
/// them.
#define NARROW_PAIRS 2
constexpr int threads_of(int warps, int shares, int) { return warps * shares * WARP; }
constexpr int GATED_THREADS = threads_of(NARROW_GATED), DOWN_THREADS = threads_of(NARROW_DOWN);
/// As many of them on a multiprocessor as leave each thread 64 registers.
constexpr int GATED_BLOCKS = 1024 / GATED_THREADS, DOWN_BLOCKS = 1024 / DOWN_THREADS;

/// Up to 16 pairs leave registers and shared memory for a third block on a multiprocessor, which
/// hides how the others start and end. Rows of numbers leave memory for a stage more.
template <int TILE>
constexpr int stages_of() {
  return sizeof(X) > 1 && (TILE == 16 || TILE == 128 || (TILE == 64 && sizeof(W) == 1)) ? 3 : 4;
}

#define EXPERTS                                                                                                        \
  void *y, const X *x, int x_stride, const W *w, const int *tiles, const int *tile_count, int rows, int chosen,        \
      int inputs, int outputs W_PARAMETERS X_PARAMETERS BIAS_PARAMETERS
#define EXPERTS_ARGUMENTS                                                                                              \
  y, x, x_stride, w, tiles, tile_count, rows, chosen, inputs, outputs W_ARGUMENTS X_ARGUMENTS BIAS_ARGUMENTS

/// What a block writes of its sums: gate and up, joined (`silu(gate) · up`, or as clamped.cuh
/// says), or the sums as T, `[pairs, outputs]`; or weighted float sums, `[chosen, rows, outputs]`,
/// whose sum over the first axis, in its order, is the layer's output.
enum Output { GATED, PLAIN, WEIGHTED };

/// One block: 16 · WARPS sums of each of TILE pairs. A warp has 16 of the sums for few pairs and in
/// FP8, where each weight is then converted once; else 32 sums of half of the pairs, which reads
/// the pairs half as often.
///
/// With several SHARES as many groups of WARPS warps have the same sums, each of every SHARES-th
/// piece of inputs, with a ring of its own. Their sums are added in the order of the groups.
template <int TILE, Output OUTPUT, int WARPS = BLOCK_WARPS, int SHARES = 1, int RING_STAGES = stages_of<TILE>()>
__device__ __forceinline__ void of_tile(EXPERTS) {
  constexpr bool IS_GATED = OUTPUT == GATED;
  constexpr int THREADS = WARPS * WARP, BLOCK_OUTPUTS = WARPS * WARP_OUTPUTS;
  // A stage has weights, their scales, and rows of x.
  constexpr int SCALES_AT = BLOCK_OUTPUTS * ROW_BYTES, X_AT = SCALES_AT + BLOCK_OUTPUTS * SCALE_BYTES;
  constexpr int STAGE_BYTES = X_AT + TILE * X_ROW_BYTES, RING_BYTES = RING_STAGES * STAGE_BYTES;
  // Rows of weights that are copied together, and how many of each this many a thread copies.
  constexpr int W_ROWS = THREADS / W_CHUNKS, W_COPIES = BLOCK_OUTPUTS / W_ROWS;
  // Places of pairs in products, of which tiles of fewer leave some empty. Left factors of 16
  // outputs of a warp; parts into which warps divide the pairs; right factors of 8 pairs.
  constexpr int PLACES = TILE < 8 ? 8 : TILE;
  constexpr int LEFTS = TILE <= 32 || (TILE == 64 && sizeof(W) == 1) ? 1 : 2, PARTS = LEFTS, COLUMNS = PLACES / PARTS / 8;
  // Rows of x that are copied together, and how many of each this many a thread copies.
  constexpr int X_ROWS = THREADS / CHUNKS, X_PAIRS = (TILE + X_ROWS - 1) / X_ROWS;
  DYNAMIC_SHARED(shared);
  __shared__ int pair_of[PLACES];
  __shared__ float weight_of[OUTPUT == WEIGHTED ? PLACES : 1];
#ifdef ROWS_FP8
  __shared__ int x_row_of[PLACES];
#endif
  int share = SHARES > 1 ? (int)threadIdx.x / THREADS : 0, thread = (int)threadIdx.x - share * THREADS;
  int chunk = thread % W_CHUNKS, own = thread / W_CHUNKS;
  unsigned char* ring = shared + share * RING_BYTES;
  int x_chunk = thread % CHUNKS, x_own = thread / CHUNKS;
  // The kernel before reads the tiles of a down layer too, so they are older than it.
  if (IS_GATED) {
    await_predecessor();
    release_successor();
  }
  const int* record = tiles + (u64)blockIdx.y * (RECORD_HEAD + 2 * TILE);
  // All loads are in flight together: records after the last are old ones.
  int all_tiles = load_fresh(tile_count), expert = load_fresh(record), count = load_fresh(record + 1);
  int own_pair = (int)threadIdx.x < TILE ? load_fresh(record + RECORD_HEAD + (int)threadIdx.x) : -1;
  if ((int)blockIdx.y >= all_tiles) {
    if (!IS_GATED) wait_for_predecessor();
    return;
  }
  int first_output = (int)blockIdx.x * (IS_GATED ? BLOCK_OUTPUTS / 2 : BLOCK_OUTPUTS);
  int pieces = (inputs + PIECE - 1) / PIECE, steps = (pieces + SHARES - 1) / SHARES;
  int inside = (inputs - chunk * W_CHUNK + PIECE - 1) / PIECE;
  int x_inside = (inputs - x_chunk * X_CHUNK + PIECE - 1) / PIECE;
  for (int p = (int)threadIdx.x; p < PLACES; p += THREADS * SHARES) {
    pair_of[p] = p >= count ? -1 : p == (int)threadIdx.x ? own_pair : load_fresh(record + RECORD_HEAD + p);
#ifdef ROWS_FP8
    x_row_of[p] = p < count ? IS_GATED ? pair_of[p] / chosen : pair_of[p] : 0;
#endif
    if (OUTPUT == WEIGHTED && p < TILE) weight_of[p] = bits_float((u32)load_fresh(record + RECORD_HEAD + TILE + p));
  }
  // Of every 16 rows of a stage, 8 are of the gate and 8 of up.
  const W* from[W_COPIES];
  const X* from_row[X_PAIRS];
  int all_outputs = IS_GATED ? 2 * outputs : outputs;
  auto output_of = [&](int row) {
    int output = first_output + (IS_GATED ? row / 16 * 8 + row % 8 : row);
    return output < outputs ? IS_GATED && row % 16 >= 8 ? output + outputs : output : 0;
  };
  const W* base = w + ((u64)expert * all_outputs * inputs + chunk * W_CHUNK) / W_PACK;
#pragma unroll
  for (int i = 0; i < W_COPIES; i++) from[i] = base + (u64)output_of(own + i * W_ROWS) * inputs / W_PACK;
#ifdef W_MXFP4
  // Of the first threads each copies the scales of four rows.
  const u32* scales_from = w_scales + (u64)expert * pieces * all_outputs + output_of(thread % (BLOCK_OUTPUTS / 4) * 4);
#endif
  block_sync();
#pragma unroll
  for (int i = 0; i < X_PAIRS; i++) {
    int p = x_own + i * X_ROWS, pair = p < count ? pair_of[p] : 0;
    from_row[i] = x + (u64)(IS_GATED ? pair / chosen : pair) * x_stride + x_chunk * X_CHUNK;
  }
  auto load_weights = [&](int step, unsigned char* stage) {
    int piece = step * SHARES + share;
#pragma unroll
    for (int i = 0; i < W_COPIES; i++) {
      const W* at = from[i] + piece * (PIECE / W_PACK);
      copy_async_16_or_zero(stage + place_of_weights(own + i * W_ROWS, chunk), at, piece < inside);
    }
#ifdef W_MXFP4
    if (thread < BLOCK_OUTPUTS / 4) {
      copy_async_16_or_zero(stage + SCALES_AT + thread * 16, scales_from + (u64)piece * all_outputs, piece < pieces);
    }
#endif
  };
  auto load_rows = [&](int step, unsigned char* stage) {
    int piece = step * SHARES + share;
    stage += X_AT;
#pragma unroll
    for (int i = 0; i < X_PAIRS; i++) {
      // Sums of pairs after the last are not written: whatever their rows are in the stage.
      int p = x_own + i * X_ROWS;
      if (p >= count) continue;
      copy_async_16_or_zero(stage + place_of<X_ROW_BYTES>(p, x_chunk), from_row[i] + piece * PIECE, piece < x_inside);
    }
  };
  if (IS_GATED) {
#pragma unroll
    for (int s = 0; s < RING_STAGES - 1; s++) {
      load_weights(s, ring + s * STAGE_BYTES);
      load_rows(s, ring + s * STAGE_BYTES);
      copy_async_commit();
    }
  } else {
    fill_ring<RING_STAGES>(ring, STAGE_BYTES, 0, 0, load_weights, load_rows);
  }
  float sum[LEFTS][COLUMNS][4];
#pragma unroll
  for (int m = 0; m < LEFTS; m++) {
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sum[m][n][i] = 0.0f;
    }
  }
  int own_warp = warp() - share * WARPS, first_left = own_warp % (WARPS / PARTS) * LEFTS, part = own_warp / (WARPS / PARTS);
  Scaled<COLUMNS> scaled[LEFTS];
#ifdef W_FP8
  auto row_of = [&](int m, int high) {
    int output = first_output + (IS_GATED ? (first_left + m) * 8 + lane() / 4 : (first_left + m) * 16 + high * 8 + lane() / 4);
    output = output < outputs ? output : 0;
    return expert * (IS_GATED ? 2 * outputs : outputs) + (IS_GATED && high ? outputs + output : output);
  };
#pragma unroll
  for (int m = 0; m < LEFTS; m++) scaled[m].start(w_scales, w_shift, w_columns, row_of(m, 0), row_of(m, 1), share * PIECE, SHARES);
#endif
  auto multiply = [&](int step, const unsigned char* stage) {
    constexpr int ROWS = TILE < 8 ? TILE : 8;
    const unsigned char* weights = stage + first_left * 16 * ROW_BYTES;
    const unsigned char* rows_of = stage + X_AT + part * (TILE / PARTS) * X_ROW_BYTES;
    auto scales_of = [&](int m) { return RowScales(stage + SCALES_AT, (first_left + m) * 16); };
    const RowScales first_scales = scales_of(0), last_scales = scales_of(LEFTS - 1);
#pragma unroll
    for (int m = 0; m < LEFTS; m++) scaled[m].ask(step * SHARES + share + SHARES < pieces);
    if constexpr (COLUMNS == 1 || sizeof(X) == 1) {
#pragma unroll
      for (int k = 0; k < PIECE; k += STEP) {
        u32 a[LEFTS][2][4];
#pragma unroll
        for (int m = 0; m < LEFTS; m++) {
          load_step<ROW_BYTES>(a[m], weights + m * 16 * ROW_BYTES, k / 16, m == 0 ? first_scales : last_scales);
        }
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
          // Eight pairs, or as many as there are, STEP inputs.
          u32 b[4];
          ldmatrix_x4(b, rows_of + later_place(place_of<X_ROW_BYTES>(n * 8 + lane() % ROWS, lane() / 8), k / X_CHUNK));
#pragma unroll
          for (int m = 0; m < LEFTS; m++) multiply_step(scaled[m].of(sum[m], n), a[m], b);
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < PIECE / 16; k += W_LEFT) {
        u32 a[LEFTS][W_LEFT][4];
#pragma unroll
        for (int m = 0; m < LEFTS; m++) {
          load_left<ROW_BYTES>(a[m], weights + m * 16 * ROW_BYTES, k, m == 0 ? first_scales : last_scales);
        }
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 2) {
#pragma unroll
          for (int h = 0; h < W_LEFT; h++) {
            // Sixteen pairs, 16 inputs.
            u32 b[4];
            ldmatrix_x4(b, rows_of + place_of<X_ROW_BYTES>(n * 8 + lane() % 8 + lane() / 16 * 8, (k + h) * 2 + lane() / 8 % 2));
#pragma unroll
            for (int m = 0; m < LEFTS; m++) {
              mma_16816(scaled[m].of(sum[m], n), a[m][h], b);
              mma_16816(scaled[m].of(sum[m], n + 1), a[m][h], b + 2);
            }
          }
        }
      }
    }
#ifdef ROWS_FP8
    if (x_scale_stride > 0) {
      // After the last piece all weights are 0.
      const float* of_rows = x_scales + (u64)min(step * SHARES + share, pieces - 1) * (u32)x_scale_stride;
#pragma unroll
      for (int m = 0; m < LEFTS; m++) {
        scaled[m].add_gathered(sum[m], of_rows, x_row_of + part * (TILE / PARTS) + lane() % 4 * 2);
      }
      return;
    }
#endif
#pragma unroll
    for (int m = 0; m < LEFTS; m++) scaled[m].add(sum[m]);
  };
  go_round<RING_STAGES>(ring, STAGE_BYTES, steps, load_weights, load_rows, multiply);
  if constexpr (SHARES > 1) {
    static_assert(LEFTS == 1, "the sums of a share are those of one left factor");
    // In the rings, which no warp reads any more.
    float4* others = (float4*)shared;
    auto place_of_sums = [&](int of, int n) { return (of * WARPS + own_warp) * (COLUMNS * WARP) + n * WARP + lane(); };
    block_sync();
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
      if (share > 0) others[place_of_sums(share - 1, n)] = make_float4(sum[0][n][0], sum[0][n][1], sum[0][n][2], sum[0][n][3]);
    }
    block_sync();
    if (share > 0) return;
#pragma unroll
    for (int of = 0; of < SHARES - 1; of++) {
#pragma unroll
      for (int n = 0; n < COLUMNS; n++) {
        float4 other = others[place_of_sums(of, n)];
        sum[0][n][0] += other.x;
        sum[0][n][1] += other.y;
        sum[0][n][2] += other.z;
        sum[0][n][3] += other.w;
      }
    }
  }
#pragma unroll
  for (int m = 0; m < LEFTS; m++) {
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
#pragma unroll
      for (int i = 0; i < (IS_GATED ? 2 : 4); i++) {
        int column = part * (TILE / PARTS) + n * 8 + lane() % 4 * 2 + i % 2, pair = pair_of[column];
        int left = first_left + m, output = first_output + (IS_GATED ? left * 8 + lane() / 4 : left * 16 + lane() / 4 + i / 2 * 8);
        if (pair < 0 || output >= outputs) continue;
#ifdef ROWS_FP8
        float of_row = x_scale_stride > 0 ? 1.0f : x_scales[x_row_of[column]];
        sum[m][n][i] *= of_row;
        if (IS_GATED) sum[m][n][i + 2] *= of_row;
#endif
        float value = with_bias(sum[m][n][i], expert * all_outputs + output BIAS_OF_EXPERTS);
        if (OUTPUT == WEIGHTED) {
          int row = pair / chosen, place = pair - row * chosen;
          ((float*)y)[((u64)place * rows + row) * outputs + output] = weight_of[column] * value;
        } else {
          if constexpr (IS_GATED) {
            float up = with_bias(sum[m][n][i + 2], expert * all_outputs + outputs + output BIAS_OF_EXPERTS);
            value = join(value, up BIAS_FORM);
          }
          ((T*)y)[(u64)pair * outputs + output] = from_float(value);
        }
      }
    }
  }
}

/// `y[pair] = silu(gate) · up` (or as clamped.cuh says) of the pair's row and expert: w
/// `[experts, 2 · outputs, inputs]`, gate first, x `[rows, inputs]`, y `[pairs, outputs]`.
/// `inputs`, `outputs` and `x_stride` are multiples of 8. Grid: (2 · outputs / 128, maximum number
/// of tiles), 256 threads; narrow ones have 16 outputs for each of their warps that have different
/// ones. Dynamic shared memory: stages · (outputs of a block · (ROW_BYTES + SCALE_BYTES) + TILE ·
/// X_ROW_BYTES) bytes, for each share. Tiles of FP8 have up to 64 pairs: sums that are not scaled
/// yet take the registers of the other half. So do tiles of MXFP4, of which a warp has 16 rows, so
/// that each number is expanded once.
extern "C" __global__ void __launch_bounds__(GATED_THREADS, GATED_BLOCKS)
experts_gated_narrow(EXPERTS) { of_tile<NARROW_PAIRS, GATED, NARROW_GATED>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) experts_gated_8(EXPERTS) { of_tile<8, GATED>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) experts_gated_16(EXPERTS) { of_tile<16, GATED>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_32(EXPERTS) { of_tile<32, GATED>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_64(EXPERTS) { of_tile<64, GATED>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_128(EXPERTS) { of_tile<128, GATED>(EXPERTS_ARGUMENTS); }

/// `y[place, row] = weight · (x[pair] · wᵀ)`: w `[experts, outputs, inputs]`, x `[pairs, inputs]`,
/// y float `[chosen, rows, outputs]`. Grid: (outputs / 128, maximum number of tiles). Otherwise as
/// above.
extern "C" __global__ void __launch_bounds__(DOWN_THREADS, DOWN_BLOCKS)
experts_down_narrow(EXPERTS) { of_tile<NARROW_PAIRS, WEIGHTED, NARROW_DOWN>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) experts_down_8(EXPERTS) { of_tile<8, WEIGHTED>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 3) experts_down_16(EXPERTS) { of_tile<16, WEIGHTED>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_32(EXPERTS) { of_tile<32, WEIGHTED>(EXPERTS_ARGUMENTS); }

/// `y[pair] = x[pair] · wᵀ`, of T and not weighted yet. Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_64(EXPERTS) { of_tile<64, PLAIN>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_128(EXPERTS) { of_tile<128, PLAIN>(EXPERTS_ARGUMENTS); }
