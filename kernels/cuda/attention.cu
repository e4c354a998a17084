// Attention of rows over the paged cache, each row on its own.
//
// What a row sees is a list of cache rows: positions 0 .. prefix − 1 of its slot through the page table, then rows of its
// own (the nodes on its way through a tree, or a beam's scratch rows). A prompt, a decoded token, a node of a tree and a
// beam are all rows of this kind.
//
// The order in which a row's keys are summed is a function of how many it sees, of nothing else: not of the batch, the
// other rows or the pass. So a position has the same bits whether it was prefilled, decoded or verified.
//
// -DHEAD_DIM: elements of a head.
#include "common.cuh"

#define VECTOR (16 / (int)sizeof(T))
#define WARPS 4
#define TILE 128         // keys whose cache rows are looked up at once
#define TOGETHER 4       // keys that a team has under way
#define FEWEST_KEYS 128  // of a split that is not the last one

/// Lanes that hold one key: a power of two that covers the head in 16-byte pieces.
constexpr int lanes_of(int pieces) { return pieces <= 4 ? 4 : pieces <= 8 ? 8 : pieces <= 16 ? 16 : 32; }
constexpr int LANES = lanes_of(HEAD_DIM / VECTOR);
/// Pieces of a key that one lane holds.
constexpr int PIECES = (HEAD_DIM / VECTOR + LANES - 1) / LANES;
constexpr int TEAMS = WARPS * WARP / LANES;
constexpr int OWN = PIECES * VECTOR;

__device__ __forceinline__ void unpack_piece(uint4 raw, float* values) {
  const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
#ifdef T_PAIRS
    float2 pair = unpack(words[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
#else
    values[i] = bits_float(words[i]);
#endif
  }
}

/// Reads what this lane holds of a head.
__device__ __forceinline__ void read_head(const T* head, int place, uint4 raw[PIECES]) {
#pragma unroll
  for (int p = 0; p < PIECES; p++) {
    int at = (p * LANES + place) * VECTOR;
    raw[p] = at < HEAD_DIM ? load_16(head + at) : make_uint4(0, 0, 0, 0);
  }
}

/// One block: a row, a key/value head, a split of the keys, and GROUP of the query heads that share the key/value head.
/// Teams of LANES lanes take keys in turn; each keeps a running softmax, and they are merged in order at the end.
template <int GROUP>
__device__ __forceinline__ void attend(T* out, const T* query, int query_stride, const T* keys, const T* values,
                                       const int* page_table, int table_width, int page_size, const int* row_slot,
                                       const int* row_prefix, const int* row_own_count, const int* row_own,
                                       int own_stride, int heads, int kv_heads, float scale, float* partial,
                                       int* counters, int max_splits) {
  __shared__ int cache_row[TILE];
  __shared__ float team_acc[TEAMS][GROUP][LANES * OWN];
  __shared__ float team_max[TEAMS][GROUP], team_sum[TEAMS][GROUP];
  __shared__ int is_last;
  wait_for_predecessor();
  int split = (int)blockIdx.x, kv_head = (int)blockIdx.y % kv_heads, part = (int)blockIdx.y / kv_heads;
  int row = (int)blockIdx.z;
  int group = heads / kv_heads, first_head = kv_head * group + part * GROUP;
  int count = min(GROUP, group - part * GROUP);
  int prefix = row_prefix[row], total = prefix + row_own_count[row];
  // A function of `total` alone.
  int chunk = (total + max_splits - 1) / max_splits;
  chunk = chunk <= FEWEST_KEYS ? FEWEST_KEYS : (chunk + 63) / 64 * 64;
  int splits = (total + chunk - 1) / chunk;
  if (split >= splits && split > 0) return;
  int begin = split * chunk, end = min(begin + chunk, total);
  int thread = (int)threadIdx.x, team = thread / LANES, place = thread % LANES;
  const int* table = page_table + (u64)row_slot[row] * table_width;

  float q[GROUP][OWN], acc[GROUP][OWN], most[GROUP], sum[GROUP];
#pragma unroll
  for (int h = 0; h < GROUP; h++) {
    uint4 raw[PIECES];
    read_head(query + (u64)row * query_stride + (u64)(first_head + (h < count ? h : 0)) * HEAD_DIM, place, raw);
#pragma unroll
    for (int p = 0; p < PIECES; p++) unpack_piece(raw[p], q[h] + p * VECTOR);
#pragma unroll
    for (int i = 0; i < OWN; i++) {
      q[h][i] *= scale;
      acc[h][i] = 0.0f;
    }
    most[h] = -infinity();
    sum[h] = 0.0f;
  }
  for (int tile = begin; tile < end; tile += TILE) {
    block_sync();
    int key = tile + thread;
    if (thread < TILE && key < end) {
      cache_row[thread] = key < prefix ? table[key / page_size] * page_size + key % page_size
                                       : row_own[(u64)row * own_stride + key - prefix];
    }
    block_sync();
    int live = min(TILE, end - tile);
    // All teams of a warp run as long as the first of them: shuffles need every lane.
    for (int at = team; at - team % (WARP / LANES) < live; at += TOGETHER * TEAMS) {
      uint4 k[TOGETHER][PIECES], v[TOGETHER][PIECES];
      bool sees[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        int mine = at + i * TEAMS;
        sees[i] = mine < live;
        u64 from = ((u64)cache_row[sees[i] ? mine : 0] * kv_heads + kv_head) * HEAD_DIM;
        read_head(keys + from, place, k[i]);
        read_head(values + from, place, v[i]);
      }
      float weight[GROUP][TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        float key_values[OWN];
#pragma unroll
        for (int p = 0; p < PIECES; p++) unpack_piece(k[i][p], key_values + p * VECTOR);
#pragma unroll
        for (int h = 0; h < GROUP; h++) {
          float score = 0.0f;
#pragma unroll
          for (int d = 0; d < OWN; d++) score += q[h][d] * key_values[d];
          weight[h][i] = score;
        }
      }
#pragma unroll
      for (int h = 0; h < GROUP; h++) {
        float larger = most[h];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
          for (int mask = LANES / 2; mask > 0; mask /= 2) weight[h][i] += shuffle_xor(weight[h][i], mask);
          if (!sees[i]) weight[h][i] = -infinity();
          larger = weight[h][i] > larger ? weight[h][i] : larger;
        }
        float reference = larger == -infinity() ? 0.0f : larger, keep = exp_fast(most[h] - reference);
        most[h] = larger;
        sum[h] *= keep;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
          weight[h][i] = exp_fast(weight[h][i] - reference);
          sum[h] += weight[h][i];
        }
#pragma unroll
        for (int d = 0; d < OWN; d++) acc[h][d] *= keep;
      }
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        float value_values[OWN];
#pragma unroll
        for (int p = 0; p < PIECES; p++) unpack_piece(v[i][p], value_values + p * VECTOR);
#pragma unroll
        for (int h = 0; h < GROUP; h++) {
#pragma unroll
          for (int d = 0; d < OWN; d++) acc[h][d] += weight[h][i] * value_values[d];
        }
      }
    }
  }
#pragma unroll
  for (int h = 0; h < GROUP; h++) {
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
#pragma unroll
      for (int i = 0; i < VECTOR; i++) team_acc[team][h][(p * LANES + place) * VECTOR + i] = acc[h][p * VECTOR + i];
    }
    if (place == 0) {
      team_max[team][h] = most[h];
      team_sum[team][h] = sum[h];
    }
  }
  block_sync();
  // The partial result of a split: HEAD_DIM sums, their largest score, their weight.
  float* own = partial + (((u64)row * heads + first_head) * max_splits + split) * (HEAD_DIM + 2);
  u64 next_head = (u64)max_splits * (HEAD_DIM + 2);
  for (int i = thread; i < count * HEAD_DIM; i += WARPS * WARP) {
    int h = i / HEAD_DIM, d = i % HEAD_DIM;
    float largest = -infinity(), weight = 0.0f, value = 0.0f;
    for (int t = 0; t < TEAMS; t++) largest = team_max[t][h] > largest ? team_max[t][h] : largest;
    for (int t = 0; t < TEAMS; t++) {
      // A team without keys has the largest score −∞ and weighs nothing.
      float share = team_sum[t][h] > 0.0f ? exp_fast(team_max[t][h] - largest) : 0.0f;
      weight += share * team_sum[t][h];
      value += share * team_acc[t][h][d];
    }
    if (splits <= 1) {
      // A row that sees nothing is padding: zeros.
      out[((u64)row * heads + first_head + h) * HEAD_DIM + d] = from_float(weight > 0.0f ? value / weight : 0.0f);
    } else {
      own[h * next_head + d] = value;
      if (d == 0) {
        own[h * next_head + HEAD_DIM] = largest;
        own[h * next_head + HEAD_DIM + 1] = weight;
      }
    }
  }
  if (splits <= 1) return;
  // The last block of the row's head merges the splits, in their order.
  memory_fence();
  block_sync();
  int* counter = counters + (u64)row * gridDim.y + blockIdx.y;
  if (thread == 0) is_last = atomic_add(counter, 1) == splits - 1;
  block_sync();
  if (!is_last) return;
  memory_fence();
  const float* all = partial + ((u64)row * heads + first_head) * next_head;
  for (int i = thread; i < count * HEAD_DIM; i += WARPS * WARP) {
    int h = i / HEAD_DIM, d = i % HEAD_DIM;
    float largest = -infinity(), weight = 0.0f, value = 0.0f;
    for (int s = 0; s < splits; s++) {
      const float* one = all + h * next_head + s * (HEAD_DIM + 2);
      largest = one[HEAD_DIM] > largest ? one[HEAD_DIM] : largest;
    }
    for (int s = 0; s < splits; s++) {
      const float* one = all + h * next_head + s * (HEAD_DIM + 2);
      float share = exp_fast(one[HEAD_DIM] - largest);
      weight += share * one[HEAD_DIM + 1];
      value += share * one[d];
    }
    out[((u64)row * heads + first_head + h) * HEAD_DIM + d] = from_float(value / weight);
  }
  if (thread == 0) *counter = 0;
}

/// out `[rows, heads · HEAD_DIM]`; query rows `query_stride` apart; keys and values `[cache rows, kv_heads, HEAD_DIM]`;
/// page_table `[slots, table_width]`; row_slot, row_prefix, row_own_count `[rows]`, row_own `[rows, own_stride]`.
/// Workspace: partial, float `[rows, heads, max_splits, HEAD_DIM + 2]`; counters `[rows, grid.y]`, zero before and after.
/// Grid (max_splits, kv_heads · ceil(group / n), rows), 128 threads, where group = heads / kv_heads and n is the number in
/// the name: query heads that share the loads of their key/value head.
extern "C" __global__ void __launch_bounds__(128)
attention_rows_1(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int heads, int kv_heads, float scale, float* partial, int* counters,
                 int max_splits) {
  attend<1>(out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
            row_own_count, row_own, own_stride, heads, kv_heads, scale, partial, counters, max_splits);
}
extern "C" __global__ void __launch_bounds__(128)
attention_rows_2(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int heads, int kv_heads, float scale, float* partial, int* counters,
                 int max_splits) {
  attend<2>(out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
            row_own_count, row_own, own_stride, heads, kv_heads, scale, partial, counters, max_splits);
}
extern "C" __global__ void __launch_bounds__(128)
attention_rows_4(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int heads, int kv_heads, float scale, float* partial, int* counters,
                 int max_splits) {
  attend<4>(out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
            row_own_count, row_own, own_stride, heads, kv_heads, scale, partial, counters, max_splits);
}
extern "C" __global__ void __launch_bounds__(128)
attention_rows_8(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int heads, int kv_heads, float scale, float* partial, int* counters,
                 int max_splits) {
  attend<8>(out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
            row_own_count, row_own, own_stride, heads, kv_heads, scale, partial, counters, max_splits);
}
