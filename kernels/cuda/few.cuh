// The block of attention_few.cu and attention_alone.cu: attention over the paged cache on tensor
// cores for few (row, head) pairs. See groups.cuh for what is read and when.
//
// If all pairs of a group fit a block, it also does the work of rotate_and_write, and directly
// follows the qkv layer. Each block of a group rotates the same queries: that costs less than a
// separate kernel or a wait between blocks.
//
// Latency and bytes in flight count here, so nothing passes through shared memory: a warp reads
// pieces of 16 keys by itself (pieces.cuh). Keys and values are the left factors of its products,
// the pairs 8 columns per tile.
//
// Dynamic shared memory: the staged rows (staged.cuh), later replaced by the warps' sums of 8 pairs
// and, with splits, by records of the block's pairs (splits.cuh). Not for heads of 256: there are
// too few registers.
#pragma once

/// A warp's sums for columns 2 (lane % 4) and 2 (lane % 4) + 1 of each tile of pairs. `most` is
/// over the warp's keys, the others are over this lane's keys.
template <int NT>
struct Sums {
  float most[NT][2], total[NT][2];
  /// For tile m and column i: dims m and TILES + m of this lane.
  float acc[NT][TILES][4];
};

template <int NT>
__device__ __forceinline__ void clear(Sums<NT>& sums) {
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      sums.most[n][i] = -infinity();
      sums.total[n][i] = 0.0f;
    }
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sums.acc[n][m][i] = 0.0f;
    }
  }
}

#ifdef SINKS
#define FIRST_PARAMETERS , const int (&first)[NT][2]
#define FIRST_ARGUMENTS , first
#else
#define FIRST_PARAMETERS
#define FIRST_ARGUMENTS
#endif

/// Computes the weights of a piece's keys, as right factors, from their scores (each the sum of two
/// accumulators), and rescales the sums so far.
template <int NT>
__device__ __forceinline__ void weigh(Sums<NT>& sums, u32 (&weight)[NT][2], const float (&score)[NT][4],
                                      const float (&second)[NT][4], const Split& split, int piece, const int (&prefix)[NT][2],
                                      const u32 (&mask)[NT][2], float scale FIRST_PARAMETERS) {
  int key = lane() / 4;
  float keep[NT][2];
  bool changes = false;
#pragma unroll
  for (int n = 0; n < NT; n++) {
    float w[4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
#ifdef SINKS
      u32 seen = seen_keys_from<KEYS>(first[n][i], split, piece, prefix[n][i], mask[n][i]);
#else
      u32 seen = seen_keys<KEYS>(split, piece, prefix[n][i], mask[n][i]);
#endif
      float low = seen >> key & 1 ? (score[n][i] + second[n][i]) * scale : -infinity();
      float high = seen >> (key + 8) & 1 ? (score[n][i + 2] + second[n][i + 2]) * scale : -infinity();
      float larger = max(sums.most[n][i], max(low, high));
#pragma unroll
      for (int by = 4; by < WARP; by *= 2) larger = max(larger, shuffle_xor(larger, by));
      float reference = reference_of(larger);
      keep[n][i] = exp2_fast(sums.most[n][i] - reference);
      changes = changes || larger != sums.most[n][i];
      sums.most[n][i] = larger;
      w[i] = exp2_fast(low - reference);
      w[i + 2] = exp2_fast(high - reference);
      sums.total[n][i] = sums.total[n][i] * keep[n][i] + w[i] + w[i + 2];
    }
    weight[n][0] = transpose_8x8(pack(w[0], w[1]));
    weight[n][1] = transpose_8x8(pack(w[2], w[3]));
  }
  // The largest score seldom changes after the first pieces.
  if (ballot(changes) == 0) return;
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sums.acc[n][m][i] *= keep[n][i % 2];
    }
  }
}

/// Size of a warp's sums of a pair in shared memory, in float4. Those of 8 pairs of all warps come
/// first, then records.
#define STATE (HEAD_DIM / 4 + 1)
template <int WARPS>
__device__ __forceinline__ float* records_of() {
  DYNAMIC_SHARED(shared);
  return (float*)shared + WARPS * 8 * STATE * 4;
}

/// Merges the warps' sums in order: into the result if there is one split, else into the split's
/// record. Called by a whole block.
template <int NT, int WARPS, bool ROTATES, bool SPLITS>
__device__ __forceinline__ void merge_warps(Sums<NT>& sums, T* out, const Pairs& pairs, const Split& split, int heads,
                                            float* partial, int max_splits) {
  DYNAMIC_SHARED(shared);
  float4(*warp_sums)[8][STATE] = (float4(*)[8][STATE])shared;
  __shared__ float warp_most[WARPS][8 * NT], warp_total[WARPS][8 * NT];
  int key = lane() / 4, column = lane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int by = 4; by < WARP; by *= 2) sums.total[n][i] += shuffle_xor(sums.total[n][i], by);
      if (key == 0) {
        warp_most[warp()][n * 8 + column + i] = sums.most[n][i];
        warp_total[warp()][n * 8 + column + i] = sums.total[n][i];
      }
    }
  }
  // Sums reuse the memory of the staged rows.
  if (ROTATES) block_sync();
#pragma unroll
  for (int n = 0; n < NT; n++) {
    if (n > 0) block_sync();
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int k = 0; k < HEAD_DIM / 8; k++) {
        int d = k / VALUE_PART * 8 * VALUE_PART + key * VALUE_PART + k % VALUE_PART;
        ((float*)warp_sums[warp()][column + i])[d] = sums.acc[n][k % TILES][k / TILES * 2 + i];
      }
    }
    block_sync();
#pragma unroll 1
    for (int at = (int)threadIdx.x; at < 8 * HEAD_DIM / 4; at += WARPS * WARP) {
      int own = at / (HEAD_DIM / 4), d = at % (HEAD_DIM / 4) * 4, pair = pairs.first_pair + n * 8 + own;
      if (pair >= pairs.end_pair) break;
      float largest = -infinity(), sum[4] = {0.0f, 0.0f, 0.0f, 0.0f}, whole = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; w++) largest = max(largest, warp_most[w][n * 8 + own]);
#pragma unroll
      for (int w = 0; w < WARPS; w++) {
        float share = exp2_fast(warp_most[w][n * 8 + own] - reference_of(largest));
        float4 part = warp_sums[w][own][d / 4];
        whole += share * warp_total[w][n * 8 + own];
        sum[0] += share * part.x;
        sum[1] += share * part.y;
        sum[2] += share * part.z;
        sum[3] += share * part.w;
      }
      int place = row_of(pairs, pair) * heads + head_of(pairs, pair);
      if (!SPLITS || split.count == 1) {
        float inverse = inverse_weight(pairs, whole);
        *(uint2*)(out + wide(place, HEAD_DIM) + d) =
            make_uint2(pack(sum[0] * inverse, sum[1] * inverse), pack(sum[2] * inverse, sum[3] * inverse));
      } else {
        auto leave = [&](int column, float4 four) {
          leave_record(records_of<WARPS>(), partial, n * 8 + own, place, max_splits, column, four);
        };
        leave(d, make_float4(sum[0], sum[1], sum[2], sum[3]));
        if (d == 0) leave(HEAD_DIM, make_float4(largest, whole, 0.0f, 0.0f));
      }
    }
  }
}

/// One block: 8 · NT pairs of a group and a key/value head over one split. Its warps take pieces in
/// turn and are merged at the end. If ROTATES, the group has no more pairs than that, and the
/// queries, and keys and values of its own rows, are rotated here. There is one split unless
/// SPLITS.
template <int NT, int WARPS, bool ROTATES, bool SPLITS>
__device__ __forceinline__ void attend(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  constexpr int PAIRS = 8 * NT;
  // A group that rotates is one block: no other block reads its keys and values, and it holds those
  // of its own rows itself.
  constexpr Source OLDER = ROTATES ? PASSING : STAYING, NEW = ROTATES ? ANYWHERE : STAYING;
  DYNAMIC_SHARED(shared);
  // Reused for the sums later.
  T* staged = (T*)shared;
  int key = lane() / 4, column = lane() % 4 * 2;
  if (!reads_ahead) await_predecessor();
  Pairs pairs;
  SET_SCALES(pairs);
  if (!find_pairs<PAIRS>(pairs, page_table, table_width, page_size, row_slot, row_prefix, group_own, group_own_count,
                         own_stride, group_first, group_rows, rows, heads, kv_heads WINDOW_ARGUMENTS)) {
    return;
  }
  Split split = find_split<KEYS>(pairs, WARPS, max_splits);
  if ((int)blockIdx.x >= split.count) return;
  auto find = [&](int at) {
    return at < split.end ? look_up<KEYS>(pairs, split, at, lane() % KEYS, page_size) : 0;
  };
  auto cache_row = [&](int at, int found) {
    return cache_row_of<KEYS>(pairs, split, at, lane() % KEYS, page_size, found);
  };
  // For this piece and the next.
  int piece = split.begin + same(warp()), found = find(piece), next_found = find(piece + WARPS);
  // For row `lane` of the group.
  int row_position = 0, row_write = -1;
  if (ROTATES) {
    int own_row = pairs.first_row + min(lane(), pairs.rows - 1);
    row_position = load_fresh(position + own_row);
    row_write = load_fresh(write + own_row);
  }
  // For columns 2 (lane % 4) and 2 (lane % 4) + 1; mask words for this piece.
  int prefix[NT][2], pair_row[NT][2];
  u32 mask[NT][2];
#ifdef SINKS
  int first[NT][2];
#endif
  auto look = [&](int at) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 2; i++) mask[n][i] = look_at_mask<KEYS>(pairs, split, at, row_own_mask, mask_words, pair_row[n][i]);
    }
  };
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      pair_row[n][i] = row_of(pairs, pairs.first_pair + n * 8 + column + i);
      prefix[n][i] = load_fresh(row_prefix + pair_row[n][i]);
#ifdef SINKS
      first[n][i] = first_seen(pair_row[n][i], prefix[n][i], window, row_own_count);
#endif
    }
  }
  int width = kv_heads * HEAD_DIM;
  if (piece < split.end) look(piece);
  Keys some_keys;
  Values some_values;
  auto begin_of_row = [&](int cache_row) {
    u64 at = wide(cache_row, width) + (u32)(pairs.kv_head * HEAD_DIM);
    return Begin{keys + at, values + at};
  };
  // If the block rotates, what this pass writes is in shared memory.
  auto begin_of_new = [&](int cache_row) {
    Begin begin = begin_of_row(cache_row);
#pragma unroll 1
    for (int r = 0; ROTATES && r < pairs.rows; r++) {
      if (shuffle(row_write, r) == cache_row) begin = {staged_key<PAIRS>(staged, r), staged_value<PAIRS>(staged, r)};
    }
    return begin;
  };
  Begin begin = begin_of_row(cache_row(piece, found));
  bool settled = is_settled<KEYS>(pairs, split, piece);
  if (settled && piece < split.end) {
    load_keys<OLDER>(some_keys, begin);
    load_values<OLDER>(some_values, begin);
  }
  // A warp has registers for one piece: meanwhile the next is prefetched into the L2 cache. Without
  // splits the groups are too many for that.
  auto ask_ahead = [&](int at, int found) {
    if (!SPLITS || at >= split.end) return;
    const C* line = (lane() < KEYS ? keys : values) + wide(cache_row(at, found), width) + pairs.kv_head * HEAD_DIM;
#pragma unroll
    for (int i = 0; i < HEAD_DIM; i += 128 / (int)sizeof(C)) prefetch_line(line + i);
  };
  ask_ahead(piece + WARPS, next_found);
  if (!ROTATES) wait_for_predecessor();
  // A block that rotates keeps them in shared memory.
  uint4 queries[NT][KEY_PARTS];
  if (ROTATES) {
    bool is_last = (int)blockIdx.x == split.count - 1;
    bool with_new = is_last || !is_settled<KEYS>(pairs, split, split.end - 1);
    rotate_group<PAIRS, WARPS>(staged, pairs, with_new, is_last, keys, values, query, query_stride, rows, heads, kv_heads,
                               parts, part_count, table, query_norm, key_norm, epsilon,
                               min(max(row_position, 0), positions - 1), row_write CACHE_ARGUMENTS);
    // Warps that rotate nothing have not waited yet.
    await_predecessor();
    block_sync();
    release_successor();
  }
  if (!settled && piece < split.end) {
    begin = begin_of_new(cache_row(piece, found));
    load_keys<NEW>(some_keys, begin);
    load_values<NEW>(some_values, begin);
  }
  // For pair lane / 4: dims as of keys.
  const T* query_from[NT];
#pragma unroll
  for (int n = 0; n < NT; n++) {
    int own = min(n * 8 + key, pairs.end_pair - pairs.first_pair - 1), pair = pairs.first_pair + own;
    query_from[n] = query + wide(row_of(pairs, pair), query_stride) + head_of(pairs, pair) * HEAD_DIM + lane() % 4 * KEY_LANE;
    if (ROTATES) query_from[n] = staged + own * STAGED + lane() % 4 * KEY_LANE;
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) {
      queries[n][j] = ROTATES ? make_uint4(0, 0, 0, 0) : load_fresh_16(query_from[n] + part_begin(j));
    }
  }

  Sums<NT> sums;
  clear(sums);
#ifdef SINKS
  if (sinks && warp() == 0 && (int)blockIdx.x == 0) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        sums.most[n][i] = to_float(sinks[head_of(pairs, pairs.first_pair + n * 8 + column + i)]) * LOG2_E;
        sums.total[n][i] = key == 0 ? 1.0f : 0.0f;
      }
    }
  }
#endif
  for (; piece < split.end; piece += WARPS) {
    bool more = piece + WARPS < split.end;
    // At least two accumulators, so that a product does not wait for the one before it.
    float score[NT][4], second[NT][4];
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) score[n][i] = second[n][i] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) {
      uint4 low = part_of(some_keys.word[0], j), high = part_of(some_keys.word[1], j);
      const u32 a[4] = {low.x, high.x, low.y, high.y}, c[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int n = 0; n < NT; n++) {
        uint4 q = ROTATES ? load_fresh_any_16(query_from[n] + part_begin(j)) : queries[n][j];
        const u32 b[2] = {q.x, q.y}, d[2] = {q.z, q.w};
        mma_16816(score[n], a, b);
        mma_16816(NT == 1 ? second[n] : score[n], c, d);
      }
    }
    settled = !ROTATES || is_settled<KEYS>(pairs, split, piece + WARPS);
    if (more) {
      int row = cache_row(piece + WARPS, next_found);
      begin = settled ? begin_of_row(row) : begin_of_new(row);
      if (settled)
        load_keys<OLDER>(some_keys, begin);
      else
        load_keys<ANYWHERE>(some_keys, begin);
      next_found = find(piece + 2 * WARPS);
    }

    u32 weight[NT][2];
    weigh(sums, weight, score, second, split, piece, prefix, mask, scale FIRST_ARGUMENTS);
    if (more) look(piece + WARPS);
#pragma unroll
    for (int m = 0; m < TILES; m++) {
      const u32 a[4] = {of_dim(some_values.word[0], some_values.word[1], m),
                        of_dim(some_values.word[0], some_values.word[1], TILES + m),
                        of_dim(some_values.word[2], some_values.word[3], m),
                        of_dim(some_values.word[2], some_values.word[3], TILES + m)};
#pragma unroll
      for (int n = 0; n < NT; n++) mma_16816(sums.acc[n][m], a, weight[n]);
    }
    if (more && settled) load_values<OLDER>(some_values, begin);
    if (more && !settled) load_values<ANYWHERE>(some_values, begin);
    ask_ahead(piece + 2 * WARPS, next_found);
  }

  merge_warps<NT, WARPS, ROTATES, SPLITS>(sums, out, pairs, split, heads, partial, max_splits);
  if (SPLITS && split.count > 1) {
    merge_splits<PAIRS, WARPS * WARP>(out, pairs, split.count, heads, records_of<WARPS>(), partial, counters, max_splits);
  }
}
