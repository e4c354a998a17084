// Linear layers of up to 4 rows: `y = x · wᵀ + bias`, x `[rows, inputs]`, w `[outputs, inputs]`. T
// is a 2-byte type.
//
// A block has few outputs and all their inputs, which its warps share, so that results are complete
// where linear.cu would leave them in parts; each block reads all of x, which would be too much
// with more rows. Weights stream through a ring as in linear.cu. Sums have a different order, which
// does not depend on the other rows.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"

/// Rows, warps of a block, and inputs of a stage.
#define FEW_ROWS 4
#define FEW_WARPS 8
#define FEW_PIECE (FEW_WARPS * PIECE)

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const X *x, int x_stride, const W *w, const T *bias, int rows, int inputs, int outputs,      \
      SCALE_PARAMETERS, int pause W_PARAMETERS
#define ARGUMENTS y, y_is_float, x, x_stride, w, bias, rows, inputs, outputs, SCALE_ARGUMENTS, pause W_ARGUMENTS

/// Extra arguments of the kernels that add to a residual stream. The stream is y, of T; it is also
/// written to `keep` unless that is null, and multiplied by `norm` `[outputs]` to `normed`
/// `[rows, outputs]`. Each block leaves the sums of squares of its outputs in `own_squares` (see
/// ring.cuh), from which the next layer computes the norm's scale.
#define STREAM_PARAMETERS T *keep, int keep_stride, const T *norm, T *normed, float *own_squares
#define STREAM_ARGUMENTS keep, keep_stride, norm, normed, own_squares
#define NO_STREAM nullptr, 0, nullptr, nullptr, nullptr

/// One block: 16 outputs, FEW_ROWS rows, and all inputs or, if HALVED, this block's half in a
/// cluster of two. A warp takes PIECE inputs of a stage; sums are added in the order of the warps,
/// then of the blocks.
template <bool HALVED, bool ADDS>
__device__ __forceinline__ void block_of(PARAMETERS, STREAM_PARAMETERS) {
  constexpr int W_ROW = FEW_WARPS * ROW_BYTES, X_ROW = FEW_WARPS * X_ROW_BYTES;
  constexpr int STAGE_BYTES = 16 * W_ROW + FEW_ROWS * X_ROW, RING_STAGES = RING / STAGE_BYTES;
  constexpr int ROW_CHUNKS = W_ROW / 16, X_CHUNKS = X_ROW / 16, X_ROWS = FEW_WARPS * WARP / X_CHUNKS;
  DYNAMIC_SHARED(shared);
  int thread = (int)threadIdx.x, first_output = (int)blockIdx.x / (HALVED ? 2 : 1) * 16;
  int chunk = thread % ROW_CHUNKS, own_row = thread / ROW_CHUNKS;  // of four
  int begin = 0, end = inputs;
#ifdef CLUSTERS
  if (HALVED) {
    int half = (inputs + 2 * FEW_PIECE - 1) / (2 * FEW_PIECE) * FEW_PIECE;
    begin = cluster_rank() * half;
    end = min(begin + half, inputs);
  }
#endif
  int steps = (end - begin + FEW_PIECE - 1) / FEW_PIECE;
  // A thread copies one chunk of four of a stage's outputs, and of a row. `inside` is the number of
  // stages with data for it; after these it copies zeros. For outputs that the layer does not have
  // it copies the first one's weights, and they are not written.
  int inside = (end - begin - chunk * W_CHUNK + FEW_PIECE - 1) / FEW_PIECE;
  int x_chunk = thread % X_CHUNKS, x_row = thread / X_CHUNKS;
  int inside_row = x_row < rows ? (end - begin - x_chunk * X_CHUNK + FEW_PIECE - 1) / FEW_PIECE : 0;
  const W* from[4];
  const X* from_row = x + (u64)x_row * x_stride + begin + x_chunk * X_CHUNK;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int at = first_output + own_row + 4 * i;
    from[i] = w + (u64)(at < outputs ? at : 0) * inputs + begin + chunk * W_CHUNK;
  }
  auto load_weights = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      copy_async_16_or_zero(stage + place_of<W_ROW>(own_row + 4 * i, chunk), from[i] + step * FEW_PIECE, step < inside,
                            passing());
    }
  };
  auto load_rows = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < FEW_ROWS / X_ROWS; i++) {
      int own = x_row + i * X_ROWS;
      copy_async_16_or_zero(stage + 16 * W_ROW + place_of<X_ROW>(own, x_chunk),
                            from_row + (u64)(i * X_ROWS) * x_stride + step * FEW_PIECE,
                            step < inside_row && (i == 0 || own < rows));
    }
  };
  // A thread has one result in the end.
  int output = first_output + thread % 16, row = thread / 16;
  bool is_result = row < rows && output < outputs;
  float by = ADDS && is_result ? to_float(norm[output]) : 0.0f;
  Scaled<1> scaled;
#ifdef W_FP8
  int low_row = first_output + lane() / 4, high_row = low_row + 8;
  scaled.start(w_scales, w_shift, w_columns, low_row < outputs ? low_row : 0, high_row < outputs ? high_row : 0,
               begin + warp() * PIECE, FEW_WARPS);
#endif
  // The input of layers that add to a stream is not unscaled.
  Scales<FEW_ROWS, 2> of_rows(0, rows, ADDS ? nullptr : squares, count);
  fill_ring<RING_STAGES>(shared, STAGE_BYTES, steps, pause, load_weights, load_rows);
  of_rows.ask();
  u64 place = (u64)row * outputs + output;
  T before = {};
  if (ADDS && is_result) before = ((const T*)y)[place];
  float sum[1][4] = {{0.0f, 0.0f, 0.0f, 0.0f}};
  auto multiply = [&](int step, const unsigned char* stage) {
    const unsigned char* rows_of = stage + 16 * W_ROW;
    scaled.ask(begin + (step + 1) * FEW_PIECE + warp() * PIECE < end);
    scaled.ask_rows(scales_of_blocks(squares, count, min(begin + step * FEW_PIECE + warp() * PIECE, inputs - 1)),
                    lane() % 4 * 2 % FEW_ROWS, -count - 2);
#pragma unroll
    for (int k = 0; k < PIECE; k += STEP) {
      // Columns after the last row repeat another row's values, and are not written.
      u32 a[2][4], b[4];
      load_step<W_ROW>(a, stage, (warp() * PIECE + k) / 16);
      ldmatrix_x4(b, rows_of + later_place(place_of<X_ROW>(lane() % FEW_ROWS, lane() / 8), (warp() * PIECE + k) / X_CHUNK));
      multiply_step(scaled.of(sum, 0), a, b);
    }
    scaled.add(sum);
  };
  go_round<RING_STAGES>(shared, STAGE_BYTES, steps, load_weights, load_rows, multiply);
  block_sync();
  // 16 outputs of FEW_ROWS rows for each warp.
  float* sums = (float*)shared;
  int group = lane() / 4, column = lane() % 4 * 2;
  if (column < FEW_ROWS) {
    float* own = sums + warp() * 16 * FEW_ROWS + column;
    own[group * FEW_ROWS] = sum[0][0];
    own[group * FEW_ROWS + 1] = sum[0][1];
    own[(group + 8) * FEW_ROWS] = sum[0][2];
    own[(group + 8) * FEW_ROWS + 1] = sum[0][3];
  }
  block_sync();
  float value = 0.0f;
  if (row < FEW_ROWS) {
#pragma unroll
    for (int k = 0; k < FEW_WARPS; k++) value += sums[(k * 16 + thread % 16) * FEW_ROWS + row];
  }
#ifdef CLUSTERS
  if (HALVED) {
    // The second block leaves its sums after its ring for the first to add, and ends when the first
    // has ended.
    bool is_first = cluster_rank() == 0;
    float* left = (float*)(shared + RING_STAGES * STAGE_BYTES) + thread;
    if (!is_first && row < FEW_ROWS) *left = value;
    cluster_arrive_with_own();
    cluster_wait();
    if (!is_first) {
      cluster_arrive_relaxed();
      cluster_wait();
      return;
    }
    if (row < FEW_ROWS) value += load_from_block(left, 1);
  }
#endif
  if (squares && count == 0 && row < rows) value *= squares[row];
  if (!ADDS && squares && count > 0) {
    const float* scales = of_rows.find(sums, inputs, epsilon);
    if (row < FEW_ROWS) value *= scales[row];
  }
  if (is_result && bias) value += to_float(bias[output]);
  if (!ADDS) {
    if (is_result) write_result(y, y_is_float, place, value);
    return;
  }
  if (row >= FEW_ROWS) return;
  T stream = from_float(to_float(before) + to_float(from_float(value)));
  value = is_result ? to_float(stream) : 0.0f;
  float of_tile = value * value;
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2) of_tile += shuffle_xor(of_tile, mask);
  if (row < rows && thread % 16 == 0) own_squares[(u64)row * squares_stride((outputs + 15) / 16) + first_output / 16] = of_tile;
  if (!is_result) return;
  ((T*)y)[place] = stream;
  if (keep) keep[(u64)row * keep_stride + output] = stream;
  normed[place] = from_float(value * by);
}

/// Up to FEW_ROWS rows. Grid: outputs / 16, 256 threads. `inputs` and `x_stride` are multiples of
/// 8, `bias` may be null, y is float instead of T if `y_is_float`. Dynamic shared memory: as many
/// stages as fit into RING, of 16 rows of weights and FEW_ROWS of x with FEW_PIECE inputs each, and
/// 16 · FEW_ROWS floats for halved blocks.
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_few(PARAMETERS) { block_of<false, false>(ARGUMENTS, NO_STREAM); }

#ifdef CLUSTERS
/// The same in clusters of two blocks, each with half of the inputs, for layers with so few outputs
/// that blocks of all inputs would leave half of the device idle. Grid: 2 · outputs / 16.
extern "C" __global__ void __launch_bounds__(256, W_BESIDE) linear_few_halved(PARAMETERS) {
  block_of<true, false>(ARGUMENTS, NO_STREAM);
}
#endif

/// Both, for rows that are already scaled, adding to a residual stream.
extern "C" __global__ void __launch_bounds__(256, W_BESIDE + 1) few_to_stream(PARAMETERS, STREAM_PARAMETERS) {
  block_of<false, true>(ARGUMENTS, STREAM_ARGUMENTS);
}
#ifdef CLUSTERS
extern "C" __global__ void __launch_bounds__(256, W_BESIDE + 1) few_to_stream_halved(PARAMETERS, STREAM_PARAMETERS) {
  block_of<true, true>(ARGUMENTS, STREAM_ARGUMENTS);
}
#endif
