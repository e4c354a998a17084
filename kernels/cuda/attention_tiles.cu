// Attention over the paged cache on tensor cores: the rows of a request share the loads of their keys.
//
// A group is a run of rows of one slot: a piece of a prompt, the nodes of a tree, the beams of a draft step. As in
// attention.cu a row sees positions 0 .. prefix − 1 of its slot and a few cache rows of its own: its way through a tree,
// so that most of them are others' too. Positions are read tile by tile for all rows of a group and all query heads of a
// key/value head together. What the rows of a block see for themselves, each of it once, makes further tiles, of which a
// row takes what stands in its own list.
//
// Faster than attention.cu where rows share what they see. The order of its sums depends on the group, so it does not
// serve batch-invariant mode.
//
// -DHEAD_DIM: elements of a head. Not for float.
#include "common.cuh"

#ifdef T_PAIRS

/// Positions of a tile.
#define KEYS (HEAD_DIM <= 128 ? 64 : 32)
/// Bytes from one key to the next in shared memory: an odd number of 16-byte pieces, so that the eight rows of an 8×8 tile
/// lie in different banks.
#define KEY_BYTES (HEAD_DIM * 2 + 16)
#define STEPS (HEAD_DIM / 16)
#define COLUMNS (HEAD_DIM / 8)
#define PIECES (HEAD_DIM / 8)

/// Bytes of a tile's keys and values; a block's dynamic shared memory is two of them.
#define BUFFER (2 * KEYS * KEY_BYTES)

struct Softmax {
  /// Of rows lane / 4 and lane / 4 + 8 of the warp's tile.
  float most[2], sum[2];
  /// Columns 8 i + 2 (lane % 4) and the next, of both rows.
  float acc[COLUMNS][4];
};

/// Takes in that the largest score of a row is now at least `larger`; returns by what weights shrink.
__device__ __forceinline__ void raise(Softmax& s, int half, float larger) {
  // Rows that have seen nothing stay at −∞, and ∞ − ∞ is not a number.
  float keep = s.most[half] == larger ? 1.0f : exp_fast(s.most[half] - larger);
  s.most[half] = larger;
  s.sum[half] *= keep;
#pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
    s.acc[c][2 * half] *= keep;
    s.acc[c][2 * half + 1] *= keep;
  }
}

/// Goes through the own lists of a block's rows and finds each (depth, cache row) once, depth by depth.
struct OwnRows {
  const int *own, *count;  // of the first row
  int stride, rows, deepest;
  /// Where the next tile begins.
  int depth, batch;
};

/// Makes the next tile, and returns how many entries it has; 0 at the end. A whole warp calls it. `cache_row` and `depth`
/// hold KEYS; entries behind the last repeat the first, at a depth that no row has. BATCHES · 32 is at least `rows`.
template <int BATCHES>
__device__ __forceinline__ int next_own_tile(OwnRows& from, int* cache_row, int* depth) {
  int found = 0;
  bool fits = true;
  while (from.depth < from.deepest && fits) {
    int mine[BATCHES];
#pragma unroll
    for (int b = 0; b < BATCHES; b++) {
      int row = b * WARP + lane();
      bool has = row < from.rows && from.depth < from.count[row];
      mine[b] = has ? from.own[(u64)row * from.stride + from.depth] : -1;
    }
#pragma unroll
    for (int b = 0; b < BATCHES; b++) {
      if (b * WARP >= from.rows || b < from.batch || !fits) continue;
      // The first of its like in this batch, and not in one before.
      u32 alike = match_any(mine[b]);
      bool first = mine[b] >= 0 && (alike & ((1u << lane()) - 1)) == 0;
#pragma unroll
      for (int a = 0; a < b; a++) {
#pragma unroll 8
        for (int l = 0; l < WARP; l++) first = first & (mine[b] != shuffle(mine[a], l));
      }
      u32 firsts = ballot(first);
      // A batch stays together: then the next tile begins with it.
      fits = found + __popc(firsts) <= KEYS;
      if (!fits) {
        from.batch = b;
        continue;
      }
      if (first) {
        int at = found + __popc(firsts & ((1u << lane()) - 1));
        cache_row[at] = mine[b];
        depth[at] = from.depth;
      }
      found += __popc(firsts);
    }
    if (fits) {
      from.batch = 0;
      from.depth++;
    }
  }
  warp_sync();
  if (found > 0) {
    for (int at = found + lane(); at < KEYS; at += WARP) {
      cache_row[at] = cache_row[0];
      depth[at] = 0x7fffffff;
    }
  }
  return found;
}

/// One block: MT tiles of 16 (row, head) pairs of a group and a key/value head, over one split of the positions. Each tile
/// has KW warps, which take parts of each tile of keys and are merged at the end. The last split takes the rows' own.
template <int MT, int KW>
__device__ __forceinline__ void attend(T* out, const T* query, int query_stride, const T* keys, const T* values,
                                       const int* page_table, int table_width, int page_size, const int* row_slot,
                                       const int* row_prefix, const int* row_own_count, const int* row_own,
                                       int own_stride, const int* group_first, int group_rows, int rows, int heads,
                                       int kv_heads, float scale, float* partial, int* counters, int max_splits) {
  constexpr int THREADS = MT * KW * WARP;
  constexpr int PART = KEYS / KW;  // positions of a tile that one warp takes
  DYNAMIC_SHARED(shared);
  constexpr int BATCHES = (MT * 16 + WARP - 1) / WARP;
  // Of three tiles, in turn: cache rows, depths of the rows' own, and how many keys (0 behind the last tile).
  __shared__ int cache_row[3][KEYS], own_depth[3][KEYS], filled[3];
  __shared__ int longest_of[MT * KW], deepest_of[MT * KW], is_last;
  wait_for_predecessor();
  int thread = (int)threadIdx.x, at_row = lane() / 4, at_column = lane() % 4 * 2;
  int tile = warp() / KW, part = warp() % KW;
  int group = heads / kv_heads, split = (int)blockIdx.x;
  int kv_head = (int)blockIdx.y % kv_heads, first_pair = (int)blockIdx.y / kv_heads * MT * 16;
  int first_row = group_first ? group_first[blockIdx.z] : (int)blockIdx.z * group_rows;
  int end_row = group_first ? group_first[blockIdx.z + 1] : min(first_row + group_rows, rows);
  int pairs = (end_row - first_row) * group;
  if (first_pair >= pairs) return;

  // The two pairs of this lane; what lies behind the last pair repeats it, and is not written.
  int row[2], limit[2], own[2];
  const T* q[2];
  int head[2];
  bool real[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int pair = first_pair + tile * 16 + at_row + 8 * half;
    real[half] = pair < pairs;
    pair = min(pair, pairs - 1);
    row[half] = first_row + pair / group;
    head[half] = kv_head * group + pair % group;
    limit[half] = row_prefix[row[half]];
    own[half] = row_own_count[row[half]];
    q[half] = query + (u64)row[half] * query_stride + (u64)head[half] * HEAD_DIM;
  }
  // The longest prefix of the block's rows, and the most rows of their own.
  int longest = max(limit[0], limit[1]), most_own = max(own[0], own[1]);
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) {
    longest = max(longest, shuffle_xor(longest, mask));
    most_own = max(most_own, shuffle_xor(most_own, mask));
  }
  if (lane() == 0) {
    longest_of[warp()] = longest;
    deepest_of[warp()] = most_own;
  }
  block_sync();
#pragma unroll
  for (int w = 0; w < MT * KW; w++) {
    longest = max(longest, longest_of[w]);
    most_own = max(most_own, deepest_of[w]);
  }
  int chunk = (longest + max_splits - 1) / max_splits;
  chunk = max((chunk + KEYS - 1) / KEYS, 1) * KEYS;
  int splits = max((longest + chunk - 1) / chunk, 1);
  if (split >= splits) return;
  int begin = split * chunk, end = min(begin + chunk, longest);
  int tiles = (end - begin + KEYS - 1) / KEYS;
  const int* table = page_table + (u64)row_slot[first_row] * table_width;

  u32 fragment[STEPS][4];
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
#pragma unroll
    for (int i = 0; i < 4; i++) fragment[s][i] = *(const u32*)(q[i % 2] + s * 16 + i / 2 * 8 + at_column);
  }
  Softmax s;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    s.most[half] = -infinity();
    s.sum[half] = 0.0f;
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s.acc[c][i] = 0.0f;
  }

  int block_row = first_row + first_pair / group;
  OwnRows own_rows;
  own_rows.own = row_own + (u64)block_row * own_stride;
  own_rows.count = row_own_count + block_row;
  own_rows.stride = own_stride;
  own_rows.rows = first_row + (min(first_pair + MT * 16, pairs) - 1) / group - block_row + 1;
  own_rows.deepest = split == splits - 1 ? most_own : 0;
  own_rows.depth = own_rows.batch = 0;

  // The first warps say where the keys of tile t lie. Positions behind the last are looked up as the last: their scores
  // are masked, their values have to be finite.
  auto look_up = [&](int t) {
    if (t < tiles) {
      if (thread < KEYS) {
        int position = min(begin + t * KEYS + thread, end - 1);
        cache_row[t % 3][thread] = table[position / page_size] * page_size + position % page_size;
      }
      if (thread == 0) filled[t % 3] = KEYS;
    } else if (warp() == 0) {
      int found = next_own_tile<BATCHES>(own_rows, cache_row[t % 3], own_depth[t % 3]);
      if (thread == 0) filled[t % 3] = found;
    }
  };
  auto load = [&](int t) {
    if (filled[t % 3] > 0) {
      unsigned char* buffer = shared + t % 2 * BUFFER;
      for (int i = thread; i < KEYS * PIECES; i += THREADS) {
        int key = i / PIECES, piece = i % PIECES;
        u64 from = ((u64)cache_row[t % 3][key] * kv_heads + kv_head) * HEAD_DIM + piece * 8;
        copy_async_16(buffer + key * KEY_BYTES + piece * 16, keys + from);
        copy_async_16(buffer + (KEYS + key) * KEY_BYTES + piece * 16, values + from);
      }
    }
    copy_async_commit();
  };
  look_up(0);
  look_up(1);
  block_sync();
  load(0);
  for (int t = 0; filled[t % 3] > 0; t++) {
    load(t + 1);
    look_up(t + 2);
    copy_async_wait<1>();
    block_sync();
    const unsigned char* key_tile = shared + t % 2 * BUFFER + part * PART * KEY_BYTES;
    const unsigned char* value_tile = key_tile + KEYS * KEY_BYTES;
    float score[PART / 8][4];
#pragma unroll
    for (int n = 0; n < PART / 8; n += 2) {
#pragma unroll
      for (int i = 0; i < 4; i++) score[n][i] = score[n + 1][i] = 0.0f;
#pragma unroll
      for (int k = 0; k < STEPS; k++) {
        // Tiles: keys n, dims k; keys n, dims k + 8; keys n + 8, dims k; keys n + 8, dims k + 8.
        u32 b[4];
        int key = n * 8 + lane() % 8 + lane() / 16 * 8, dim = k * 16 + lane() / 8 % 2 * 8;
        ldmatrix_x4(b, key_tile + key * KEY_BYTES + dim * 2);
        mma_16816(score[n], fragment[k], b);
        mma_16816(score[n + 1], fragment[k], b + 2);
      }
    }
    // What a row does not see scores −∞.
    int first = part * PART + at_column;
    if (t < tiles) {
#pragma unroll
      for (int n = 0; n < PART / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          int position = begin + t * KEYS + first + n * 8 + i % 2;
          score[n][i] = position < min(limit[i / 2], end) ? score[n][i] * scale : -infinity();
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < PART / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          int key = first + n * 8 + i % 2, depth = own_depth[t % 3][key];
          bool sees = depth < own[i / 2] && row_own[(u64)row[i / 2] * own_stride + depth] == cache_row[t % 3][key];
          score[n][i] = sees ? score[n][i] * scale : -infinity();
        }
      }
    }
    float larger[2] = {s.most[0], s.most[1]};
#pragma unroll
    for (int n = 0; n < PART / 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) larger[i / 2] = score[n][i] > larger[i / 2] ? score[n][i] : larger[i / 2];
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int mask = 1; mask <= 2; mask *= 2) {
        float other = shuffle_xor(larger[half], mask);
        larger[half] = other > larger[half] ? other : larger[half];
      }
      raise(s, half, larger[half]);
    }
    u32 weight[PART / 16][4];
#pragma unroll
    for (int n = 0; n < PART / 8; n++) {
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        w[i] = score[n][i] == -infinity() ? 0.0f : exp_fast(score[n][i] - s.most[i / 2]);
        s.sum[i / 2] += w[i];
      }
      weight[n / 2][n % 2 * 2] = pack(w[0], w[1]);
      weight[n / 2][n % 2 * 2 + 1] = pack(w[2], w[3]);
    }
#pragma unroll
    for (int k = 0; k < PART / 16; k++) {
#pragma unroll
      for (int c = 0; c < COLUMNS; c += 2) {
        // Tiles: keys k, dims c; keys k + 8, dims c; keys k, dims c + 8; keys k + 8, dims c + 8.
        u32 b[4];
        int key = k * 16 + lane() % 16, dim = c * 8 + lane() / 16 * 8;
        ldmatrix_x4_transposed(b, value_tile + key * KEY_BYTES + dim * 2);
        mma_16816(s.acc[c], weight[k], b);
        mma_16816(s.acc[c + 1], weight[k], b + 2);
      }
    }
    block_sync();
  }
  copy_async_wait<0>();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    // So far a lane has summed its own columns.
    s.sum[half] += shuffle_xor(s.sum[half], 1);
    s.sum[half] += shuffle_xor(s.sum[half], 2);
  }

  if (KW > 1) {
    // The warps of a tile hold the same rows: the first takes up the others, in their order.
    constexpr int STATE = COLUMNS * 4 + 4;
    float* state = (float*)shared;
    block_sync();
    if (part > 0) {
      float* mine = state + (tile * (KW - 1) + part - 1) * STATE * WARP + lane();
#pragma unroll
      for (int i = 0; i < COLUMNS * 4; i++) mine[i * WARP] = s.acc[i / 4][i % 4];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        mine[(COLUMNS * 4 + half) * WARP] = s.most[half];
        mine[(COLUMNS * 4 + 2 + half) * WARP] = s.sum[half];
      }
    }
    block_sync();
    if (part == 0) {
      for (int p = 0; p < KW - 1; p++) {
        const float* other = state + (tile * (KW - 1) + p) * STATE * WARP + lane();
        float share[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float most = other[(COLUMNS * 4 + half) * WARP];
          raise(s, half, most > s.most[half] ? most : s.most[half]);
          share[half] = most == -infinity() ? 0.0f : exp_fast(most - s.most[half]);
          s.sum[half] += share[half] * other[(COLUMNS * 4 + 2 + half) * WARP];
        }
#pragma unroll
        for (int i = 0; i < COLUMNS * 4; i++) s.acc[i / 4][i % 4] += share[i % 4 / 2] * other[i * WARP];
      }
    }
  }
  constexpr int SPLIT = HEAD_DIM + 2;  // the partial result of a split: sums, their largest score, their weight
  if (part == 0) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (!real[half]) continue;
      u64 place = (u64)row[half] * heads + head[half];
      if (splits == 1) {
        // A row that sees nothing is padding: zeros.
        float inverse = s.sum[half] > 0.0f ? 1.0f / s.sum[half] : 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          u32 word = pack(s.acc[c][2 * half] * inverse, s.acc[c][2 * half + 1] * inverse);
          *(u32*)(out + place * HEAD_DIM + c * 8 + at_column) = word;
        }
      } else {
        float* mine = partial + (place * max_splits + split) * SPLIT;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          *(float2*)(mine + c * 8 + at_column) = make_float2(s.acc[c][2 * half], s.acc[c][2 * half + 1]);
        }
        if (at_column == 0) *(float2*)(mine + HEAD_DIM) = make_float2(s.most[half], s.sum[half]);
      }
    }
  }
  if (splits == 1) return;
  // The last block of the pairs merges the splits, in their order.
  memory_fence();
  block_sync();
  int* counter = counters + (u64)blockIdx.z * gridDim.y + blockIdx.y;
  if (thread == 0) is_last = atomic_add(counter, 1) == splits - 1;
  block_sync();
  if (!is_last) return;
  memory_fence();
  int count = min(MT * 16, pairs - first_pair);
  // A warp takes four pairs at once, so that their loads are under way together; two columns a lane.
  constexpr int TOGETHER = 4, WIDTH = (HEAD_DIM + 63) / 64;
  for (int i = warp() * TOGETHER; i < count; i += MT * KW * TOGETHER) {
    u64 place[TOGETHER];
    float2 own_split[TOGETHER], sum[TOGETHER][WIDTH];
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
      // What lies behind the last pair repeats it, and is not written.
      int pair = first_pair + min(i + k, count - 1);
      place[k] = (u64)(first_row + pair / group) * heads + kv_head * group + pair % group;
      // Lane p weighs split p; there are at most 32.
      own_split[k] = make_float2(-infinity(), 0.0f);
      if (lane() < splits) own_split[k] = *(const float2*)(partial + (place[k] * max_splits + lane()) * SPLIT + HEAD_DIM);
#pragma unroll
      for (int c = 0; c < WIDTH; c++) sum[k][c] = make_float2(0.0f, 0.0f);
    }
    float share_of_split[TOGETHER], inverse[TOGETHER];
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
      float largest = warp_max(own_split[k].x);
      share_of_split[k] = own_split[k].x == -infinity() ? 0.0f : exp_fast(own_split[k].x - largest);
      float total = warp_sum(share_of_split[k] * own_split[k].y);
      inverse[k] = total > 0.0f ? 1.0f / total : 0.0f;
    }
#pragma unroll 2
    for (int p = 0; p < splits; p++) {
#pragma unroll
      for (int k = 0; k < TOGETHER; k++) {
        const float* one = partial + (place[k] * max_splits + p) * SPLIT;
        float share = shuffle(share_of_split[k], p);
#pragma unroll
        for (int c = 0; c < WIDTH; c++) {
          int d = c * 64 + lane() * 2;
          if (d < HEAD_DIM) {
            float2 value = *(const float2*)(one + d);
            sum[k][c].x += share * value.x;
            sum[k][c].y += share * value.y;
          }
        }
      }
    }
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
#pragma unroll
      for (int c = 0; c < WIDTH; c++) {
        int d = c * 64 + lane() * 2;
        if (d < HEAD_DIM && i + k < count) {
          *(u32*)(out + place[k] * HEAD_DIM + d) = pack(sum[k][c].x * inverse[k], sum[k][c].y * inverse[k]);
        }
      }
    }
  }
  if (thread == 0) *counter = 0;
}

#define PARAMETERS                                                                                                      \
  T *out, const T *query, int query_stride, const T *keys, const T *values, const int *page_table, int table_width,     \
      int page_size, const int *row_slot, const int *row_prefix, const int *row_own_count, const int *row_own,          \
      int own_stride, const int *group_first, int group_rows, int rows, int heads, int kv_heads, float scale,           \
      float *partial, int *counters, int max_splits
#define ARGUMENTS                                                                                                       \
  out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix, row_own_count,      \
      row_own, own_stride, group_first, group_rows, rows, heads, kv_heads, scale, partial, counters, max_splits

/// Arguments as attention_rows', and the groups: row `group_first[g]` to row `group_first[g + 1]`, or where that is null
/// `group_rows` rows each. All rows of a group have the slot of its first. Counters: `[groups, grid.y]`.
/// Grid (max_splits, kv_heads · ceil(largest group · heads / kv_heads / pairs), groups), where pairs is the number in the
/// name; 128 threads, 256 for 128 pairs, 64 for 16 pairs of more than 128 elements; dynamic shared memory for two tiles of
/// keys and values.
extern "C" __global__ void __launch_bounds__(128) attention_tiles_16(PARAMETERS) { attend<1, KEYS / 16>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128) attention_tiles_32(PARAMETERS) { attend<2, 2>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128) attention_tiles_64(PARAMETERS) { attend<4, 1>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256) attention_tiles_128(PARAMETERS) { attend<8, 1>(ARGUMENTS); }

#endif
