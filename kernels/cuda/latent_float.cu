// Latent attention in float32: the products with a matrix per head, and attention over the latent
// plane. Written to be correct, not fast.
//
// -DRANK, -DROTATED: sizes of a latent vector, and of the rotated key after it.
#include "common.cuh"

#ifdef T_F32
#include "turned.cuh"

#define WIDTH (RANK + ROTATED)
#define THREADS 128
/// Keys that are scored together, one per thread.
#define TILE THREADS
/// Values of a mean that a thread sums.
#define OWN ((RANK + THREADS - 1) / THREADS)

/// One output of a head for a row, by one thread.
__device__ __forceinline__ void multiply(const T* x, const T* weight, T* y, int inputs, int outputs) {
  int output = (int)(blockIdx.y * THREADS + threadIdx.x);
  if (output >= outputs) return;
  float sum = 0.0f;
  for (int i = 0; i < inputs; i++) sum = multiply_add(weight[(u64)output * inputs + i], x[i], sum);
  y[output] = sum;
}

/// As in latent_heads.cu, with grid (heads, ceil(rank / 128), rows).
extern "C" __global__ void __launch_bounds__(128)
latent_queries(const T* x, const T* weight, T* y, const float2* table, int positions, const int* position, int rows, int nope,
               int rank, int rotated, int interleaved) {
  await_predecessor();
  release_successor();
  int head = (int)blockIdx.x, heads = (int)gridDim.x, row = (int)blockIdx.z;
  int x_stride = heads * (nope + rotated), y_stride = heads * (rank + rotated);
  x += head * (nope + rotated);
  y += head * (rank + rotated);
  multiply(x + (u64)row * x_stride, weight + (u64)head * rank * nope, y + (u64)row * y_stride, nope, rank);
  Turns turns = {table, positions, position, rotated, interleaved};
  if (blockIdx.y == 0) turn_rows(x, x_stride, nope, y, y_stride, rank, turns, row, row + 1);
}
extern "C" __global__ void __launch_bounds__(128)
latent_values(const T* x, const T* weight, T* y, int rows, int rank, int value) {
  wait_for_predecessor();
  u64 head = blockIdx.x, of = (u64)blockIdx.z * gridDim.x + head;
  multiply(x + of * rank, weight + head * value * rank, y + of * value, rank, value);
}

/// As in latent_attention.cu, without splits: a block takes a head of a row through all keys that
/// it sees. `scale` includes log2(e). Grid (heads, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
latent_attention(T* out, const T* query, const T* latents, const int* page_table, int table_width, int page_size,
                 const int* row_slot, const int* row_prefix, const int* row_own_count, const int* row_own, int own_stride,
                 float scale) {
  __shared__ float queries[WIDTH], weights[TILE], scratch[WARP];
  __shared__ int cache_rows[TILE];
  wait_for_predecessor();
  int thread = (int)threadIdx.x, row = (int)blockIdx.y;
  u64 place = (u64)row * gridDim.x + blockIdx.x;
  int prefix = row_prefix[row], total = prefix + row_own_count[row];
  const int* table = page_table + (u64)row_slot[row] * table_width;
  for (int i = thread; i < WIDTH; i += THREADS) queries[i] = query[place * WIDTH + i] * scale;
  float acc[OWN], most = -infinity(), sum = 0.0f;
  for (int i = 0; i < OWN; i++) acc[i] = 0.0f;
  for (int begin = 0; begin < total; begin += TILE) {
    block_sync();
    int key = begin + thread;
    float score = -infinity();
    if (key < total) {
      int cache_row = key < prefix ? table[key / page_size] * page_size + key % page_size
                                   : row_own[(u64)row * own_stride + key - prefix];
      cache_rows[thread] = cache_row;
      const float4* latent = (const float4*)(latents + (u64)(u32)cache_row * WIDTH);
      score = 0.0f;
      for (int i = 0; i < WIDTH / 4; i++) {
        float4 four = latent[i];
        score = multiply_add(queries[4 * i], four.x, score);
        score = multiply_add(queries[4 * i + 1], four.y, score);
        score = multiply_add(queries[4 * i + 2], four.z, score);
        score = multiply_add(queries[4 * i + 3], four.w, score);
      }
    }
    float larger = max(most, block_max(score, scratch)), reference = reference_of(larger);
    float keep = exp2_fast(most - reference), weight = exp2_fast(score - reference);
    most = larger;
    weights[thread] = weight;
    sum = multiply_add(sum, keep, block_sum(weight, scratch));
    int count = min(TILE, total - begin);
    for (int i = 0; i < OWN; i++) {
      int column = i * THREADS + thread;
      if (column >= RANK) continue;
      float mixed = acc[i] * keep;
      for (int k = 0; k < count; k++)
        mixed = multiply_add(weights[k], latents[(u64)(u32)cache_rows[k] * WIDTH + column], mixed);
      acc[i] = mixed;
    }
  }
  for (int i = 0; i < OWN; i++) {
    int column = i * THREADS + thread;
    // A row that sees nothing is padding: zeros.
    if (column < RANK) out[place * RANK + column] = sum > 0.0f ? acc[i] / sum : 0.0f;
  }
}

#endif
