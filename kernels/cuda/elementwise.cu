// Kernels that work on rows separately: embedding, norms with residual, rotary embedding with cache
// write, gated activation, and gathering of rows. T is the element type of activations, weights and
// caches.
#include "common.cuh"
#include "cache.cuh"
#include "rotation.cuh"
#include "vectors.cuh"
#include "norms.cuh"

/// Sums the parts of rows; `out` is float instead of T if `out_is_float`, and then nothing is
/// rounded. Grid: (pieces of the width, rows).
extern "C" __global__ void __launch_bounds__(256, 4)
add_parts(void* out, int out_is_float, int out_stride, const float* parts, int count, int width) {
  wait_for_predecessor();
  u64 row = blockIdx.y;
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i >= width) return;
  float4 sum = sum_parts<MOST_ADDENDS>(parts + row * width + i, count, (u64)gridDim.y * width);
  u64 to = row * out_stride + i;
  if (out_is_float)
    *(float4*)((float*)out + to) = sum;
  else
    write_four((T*)out + to, sum);
}

/// Rows of an embedding: `out[r] = table[tokens[r]]`, rows `out_stride` apart. Grid: rows. Width is
/// a multiple of VECTOR.
extern "C" __global__ void __launch_bounds__(256)
embed(T* out, int out_stride, const T* table, const int* tokens, int width, int vocabulary) {
  wait_for_predecessor();
  int row = (int)blockIdx.x;
  int token = tokens[row];
  token = token < 0 || token >= vocabulary ? 0 : token;
  const uint4* from = (const uint4*)(table + (u64)token * width);
  uint4* to = (uint4*)(out + (u64)row * out_stride);
  for (int i = (int)threadIdx.x; i < width / VECTOR; i += (int)blockDim.x) to[i] = from[i];
}

/// Writes a row times `scale` and its weights, also to `also` unless that is null. A thread already
/// holds its first vector.
__device__ __forceinline__ void write_normed(T* out, T* also, const T* from, const T* weight, const float first[VECTOR],
                                             const float first_weight[VECTOR], float scale, int width) {
  int begin = (int)threadIdx.x * VECTOR, step = (int)blockDim.x * VECTOR;
  for (int i = begin; i < width; i += step) {
    float x[VECTOR], w[VECTOR];
    if (i > begin) {
      read_vector(from + i, x);
      read_vector(weight + i, w);
    }
#pragma unroll
    for (int k = 0; k < VECTOR; k++) x[k] = i > begin ? x[k] * scale * w[k] : first[k] * scale * first_weight[k];
    write_vector(out + i, x);
    if (also) write_vector(also + i, x);
  }
}

/// A row of the norms below. With few rows latency counts: a thread loads its weight before the
/// previous kernel has ended, and reads its part of the row once. The addend is in at most MOST
/// parts, or whole if MOST is 0.
template <int MOST>
__device__ __forceinline__ void norm_row(NORM) {
  __shared__ float scratch[32];
  int begin = (int)threadIdx.x * VECTOR, step = (int)blockDim.x * VECTOR;
  float first_weight[VECTOR], first[VECTOR];
  if (begin < width) read_vector(weight + begin, first_weight);
  wait_for_predecessor();
  int row = (int)blockIdx.x;
  T* own = stream + (u64)(source ? source[row] : row) * stream_stride;
  const T* other = add ? add + (u64)row * add_stride : nullptr;
  T* kept = keep ? keep + (u64)row * keep_stride : nullptr;
  float squares = 0.0f;
  for (int i = begin; i < width; i += step) {
    float x[VECTOR], y[VECTOR] = {};
    uint4 raw = load_16(own + i);
    if constexpr (MOST > 0)
      read_parts<MOST>(parts + (u64)row * width + i, part_count, (u64)gridDim.x * width, y);
    else if (other)
      read_vector(other + i, y);
    unpack_vector(raw, x);
    if (MOST > 0 || other) {
#pragma unroll
      for (int k = 0; k < VECTOR; k++) x[k] = to_float(from_float(x[k] + y[k]));
      write_vector(own + i, x);
    }
    if (kept) write_vector(kept + i, x);
#pragma unroll
    for (int k = 0; k < VECTOR; k++) {
      squares += x[k] * x[k];
      if (i == begin) first[k] = x[k];
    }
  }
  float scale = inverse_root(block_sum(squares, scratch) / (float)width + epsilon);
  write_normed(normed + (u64)row * normed_stride, nullptr, own, weight, first, first_weight, scale, width);
}

/// RMS norm of a row, after adding a residual: `stream = stream + add` (rounded to T; skipped if
/// `add` is null), then `normed = stream · inverse_root(mean(stream²) + epsilon) · weight`. With
/// `keep`, the sum is also written there. Rows of stream, add, normed and keep are `*_stride`
/// apart. `source` (or null) maps a row to the row of `stream` that it reads; then `add` is not
/// used. Width is a multiple of VECTOR. Grid: rows; one thread per vector of a row, up to 512.
extern "C" __global__ void __launch_bounds__(512) rms_norm(NORM) { norm_row<0>(NORM_ARGUMENTS); }

/// The same with the addend in parts.
extern "C" __global__ void __launch_bounds__(512, 1) rms_norm_parts(NORM) { norm_row<MOST_ADDENDS>(NORM_ARGUMENTS); }

/// The same with two parts, and registers for only two: with many rows, several blocks per
/// multiprocessor count.
extern "C" __global__ void __launch_bounds__(512, 2) rms_norm_two(NORM) { norm_row<2>(NORM_ARGUMENTS); }

#ifdef CLUSTERS
/// The same of few rows; sums of squares have another order. Grid: SHARERS · rows in clusters of
/// SHARERS, at most 512 threads, which have all of a block's elements.
extern "C" __global__ void __launch_bounds__(512) rms_norm_cluster(NORM) {
  norm_row_in_fours<true>(NORM_ARGUMENTS, [](const Row&, u32, float) {}, [](const Row&, int, bool, float4) {});
}
#endif

/// The part of a norm that needs no sum over the whole row: `stream = stream + add` and `keep` as
/// in `rms_norm`, with an optional addend, possibly in parts; then `out = stream · weight`, and the
/// sum of squares of each piece of a row, `squares[row, piece]`, from which the next layer computes
/// the scale (ring.cuh). Width is a multiple of 4. Grid: (pieces of UNSCALED_PIECE, rows).
#define UNSCALED_PIECE 512
extern "C" __global__ void __launch_bounds__(UNSCALED_PIECE / 4, 8)
norm_unscaled(T* out, int out_stride, T* stream, int stream_stride, const T* add, int add_stride, const float* parts,
              int part_count, const T* weight, T* keep, int keep_stride, float* squares, int width) {
  __shared__ float scratch[32];
  int row = (int)blockIdx.y, rows = (int)gridDim.y, i = (int)(blockIdx.x * UNSCALED_PIECE + threadIdx.x * 4);
  bool real = i < width;
  float4 by = real ? read_four(weight + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  wait_for_predecessor();
  float sum = 0.0f;
  if (real) {
    float4 x = take_up(stream + (u64)row * stream_stride + i, add, (u64)row * add_stride + i, parts + (u64)row * width + i,
                       part_count, (u64)rows * width, keep, (u64)row * keep_stride + i);
    write_four(out + (u64)row * out_stride + i, make_float4(x.x * by.x, x.y * by.y, x.z * by.z, x.w * by.w));
    sum = x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) squares[(u64)row * squares_stride((int)gridDim.x) + blockIdx.x] = sum;
}

/// The input of an EAGLE-3 layer, and of an MTP layer's projection: the normed embedding of a row's
/// token next to its normed feature, `[rows, 2 · width]`. Row r reads row `source[r]` of `features`
/// (null: r), `feature_stride` apart. The feature, normed if `stream_is_normed`, also goes to
/// `stream`, `[rows, width]`. Norms as in `rms_norm`. With `position`, the embedding of rows at
/// position 0 is zero. Grid: (rows, 2), the embedding first; one thread per vector of a row, up
/// to 512.
extern "C" __global__ void __launch_bounds__(512)
join_normed(T* joined, const T* table, const int* token, int vocabulary, const T* token_norm, const T* features,
            int feature_stride, const int* source, const T* feature_norm, T* stream, int stream_is_normed,
            const int* position, int width, float epsilon) {
  __shared__ float scratch[32];
  int row = (int)blockIdx.x, is_feature = (int)blockIdx.y;
  const T* weight = is_feature ? feature_norm : token_norm;
  int begin = (int)threadIdx.x * VECTOR, step = (int)blockDim.x * VECTOR;
  float first_weight[VECTOR], first[VECTOR];
  if (begin < width) read_vector(weight + begin, first_weight);
  wait_for_predecessor();
  const T* from;
  if (is_feature) {
    from = features + (u64)(source ? source[row] : row) * feature_stride;
  } else {
    int at = token[row];
    from = table + (u64)(at < 0 || at >= vocabulary ? 0 : at) * width;
  }
  T* out = joined + (u64)row * 2 * width + is_feature * width;
  T* kept = stream + (u64)row * width;
  float squares = 0.0f;
  for (int i = begin; i < width; i += step) {
    float x[VECTOR];
    read_vector(from + i, x);
    if (is_feature && !stream_is_normed) write_vector(kept + i, x);
#pragma unroll
    for (int k = 0; k < VECTOR; k++) {
      squares += x[k] * x[k];
      if (i == begin) first[k] = x[k];
    }
  }
  float scale = inverse_root(block_sum(squares, scratch) / (float)width + epsilon);
  if (!is_feature && position && position[row] == 0) scale = 0.0f;
  write_normed(out, is_feature && stream_is_normed ? kept : nullptr, from, weight, first, first_weight, scale, width);
}

/// `stream = stream + add`, both `[rows, width]`, with separate strides; with `keep`, the sum is
/// also written there. The addend may also be the `parts` of a linear layer. Grid: rows.
extern "C" __global__ void __launch_bounds__(256, 4)
add_rows(T* stream, int stream_stride, const T* add, int add_stride, const float* parts, int part_count, T* keep,
         int keep_stride, int width) {
  wait_for_predecessor();
  int row = (int)blockIdx.x;
  for (int i = (int)threadIdx.x * 4; i < width; i += (int)blockDim.x * 4) {
    take_up(stream + (u64)row * stream_stride + i, add, (u64)row * add_stride + i, parts + (u64)row * width + i, part_count,
            (u64)gridDim.x * width, keep, (u64)row * keep_stride + i);
  }
}

/// `out[r] = from[source[r]]`, rows of `width` elements with separate strides. A negative source
/// leaves the row unchanged; with `target`, the row goes to `out[target[r]]`. Grid: (rows, pieces
/// of 256 accesses).
extern "C" __global__ void __launch_bounds__(256)
gather_rows(T* out, int out_stride, const int* target, const T* from, int from_stride, const int* source, int width) {
  wait_for_predecessor();
  int row = (int)blockIdx.x;
  int place = source ? source[row] : row;
  if (place < 0) return;
  const uint4* at = (const uint4*)(from + (u64)place * from_stride);
  uint4* to = (uint4*)(out + (u64)(target ? target[row] : row) * out_stride);
  int i = (int)(blockIdx.y * blockDim.x + threadIdx.x);
  if (i < width / VECTOR) to[i] = at[i];
}

/// `out = silu(gate) · up` of `[rows, 2 · width]`, gate first. Grid: (pieces of the width, rows).
extern "C" __global__ void __launch_bounds__(256)
silu_gate(T* out, const T* gate_up, int width) {
  wait_for_predecessor();
  u64 row = blockIdx.y;
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (i >= width) return;
  float gate[VECTOR], up[VECTOR];
  read_vector(gate_up + row * 2 * width + i, gate);
  read_vector(gate_up + row * 2 * width + width + i, up);
#pragma unroll
  for (int k = 0; k < VECTOR; k++) up[k] = gated(gate[k], up[k]);
  write_vector(out + row * width + i, up);
}

/// `x = x · sigmoid(gate)` of `[rows, width]`, rows `*_stride` apart. Grid: (pieces of the width,
/// rows).
extern "C" __global__ void __launch_bounds__(256)
sigmoid_gate(T* x, int stride, const T* gate, int gate_stride, int width) {
  wait_for_predecessor();
  u64 row = blockIdx.y;
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (i >= width) return;
  float value[VECTOR], by[VECTOR];
  read_vector(x + row * stride + i, value);
  read_vector(gate + row * gate_stride + i, by);
#pragma unroll
  for (int k = 0; k < VECTOR; k++) value[k] = value[k] / (1.0f + exp_accurate(-by[k]));
  write_vector(x + row * stride + i, value);
}

/// Adds a bias to `[rows, width]`, rows `stride` apart. Grid: (pieces of the width, rows).
extern "C" __global__ void __launch_bounds__(256)
add_bias(T* x, int stride, const T* bias, int width) {
  wait_for_predecessor();
  u64 row = blockIdx.y;
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (i >= width) return;
  float value[VECTOR], add[VECTOR];
  read_vector(x + row * stride + i, value);
  read_vector(bias + i, add);
#pragma unroll
  for (int k = 0; k < VECTOR; k++) value[k] += add[k];
  write_vector(x + row * stride + i, value);
}

/// The work of a warp of the two kernels below: HEADS heads, whose loads are in flight together.
template <int HEADS, bool IN_PARTS>
__device__ __forceinline__ void rotate_heads(T* qkv, const float* parts, int part_count, const float2* table, int positions,
                                             const int* position, const int* write, C* keys, C* values,
                                             const T* query_norm, const T* key_norm, float epsilon, int heads,
                                             int kv_heads, int head_dim, int releases_late CACHE_PARAMETERS) {
#ifndef KV_FP8
  constexpr float key_scale = 1.0f, value_scale = 1.0f;
#endif
  // If the next attention reads before its wait, the attention of the previous layer released late,
  // so rows may be read early too.
  if (releases_late) await_predecessor();
  release_successor();
  int first = ((int)blockIdx.x * (int)(blockDim.x / WARP) + warp()) * HEADS, row = (int)blockIdx.y;
  int all = heads + 2 * kv_heads, half = head_dim / 2;
  if (first >= all) return;
  u64 place = (u64)row * all * head_dim, part = (u64)gridDim.y * all * head_dim;
  T* own = qkv + place;
  // Two consecutive elements of each head from `i` on, and the two half a head later.
  auto read = [&](float2 (&two)[2 * HEADS], int i) {
    const float* from[2 * HEADS] = {};
#pragma unroll
    for (int k = 0; k < 2 * HEADS; k++) {
      int at = min(first + k / 2, all - 1) * head_dim + i + k % 2 * half;
      if (IN_PARTS)
        from[k] = parts + place + at;
      else
        two[k] = read_pair(own + at);
    }
    if (IN_PARTS) read_pairs_of_parts<2 * HEADS, MOST_PARTS>(two, from, part_count, part);
  };
  int to = load_fresh(write + row), at = load_fresh(position + row);
  at = at < 0 ? 0 : at >= positions ? positions - 1 : at;
  const float2* turns = table + (u64)at * half;
  // Offset as if their heads were numbered like those of `qkv`.
  C* cached_keys = keys + (long long)max(to, 0) * (kv_heads * head_dim) - heads * head_dim;
  C* cached_values = values + (long long)max(to, 0) * (kv_heads * head_dim) - (heads + kv_heads) * head_dim;
  float4 turning = lane() * 2 < half ? *(const float4*)(turns + lane() * 2) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (!releases_late) await_predecessor();
  float scale[HEADS];
#pragma unroll
  for (int k = 0; k < HEADS; k++) scale[k] = 0.0f;
#pragma unroll 1
  for (int i = lane() * 2; query_norm && i < half; i += WARP * 2) {
    float2 two[2 * HEADS] = {};
    read(two, i);
#pragma unroll
    for (int k = 0; k < 2 * HEADS; k++) scale[k / 2] += two[k].x * two[k].x + two[k].y * two[k].y;
  }
  if (query_norm) {
#pragma unroll
    for (int k = 0; k < HEADS; k++) scale[k] = inverse_root(warp_sum(scale[k]) / (float)head_dim + epsilon);
  }
  // Two consecutive elements at once.
#pragma unroll 1
  for (int i = lane() * 2; i < half; i += WARP * 2) {
    float2 two[2 * HEADS] = {};
    read(two, i);
    if (i >= WARP * 2) turning = *(const float4*)(turns + i);
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
      int head = first + k;
      bool is_query = head < heads, is_value = head >= heads + kv_heads;
      if (head >= all || (!is_query && to < 0)) continue;
      const T* norm = is_value ? nullptr : is_query ? query_norm : key_norm;
      float2 low = two[2 * k], high = two[2 * k + 1];
      if (norm) {
        low = normed(low, scale[k], read_pair(norm + i));
        high = normed(high, scale[k], read_pair(norm + i + half));
      }
      if (!is_value) turn(low, high, turning);
      int at = head * head_dim + i;
      if (is_query) {
        write_pair(own + at, low);
        write_pair(own + at + half, high);
        continue;
      }
      C* out = (is_value ? cached_values : cached_keys) + at;
      write_cached(out, low, is_value ? value_scale : key_scale);
      write_cached(out + half, high, is_value ? value_scale : key_scale);
    }
  }
}

#define ROTATION                                                                                                        \
  T *qkv, const float *parts, int part_count, const float2 *table, int positions, const int *position,                  \
      const int *write, C *keys, C *values, const T *query_norm, const T *key_norm, float epsilon, int heads,           \
      int kv_heads, int head_dim, int releases_late CACHE_PARAMETERS
#define ROTATION_ARGUMENTS                                                                                              \
  qkv, parts, part_count, table, positions, position, write, keys, values, query_norm, key_norm, epsilon, heads,        \
      kv_heads, head_dim, releases_late CACHE_ARGUMENTS

/// Rotates queries and keys of `qkv` (`[rows, (heads + 2 · kv_heads) · head_dim]`: queries, keys,
/// values). Queries are rotated in place; keys and values go to cache row `write[row]` (below 0:
/// not written). Element i of a head is rotated with element i + head_dim / 2 by the angle whose
/// cosine and sine are in `table[position][head_dim / 2]` (already scaled). Optional RMS norms of
/// each head before the rotation (Qwen3). `releases_late`: releases the successor only after its
/// own wait, so that attention may read before its wait (groups.cuh). Grid: ((heads + 2 · kv_heads)
/// / 4 / 4, rows), 128 threads, four heads per warp; head_dim is a multiple of 4.
extern "C" __global__ void __launch_bounds__(128) rotate_and_write(ROTATION) {
  rotate_heads<4, false>(ROTATION_ARGUMENTS);
}

/// The same with `qkv` in the parts of a linear layer: rows are read from there, and queries
/// written to `qkv`. Grid: ((heads + 2 · kv_heads) / 4, rows), one head per warp.
extern "C" __global__ void __launch_bounds__(128, 8) rotate_and_write_parts(ROTATION) {
  rotate_heads<1, true>(ROTATION_ARGUMENTS);
}

/// Fills with values uniformly distributed in ±`bound`, a function of seed and index. Grid: any.
extern "C" __global__ void __launch_bounds__(256)
fill_random(T* out, u64 count, float bound, u64 seed) {
  wait_for_predecessor();
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
    u64 x = (i + seed * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    x ^= x >> 31;
    out[i] = from_float(((float)(u32)(x >> 40) * (2.0f / 16777216.0f) - 1.0f) * bound);
  }
}
