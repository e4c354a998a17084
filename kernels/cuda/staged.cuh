// Shared memory of the attention kernels that rotate themselves: queries, and keys and values of
// their own pass.
#pragma once

/// Elements from one staged row to the next: HEAD_DIM and padding against bank conflicts. A
/// rotating block stages its queries, by their index among the block's pairs, followed by the keys
/// and then the values of the group's rows.
#define STAGED (HEAD_DIM + 8)

/// From one staged key or value to the next, in the cache's type: a multiple of 16 bytes.
#ifdef KV_FP8
#define STAGED_CACHED (HEAD_DIM + 16)
#else
#define STAGED_CACHED STAGED
#endif
/// A row's staged key, or its value.
template <int PAIRS>
__device__ __forceinline__ C* staged_key(T* staged, int row) { return (C*)(staged + PAIRS * STAGED) + row * STAGED_CACHED; }
template <int PAIRS>
__device__ __forceinline__ C* staged_value(T* staged, int row) { return staged_key<PAIRS>(staged, PAIRS + row); }

/// Extra arguments of a rotating kernel: `query` are the rows of the qkv layer, or if part_count is
/// not 0, `parts` are float sums `[part_count, rows, all heads]`; the rest as in rotate_and_write.
/// `reads_ahead`: the inputs named in groups.cuh may be read before the wait.
#define ROTATION_PARAMETERS                                                                                             \
  const float *parts, int part_count, const float2 *table, int positions, const int *position, const int *write,        \
      const T *query_norm, const T *key_norm, float epsilon, int reads_ahead
#define ROTATION_ARGUMENTS \
  parts, part_count, table, positions, position, write, query_norm, key_norm, epsilon, reads_ahead
#define NO_ROTATION nullptr, 0, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0.0f, 1

/// Rotates the block's queries to `staged`, and if `with_new` the keys and values of the group's
/// rows after them, PAIRS rows each; if `writes`, to the cache too. Lane i has position and cache
/// row of row i of the group. Called by a whole block; it waits for the qkv layer itself, once a
/// warp has computed its first heads and loaded their angles.
template <int PAIRS, int WARPS>
__device__ __forceinline__ void rotate_group(T* staged, const Pairs& pairs, bool with_new, bool writes, C* keys, C* values,
                                             const T* qkv, int stride, int rows, int heads, int kv_heads, const float* parts,
                                             int part_count, const float2* table, const T* query_norm,
                                             const T* key_norm, float epsilon, int row_position, int row_write CACHE_PARAMETERS) {
#ifndef KV_FP8
  constexpr float key_scale = 1.0f, value_scale = 1.0f;
#endif
  // Heads of a warp whose loads are in flight together. With more, fetching the code costs more
  // than is gained.
  constexpr int HEADS = PAIRS / WARPS, HALF = HEAD_DIM / 2;
  int queries = min(PAIRS, pairs.end_pair - pairs.first_pair), all = queries + (with_new ? 2 * pairs.rows : 0);
  int width = (heads + 2 * kv_heads) * HEAD_DIM, i = min(lane() * 2, HALF - 2);
  bool real = lane() * 2 < HALF;
#pragma unroll 1
  for (int first = warp(); first < all; first += WARPS * HEADS) {
    float2 two[2 * HEADS] = {};
    const float* from[2 * HEADS] = {};
    float4 turns[HEADS];
    // There are few rows here: element offsets fit 32 bits.
    u32 place[HEADS];
    int to[HEADS], cached[HEADS];
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
      int at = min(first + k * WARPS, all - 1), kind = (at >= queries) + (at >= queries + pairs.rows);
      int row = kind == 0 ? row_of(pairs, pairs.first_pair + at) - pairs.first_row : at - queries - (kind - 1) * pairs.rows;
      int head = kind == 0 ? head_of(pairs, pairs.first_pair + at) : heads + (kind - 1) * kv_heads + pairs.kv_head;
      to[k] = kind == 0 ? at : kind * PAIRS + row;
      cached[k] = shuffle(row_write, row);
      turns[k] = *(const float4*)(table + wide(shuffle(row_position, row), HALF) + i);
      place[k] = (u32)((pairs.first_row + row) * (part_count > 0 ? width : stride) + head * HEAD_DIM + i);
    }
    await_predecessor();
#pragma unroll
    for (int k = 0; k < 2 * HEADS; k++) {
      u32 at = place[k / 2] + k % 2 * HALF;
      if (part_count > 0)
        from[k] = parts + at;
      else
        two[k] = read_pair(qkv + at);
    }
    if (part_count > 0) read_pairs_of_parts<2 * HEADS, 4>(two, from, part_count, wide(rows, width));
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
      // Queries, keys, values.
      int kind = to[k] / PAIRS;
      float2 low = two[2 * k], high = two[2 * k + 1];
      const T* norm = kind == 0 ? query_norm : key_norm;
      if (kind < 2 && norm) {
        float squares = real ? low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y : 0.0f;
        float scale = inverse_root(warp_sum(squares) / (float)HEAD_DIM + epsilon);
        low = normed(low, scale, read_pair(norm + i));
        high = normed(high, scale, read_pair(norm + i + HALF));
      }
      if (kind < 2) turn(low, high, turns[k]);
      if (!real || first + k * WARPS >= all) continue;
      if (kind == 0) {
        write_pair(staged + to[k] * STAGED + i, low);
        write_pair(staged + to[k] * STAGED + i + HALF, high);
        continue;
      }
      float by = kind == 1 ? key_scale : value_scale;
      // Values follow the keys.
      C* own = staged_key<PAIRS>(staged, to[k] - PAIRS) + i;
      write_cached(own, low, by);
      write_cached(own + HALF, high, by);
      if (!writes || cached[k] < 0) continue;
      C* cache = (kind == 1 ? keys : values) + wide(cached[k] * kv_heads + pairs.kv_head, HEAD_DIM) + i;
      write_cached(cache, low, by);
      write_cached(cache + HALF, high, by);
    }
  }
}
