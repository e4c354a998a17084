// The chunks of gated delta nets, from state to state: see delta_chunks.cuh.
//
// A warp has the columns of values that it needs of everything, in registers, transposed: results
// of products are the left operands of the next ones, and warps exchange nothing.
#include "common.cuh"
#include "delta.cuh"

#ifdef T_PAIRS
#include "delta_chunks.cuh"

// Columns of values of a warp; of a block.
#define WARP_COLUMNS 16
#define BLOCK_COLUMNS (VALUE_DIM % 64 == 0 ? 64 : 32)
#define STATE_THREADS (BLOCK_COLUMNS / WARP_COLUMNS * WARP)
#define VALUE_STRIDE (BLOCK_COLUMNS + 8)
// The rows that the lanes of a warp read at once are in different banks.
#define STATE_STRIDE (BLOCK_COLUMNS + 4)

/// Elements of T whose sum is a float, for the two halves of 32-bit operands.
struct Split {
  u32 upper, lower;
};
__device__ __forceinline__ Split split(float a, float b) {
  u32 upper = pack(a, b);
  float2 rounded = unpack(upper);
  return Split{upper, pack(a - rounded.x, b - rounded.y)};
}

/// 16×16 left operands of mma_16816, in two parts.
struct Operand {
  u32 upper[4], lower[4];
};
/// Of two 16×8 results next to each other.
__device__ __forceinline__ Operand operand_of(const float left[4], const float right[4]) {
  Split parts[4] = {split(left[0], left[1]), split(left[2], left[3]), split(right[0], right[1]), split(right[2], right[3])};
  Operand operand;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    operand.upper[i] = parts[i].upper;
    operand.lower[i] = parts[i].lower;
  }
  return operand;
}
/// Adds to two 16×8 results next to each other the products with exact right operands.
__device__ __forceinline__ void multiply(float left[4], float right[4], const Operand& by, const u32 exact[4]) {
  mma_16816(left, by.lower, exact);
  mma_16816(right, by.lower, exact + 2);
  mma_16816(left, by.upper, exact);
  mma_16816(right, by.upper, exact + 2);
}

/// Right operands for 16 columns of a result and 16 inputs, of a matrix whose rows are the inputs.
__device__ __forceinline__ const T* of_inputs(const T* matrix, int stride, int column, int input) {
  return matrix + (input + lane() % 16) * stride + column + lane() / 16 * 8;
}

/// What `delta_chunks` keeps in shared memory: a chunk.
struct Chunk {
  T key[CHUNK * KEY_STRIDE], query[CHUNK * KEY_STRIDE];
  T value[CHUNK * VALUE_STRIDE];
  float factor[FACTORS][CHUNK];
  union {
    T matrix[MATRICES][CHUNK * ROW_STRIDE];
    /// The block's columns of the first state, on their way to registers.
    float state[KEY_DIM * STATE_STRIDE];
  };
};

/// The transposed state of a warp's columns: results of mma_16816, keys 8 by 8.
struct Columns {
  float s[KEY_DIM / 8][4];
};
/// 16 columns of the rows of a chunk, 8 rows at a time: the same.
struct OfRows {
  float x[CHUNK / 8][4];
};

/// The rows of the elements 0 and 2, and 1 and 3, of a result of rows.
__device__ __forceinline__ float2 factors_of(const float* factor, int n) {
  return *(const float2*)(factor + n * 8 + lane() % 4 * 2);
}
/// The element of a state, its keys `stride` apart, that is the first of a result; the second is of
/// the next key, the others are eight columns on.
__device__ __forceinline__ int state_at(int n, int column, int stride) {
  return (n * 8 + lane() % 4 * 2) * stride + column + lane() / 4;
}

/// Adds products with the state: keys and queries of the rows.
__device__ __forceinline__ void read_state(OfRows& seen, OfRows& out, const Columns& state, const Chunk& c) {
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) seen.x[n][i] = out.x[n][i] = 0.0f;
  }
#pragma unroll
  for (int k = 0; k < KEY_DIM / 16; k++) {
    Operand of_state = operand_of(state.s[2 * k], state.s[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < CHUNK / 16; n++) {
      u32 key[4], query[4];
      ldmatrix_x4(key, of_columns(c.key, KEY_STRIDE, n * 16, k * 16));
      ldmatrix_x4(query, of_columns(c.query, KEY_STRIDE, n * 16, k * 16));
      multiply(seen.x[2 * n], seen.x[2 * n + 1], of_state, key);
      multiply(out.x[2 * n], out.x[2 * n + 1], of_state, query);
    }
  }
}

/// What the rows correct: V − diag(e^g) K S₀ in place of K S₀; scales the outputs so far.
__device__ __forceinline__ void correct(OfRows& seen, OfRows& out, const Chunk& c) {
#pragma unroll
  for (int n = 0; n < CHUNK / 16; n++) {
    u32 value[4];
    int row = n * 16 + lane() / 16 * 8 + lane() % 8, column = warp() * WARP_COLUMNS + lane() / 8 % 2 * 8;
    ldmatrix_x4_transposed(value, c.value + row * VALUE_STRIDE + column);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int at = 2 * n + half;
      float2 low = unpack(value[2 * half]), high = unpack(value[2 * half + 1]);
      float2 of_state = factors_of(c.factor[0], at), of_out = factors_of(c.factor[1], at);
      const float v[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        // What a row holds that does not exist must not reach others.
        float by_state = i % 2 ? of_state.y : of_state.x, by_out = i % 2 ? of_out.y : of_out.x;
        seen.x[at][i] = by_state < 0.0f ? 0.0f : v[i] - by_state * seen.x[at][i];
        out.x[at][i] = by_out < 0.0f ? 0.0f : by_out * out.x[at][i];
      }
    }
  }
}

/// D = M · corrections, and P · D added to the outputs.
__device__ __forceinline__ void solve_rows(OfRows& rows, OfRows& out, const Chunk& c) {
  Operand of_rows[CHUNK / 16];
#pragma unroll
  for (int k = 0; k < CHUNK / 16; k++) of_rows[k] = operand_of(rows.x[2 * k], rows.x[2 * k + 1]);
#pragma unroll
  for (int n = 0; n < CHUNK / 16; n++) {
    float *left = rows.x[2 * n], *right = rows.x[2 * n + 1];
#pragma unroll
    for (int i = 0; i < 4; i++) left[i] = right[i] = 0.0f;
#pragma unroll
    for (int k = 0; k <= n; k++) {
      u32 upper[4], lower[4];
      ldmatrix_x4(upper, of_columns(c.matrix[0], ROW_STRIDE, n * 16, k * 16));
      ldmatrix_x4(lower, of_columns(c.matrix[1], ROW_STRIDE, n * 16, k * 16));
      mma_16816(left, of_rows[k].upper, lower);
      mma_16816(right, of_rows[k].upper, lower + 2);
      multiply(left, right, of_rows[k], upper);
    }
  }
#pragma unroll
  for (int k = 0; k < CHUNK / 16; k++) of_rows[k] = operand_of(rows.x[2 * k], rows.x[2 * k + 1]);
#pragma unroll
  for (int n = 0; n < CHUNK / 16; n++) {
#pragma unroll
    for (int k = 0; k <= n; k++) {
      u32 by[4];
      ldmatrix_x4(by, of_columns(c.matrix[2], ROW_STRIDE, n * 16, k * 16));
      multiply(out.x[2 * n], out.x[2 * n + 1], of_rows[k], by);
    }
  }
}

/// The state after the chunk.
__device__ __forceinline__ void change_state(Columns& state, OfRows& rows, const Chunk& c) {
  float decay = c.factor[3][0];
#pragma unroll
  for (int n = 0; n < KEY_DIM / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) state.s[n][i] *= decay;
  }
#pragma unroll
  for (int k = 0; k < CHUNK / 16; k++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float2 share = factors_of(c.factor[2], 2 * k + half);
#pragma unroll
      for (int i = 0; i < 4; i++) rows.x[2 * k + half][i] *= i % 2 ? share.y : share.x;
    }
    Operand of_rows = operand_of(rows.x[2 * k], rows.x[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < KEY_DIM / 16; n++) {
      u32 key[4];
      ldmatrix_x4_transposed(key, of_inputs(c.key, KEY_STRIDE, n * 16, k * 16));
      multiply(state.s[2 * n], state.s[2 * n + 1], of_rows, key);
    }
  }
}

/// Where a block finds its part of the chunks.
struct Source {
  const T *convolved, *matrices;
  const float* factors;
  int key_heads, value_heads, head, column;

  __device__ __forceinline__ int channels() const { return channels_of(key_heads, value_heads); }
  /// The queries of its head; the keys are `key_heads · KEY_DIM` elements on.
  __device__ __forceinline__ const T* queries(Rows rows) const {
    return convolved + (u64)rows.first * channels() + head / (value_heads / key_heads) * KEY_DIM;
  }
  __device__ __forceinline__ u64 place(Rows rows) const { return (u64)rows.place * value_heads + head; }
};

/// Starts the copies of the block's columns of a state, by whole lines of memory.
__device__ __forceinline__ void copy_state(Chunk& c, const float* matrix, int column) {
  constexpr int PIECES = BLOCK_COLUMNS / 4;
  for (int i = (int)threadIdx.x; i < KEY_DIM * PIECES; i += STATE_THREADS) {
    int key = i / PIECES, piece = i % PIECES;
    copy_async_16(c.state + key * STATE_STRIDE + piece * 4, matrix + key * VALUE_DIM + column + piece * 4);
  }
  copy_async_commit();
}

/// Starts the copies of the queries and values of a chunk.
__device__ __forceinline__ void copy_queries(Chunk& c, const Source& from, Rows rows) {
  const T* value = from.convolved + (u64)rows.first * from.channels() + 2 * from.key_heads * KEY_DIM + from.head * VALUE_DIM;
  copy_rows<STATE_THREADS>(c.query, KEY_STRIDE, from.queries(rows), from.channels(), KEY_DIM, rows.count);
  copy_rows<STATE_THREADS>(c.value, VALUE_STRIDE, value + from.column, from.channels(), BLOCK_COLUMNS, rows.count);
  copy_async_commit();
}

/// The same of its matrices.
__device__ __forceinline__ void copy_matrices(Chunk& c, const Source& from, Rows rows) {
  const T* matrix = from.matrices + from.place(rows) * (MATRICES * CHUNK * CHUNK);
  for (int i = (int)threadIdx.x; i < MATRICES * CHUNK * CHUNK / 8; i += STATE_THREADS) {
    int row = i / (CHUNK / 8), piece = i % (CHUNK / 8);
    if (piece / 2 > row % CHUNK / 16) continue;
    copy_async_16(c.matrix[row / CHUNK] + row % CHUNK * ROW_STRIDE + piece * 8, matrix + i * 8);
  }
  copy_async_commit();
}

/// The same of its keys, which the next state needs too.
__device__ __forceinline__ void copy_keys(Chunk& c, const Source& from, Rows rows) {
  const T* key = from.queries(rows) + from.key_heads * KEY_DIM;
  copy_rows<STATE_THREADS>(c.key, KEY_STRIDE, key, from.channels(), KEY_DIM, rows.count);
  copy_async_commit();
}

/// The same of its factors, which the next state needs too.
__device__ __forceinline__ void copy_factors(Chunk& c, const Source& from, Rows rows) {
  const float* factor = from.factors + from.place(rows) * (FACTORS * CHUNK);
  for (int i = (int)threadIdx.x; i < FACTORS * CHUNK / 4; i += STATE_THREADS) {
    copy_async_16(c.factor[0] + i * 4, factor + i * 4);
  }
  copy_async_commit();
}

/// The rows of a layer, group by group, from the states of their slots, which become those after
/// the last rows if `writes`. out `[rows, value heads · VALUE_DIM]`; groups whose slot is the dummy
/// yield zeros. convolved, matrices and factors are those of the kernels above, matrices of states
/// are as in delta.cu, groups as in `rows_of`.
///
/// Follows `delta_triangles`, which releases it late: what that does not write is read before it
/// has ended. Dynamic shared memory: Chunk. Grid (value heads · VALUE_DIM / BLOCK_COLUMNS, groups),
/// STATE_THREADS threads.
extern "C" __global__ void __launch_bounds__(STATE_THREADS)
delta_chunks(T* out, const T* convolved, const T* matrices, const float* factors, float* states, int layers, int layer,
             int key_heads, int value_heads, const int* position, int each, int writes, const int* row_slot,
             int dummy_slot, const int* first) {
  DYNAMIC_SHARED(dynamic);
  Chunk& c = *(Chunk*)dynamic;
  constexpr int PIECES = VALUE_DIM / BLOCK_COLUMNS;
  int head = (int)blockIdx.x / PIECES, column = (int)blockIdx.x % PIECES * BLOCK_COLUMNS, group = (int)blockIdx.y;
  int own = column + warp() * WARP_COLUMNS, width = value_heads * VALUE_DIM;
  release_successor();
  int begin = first ? load_fresh(first + group) : group * each;
  int end = first ? load_fresh(first + group + 1) : begin + each;
  if (begin >= end) return;
  int slot = load_fresh(row_slot + begin);
  // The output of a pair of columns.
  T* to = out + head * VALUE_DIM + own + lane() % 4 * 2;
  if (slot == dummy_slot) {
    await_predecessor();
    for (int row = begin + lane() / 4; row < end; row += 8) {
      *(u32*)(to + (u64)row * width) = 0;
      *(u32*)(to + (u64)row * width + 8) = 0;
    }
    return;
  }
  float* matrix = states + (((u64)slot * layers + layer) * value_heads + head) * (KEY_DIM * VALUE_DIM);
  const Source from{convolved, matrices, factors, key_heads, value_heads, head, column};
  Rows rows = rows_of(first, position, each, group, 0);
  copy_state(c, matrix, column);
  copy_queries(c, from, rows);
  copy_keys(c, from, rows);
  copy_async_wait<2>();
  block_sync();
  Columns state;
#pragma unroll
  for (int n = 0; n < KEY_DIM / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      state.s[n][i] = c.state[state_at(n, warp() * WARP_COLUMNS, STATE_STRIDE) + i % 2 * STATE_STRIDE + i / 2 * 8];
    }
  }
  // Matrices overwrite what other warps read of the state.
  block_sync();
  await_predecessor();
  copy_matrices(c, from, rows);
  copy_factors(c, from, rows);
#pragma unroll 1
  for (int index = 1; rows.count > 0; index++) {
    copy_async_wait<0>();
    block_sync();
    OfRows of_rows, outputs;
    read_state(of_rows, outputs, state, c);
    correct(of_rows, outputs, c);
    solve_rows(of_rows, outputs, c);
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) {
      int row = n * 8 + lane() / 4;
      u32 low = transpose_8x8(pack(outputs.x[n][0], outputs.x[n][1]));
      u32 high = transpose_8x8(pack(outputs.x[n][2], outputs.x[n][3]));
      if (row >= rows.count) continue;
      *(u32*)(to + (u64)(rows.first + row) * width) = low;
      *(u32*)(to + (u64)(rows.first + row) * width + 8) = high;
    }
    if (!writes) return;
    // What is copied now overwrites what other warps have read before the barriers.
    rows = rows_of(first, position, each, group, index);
    block_sync();
    if (rows.count > 0) {
      copy_queries(c, from, rows);
      copy_matrices(c, from, rows);
    }
    change_state(state, of_rows, c);
    block_sync();
    if (rows.count > 0) {
      copy_keys(c, from, rows);
      copy_factors(c, from, rows);
    }
  }
#pragma unroll
  for (int n = 0; n < KEY_DIM / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) matrix[state_at(n, own, VALUE_DIM) + i % 2 * VALUE_DIM + i / 2 * 8] = state.s[n][i];
  }
}

#endif
