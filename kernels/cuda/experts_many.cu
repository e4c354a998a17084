// The layers of experts for many rows an expert, as in prompts: products of tiles of 128 outputs with the pairs of a tile on tensor
// cores. T is a 2-byte type. See route.cu for pairs and tiles.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"

#define RECORD_HEAD 4
/// Outputs of a block, gate and up counted apart.
#define MANY_OUTPUTS 128

template <int TILE>
constexpr int many_stages() { return TILE == 128 || sizeof(W) == 1 ? 3 : 4; }

#define MANY                                                                                                           \
  T *y, const T *x, int x_stride, const W *w, const int *tiles, const int *tile_count, int chosen, int inputs, int outputs W_PARAMETERS
#define MANY_ARGUMENTS y, x, x_stride, w, tiles, tile_count, chosen, inputs, outputs W_ARGUMENTS

/// One block: MANY_OUTPUTS sums of each of TILE pairs; a warp has 32 of them for half of the pairs.
template <int TILE, bool GATED>
__device__ __forceinline__ void many(MANY) {
  constexpr int STAGE_BYTES = MANY_OUTPUTS * ROW_BYTES + TILE * X_ROW_BYTES, RING_STAGES = many_stages<TILE>();
  // Rows of x that are copied together.
  constexpr int COLUMNS = TILE / 16, X_ROWS = 256 / CHUNKS;
  DYNAMIC_SHARED(shared);
  __shared__ int pair_of[TILE];
  int thread = (int)threadIdx.x, chunk = thread % W_CHUNKS, own = thread / W_CHUNKS;  // of 32
  int x_chunk = thread % CHUNKS, x_own = thread / CHUNKS;
  if (GATED) {
    await_predecessor();
    release_successor();
  } else {
    wait_for_predecessor();
  }
  if ((int)blockIdx.y >= *tile_count) return;
  const int* record = tiles + (u64)blockIdx.y * (RECORD_HEAD + 2 * TILE);
  int expert = record[0], count = record[1];
  int first_output = (int)blockIdx.x * (GATED ? MANY_OUTPUTS / 2 : MANY_OUTPUTS);
  int steps = (inputs + PIECE - 1) / PIECE, inside = (inputs - chunk * W_CHUNK + PIECE - 1) / PIECE;
  int x_inside = (inputs - x_chunk * 8 + PIECE - 1) / PIECE;
  for (int p = thread; p < TILE; p += 256) pair_of[p] = p < count ? record[RECORD_HEAD + p] : -1;
  // Of every 16 rows of a stage, 8 are of the gate and 8 of up.
  const W* from[4];
  const T* from_row[TILE / X_ROWS];
  const W* base = w + (u64)expert * (GATED ? 2 * outputs : outputs) * inputs + chunk * W_CHUNK;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int row = own + i * 32, output = first_output + (GATED ? row / 16 * 8 + row % 8 : row);
    output = output < outputs ? GATED && row % 16 >= 8 ? output + outputs : output : 0;
    from[i] = base + (u64)output * inputs;
  }
  block_sync();
#pragma unroll
  for (int i = 0; i < TILE / X_ROWS; i++) {
    int pair = max(pair_of[x_own + i * X_ROWS], 0);
    from_row[i] = x + (u64)(GATED ? pair / chosen : pair) * x_stride + x_chunk * 8;
  }
  auto load = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool real = step < inside;
      copy_async_16_or_zero(stage + place_of<ROW_BYTES>(own + i * 32, chunk), real ? from[i] + step * PIECE : w, real);
    }
    stage += MANY_OUTPUTS * ROW_BYTES;
#pragma unroll
    for (int i = 0; i < TILE / X_ROWS; i++) {
      bool real = step < x_inside && x_own + i * X_ROWS < count;
      copy_async_16_or_zero(stage + place_of<X_ROW_BYTES>(x_own + i * X_ROWS, x_chunk), real ? from_row[i] + step * PIECE : x, real);
    }
  };
  auto nothing = [](int, unsigned char*) {};
#pragma unroll
  for (int s = 0; s < RING_STAGES - 1; s++) {
    load(s, shared + s * STAGE_BYTES);
    copy_async_commit();
  }
  float sum[2][COLUMNS][4];
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sum[m][n][i] = 0.0f;
    }
  }
  int quarter = warp() % 4, half = warp() / 4;
  Scaled<COLUMNS> scaled[2];
#ifdef W_FP8
  auto row_of = [&](int m, int high) {
    int output = first_output + (GATED ? quarter * 16 + m * 8 + lane() / 4 : quarter * 32 + m * 16 + high * 8 + lane() / 4);
    output = output < outputs ? output : 0;
    return expert * (GATED ? 2 * outputs : outputs) + (GATED && high ? outputs + output : output);
  };
#pragma unroll
  for (int m = 0; m < 2; m++) scaled[m].start(w_scales, w_shift, w_columns, row_of(m, 0), row_of(m, 1), 0, 1);
#endif
  auto multiply = [&](int step, const unsigned char* stage) {
    const unsigned char* weights = stage + quarter * 32 * ROW_BYTES;
    const unsigned char* rows_of = stage + MANY_OUTPUTS * ROW_BYTES + half * (TILE / 2) * X_ROW_BYTES;
#pragma unroll
    for (int m = 0; m < 2; m++) scaled[m].ask(step + 1 < steps);
#pragma unroll
    for (int k = 0; k < PIECE / 16; k += W_LEFT) {
      u32 a[2][W_LEFT][4];
#pragma unroll
      for (int m = 0; m < 2; m++) load_left<ROW_BYTES>(a[m], weights + m * 16 * ROW_BYTES, k);
#pragma unroll
      for (int n = 0; n < COLUMNS; n += 2) {
#pragma unroll
        for (int h = 0; h < W_LEFT; h++) {
          // Sixteen pairs, 16 inputs.
          u32 b[4];
          ldmatrix_x4(b, rows_of + place_of<X_ROW_BYTES>(n * 8 + lane() % 8 + lane() / 16 * 8, (k + h) * 2 + lane() / 8 % 2));
#pragma unroll
          for (int m = 0; m < 2; m++) {
            mma_16816(scaled[m].of(sum[m], n), a[m][h], b);
            mma_16816(scaled[m].of(sum[m], n + 1), a[m][h], b + 2);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; m++) scaled[m].add(sum[m]);
  };
  go_round<RING_STAGES>(shared, STAGE_BYTES, steps, load, nothing, multiply);
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
#pragma unroll
      for (int i = 0; i < (GATED ? 2 : 4); i++) {
        int column = half * (TILE / 2) + n * 8 + lane() % 4 * 2 + i % 2, pair = pair_of[column];
        int output = first_output + (GATED ? quarter * 16 + m * 8 + lane() / 4 : quarter * 32 + m * 16 + lane() / 4 + i / 2 * 8);
        if (pair < 0 || output >= outputs) continue;
        float value = GATED ? gate(sum[m][n][i], sum[m][n][i + 2]) : sum[m][n][i];
        y[(u64)pair * outputs + output] = from_float(value);
      }
    }
  }
}

/// As experts_gated_8, for tiles of 64 or 128 pairs. Grid: (2 · outputs / MANY_OUTPUTS, as many tiles as there may be), 256 threads.
/// Dynamic shared memory: stages of MANY_OUTPUTS · ROW_BYTES + TILE · X_ROW_BYTES bytes. Of FP8 tiles have 64 pairs: sums that are yet to
/// be scaled take as many registers again.
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_64(MANY) { many<64, true>(MANY_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_gated_128(MANY) { many<128, true>(MANY_ARGUMENTS); }

/// `y[pair] = x[pair] · wᵀ`, of T and yet to be weighted. Grid: (outputs / MANY_OUTPUTS, as many tiles as there may be).
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_64(MANY) { many<64, false>(MANY_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) experts_down_128(MANY) { many<128, false>(MANY_ARGUMENTS); }
