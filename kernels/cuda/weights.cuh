// The type of the weights that streaming kernels read: T, or with -DW_FP8 FP8 (e4m3) times float
// scales.
//
// FP8 is converted exactly between shared memory and the products: each number is representable in
// T. Scales multiply sums of 128 inputs, which share a scale; if a row has one scale for all of its
// inputs, it is the same every time.
//
// In memory each 16 numbers of a row are in the order in which a lane needs them (`fp8_order` of
// the host): word i of four has inputs 2i + 8, 2i, 2i + 9 and 2i + 1, so that its odd bytes are one
// word of a left factor, and its even bytes another.
#pragma once
#include "e4m3.cuh"

#ifdef W_FP8
typedef unsigned char W;
/// Blocks per multiprocessor for which kernels of few rows leave registers: conversions need some
/// more.
#define W_BESIDE 3
/// Inputs of a stage of a ring, and of 16 bytes of weights.
#define PIECE 128
#define W_CHUNK 16
/// `w_scales` has `w_columns` scales per group of rows of weights: row r has those of group r >>
/// w_shift, one for each 128 inputs, or a single one.
#define W_PARAMETERS , const float *w_scales, int w_shift, int w_columns
#define W_ARGUMENTS , w_scales, w_shift, w_columns
/// Inputs that share a scale.
#define W_BLOCK 128

/// Four numbers as pairs of T: those in bytes 1 and 3, and those in bytes 0 and 2.
__device__ __forceinline__ void decode(u32& odd, u32& even, u32 four) {
  odd = odd_bytes(four);
  even = even_bytes(four);
}

/// A left factor of 16 rows and 16 inputs, from a lane's four numbers of a low row and of a high
/// one in memory order.
__device__ __forceinline__ void convert(u32 (&a)[4], u32 low_row, u32 high_row) {
  decode(a[0], a[2], low_row);
  decode(a[1], a[3], high_row);
}

/// Left factors of 16 rows of weights, rows of BYTES bytes, for the 32 inputs from 16 · `inputs_16`
/// on, as numbers. `inputs_16` is even.
template <int BYTES>
__device__ __forceinline__ void load_numbers_32(u32 (&a)[4], const unsigned char* rows, int inputs_16) {
  ldmatrix_x4(a, rows + later_place(place_of<BYTES>(lane() % 16, lane() / 16), inputs_16));
}
/// The same as T.
template <int BYTES>
__device__ __forceinline__ void load_weights_32(u32 (&a)[2][4], const unsigned char* rows, int inputs_16) {
  u32 raw[4];
  load_numbers_32<BYTES>(raw, rows, inputs_16);
#pragma unroll
  for (int h = 0; h < 2; h++) convert(a[h], raw[2 * h], raw[2 * h + 1]);
}

/// Inputs whose left factors are loaded together, in units of 16.
#define W_LEFT 2
template <int BYTES>
__device__ __forceinline__ void load_left(u32 (&a)[2][4], const unsigned char* rows, int inputs_16) {
  load_weights_32<BYTES>(a, rows, inputs_16);
}

/// Sums of products of 16 rows of weights, of which a lane has rows lane / 4 and lane / 4 + 8, and
/// 8 rows of x for each tile, scaled every 128 inputs.
template <int TILES>
struct Scaled {
  float piece[TILES][4], low, high, next_low, next_high;
  const float *low_from, *high_from;
  int step;
  /// The scales of the rows of each tile for these inputs, if they have any.
  float2 of_rows[TILES];
  bool scales_rows;

  /// `low_row` and `high_row` are indices into all rows of weights; the sums start at input
  /// `begin`, and advance by `stride` scale blocks each step.
  __device__ __forceinline__ void start(const float* w_scales, int w_shift, int w_columns, int low_row, int high_row, int begin,
                                        int stride) {
    int first = w_columns > 1 ? begin / W_BLOCK : 0;
    step = w_columns > 1 ? stride : 0;
    scales_rows = false;
    first = min(first, w_columns - 1);
    low_from = w_scales + (u64)(low_row >> w_shift) * w_columns + first;
    high_from = w_scales + (u64)(high_row >> w_shift) * w_columns + first;
    low = *low_from;
    high = *high_from;
    clear();
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
      for (int i = 0; i < 4; i++) piece[t][i] = 0.0f;
    }
  }
  /// Loads the scales of the next step, if there is one.
  __device__ __forceinline__ void ask(bool more) {
    next_low = low;
    next_high = high;
    if (more && step > 0) {
      low_from += step;
      high_from += step;
      next_low = *low_from;
      next_high = *high_from;
    }
  }
  /// Loads the scales of rows for these inputs, `of_rows`, unless that is null: a lane has rows
  /// `first` and the next of each eight, and none after `last` count.
  __device__ __forceinline__ void ask_rows(const float* from, int first, int last) {
    scales_rows = from;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      if (from) of_rows[t] = *(const float2*)(from + min(first + 8 * t, last));
    }
  }
  /// The accumulators of products that are not scaled yet.
  __device__ __forceinline__ float (&of(float (&)[TILES][4], int t))[4] { return piece[t]; }
  /// Scales them, and adds them to the sums.
  __device__ __forceinline__ void add(float (&sum)[TILES][4]) {
    if (scales_rows) {
#pragma unroll
      for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float by = i % 2 ? of_rows[t].y : of_rows[t].x;
          sum[t][i] = multiply_add(piece[t][i], (i < 2 ? low : high) * by, sum[t][i]);
        }
      }
    } else {
#pragma unroll
      for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sum[t][i] = multiply_add(piece[t][i], i < 2 ? low : high, sum[t][i]);
      }
    }
    clear();
    low = next_low;
    high = next_high;
  }
  /// The same with scales of rows that do not lie side by side: `rows` has those of a lane's sums,
  /// and of each eight rows a lane has the first two.
  __device__ __forceinline__ void add_gathered(float (&sum)[TILES][4], const float* of_rows, const int* rows) {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      float by[2] = {of_rows[rows[8 * t]], of_rows[rows[8 * t + 1]]};
#pragma unroll
      for (int i = 0; i < 4; i++) sum[t][i] = multiply_add(piece[t][i], (i < 2 ? low : high) * by[i % 2], sum[t][i]);
    }
    clear();
    low = next_low;
    high = next_high;
  }
};

#else
typedef T W;
#define W_BESIDE 4
#define PIECE 64
#define W_CHUNK 8
#define W_PARAMETERS
#define W_ARGUMENTS

template <int BYTES>
__device__ __forceinline__ void load_weights_32(u32 (&a)[2][4], const unsigned char* rows, int inputs_16) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    ldmatrix_x4(a[h], rows + later_place(place_of<BYTES>(lane() % 16, lane() / 16), (inputs_16 + h) * 2));
  }
}

#define W_LEFT 1
template <int BYTES>
__device__ __forceinline__ void load_left(u32 (&a)[1][4], const unsigned char* rows, int inputs_16) {
  ldmatrix_x4(a[0], rows + later_place(place_of<BYTES>(lane() % 16, lane() / 16), inputs_16 * 2));
}

/// Sums that need no scales.
template <int TILES>
struct Scaled {
  __device__ __forceinline__ void ask(bool) {}
  __device__ __forceinline__ float (&of(float (&sum)[TILES][4], int t))[4] { return sum[t]; }
  __device__ __forceinline__ void ask_rows(const float*, int, int) {}
  __device__ __forceinline__ void add(float (&)[TILES][4]) {}
};
#endif

/// The type of rows: T, or with -DX_FP8 numbers in the order of the weights, which are in FP8 too.
/// X_CHUNK are the elements of 16 bytes. STEP inputs are multiplied at a time, by `multiply_step`:
/// a left factor of 16 outputs, and a right one of 8 rows in four 8×8 tiles.
#ifdef X_FP8
typedef unsigned char X;
#define X_CHUNK 16
#define STEP 64
template <int BYTES>
__device__ __forceinline__ void load_step(u32 (&a)[2][4], const unsigned char* rows, int inputs_16) {
  load_numbers_32<BYTES>(a[0], rows, inputs_16);
  load_numbers_32<BYTES>(a[1], rows, inputs_16 + 2);
}
__device__ __forceinline__ void multiply_step(float (&sum)[4], const u32 (&a)[2][4], const u32 (&b)[4]) {
  mma_16832_numbers(sum, a[0], b);
  mma_16832_numbers(sum, a[1], b + 2);
}
#else
typedef T X;
#define X_CHUNK 8
#define STEP 32
template <int BYTES>
__device__ __forceinline__ void load_step(u32 (&a)[2][4], const unsigned char* rows, int inputs_16) {
  load_weights_32<BYTES>(a, rows, inputs_16);
}
__device__ __forceinline__ void multiply_step(float (&sum)[4], const u32 (&a)[2][4], const u32 (&b)[4]) {
  mma_16816(sum, a[0], b);
  mma_16816(sum, a[1], b + 2);
}
#endif

/// Bytes of a row of weights in a stage (ROW_BYTES) and of a row of x (X_ROW_BYTES), and their
/// numbers of 16-byte chunks.
#define ROW_BYTES (PIECE * (int)sizeof(W))
#define W_CHUNKS (PIECE / W_CHUNK)
#define X_ROW_BYTES (PIECE * (int)sizeof(X))
#define CHUNKS (PIECE / X_CHUNK)
