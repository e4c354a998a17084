// Attention over the paged cache on tensor cores for few (row, head) pairs: a round without speculation, short chains, or
// narrow blocks where the device would else be idle. See groups.cuh for what is read and when.
//
// It is latency that counts, and bytes on their way. So no warp waits for another: each takes pieces of 16 keys for itself.
// A lane copies to shared memory what it will use itself, in whole accesses that lie in memory as its operands of the
// products do: a product sums over all dims of a head and over all keys of a piece, in any order as long as both factors
// have the same, so a lane takes neighbouring dims where the instruction speaks of scattered ones. Keys and values are the
// left factors, the pairs 8 columns a tile.
//
// -DHEAD_DIM: elements of a head, 64 or 128. Not for float.
#include "common.cuh"

#if defined(T_PAIRS) && (HEAD_DIM == 64 || HEAD_DIM == 128)
#include "groups.cuh"

#define KEYS 16
/// 32 dims of a key are one access of four lanes, 64 dims of a value one of eight.
#define KEY_PARTS (HEAD_DIM / 32)
#define VALUE_PARTS (HEAD_DIM / 64)
/// Bytes of the keys of a piece; as many of its values.
#define HALF (KEYS * HEAD_DIM * 2)
/// Pieces that are in a warp's shared memory or on their way there.
#define STAGES 2
/// Bytes of dynamic shared memory that a warp has. At the end they hold its sums of 8 pairs, or the records of 16 splits.
#define WARP_BYTES (STAGES * 2 * HALF)
/// Tiles of 16 dims.
#define TILES (HEAD_DIM / 16)

/// Starts the copy of this lane's part of a piece: of keys lane / 4 and lane / 4 + 8 dims 32 j + 8 (lane % 4) and the 7
/// behind. `keys` are the lane's of cache row 0, `cache_row` is that of key lane % 16, `width` the elements of a cache row.
__device__ __forceinline__ void copy_keys(unsigned char* to, const T* keys, int cache_row, int width) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const T* from = keys + wide(shuffle(cache_row, lane() / 4 + 8 * i), width);
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) copy_async_16(to + (i * KEY_PARTS + j) * WARP * 16, from + j * 32);
  }
}
/// The same of keys 2 (lane % 4), the next, and these + 8: dims 64 j + 8 (lane / 4) of their values and the 7 behind.
__device__ __forceinline__ void copy_values(unsigned char* to, const T* values, int cache_row, int width) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const T* from = values + wide(shuffle(cache_row, lane() % 4 * 2 + i % 2 + i / 2 * 8), width);
#pragma unroll
    for (int j = 0; j < VALUE_PARTS; j++) copy_async_16(to + (i * VALUE_PARTS + j) * WARP * 16, from + j * 64);
  }
}
/// The elements of two keys for dim i of a lane's.
__device__ __forceinline__ u32 of_dim(const u32* one, const u32* other, int i) {
  return i % 2 == 0 ? (one[i / 2] & 0xffff) | other[i / 2] << 16 : one[i / 2] >> 16 | (other[i / 2] & 0xffff0000u);
}

/// One block: 8 · NT pairs of a group and a key/value head over one split. Its warps take pieces in turn and are merged at
/// the end.
template <int NT, int WARPS>
__device__ __forceinline__ void attend(GROUP_PARAMETERS) {
  constexpr int PAIRS = 8 * NT;
  DYNAMIC_SHARED(shared);
  __shared__ float warp_most[WARPS][PAIRS], warp_total[WARPS][PAIRS];
  int key = lane() / 4, column = lane() % 4 * 2;
  Pairs pairs;
  if (!find_pairs<PAIRS>(pairs, page_table, table_width, page_size, row_slot, row_prefix, group_own, group_own_count,
                         own_stride, group_first, group_rows, rows, heads, kv_heads)) {
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
  // What tells the cache rows of the next piece to be copied, and of the one behind.
  int piece = split.begin + same(warp()), found = find(piece), next_found = find(piece + WARPS);
  // Of columns 2 (lane % 4) and the next; the words are the masks' for this piece.
  int prefix[NT][2], pair_row[NT][2];
  u32 mask[NT][2];
  auto look = [&](int at) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 2; i++) mask[n][i] = look_at_mask<KEYS>(split, at, row_own_mask, mask_words, pair_row[n][i]);
    }
  };
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      pair_row[n][i] = row_of(pairs, pairs.first_pair + n * 8 + column + i);
      prefix[n][i] = load_fresh(row_prefix + pair_row[n][i]);
    }
  }
  int width = kv_heads * HEAD_DIM;
  keys += pairs.kv_head * HEAD_DIM + lane() % 4 * 8;
  values += pairs.kv_head * HEAD_DIM + lane() / 4 * 8;
  unsigned char* own = shared + warp() * WARP_BYTES + lane() * 16;
  // Copies one of the first pieces, keys and values each as one group of copies; nothing behind the last piece.
  auto copy = [&](int stage) {
    int at = piece + stage * WARPS, row = cache_row(at, found);
    if (at < split.end) copy_keys(own + stage * 2 * HALF, keys, row, width);
    copy_async_commit();
    if (at < split.end) copy_values(own + stage * 2 * HALF + HALF, values, row, width);
    copy_async_commit();
    found = next_found;
    next_found = find(at + 2 * WARPS);
  };
  if (piece < split.end) look(piece);
  // Of pair lane / 4: dims as of keys.
  const T* from[NT];
#pragma unroll
  for (int n = 0; n < NT; n++) {
    int pair = pairs.first_pair + n * 8 + key;
    from[n] = query + wide(row_of(pairs, pair), query_stride) + head_of(pairs, pair) * HEAD_DIM + column * 4;
  }
  bool waits = true;
#pragma unroll 1
  for (int i = 0; i < STAGES; i++) {
    if (waits && !is_settled<KEYS>(pairs, split, piece + i * WARPS)) {
      wait_for_predecessor();
      waits = false;
    }
    copy(i);
  }
  if (waits) wait_for_predecessor();
  uint4 queries[NT][KEY_PARTS];
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) queries[n][j] = load_fresh_16(from[n] + j * 32);
  }

  // Of the two columns; so far a lane sums its own keys.
  float most[NT][2], total[NT][2];
  // Of tile m and column i: dims m and TILES + m of this lane's.
  float acc[NT][TILES][4];
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      most[n][i] = -infinity();
      total[n][i] = 0.0f;
    }
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
      for (int i = 0; i < 4; i++) acc[n][m][i] = 0.0f;
    }
  }
  for (int stage = 0; piece < split.end; piece += WARPS, stage ^= 1) {
    const uint4* here = (const uint4*)(own + stage * 2 * HALF);
    copy_async_wait<2 * STAGES - 1>();
    // Two sums at least, so that a product does not wait for the one before it.
    float score[NT][4], second[NT][4];
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) score[n][i] = second[n][i] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) {
      uint4 low = here[j * WARP], high = here[(KEY_PARTS + j) * WARP];
      const u32 a[4] = {low.x, high.x, low.y, high.y}, c[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int n = 0; n < NT; n++) {
        const u32 b[2] = {queries[n][j].x, queries[n][j].y}, d[2] = {queries[n][j].z, queries[n][j].w};
        mma_16816(score[n], a, b);
        mma_16816(NT == 1 ? second[n] : score[n], c, d);
      }
    }
    // The place of what has been used is taken by the piece after the next.
    int after = piece + STAGES * WARPS, row = cache_row(after, found);
    if (after < split.end) copy_keys(own + stage * 2 * HALF, keys, row, width);
    copy_async_commit();
    found = next_found;
    next_found = find(after + 2 * WARPS);

    u32 weight[NT][2];
    float keep[NT][2];
    bool changes = false;
#pragma unroll
    for (int n = 0; n < NT; n++) {
      float w[4];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        u32 seen = seen_keys<KEYS>(split, piece, prefix[n][i], mask[n][i]);
        float low = seen >> key & 1 ? (score[n][i] + second[n][i]) * scale : -infinity();
        float high = seen >> (key + 8) & 1 ? (score[n][i + 2] + second[n][i + 2]) * scale : -infinity();
        float larger = max(most[n][i], max(low, high));
#pragma unroll
        for (int by = 4; by < WARP; by *= 2) larger = max(larger, shuffle_xor(larger, by));
        float reference = reference_of(larger);
        keep[n][i] = exp2_fast(most[n][i] - reference);
        changes = changes || larger != most[n][i];
        most[n][i] = larger;
        w[i] = exp2_fast(low - reference);
        w[i + 2] = exp2_fast(high - reference);
        total[n][i] = total[n][i] * keep[n][i] + w[i] + w[i + 2];
      }
      weight[n][0] = transpose_8x8(pack(w[0], w[1]));
      weight[n][1] = transpose_8x8(pack(w[2], w[3]));
    }
    // The largest score seldom changes behind the first pieces.
    if (ballot(changes) != 0) {
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int m = 0; m < TILES; m++) {
#pragma unroll
          for (int i = 0; i < 4; i++) acc[n][m][i] *= keep[n][i % 2];
        }
      }
    }
    if (piece + WARPS < split.end) look(piece + WARPS);
    copy_async_wait<2 * STAGES - 1>();
    u32 word[4][HEAD_DIM / 16];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int j = 0; j < VALUE_PARTS; j++) {
        uint4 part = here[HALF / 16 + (i * VALUE_PARTS + j) * WARP];
        word[i][4 * j] = part.x;
        word[i][4 * j + 1] = part.y;
        word[i][4 * j + 2] = part.z;
        word[i][4 * j + 3] = part.w;
      }
    }
    if (after < split.end) copy_values(own + stage * 2 * HALF + HALF, values, row, width);
    copy_async_commit();
#pragma unroll
    for (int m = 0; m < TILES; m++) {
      const u32 a[4] = {of_dim(word[0], word[1], m), of_dim(word[0], word[1], TILES + m), of_dim(word[2], word[3], m),
                        of_dim(word[2], word[3], TILES + m)};
#pragma unroll
      for (int n = 0; n < NT; n++) mma_16816(acc[n][m], a, weight[n]);
    }
  }
  copy_async_wait<0>();

#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int by = 4; by < WARP; by *= 2) total[n][i] += shuffle_xor(total[n][i], by);
      if (key == 0) {
        warp_most[warp()][n * 8 + column + i] = most[n][i];
        warp_total[warp()][n * 8 + column + i] = total[n][i];
      }
    }
  }
  // The warps' sums are merged in their order, by all threads.
#pragma unroll
  for (int n = 0; n < NT; n++) {
    if (n > 0) block_sync();
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int k = 0; k < HEAD_DIM / 8; k++) {
        int d = k / 8 * 64 + key * 8 + k % 8;
        ((float*)(shared + warp() * WARP_BYTES))[(column + i) * RECORD + d] = acc[n][k % TILES][k / TILES * 2 + i];
      }
    }
    block_sync();
#pragma unroll 1
    for (int at = (int)threadIdx.x; at < 8 * HEAD_DIM / 4; at += WARPS * WARP) {
      int column_of = at / (HEAD_DIM / 4), d = at % (HEAD_DIM / 4) * 4, pair = pairs.first_pair + n * 8 + column_of;
      if (pair >= pairs.end_pair) break;
      float largest = -infinity(), sum[4] = {0.0f, 0.0f, 0.0f, 0.0f}, whole = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; w++) largest = max(largest, warp_most[w][n * 8 + column_of]);
#pragma unroll
      for (int w = 0; w < WARPS; w++) {
        float share = exp2_fast(warp_most[w][n * 8 + column_of] - reference_of(largest));
        float4 part = *(const float4*)(shared + w * WARP_BYTES + (column_of * RECORD + d) * 4);
        whole += share * warp_total[w][n * 8 + column_of];
        sum[0] += share * part.x;
        sum[1] += share * part.y;
        sum[2] += share * part.z;
        sum[3] += share * part.w;
      }
      int place = row_of(pairs, pair) * heads + head_of(pairs, pair);
      if (split.count == 1) {
        // A row that sees nothing is padding: zeros.
        float inverse = whole > 0.0f ? 1.0f / whole : 0.0f;
        *(uint2*)(out + wide(place, HEAD_DIM) + d) =
            make_uint2(pack(sum[0] * inverse, sum[1] * inverse), pack(sum[2] * inverse, sum[3] * inverse));
      } else {
        float* mine = record_of(partial, place, (int)blockIdx.x, max_splits);
        *(float4*)(mine + d) = make_float4(sum[0], sum[1], sum[2], sum[3]);
        if (d == 0) *(float2*)(mine + HEAD_DIM) = make_float2(largest, whole);
      }
    }
  }
  if (split.count > 1) {
    merge_splits<PAIRS, WARPS>(out, pairs, split.count, heads, partial, counters, max_splits, shared, WARP_BYTES);
  }
}

/// Softmax attention of rows in groups: `out` and `query` as attention_rows', rows of the query `query_stride` apart,
/// `scale` times the logarithm of e to base 2. Keys and values `[cache rows, kv_heads, HEAD_DIM]`; page_table
/// `[slots, table_width]`; row_slot and row_prefix `[rows]`.
/// Own rows as gather_own leaves them, or null where rows see positions alone: then the rows of a group are consecutive
/// positions, each the last that its row sees. Groups: row `group_first[g]` to row `group_first[g + 1]`, or where that is null
/// `group_rows` rows each; all rows of a group have the slot of its first.
/// partial: HEAD_DIM + 4 floats for each of `rows · heads · max_splits`, max_splits ≤ 16. Counters `[groups, grid.y]`,
/// zero before and after.
/// Grid (max_splits, kv_heads · ceil(largest group · heads / kv_heads / pairs), groups), where pairs is the number in the
/// name; 128 threads, WARP_BYTES of dynamic shared memory for each 32. Those `_alone` are for so many groups that nothing is split: 96 threads, so that four blocks
/// find room on a multiprocessor, and 512 blocks on most devices at once.
extern "C" __global__ void __launch_bounds__(128, 3) attention_few_8(GROUP_PARAMETERS) { attend<1, 4>(GROUP_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, 3) attention_few_16(GROUP_PARAMETERS) { attend<2, 4>(GROUP_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(96, 4) attention_few_8_alone(GROUP_PARAMETERS) {
  attend<1, 3>(GROUP_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(96, 4) attention_few_16_alone(GROUP_PARAMETERS) {
  attend<2, 3>(GROUP_ARGUMENTS);
}

#endif
