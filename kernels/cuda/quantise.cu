// Rows quantised to FP8 (numbers.cuh): as they are, after the scale of a norm, after a gate, after
// a whole norm, or after the norms and gates of a delta net's heads.
#define W_FP8 1
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#include "vectors.cuh"
#include "numbers.cuh"

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

/// Adds a row or at most MOST parts to elements of the stream, as the norms of elementwise.cu do.
template <int MOST>
__device__ __forceinline__ void add_to_stream(float (&x)[NUMBERS], T* own, const T* other, const float* parts, int part_count,
                                              u64 part, T* kept) {
  read_numbers(own, x);
  if (MOST > 0 || other) {
    // All loads before the first store, which they would wait for.
    float y[NUMBERS];
#pragma unroll
    for (int half = 0; half < NUMBERS; half += VECTOR) {
      if constexpr (MOST > 0)
        read_parts<MOST>(parts + half, part_count, part, y + half);
      else
        read_vector(other + half, y + half);
    }
#pragma unroll
    for (int half = 0; half < NUMBERS; half += VECTOR) {
#pragma unroll
      for (int i = half; i < half + VECTOR; i++) x[i] = to_float(from_float(x[i] + y[i]));
      write_vector(own + half, x + half);
    }
  }
  if (kept) write_rounded(kept, x);
}

#define NORM                                                                                                            \
  OUT_PARAMETERS, T *normed, int normed_stride, T *stream, int stream_stride, const T *add, int add_stride,             \
      const float *parts, int part_count, const T *weight, T *keep, int keep_stride, const int *source, int width,      \
      float epsilon
#define NORM_ARGUMENTS                                                                                                  \
  OUT_ARGUMENTS, normed, normed_stride, stream, stream_stride, add, add_stride, parts, part_count, weight, keep,        \
      keep_stride, source, width, epsilon

template <bool BLOCKS, int MOST>
__device__ __forceinline__ void norm_and_quantise(NORM) {
  __shared__ float scratch[32];
  int begin = (int)threadIdx.x * NUMBERS, step = (int)blockDim.x * NUMBERS;
  float first_weight[NUMBERS], first[NUMBERS];
  read_numbers(weight, begin, width, first_weight);
  wait_for_predecessor();
  int row = (int)blockIdx.x;
  T* own = stream + (u64)(source ? source[row] : row) * stream_stride;
  float squares = 0.0f;
#pragma unroll 1
  for (int at = begin; at < width; at += step) {
    float x[NUMBERS];
    add_to_stream<MOST>(x, own + at, add ? add + (u64)row * add_stride + at : nullptr, parts + (u64)row * width + at, part_count,
                        (u64)gridDim.x * width, keep ? keep + (u64)row * keep_stride + at : nullptr);
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) {
      squares += x[i] * x[i];
      if (at == begin) first[i] = x[i];
    }
  }
  float scale = inverse_root(block_sum(squares, scratch) / (float)width + epsilon);
  quantise_row<BLOCKS>(OUT_ARGUMENTS, row, (int)gridDim.x, width, [&](int at, float(&values)[NUMBERS]) {
    float by[NUMBERS];
    if (at > begin) {
      read_numbers(own, at, width, values);
      read_numbers(weight, at, width, by);
    }
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) {
      float result = at > begin ? values[i] * scale * by[i] : first[i] * scale * first_weight[i];
      values[i] = at < width ? to_float(from_float(result)) : 0.0f;
    }
    if (normed && at < width) write_rounded(normed + (u64)row * normed_stride + at, values);
  });
}

/// `rms_norm` of elementwise.cu, quantised as above after its result is rounded to T, which also
/// goes to `normed` unless that is null; the addend is whole or in parts. Grid: rows; one thread
/// per NUMBERS elements of a row, in whole warps, at most 512.
extern "C" __global__ void __launch_bounds__(512) norm_rows(NORM) { norm_and_quantise<false, 0>(NORM_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512, 1) norm_rows_parts(NORM) { norm_and_quantise<false, MOST_ADDENDS>(NORM_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512) norm_blocks(NORM) { norm_and_quantise<true, 0>(NORM_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(512, 1) norm_blocks_parts(NORM) { norm_and_quantise<true, MOST_ADDENDS>(NORM_ARGUMENTS); }

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
/// Blocks of a cluster, which share a row. Few rows by one block each would use few
/// multiprocessors, and large blocks start only when others have left.
#define SHARERS 8

/// What a warp, a block or a cluster has met: the sum of squares, and the largest magnitude of
/// elements times weights, as bits.
struct Met {
  float squares;
  u32 most;
};

/// What a cluster has met, from what each thread has. Its warps exchange it without a barrier of
/// their blocks; these wait for the cluster once more before they end, since others read their
/// memory.
__device__ __forceinline__ Met meet(float squares, u32 most) {
  DYNAMIC_SHARED(shared);
  Met* met = (Met*)shared;
  squares = warp_sum(squares);
  most = largest_of_lanes<WARP>(most);
  if (lane() == 0) met[warp()] = Met{squares, most};
  cluster_arrive_with_own();
  cluster_wait();
  Met all = {0.0f, 0};
  // Lane by warp of the row, as `block_sum` adds up those of one block: rows have the same bits
  // whichever kernel norms them.
  int warps = (int)blockDim.x / WARP;
  for (int at = lane(); at < warps * SHARERS; at += WARP) {
    Met other = load_from_block(met + at % warps, at / warps);
    all = Met{all.squares + other.squares, max(all.most, other.most)};
  }
  all = Met{warp_sum(all.squares), largest_of_lanes<WARP>(all.most)};
  cluster_arrive_relaxed();
  return all;
}

template <bool BLOCKS>
__device__ __forceinline__ void quantise_in_cluster(OUT_PARAMETERS, const T* x, int x_stride, SCALE_PARAMETERS, int width) {
  int row = (int)blockIdx.x / SHARERS, rows = (int)gridDim.x / SHARERS, rank = cluster_rank();
  int at = (rank * (int)blockDim.x + (int)threadIdx.x) * NUMBERS;
  wait_for_predecessor();
  float values[NUMBERS], of_row;
  read_numbers(x + (u64)row * x_stride, at, width, values);
  float pending = pending_scale(row, width, SCALE_ARGUMENTS);
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) values[i] *= pending;
  if (BLOCKS) {
    of_row = scale_for(largest_of_lanes<W_BLOCK / NUMBERS>(largest_of(values)), nullptr);
    if (at % W_BLOCK == 0 && at < width) scales[(u64)(at / W_BLOCK) * row_stride(rows) + row] = of_row;
  } else {
    of_row = scale_for(meet(0.0f, largest_of(values)).most, fixed);
    if (rank == 0 && threadIdx.x == 0) scales[row] = of_row;
  }
  if (at < width) write_numbers(out, as_values, (u64)row * width + at, values, of_row);
  if (!BLOCKS) cluster_wait();
}

/// One exchange is enough: the largest value is that of the largest element times its weight, up to
/// its rounding.
template <bool BLOCKS>
__device__ __forceinline__ void norm_in_cluster(NORM) {
  int row = (int)blockIdx.x / SHARERS, rows = (int)gridDim.x / SHARERS, rank = cluster_rank();
  int at = (rank * (int)blockDim.x + (int)threadIdx.x) * NUMBERS;
  float by[NUMBERS], x[NUMBERS], squares = 0.0f;
  read_numbers(weight, at, width, by);
  wait_for_predecessor();
  T* own = stream + (u64)(source ? source[row] : row) * stream_stride + at;
  T* kept = keep ? keep + (u64)row * keep_stride + at : nullptr;
  if (at >= width)
    read_numbers(own, at, width, x);
  else if (part_count)
    add_to_stream<MOST_ADDENDS>(x, own, nullptr, parts + (u64)row * width + at, part_count, (u64)rows * width, kept);
  else
    add_to_stream<0>(x, own, add ? add + (u64)row * add_stride + at : nullptr, nullptr, 0, 0, kept);
  u32 most = 0;
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) {
    squares += x[i] * x[i];
    most = max(most, float_bits(x[i] * by[i]) & 0x7fffffffu);
  }
  Met met = meet(squares, most);
  float scale = inverse_root(met.squares / (float)width + epsilon);
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) x[i] = to_float(from_float(x[i] * scale * by[i]));
  if (normed && at < width) write_rounded(normed + (u64)row * normed_stride + at, x);
  float of_row;
  if (BLOCKS) {
    of_row = scale_for(largest_of_lanes<W_BLOCK / NUMBERS>(largest_of(x)), nullptr);
    if (at % W_BLOCK == 0 && at < width) scales[(u64)(at / W_BLOCK) * row_stride(rows) + row] = of_row;
  } else {
    float largest = to_float(from_float(bits_float(met.most) * scale));
    of_row = scale_for(float_bits(largest) & 0x7fffffffu, fixed);
    if (rank == 0 && threadIdx.x == 0) scales[row] = of_row;
  }
  if (at < width) write_numbers(out, as_values, (u64)row * width + at, x, of_row);
  cluster_wait();
}

/// `quantise_rows` and `quantise_blocks`, and the same norms, of few rows. Grid: SHARERS · rows in
/// clusters of SHARERS; one thread per NUMBERS elements of a row, in whole warps, at most 256 in a
/// block. Dynamic shared memory: 8 bytes per warp.
extern "C" __global__ void __launch_bounds__(256) quantise_rows_cluster(PARAMETERS) { quantise_in_cluster<false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) quantise_blocks_cluster(PARAMETERS) { quantise_in_cluster<true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) norm_rows_cluster(NORM) { norm_in_cluster<false>(NORM_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) norm_blocks_cluster(NORM) { norm_in_cluster<true>(NORM_ARGUMENTS); }
#endif
