// What chunks of gated delta nets need beside the state: see delta_chunks.cuh.
#include "common.cuh"
#include "delta.cuh"

#ifdef T_PAIRS
#include "delta_chunks.cuh"

#define CHUNK_THREADS 128
#define SYSTEM_STRIDE (CHUNK + 4)

/// What `delta_triangles` keeps in shared memory.
struct Triangles {
  T key[CHUNK * KEY_STRIDE], query[CHUNK * KEY_STRIDE];
  float system[CHUNK * SYSTEM_STRIDE];
  /// Of a row: β, the logarithm of its decay, the sum of these up to it, and what norms it.
  float beta[CHUNK], slope[CHUNK], sum[CHUNK], of_key[CHUNK], of_query[CHUNK];
  /// A bit for each row before a row, and for the row itself; none if it does not exist.
  u64 lineage[CHUNK];
  int parent[CHUNK];
};

__device__ __forceinline__ bool has(u64 lineage, int row) { return lineage >> row & 1; }

/// The lineages of the rows of a sequence, or with `parent` of the nodes of a tree: −1 for the root
/// and for nodes that do not exist. Called by a whole block.
__device__ __forceinline__ void find_lineages(Triangles& t, const int* parent, int count) {
  int row = (int)threadIdx.x;
  if (!parent) {
    if (row < CHUNK) t.lineage[row] = ~0ull >> (63 - row);
    return;
  }
  if (row < count) t.parent[row] = load_fresh(parent + row);
  block_sync();
  if (row >= CHUNK) return;
  u64 lineage = 0;
  if (row == 0 || (row < count && t.parent[row] >= 0)) {
    for (int at = row; at >= 0; at = t.parent[at]) lineage |= 1ull << at;
  }
  t.lineage[row] = lineage;
}

/// Keys times keys and queries times keys for 16 rows of a warp, up to the diagonal.
__device__ __forceinline__ void multiply_keys(float keys[CHUNK / 8][4], float queries[CHUNK / 8][4], const Triangles& t) {
  int rows = warp() * 16;
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) keys[n][i] = queries[n][i] = 0.0f;
  }
#pragma unroll
  for (int k = 0; k < KEY_DIM; k += 16) {
    u32 key[4], query[4];
    int at = (rows + lane() % 16) * KEY_STRIDE + k + lane() / 16 * 8;
    ldmatrix_x4(key, t.key + at);
    ldmatrix_x4(query, t.query + at);
#pragma unroll
    for (int n = 0; n < CHUNK / 16; n++) {
      if (n * 16 > rows) continue;
      u32 by[4];
      ldmatrix_x4(by, of_columns(t.key, KEY_STRIDE, n * 16, k));
      mma_16816(keys[2 * n], key, by);
      mma_16816(keys[2 * n + 1], key, by + 2);
      mma_16816(queries[2 * n], query, by);
      mma_16816(queries[2 * n + 1], query, by + 2);
    }
  }
}

/// A column of (1 + A)⁻¹ by forward substitution, times β: `column` of matrices `[MATRICES, CHUNK,
/// CHUNK]`, without blocks above the diagonal.
__device__ __forceinline__ void solve(T* matrices, const Triangles& t, int column) {
  float x[CHUNK];
#pragma unroll
  for (int i = 0; i < CHUNK; i++) x[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < CHUNK; i++) {
    float sum[4] = {i == column ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
    // From the diagonal on, the row is zero up to a multiple of four.
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      float4 a = *(const float4*)(t.system + i * SYSTEM_STRIDE + j);
      sum[0] = multiply_add(-a.x, x[j], sum[0]);
      sum[1] = multiply_add(-a.y, x[j + 1], sum[1]);
      sum[2] = multiply_add(-a.z, x[j + 2], sum[2]);
      sum[3] = multiply_add(-a.w, x[j + 3], sum[3]);
    }
    x[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  float beta = t.beta[column];
#pragma unroll
  for (int i = 0; i < CHUNK; i++) {
    float value = x[i] * beta;
    T upper = from_float(value);
    if (i / 16 < column / 16) continue;
    matrices[i * CHUNK + column] = upper;
    matrices[CHUNK * CHUNK + i * CHUNK + column] = from_float(value - to_float(upper));
  }
}

/// The system A, and P of matrices `[MATRICES, CHUNK, CHUNK]`: 16 rows of a warp, without blocks
/// above the diagonal.
__device__ __forceinline__ void weigh_keys(T* matrices, Triangles& t) {
  float keys[CHUNK / 8][4], queries[CHUNK / 8][4];
  multiply_keys(keys, queries, t);
#pragma unroll
  for (int n = 0; n < CHUNK / 8; n++) {
    if (n / 2 > warp()) continue;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int i = warp() * 16 + lane() / 4 + half * 8, j = n * 8 + lane() % 4 * 2;
      u64 lineage = t.lineage[i];
      float a[2], p[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        // Of other rows the power could overflow, and a row that does not exist may hold anything.
        bool before = has(lineage, j + e);
        float share = before ? exp_accurate(t.sum[i] - t.sum[j + e]) * t.of_key[j + e] : 0.0f;
        a[e] = before && j + e < i ? t.beta[i] * t.of_key[i] * share * keys[n][half * 2 + e] : 0.0f;
        p[e] = before ? t.of_query[i] * share * queries[n][half * 2 + e] : 0.0f;
      }
      *(float2*)(t.system + i * SYSTEM_STRIDE + j) = make_float2(a[0], a[1]);
      *(u32*)(matrices + 2 * CHUNK * CHUNK + i * CHUNK + j) = pack(p[0], p[1]);
    }
  }
}

/// What a chunk needs beside the state: matrices `[places, value heads, MATRICES, CHUNK, CHUNK]`,
/// without 16×16 blocks above the diagonal, and factors `[places, value heads, FACTORS, CHUNK]`.
/// Places are those of `rows_of`; gates are as in delta.cu. With `parent`, `[groups, each]`, groups
/// are trees.
///
/// Follows `delta_convolve`, whose outputs alone are read after the wait; releases its successor
/// after that. Dynamic shared memory: Triangles. Grid (value heads, most chunks of a group,
/// groups), CHUNK_THREADS threads.
extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)
delta_triangles(T* matrices, float* factors, const T* convolved, const T* gates, u64 gates_stride, const float* rates,
                const float* offsets, int layer, int key_heads, int value_heads, const int* position, int each,
                const int* parent, const int* row_slot, int dummy_slot, const int* first) {
  DYNAMIC_SHARED(dynamic);
  Triangles& t = *(Triangles*)dynamic;
  int head = (int)blockIdx.x, thread = (int)threadIdx.x;
  Rows rows = rows_of(first, position, each, (int)blockIdx.z, (int)blockIdx.y);
  bool empty = rows.count == 0 || load_fresh(row_slot + rows.first) == dummy_slot;
  if (!empty) {
    find_lineages(t, parent ? parent + rows.first : nullptr, rows.count);
    if (thread < CHUNK) {
      bool real = thread < rows.count && t.lineage[thread] != 0;
      const T* own = gates + (u64)(rows.first + (real ? thread : 0)) * gates_stride + head;
      int at = layer * value_heads + head;
      t.beta[thread] = real ? beta_of(load_fresh_element(own)) : 0.0f;
      t.slope[thread] = real ? log_decay(rates[at], offsets[at], load_fresh_element(own + value_heads)) : 0.0f;
    }
  }
  await_predecessor();
  release_successor();
  if (empty) return;
  int channels = channels_of(key_heads, value_heads), key_head = head / (value_heads / key_heads);
  const T* query = convolved + (u64)rows.first * channels + key_head * KEY_DIM;
  copy_rows<CHUNK_THREADS>(t.query, KEY_STRIDE, query, channels, KEY_DIM, rows.count);
  copy_rows<CHUNK_THREADS>(t.key, KEY_STRIDE, query + key_heads * KEY_DIM, channels, KEY_DIM, rows.count);
  copy_async_commit();
  copy_async_wait<0>();
  block_sync();
  for (int row = warp(); row < CHUNK; row += CHUNK_THREADS / WARP) {
    float of_key = 0.0f, of_query = 0.0f;
    for (int i = lane(); i < KEY_DIM; i += WARP) {
      float k = to_float(t.key[row * KEY_STRIDE + i]), q = to_float(t.query[row * KEY_STRIDE + i]);
      of_key = multiply_add(k, k, of_key);
      of_query = multiply_add(q, q, of_query);
    }
    of_key = warp_sum(of_key), of_query = warp_sum(of_query);
    if (lane() == 0) {
      t.of_key[row] = inverse_root(of_key + EPSILON);
      t.of_query[row] = inverse_root(of_query + EPSILON) * inverse_root((float)KEY_DIM);
    }
  }
  if (thread < CHUNK) {
    float sum = 0.0f;
    for (int row = 0; row <= thread; row++) sum += has(t.lineage[thread], row) ? t.slope[row] : 0.0f;
    t.sum[thread] = sum;
  }
  block_sync();
  u64 place = (u64)rows.place * value_heads + head;
  T* own = matrices + place * (MATRICES * CHUNK * CHUNK);
  if (warp() < CHUNK / 16) weigh_keys(own, t);
  block_sync();
  if (thread < CHUNK) return solve(own, t, thread);
  // Other warps than those that solve.
  int row = thread - (CHUNK < WARP ? WARP : CHUNK);
  if (row < 0 || row >= CHUNK) return;
  float* factor = factors + place * (FACTORS * CHUNK) + row;
  float all = t.sum[CHUNK - 1], sum = t.sum[row];
  bool exists = t.lineage[row] != 0;
  factor[0] = exists ? exp_accurate(sum) * t.of_key[row] : ABSENT_ROW;
  factor[CHUNK] = exists ? exp_accurate(sum) * t.of_query[row] : ABSENT_ROW;
  factor[2 * CHUNK] = exp_accurate(all - sum) * t.of_key[row];
  factor[3 * CHUNK] = exp_accurate(all);
}

#endif
