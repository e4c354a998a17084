// Chunks of gated delta nets: rows as products of matrices, in place of a step per row (delta.cu).
// delta_triangles.cu computes what depends on no state, of all chunks at once; delta_chunks.cu goes
// from chunk to chunk. T is the element type of activations, of 2 bytes; states are float. KEY_DIM
// is at most 128. Included after common.cuh and delta.cuh.
//
// -DCHUNK: rows of a chunk, 16, 32 or 64.
//
// Chunks of a prompt are those of the sequence: they end at positions that are multiples of CHUNK,
// whatever piece of it a pass has. A row's sums therefore do not depend on how a prompt was
// divided, as long as it was divided at such positions. A tree is one chunk.
//
// Row i has the key k_i, query q_i and value v_i. The rows before it are those of its sequence, or
// its ancestors in its tree; both have lower numbers. With g_i, the sum of the logarithms of the
// decays of these and its own,
//
//   d_i = β_i (v_i − e^{g_i} S₀ᵀk_i − Σ_{j before i} e^{g_i − g_j} (k_i·k_j) d_j)
//
// is what the row adds to the state: S_i = e^{g_i} S₀ + Σ_j e^{g_i − g_j} k_j d_jᵀ over the rows
// before it and itself. With A_ij = β_i e^{g_i − g_j} (k_i·k_j) for j before i, else 0, which is
// strictly lower triangular, all d_i are the rows of
//
//   D = M (V − diag(e^g) K S₀),  M = (1 + A)⁻¹ diag(β)
//
// and the outputs are diag(e^g) Q S₀ + P D with P_ij = e^{g_i − g_j} (q_i·k_j) for these j and i
// itself. M and P depend on no state.
//
// Keys and queries are the rounded outputs of the convolution, so that they are exact as factors of
// tensor-core products; the scales that norm them are part of M, P and the rows' factors. The
// state, M and D are split into two numbers of T (`Split`), so that products with them have at
// least the precision of TF32.
#pragma once

// Elements from row to row in shared memory: an odd number of 16-byte pieces, so that the eight
// rows of an 8×8 tile are in different banks.
#define KEY_STRIDE (KEY_DIM + 8)
#define ROW_STRIDE (CHUNK + 8)
// Matrices of a chunk: the upper and the lower half of M, and P. Factors of its rows: of the state
// in values, of the state in outputs, of the row in the next state; and of the state in the next.
#define MATRICES 3
#define FACTORS 4
// The first two factors of a row that does not exist; those of others are not negative.
#define ABSENT_ROW -1.0f

/// Rows of a chunk within a pass.
struct Rows {
  /// The first row, their number, and their place among the chunks of the pass.
  int first, count, place;
};

/// The rows of a chunk of a group; none if it has fewer chunks. Without `first` a group is a chunk
/// of `each` rows. The places of a pass's chunks differ, and are below rows / CHUNK + 2 · groups.
__device__ __forceinline__ Rows rows_of(const int* first, const int* position, int each, int group, int index) {
  if (!first) return Rows{group * each, index == 0 ? each : 0, group};
  int begin = load_fresh(first + group), rows = load_fresh(first + group + 1) - begin;
  if (rows <= 0) return Rows{begin, 0, 0};
  int lead = CHUNK - load_fresh(position + begin) % CHUNK, from = index == 0 ? 0 : lead + (index - 1) * CHUNK;
  int count = min(index == 0 ? lead : CHUNK, rows - from);
  return Rows{begin + from, max(count, 0), (begin + from) / CHUNK + 2 * group + (index > 0)};
}

/// Right operands for 16 columns of a result and 16 inputs, of a matrix whose rows are the columns
/// of the result.
__device__ __forceinline__ const T* of_columns(const T* matrix, int stride, int column, int input) {
  return matrix + (column + lane() / 16 * 8 + lane() % 8) * stride + input + lane() / 8 % 2 * 8;
}

/// Copies `width` elements of CHUNK rows to shared memory; rows from `count` on are zeros.
template <int THREADS>
__device__ __forceinline__ void copy_rows(T* to, int to_stride, const T* from, int from_stride, int width, int count) {
  for (int i = (int)threadIdx.x; i < CHUNK * width / 8; i += THREADS) {
    int row = i / (width / 8), piece = i % (width / 8);
    bool real = row < count;
    copy_async_16_or_zero(to + row * to_stride + piece * 8, from + (u64)(real ? row : 0) * from_stride + piece * 8, real);
  }
}
