// The layers of experts for few rows an expert: weights stream through a ring in shared memory, as those of linear_few.cu. T is a
// 2-byte type. See route.cu for pairs and tiles.
//
// A unit is 16 outputs of an expert (8 of gate and the 8 of up that belong to them) for the pairs of one tile, over all
// inputs. A block takes every n-th of the existing units, whose number is in device memory, and its ring continues from
// one unit to the next. The warps of a block share the inputs of a stage; their sums are added in order of the warps.
// So an output's sum depends neither on the tile's size nor on the other rows.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"

#define EXPERT_WARPS 8
/// Inputs of a stage, of which each warp has a part; bytes of a row of weights and of x in it.
#define EXPERT_PIECE (512 / (int)sizeof(W))
#define EXPERT_ROW 512
#define EXPERT_CHUNKS (EXPERT_ROW / 16)
#define EXPERT_X_ROW (EXPERT_PIECE * 2)
#define EXPERT_X_CHUNKS (EXPERT_X_ROW / 16)
#define RECORD_HEAD 4

#ifdef W_FP8
/// Scales of a stage, of 16 rows, lie after its rows of x.
#define STAGE_BLOCKS (EXPERT_PIECE / W_BLOCK)
#define SCALE_BYTES (16 * STAGE_BLOCKS * 4)
#else
#define SCALE_BYTES 0
#endif

/// Stages of the ring for tiles of this many pairs. What the ring and the warps' sums take together leaves room for a second block.
template <int TILE>
constexpr int stages_of() {
  return sizeof(W) == 1 ? (TILE == 8 ? 5 : TILE == 16 ? 3 : 2) : TILE == 8 ? 7 : TILE == 16 ? 5 : 3;
}

#define EXPERTS                                                                                                        \
  void *y, const T *x, int x_stride, const W *w, const int *tiles, const int *tile_count, int rows, int chosen,        \
      int inputs, int outputs W_PARAMETERS
#define EXPERTS_ARGUMENTS y, x, x_stride, w, tiles, tile_count, rows, chosen, inputs, outputs W_ARGUMENTS

/// Goes through the units of a block; what comes next is looked up a unit ahead.
template <int PAIRS>
struct Cursor {
  int unit, step, expert, count, pair[PAIRS];
  int next_expert, next_count, next_pair[PAIRS];
};

template <int TILE, int PAIRS>
__device__ __forceinline__ void look(Cursor<PAIRS>& cursor, const int* tiles, int unit, int units, int pieces, int own) {
  const int* record = tiles + (u64)(min(unit, units - 1) / pieces) * (RECORD_HEAD + 2 * TILE);
  cursor.next_expert = load_fresh(record);
  cursor.next_count = load_fresh(record + 1);
#pragma unroll
  for (int n = 0; n < PAIRS; n++) cursor.next_pair[n] = load_fresh(record + RECORD_HEAD + own + n * (TILE / PAIRS));
}
template <int PAIRS>
__device__ __forceinline__ void enter(Cursor<PAIRS>& cursor) {
  cursor.expert = cursor.next_expert;
  cursor.count = cursor.next_count;
#pragma unroll
  for (int n = 0; n < PAIRS; n++) cursor.pair[n] = cursor.next_pair[n];
}

template <int TILE, bool GATED>
__device__ __forceinline__ void stream(EXPERTS) {
  constexpr int X_AT = 16 * EXPERT_ROW, STAGE_BYTES = X_AT + TILE * EXPERT_X_ROW + SCALE_BYTES;
  constexpr int RING_STAGES = stages_of<TILE>(), PAIRS = TILE / 8;
  // Rows of x that are copied together, and how many of each this many pairs a thread copies.
  constexpr int X_ROWS = 256 / EXPERT_X_CHUNKS, X_PAIRS = TILE / X_ROWS;
  constexpr int OUTPUTS = GATED ? 8 : 16, RESULTS = (OUTPUTS * TILE + 255) / 256;
  DYNAMIC_SHARED(shared);
  float* sums = (float*)(shared + RING_STAGES * STAGE_BYTES);
  int thread = (int)threadIdx.x, chunk = thread % EXPERT_CHUNKS, own = thread / EXPERT_CHUNKS;  // of eight
  int pieces = (outputs + OUTPUTS - 1) / OUTPUTS, steps = (inputs + EXPERT_PIECE - 1) / EXPERT_PIECE;
  int x_chunk = thread % EXPERT_X_CHUNKS, x_own = thread / EXPERT_X_CHUNKS;
  int stride = (int)gridDim.x, inside = (inputs - chunk * W_CHUNK + EXPERT_PIECE - 1) / EXPERT_PIECE;
  int x_inside = (inputs - x_chunk * 8 + EXPERT_PIECE - 1) / EXPERT_PIECE;
  // The next kernel reads the tiles before its wait: every kernel that writes them has ended when this one releases it.
  if (GATED) {
    await_predecessor();
    release_successor();
  }
  // There is room for the records of all tiles that a grid begins with: the first is asked for together with their number.
  int first = (int)blockIdx.x;
  Cursor<X_PAIRS> of_weights, of_rows;
  const W* from[2];
  const T* from_row[X_PAIRS];
  bool is_row[X_PAIRS];
#ifdef W_FP8
  // Some threads copy a scale each of a row of weights.
  int scale_row = thread / STAGE_BLOCKS, scale_block = thread % STAGE_BLOCKS;
  const float* scale_from = w_scales;
#endif
  look<TILE>(of_weights, tiles, first, first + 1, pieces, x_own);
  int units = load_fresh(tile_count) * pieces;
  if (first >= units) {
    if (!GATED) wait_for_predecessor();
    return;
  }
  int all = ((units - 1 - first) / stride + 1) * steps;
  of_weights.unit = of_rows.unit = first;
  of_weights.step = of_rows.step = 0;
  int asked = 0, asked_rows = 0;
  auto load_weights = [&](int, unsigned char* stage) {
    bool real = asked++ < all;
    if (real && of_weights.step == 0) {
      enter(of_weights);
      look<TILE>(of_weights, tiles, of_weights.unit + stride, units, pieces, x_own);
      int output = of_weights.unit % pieces * OUTPUTS + own;
      const W* base = w + (u64)of_weights.expert * (GATED ? 2 * outputs : outputs) * inputs + chunk * W_CHUNK;
      int other = GATED ? outputs + output : output + 8 < outputs ? output + 8 : 0;
#ifdef W_FP8
      int first_output = of_weights.unit % pieces * OUTPUTS;
      int scaled = GATED ? first_output + scale_row % 8 + scale_row / 8 * outputs : first_output + scale_row;
      scaled = GATED || scaled < outputs ? scaled : 0;
      u64 all_rows = (u64)of_weights.expert * (GATED ? 2 * outputs : outputs) + (u32)scaled;
      scale_from = w_scales + (all_rows >> w_shift) * w_columns;
#endif
      from[0] = base + (u64)output * inputs;
      from[1] = base + (u64)other * inputs;
      of_weights.unit += stride;
    }
    bool is_inside = real && of_weights.step < inside;
    int at = of_weights.step * EXPERT_PIECE;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const W* of = is_inside ? from[i] + at : w;
      copy_async_16_or_zero(stage + place_of<EXPERT_ROW>(own + 8 * i, chunk), of, is_inside, passing());
    }
#ifdef W_FP8
    if (real && scale_row < 16) {
      int block = w_columns > 1 ? min(of_weights.step * STAGE_BLOCKS + scale_block, w_columns - 1) : 0;
      copy_async_4(stage + X_AT + TILE * EXPERT_X_ROW + thread * 4, scale_from + block);
    }
#endif
    of_weights.step = of_weights.step + 1 == steps ? 0 : of_weights.step + 1;
  };
  auto load_rows = [&](int, unsigned char* stage) {
    bool real = asked_rows++ < all;
    if (real && of_rows.step == 0) {
      enter(of_rows);
      look<TILE>(of_rows, tiles, of_rows.unit + stride, units, pieces, x_own);
      of_rows.unit += stride;
#pragma unroll
      for (int n = 0; n < X_PAIRS; n++) {
        is_row[n] = x_own + n * X_ROWS < of_rows.count;
        int row = is_row[n] ? GATED ? of_rows.pair[n] / chosen : of_rows.pair[n] : 0;
        from_row[n] = x + (u64)row * x_stride + x_chunk * 8;
      }
    }
#pragma unroll
    for (int n = 0; n < X_PAIRS; n++) {
      bool is_inside = real && of_rows.step < x_inside && is_row[n];
      const T* of = is_inside ? from_row[n] + of_rows.step * EXPERT_PIECE : x;
      copy_async_16_or_zero(stage + X_AT + place_of<EXPERT_X_ROW>(x_own + n * X_ROWS, x_chunk), of, is_inside);
    }
    of_rows.step = of_rows.step + 1 == steps ? 0 : of_rows.step + 1;
  };
  if (GATED) {
    of_rows = of_weights;
#pragma unroll
    for (int s = 0; s < RING_STAGES - 1; s++) {
      load_weights(s, shared + s * STAGE_BYTES);
      load_rows(s, shared + s * STAGE_BYTES);
      copy_async_commit();
    }
  } else {
    look<TILE>(of_rows, tiles, first, units, pieces, x_own);
    fill_ring<RING_STAGES>(shared, STAGE_BYTES, 0, 0, load_weights, load_rows);
  }

  // A thread writes an output of every 256 / OUTPUTS-th pair.
  int output = thread % OUTPUTS, first_pair = thread / OUTPUTS;
  constexpr int APART = 256 / OUTPUTS;
  int unit = first, step = 0, count = 0, pair[RESULTS], by[RESULTS];
  float sum[PAIRS][4];
#pragma unroll
  for (int n = 0; n < PAIRS; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) sum[n][i] = 0.0f;
  }
#ifdef W_FP8
  // Of a stage, yet to be scaled.
  float piece[PAIRS][4];
#pragma unroll
  for (int n = 0; n < PAIRS; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) piece[n][i] = 0.0f;
  }
  float(&products)[PAIRS][4] = piece;
#else
  float(&products)[PAIRS][4] = sum;
#endif
  auto finish = [&]() {
    int group = lane() / 4, column = lane() % 4 * 2;
    float* mine = sums + warp() * 16 * TILE;
#pragma unroll
    for (int n = 0; n < PAIRS; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        mine[(group + i / 2 * 8) * TILE + n * 8 + column + i % 2] = sum[n][i];
        sum[n][i] = 0.0f;
      }
    }
    block_sync();
    int at = unit % pieces * OUTPUTS + output;
#pragma unroll
    for (int i = 0; i < RESULTS; i++) {
      int p = first_pair + i * APART;
      if (p >= count || p >= TILE || at >= outputs) continue;
      float value = 0.0f, up = 0.0f;
#pragma unroll
      for (int k = 0; k < EXPERT_WARPS; k++) {
        value += sums[(k * 16 + output) * TILE + p];
        if (GATED) up += sums[(k * 16 + output + 8) * TILE + p];
      }
      if (GATED) {
        ((T*)y)[(u64)pair[i] * outputs + at] = from_float(gate(value, up));
      } else {
        int row = pair[i] / chosen, place = pair[i] - row * chosen;
        ((float*)y)[((u64)place * rows + row) * outputs + at] = bits_float((u32)by[i]) * value;
      }
    }
  };
  auto multiply = [&](int, const unsigned char* stage) {
    if (step == 0) {
      const int* record = tiles + (u64)(unit / pieces) * (RECORD_HEAD + 2 * TILE);
      count = load_fresh(record + 1);
#pragma unroll
      for (int i = 0; i < RESULTS; i++) {
        int p = min(first_pair + i * APART, TILE - 1);
        pair[i] = load_fresh(record + RECORD_HEAD + p);
        by[i] = load_fresh(record + RECORD_HEAD + TILE + p);
      }
    }
#pragma unroll
    for (int k = 0; k < EXPERT_PIECE / EXPERT_WARPS; k += 32) {
      u32 a[2][4];
      int at = warp() * (EXPERT_PIECE / EXPERT_WARPS) + k;
      load_weights_32<EXPERT_ROW>(a, stage, at / 16);
#pragma unroll
      for (int n = 0; n < PAIRS; n++) {
        u32 b[4];
        ldmatrix_x4(b, stage + X_AT + place_of<EXPERT_X_ROW>(n * 8 + lane() % 8, at / 8 + lane() / 8));
        mma_16816(products[n], a[0], b);
        mma_16816(products[n], a[1], b + 2);
      }
    }
#ifdef W_FP8
    // A warp's inputs lie in one block.
    const float* scale = (const float*)(stage + X_AT + TILE * EXPERT_X_ROW) + warp() * STAGE_BLOCKS / EXPERT_WARPS;
    float low = scale[lane() / 4 * STAGE_BLOCKS], high = scale[(lane() / 4 + 8) * STAGE_BLOCKS];
#pragma unroll
    for (int n = 0; n < PAIRS; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        sum[n][i] = multiply_add(piece[n][i], i < 2 ? low : high, sum[n][i]);
        piece[n][i] = 0.0f;
      }
    }
#endif
    if (++step == steps) {
      finish();
      step = 0;
      unit += stride;
    }
  };
  go_round<RING_STAGES>(shared, STAGE_BYTES, all, load_weights, load_rows, multiply);
}

/// `y[pair] = silu(gate) · up` of the pair's row and expert: w `[experts, 2 · outputs, inputs]`, gate first, x `[rows, inputs]`, y
/// `[pairs, outputs]`. `inputs`, `outputs` and `x_stride` are multiples of 8. Grid: any, 256 threads. Dynamic shared memory: stages of
/// 16 · EXPERT_ROW + TILE · EXPERT_X_ROW + SCALE_BYTES, and 8 · 16 · TILE floats.
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_8(EXPERTS) { stream<8, true>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_16(EXPERTS) { stream<16, true>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_32(EXPERTS) { stream<32, true>(EXPERTS_ARGUMENTS); }

/// `y[place, row] = weight · (x[pair] · wᵀ)`: w `[experts, outputs, inputs]`, x `[pairs, inputs]`, y float `[chosen, rows, outputs]`, of
/// which the sum over places, in their order, is the layer's output. Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_8(EXPERTS) { stream<8, false>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_16(EXPERTS) { stream<16, false>(EXPERTS_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_32(EXPERTS) { stream<32, false>(EXPERTS_ARGUMENTS); }
