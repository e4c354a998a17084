// Rows quantised to FP8 (numbers.cuh): as they are, after the scale of a norm, after a gate, after
// a whole norm, or after the norms and gates of a delta net's heads.
#define W_FP8 1
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#include "vectors.cuh"
#include "numbers.cuh"
#include "norms.cuh"

/// NUMBERS elements of T as floats.
__device__ __forceinline__ void read_numbers(const T* at, float (&values)[NUMBERS]) {
  uint4 one = load_16(at), other = load_16(at + VECTOR);
  unpack_vector(one, values);
  unpack_vector(other, values + VECTOR);
}

/// Zero from `width` on.
__device__ __forceinline__ void read_numbers(const T* row, int at, int width, float (&values)[NUMBERS]) {
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) values[i] = 0.0f;
  if (at < width) read_numbers(row + at, values);
}

/// NUMBERS values, rounded to T.
__device__ __forceinline__ void write_rounded(T* to, const float (&values)[NUMBERS]) {
#pragma unroll
  for (int half = 0; half < NUMBERS; half += VECTOR) write_vector(to + half, values + half);
}

#define OUT_PARAMETERS void *out, int as_values, float *scales, const float *fixed
#define OUT_ARGUMENTS out, as_values, scales, fixed

/// Quantises a row, NUMBERS elements per thread at a time. `read` gives those from an element on,
/// or zeros after the end, and is called twice for all but the first.
template <bool BLOCKS, class Read>
__device__ __forceinline__ void quantise_row(OUT_PARAMETERS, int row, int rows, int width, Read&& read) {
  __shared__ u32 scratch[32];
  int begin = (int)threadIdx.x * NUMBERS, step = (int)blockDim.x * NUMBERS;
  float first[NUMBERS], scale = 0.0f;
  read(begin, first);
  if (!BLOCKS) {
    u32 most = largest_of(first);
#pragma unroll 1
    for (int at = begin + step; at < width; at += step) {
      float values[NUMBERS];
      read(at, values);
      most = max(most, largest_of(values));
    }
    scale = scale_for(largest_of_block(most, scratch), fixed);
    if (threadIdx.x == 0) scales[row] = scale;
  }
  // Whole warps go on together.
#pragma unroll 1
  for (int at = begin; at - begin < width; at += step) {
    float values[NUMBERS];
    if (at > begin) {
      read(at, values);
    } else {
#pragma unroll
      for (int i = 0; i < NUMBERS; i++) values[i] = first[i];
    }
    if (BLOCKS) {
      scale = scale_for(largest_of_lanes<W_BLOCK / NUMBERS>(largest_of(values)), nullptr);
      if (at % W_BLOCK == 0 && at < width) scales[(u64)(at / W_BLOCK) * row_stride(rows) + row] = scale;
    }
    if (at < width) write_numbers(out, as_values, (u64)row * width + at, values, scale);
  }
}

/// The scale of a row that a norm has left unscaled, as found by each warp; 1 without `squares`.
__device__ __forceinline__ float pending_scale(int row, int width, SCALE_PARAMETERS) {
  if (!squares) return 1.0f;
  float sum = 0.0f;
  for (int at = lane(); at < count; at += WARP) sum += squares[(u64)row * squares_stride(count) + at];
  return inverse_root(warp_sum(sum) / (float)width + epsilon);
}

template <bool BLOCKS, bool GATED>
__device__ __forceinline__ void quantise(OUT_PARAMETERS, const T* x, int x_stride, SCALE_PARAMETERS, int width) {
  wait_for_predecessor();
  int row = (int)blockIdx.x;
  const T* own = x + (u64)row * x_stride;
  float pending = pending_scale(row, width, SCALE_ARGUMENTS);
  quantise_row<BLOCKS>(OUT_ARGUMENTS, row, (int)gridDim.x, width, [&](int at, float(&values)[NUMBERS]) {
    read_numbers(own, at, width, values);
    float up[NUMBERS];
    if (GATED) read_numbers(own + width, at, width, up);
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) {
      values[i] = GATED ? to_float(from_float(gated(values[i], up[i]))) : values[i] * pending;
    }
  });
}

#define PARAMETERS OUT_PARAMETERS, const T *x, int x_stride, SCALE_PARAMETERS, int width
#define ARGUMENTS OUT_ARGUMENTS, x, x_stride, SCALE_ARGUMENTS, width

/// Quantises rows of x, `x_stride` apart and multiplied by the scale of a norm if they lack it
/// (ring.cuh), to `out`, `[rows, width]` numbers, or T if `as_values`. `scales` is `[rows]`;
/// `fixed` is the scale of all rows, or null. Width is a multiple of NUMBERS. Grid: rows; one
/// thread per NUMBERS elements of a row, in whole warps, at most 1,024.
extern "C" __global__ void __launch_bounds__(1024) quantise_rows(PARAMETERS) { quantise<false, false>(ARGUMENTS); }
/// The same with a scale for each W_BLOCK elements; `fixed` is not used.
extern "C" __global__ void __launch_bounds__(1024) quantise_blocks(PARAMETERS) { quantise<true, false>(ARGUMENTS); }
/// The same of `silu(gate) · up`, rounded to T; a row of x is gate and up, of `width` elements
/// each. `squares` is not used.
extern "C" __global__ void __launch_bounds__(1024) quantise_gated_rows(PARAMETERS) { quantise<false, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(1024) quantise_gated_blocks(PARAMETERS) { quantise<true, true>(ARGUMENTS); }

/// As `delta_gate` of delta.cu, but for the order of its sums: `rms(x) · weight · silu(gate)` for
/// each head, rounded to T and quantised with a scale for each W_BLOCK elements. x is
/// `[rows, width]`, gates are `gate_stride` apart. Heads are a power of two of at least NUMBERS and
/// at most NUMBERS · WARP elements. Grid: (pieces of NUMBERS · 128 elements, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
gate_blocks(OUT_PARAMETERS, const T* x, const T* gate, int gate_stride, const T* weight, int head_dim, int width, float epsilon) {
  int row = (int)blockIdx.y, rows = (int)gridDim.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x) * NUMBERS;
  float values[NUMBERS], gates[NUMBERS], by[NUMBERS];
  read_numbers(weight + at % head_dim, by);
  wait_for_predecessor();
  read_numbers(x + (u64)row * width, at, width, values);
  read_numbers(gate + (u64)row * gate_stride, at, width, gates);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) squares += values[i] * values[i];
  for (int mask = head_dim / NUMBERS / 2; mask > 0; mask /= 2) squares += shuffle_xor(squares, mask);
  float scale = inverse_root(squares / (float)head_dim + epsilon);
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) values[i] = to_float(from_float(gated(gates[i], values[i] * scale * by[i])));
  float of_block = scale_for(largest_of_lanes<W_BLOCK / NUMBERS>(largest_of(values)), nullptr);
  if (at >= width) return;
  if (at % W_BLOCK == 0) scales[(u64)(at / W_BLOCK) * row_stride(rows) + row] = of_block;
  write_numbers(out, as_values, (u64)row * width + at, values, of_block);
}

#ifdef CLUSTERS
template <bool BLOCKS>
__device__ __forceinline__ void quantise_in_cluster(OUT_PARAMETERS, const T* x, int x_stride, SCALE_PARAMETERS, int width) {
  DYNAMIC_SHARED(shared);
  int row = (int)blockIdx.x / SHARERS, rows = (int)gridDim.x / SHARERS, rank = cluster_rank();
  int at = (rank * (int)blockDim.x + (int)threadIdx.x) * NUMBERS;
  wait_for_predecessor();
  float values[NUMBERS], scale;
  read_numbers(x + (u64)row * x_stride, at, width, values);
  float pending = pending_scale(row, width, SCALE_ARGUMENTS);
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) values[i] *= pending;
  if (BLOCKS) {
    scale = scale_for(largest_of_lanes<W_BLOCK / NUMBERS>(largest_of(values)), nullptr);
    if (at % W_BLOCK == 0 && at < width) scales[(u64)(at / W_BLOCK) * row_stride(rows) + row] = scale;
  } else {
    u32 most = largest_of_lanes<WARP>(largest_of(values));
    if (lane() == 0) ((Met*)shared)[warp()] = Met{0.0f, most};
    scale = scale_for(meet<true>((Met*)shared, (int)blockDim.x / WARP).most, fixed);
    if (rank == 0 && threadIdx.x == 0) scales[row] = scale;
  }
  if (at < width) write_numbers(out, as_values, (u64)row * width + at, values, scale);
  if (!BLOCKS) cluster_wait();
}

/// `quantise_rows` and `quantise_blocks` of few rows. Grid: SHARERS · rows in clusters of SHARERS;
/// one thread per NUMBERS elements of a row, in whole warps, at most 256 in a block. Dynamic shared
/// memory: 8 bytes per warp.
extern "C" __global__ void __launch_bounds__(256) quantise_rows_cluster(PARAMETERS) { quantise_in_cluster<false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) quantise_blocks_cluster(PARAMETERS) { quantise_in_cluster<true>(ARGUMENTS); }
#endif

/// Norms a row (norms.cuh), rounds it, and quantises it. One exchange is enough: the largest value
/// is that of the largest element times its weight, up to its rounding.
template <bool BLOCKS, bool SHARED>
__device__ __forceinline__ void norm_and_quantise(OUT_PARAMETERS, NORM) {
  float scale = 1.0f;
  norm_row_in_fours<SHARED>(
      NORM_ARGUMENTS,
      [&](const Row& row, u32 most, float root) {
        if (BLOCKS) return;
        scale = scale_for(magnitude(to_float(from_float(bits_float(most) * root))), fixed);
        if (row.is_first_thread) scales[row.at] = scale;
      },
      [&](const Row& row, int at, bool real, float4 x) {
        x = rounded(x);
        if (BLOCKS) {
          scale = scale_for(largest_of_lanes<W_BLOCK / 4>(largest_of(x)), nullptr);
          if (lane() == 0 && real) scales[(u64)(at / W_BLOCK) * row_stride(row.count) + row.at] = scale;
        }
        write_four_numbers(out, as_values, (u64)row.at * width + at, real, x, scale);
      });
}

/// `rms_norm` of elementwise.cu, quantised as above after its result is rounded to T, which also
/// goes to `normed` unless that is null. Grid: rows; one thread per four elements of a row, in
/// whole warps, at most 512. Dynamic shared memory as in norms.cuh.
extern "C" __global__ void __launch_bounds__(512) norm_rows(OUT_PARAMETERS, NORM) { norm_and_quantise<false, false>(OUT_ARGUMENTS, NORM_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) norm_blocks(OUT_PARAMETERS, NORM) { norm_and_quantise<true, false>(OUT_ARGUMENTS, NORM_ARGUMENTS); }

#ifdef CLUSTERS
/// The same of few rows. Grid: SHARERS · rows in clusters of SHARERS; at most 512 threads have all
/// of a block's elements. Dynamic shared memory: 8 bytes per warp.
extern "C" __global__ void __launch_bounds__(512) norm_rows_cluster(OUT_PARAMETERS, NORM) { norm_and_quantise<false, true>(OUT_ARGUMENTS, NORM_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) norm_blocks_cluster(OUT_PARAMETERS, NORM) { norm_and_quantise<true, true>(OUT_ARGUMENTS, NORM_ARGUMENTS); }
#endif
