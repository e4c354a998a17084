// Shared by linear.cu and linear_pairs.cu: a block of a layer whose weights stream through a ring.
#pragma once

/// One block: M tiles of 16 outputs per warp (8 if GATED), ROWS rows, one part of the inputs, or if
/// FOLD all of them.
template <int ROWS, bool GATED, bool FOLD, int M = 1>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const X* x, int x_stride, const W* w, const T* bias, int rows,
                                         int inputs, int outputs, SCALE_PARAMETERS, int share, int pause W_PARAMETERS) {
  constexpr int TILES = ROWS / 8, RING_STAGES = STAGES(ROWS), OUTPUTS = (GATED ? 8 : 16) * M;
  // With more rows, the norm kernel applies the scale. Numbers have scales of their own.
  constexpr bool SCALES = ROWS <= 32 && sizeof(X) > 1;
  DYNAMIC_SHARED(shared);
  int thread = (int)threadIdx.x, threads = (int)blockDim.x, warps = threads / WARP;
  int first_row = (int)blockIdx.x * ROWS, first_output = (int)blockIdx.y * warps * OUTPUTS;
  int part = (int)blockIdx.z, stage_bytes = warps * 16 * M * ROW_BYTES + ROWS * X_ROW_BYTES;
  int begin = FOLD ? 0 : part * share, end = FOLD ? inputs : min(begin + share, inputs);
  int steps = (end - begin + PIECE - 1) / PIECE;

  // A thread copies one chunk of every fourth row of a warp's 16 · M, and its share of the rows of
  // x. `inside` is the number of stages with data for it; after these it copies zeros. For outputs
  // that the layer does not have it copies the first one's weights, and they are not written. All
  // addresses are computed before the wait, after which all stages are requested at once.
  int chunk = thread % W_CHUNKS, own_row = thread / W_CHUNKS, apart = threads / W_CHUNKS;
  int inside = (end - begin - chunk * W_CHUNK + PIECE - 1) / PIECE;
  const W* from[4 * M];
#pragma unroll
  for (int i = 0; i < 4 * M; i++) {
    int row = own_row + i * apart, output = GATED ? first_output + row / 16 * 8 + row % 8 : first_output + row;
    output = output < outputs ? GATED && row % 16 >= 8 ? output + outputs : output : 0;
    from[i] = w + (u64)output * inputs + begin + chunk * W_CHUNK;
  }
  auto load_weights = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < 4 * M; i++) {
      copy_async_16_or_zero(stage + place_of<ROW_BYTES>(own_row + i * apart, chunk), from[i] + step * PIECE, step < inside,
                            passing());
    }
  };
  int x_chunk = thread % CHUNKS, x_row = thread / CHUNKS, x_apart = threads / CHUNKS;
  const X* from_row = x + (u64)(first_row + x_row) * x_stride + begin + x_chunk * X_CHUNK;
  int rows_here = min(rows - first_row, ROWS);
  int inside_row = x_row < rows_here ? (end - begin - x_chunk * X_CHUNK + PIECE - 1) / PIECE : 0;
  auto load_rows = [&](int step, unsigned char* stage) {
    stage += warps * 16 * M * ROW_BYTES;
    // Blocks have at least four warps, so a thread copies at most one of this many rows.
    constexpr int AT_ONCE = 4 * WARP / CHUNKS;
#pragma unroll
    for (int i = 0; i < (ROWS + AT_ONCE - 1) / AT_ONCE; i++) {
      int row = x_row + i * x_apart;
      bool real = step < inside_row && (i == 0 || row < rows_here);
      if (row < ROWS) {
        copy_async_16_or_zero(stage + place_of<X_ROW_BYTES>(row, x_chunk), from_row + (u64)(i * x_apart) * x_stride + step * PIECE,
                              real);
      }
    }
  };
  // Rows of a tile of sums are outputs group and group + 8; columns are rows 2 · quarter and 2 ·
  // quarter + 1 of eight.
  int group = lane() / 4, quarter = lane() % 4;
  // For the first tile; the others follow.
  constexpr int APART = GATED ? 8 : 16;
  int output = first_output + warp() * OUTPUTS + group;
  float low[M], high[M];
  Scaled<TILES> scaled[M];
#pragma unroll
  for (int m = 0; m < M; m++) {
    int own = output + m * APART;
    find_bias<GATED>(low[m], high[m], bias, part, own, outputs);
#ifdef W_FP8
    int low_row = own < outputs ? own : 0, high_row = GATED ? outputs + low_row : own + 8 < outputs ? own + 8 : 0;
    scaled[m].start(w_scales, w_shift, w_columns, low_row, high_row, begin, 1);
#endif
  }
  Scales<SCALES ? ROWS : 32, ROWS <= 8 ? 2 : 1> of_rows(first_row, rows, SCALES ? squares : nullptr, count);
  fill_ring<RING_STAGES>(shared, stage_bytes, steps, pause, load_weights, load_rows);
  of_rows.ask();

  static_assert(!FOLD || M == 1, "sums of all parts take the registers of further tiles");
  float sum[M][TILES][4], all[FOLD ? TILES : 1][4];
#pragma unroll
  for (int m = 0; m < M; m++) {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        sum[m][t][i] = 0.0f;
        if (FOLD) all[FOLD ? t : 0][i] = 0.0f;
      }
    }
  }
  // A part's sum is complete; the bias belongs to the first.
  auto fold = [&]() {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int row = first_row + t * 8 + quarter * 2 + i % 2;
        float scale = squares && count == 0 && row < rows ? squares[row] : 1.0f;
        all[FOLD ? t : 0][i] += sum[0][t][i] * scale + (i < 2 ? low[0] : high[0]);
        sum[0][t][i] = 0.0f;
      }
    }
    low[0] = high[0] = 0.0f;
  };
  const float* of_blocks = scales_of_blocks(squares, count, begin);
  auto multiply = [&](int step, const unsigned char* stage) {
    const unsigned char* weights = stage + warp() * 16 * M * ROW_BYTES;
    const unsigned char* rows_of = stage + warps * 16 * M * ROW_BYTES;
#pragma unroll
    for (int m = 0; m < M; m++) {
      scaled[m].ask(step + 1 < steps);
      scaled[m].ask_rows(of_blocks, first_row + quarter * 2, -count - 2);
    }
    if (of_blocks) of_blocks -= count;
#pragma unroll
    for (int k = 0; k < PIECE; k += STEP) {
      u32 a[M][2][4];
#pragma unroll
      for (int m = 0; m < M; m++) load_step<ROW_BYTES>(a[m], weights + m * 16 * ROW_BYTES, k / 16);
#pragma unroll
      for (int t = 0; t < TILES; t++) {
        u32 b[4];
        ldmatrix_x4(b, rows_of + later_place(place_of<X_ROW_BYTES>(t * 8 + lane() % 8, lane() / 8), k / X_CHUNK));
#pragma unroll
        for (int m = 0; m < M; m++) multiply_step(scaled[m].of(sum[m], t), a[m], b);
      }
    }
#pragma unroll
    for (int m = 0; m < M; m++) scaled[m].add(sum[m]);
    if (FOLD && (step + 1) * PIECE % share == 0) fold();
  };
  go_round<RING_STAGES>(shared, stage_bytes, steps, load_weights, load_rows, multiply);
  if (FOLD) fold();
  const float* scales = nullptr;
  if (SCALES && squares && count > 0) scales = of_rows.find((float*)shared, inputs, epsilon);
  if (squares && count == 0) scales = squares + first_row;

  if (gridDim.z > 1) y = (float*)y + (u64)part * rows * outputs;
#pragma unroll
  for (int m = 0; m < M; m++) {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
      for (int i = 0; i < (GATED ? 2 : 4); i++) {
        int row = first_row + t * 8 + quarter * 2 + i % 2, to = output + m * APART + i / 2 * 8;
        if (row >= rows || to >= outputs) continue;
        float scale = scales ? scales[row - first_row] : 1.0f;
        float value = FOLD ? all[FOLD ? t : 0][i] : sum[m][t][i] * scale + (i < 2 ? low[m] : high[m]);
        if (GATED) value = gate(value, sum[m][t][GATED ? i + 2 : i] * scale + high[m]);
        write_result(y, y_is_float, (u64)row * outputs + to, value);
      }
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const X *x, int x_stride, const W *w, const T *bias, int rows, int inputs, int outputs,      \
      SCALE_PARAMETERS, int share, int pause W_PARAMETERS
#define ARGUMENTS y, y_is_float, x, x_stride, w, bias, rows, inputs, outputs, SCALE_ARGUMENTS, share, pause W_ARGUMENTS
