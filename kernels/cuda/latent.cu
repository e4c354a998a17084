// Writes the cache rows of latent attention, and prepares its queries.
#include "common.cuh"
#include "cache.cuh"
#include "rotation.cuh"

/// A row of a linear layer's output, whole, or in parts if `parts` is not null.
struct Source {
  const T* whole;
  const float* parts;
  int count;
  u64 part;
  /// Two consecutive elements; the index of the first is even.
  __device__ __forceinline__ float2 pair(int at) const {
    if (!parts) return read_pair(whole + at);
    float2 sum[1];
    const float* const from[1] = {parts + at};
    read_pairs_of_parts<1, MOST_PARTS>(sum, from, count, part);
    return sum[0];
  }
  __device__ __forceinline__ float one(int at) const {
    float2 both = pair(at & ~1);
    return at & 1 ? both.y : both.x;
  }
};

/// Copies values of a row, normed unless `norm` is null. Called by a whole block; nothing is
/// written if `to` is null.
__device__ __forceinline__ void norm_part(const Source& source, int begin, int count, const T* norm, float epsilon, T* to,
                                          float* scratch) {
  float scale = 1.0f;
  if (norm) {
    float squares = 0.0f;
    for (int i = 2 * (int)threadIdx.x; i < count; i += 2 * (int)blockDim.x) {
      float2 x = source.pair(begin + i);
      squares = multiply_add(x.x, x.x, squares);
      squares = multiply_add(x.y, x.y, squares);
    }
    scale = inverse_root(block_sum(squares, scratch) / (float)count + epsilon);
  }
  if (!to) return;
  for (int i = 2 * (int)threadIdx.x; i < count; i += 2 * (int)blockDim.x) {
    float2 x = source.pair(begin + i);
    write_pair(to + i, norm ? normed(x, scale, read_pair(norm + i)) : x);
  }
}

/// Splits rows of `first` values that lead to queries, `rank` of the latent vector, and `rotated`
/// of the key that all heads share: `x`, rows `x_stride` apart, or in parts, float
/// `[part_count, rows, first + rank + rotated]`. The first values go to `out` `[rows, first]`,
/// normed unless `query_norm` is null. The latent vector, normed, and the key, rotated at the row's
/// position, go to cache row `write[row]`, `rank + rotated` wide; below 0: nowhere. Pairs of the
/// key are neighbours if `interleaved`, else half of it apart. table: cosine and sine,
/// `[positions, rotated / 2]`. Sizes are even. Grid: rows; 256 threads.
extern "C" __global__ void __launch_bounds__(256)
latent_write(const T* x, int x_stride, const float* parts, int part_count, const float2* table, int positions,
             const int* position, const int* write, T* out, const T* query_norm, T* cache, const T* norm, float epsilon,
             int first, int rank, int rotated, int interleaved) {
  __shared__ float scratch[WARP];
  wait_for_predecessor();
  int row = (int)blockIdx.x, width = first + rank + rotated, to = write[row];
  Source source = {x + (u64)row * x_stride, parts ? parts + (u64)row * width : nullptr, part_count, (u64)gridDim.x * width};
  norm_part(source, 0, first, query_norm, epsilon, out + (u64)row * first, scratch);
  T* cached = to >= 0 ? cache + (u64)to * (rank + rotated) : nullptr;
  norm_part(source, first, rank, norm, epsilon, cached, scratch);
  int half = rotated / 2, at = min(max(position[row], 0), positions - 1);
  for (int i = (int)threadIdx.x; i < half && cached; i += (int)blockDim.x) {
    int low = interleaved ? 2 * i : i, high = interleaved ? 2 * i + 1 : i + half;
    float a = source.one(first + rank + low), b = source.one(first + rank + high);
    float2 turn = table[(u64)at * half + i];
    cached[rank + low] = from_float(multiply_add(a, turn.x, -(b * turn.y)));
    cached[rank + high] = from_float(multiply_add(b, turn.x, a * turn.y));
  }
}
