// What attention_few.cu does: attention over the paged cache on tensor cores for few (row, head) pairs. See groups.cuh for
// what is read and when.
//
// Where all pairs of a group fit a block, it also does what rotate_and_write does, and stands directly behind the qkv layer.
// Each block of a group rotates the same queries: that costs less than a kernel between, or waiting for each other.
//
// It is latency that counts, and room beside the linear layers ahead and behind, whose rings fill a multiprocessor's shared
// memory: so keys and values wait in registers, few of them. A round of a block is a piece of 16 keys for each warp. A warp
// finds the scores of its own piece, and leaves the weights of its keys in shared memory, relative to its largest; then it
// takes 16 dims of the values of all pieces, so that no sums have to be put together. A product sums over all dims of a
// head, or all keys of a piece, in any order as long as both factors have the same; so a lane takes neighbouring dims where
// the instruction speaks of scattered ones, as they lie in memory. Keys and values are the left factors, the pairs 8 columns
// a tile.
//
// Not for heads of 256, which have more dims than a block has warps for.
#pragma once

#define KEYS 16
/// Warps of a block, and so pieces of a round.
#define WARPS 8
/// 32 dims of a key are one access of four lanes.
#define KEY_PARTS (HEAD_DIM / 32)
/// Warps that take values, 16 dims each.
#define TILES (HEAD_DIM / 16)
/// Keys of a round that a lane looks up.
#define LOOK_UPS (WARPS * KEYS / WARP)

struct Keys {
  /// Of keys lane / 4 and lane / 4 + 8 of the warp's piece: dims 32 j + 8 (lane % 4) and the 7 behind.
  uint4 part[2][KEY_PARTS];
};
struct Values {
  /// Of each piece keys 2 (lane % 4), the next, and these + 8: dims 2 (lane / 4) and the next of the warp's 16.
  u32 word[WARPS][4];
};
/// What a round's warps tell each other, for NT tiles of 8 pairs. Dynamic shared memory holds the staged rows, then two of
/// these, of which rounds take turns. Records take the place of staged queries and keys.
template <int NT>
struct Round {
  /// Weights of a piece's keys, as the right factors of a product.
  uint2 weight[WARPS][NT][WARP];
  /// The largest score of a piece's keys, and their sum of weights.
  float most[WARPS][8 * NT], total[WARPS][8 * NT];
};

/// Where a key or value stands of which `staged` is the place in shared memory, or below 0 for none.
__device__ __forceinline__ const T* at_row(const T* cache, int cache_row, int width, const T* rows, int staged) {
  return staged < 0 ? cache + wide(cache_row, width) : rows + staged * STAGED;
}

/// `keys` are this lane's of cache row 0, `cache_row` is that of key lane % 16, `width` the elements of a cache row. If
/// ANYWHERE, keys whose `staged` is not below 0 are row `staged` of `rows` instead.
template <bool ANYWHERE>
__device__ __forceinline__ void load_keys(Keys& to, const T* keys, int cache_row, int width, const T* rows, int staged) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int key = lane() / 4 + 8 * half, row = shuffle(cache_row, key);
    const T* from = at_row(keys, row, width, rows, ANYWHERE ? shuffle(staged, key) : -1);
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) {
      to.part[half][j] = ANYWHERE ? load_fresh_any_16(from + j * 32) : load_fresh_16(from + j * 32);
    }
  }
}
/// A piece's values; `values` are this lane's of cache row 0, key k of the piece is that of lane `first` + k.
template <bool ANYWHERE>
__device__ __forceinline__ void load_values(u32 (&word)[4], const T* values, int cache_row, int first, int width,
                                            const T* rows, int staged) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int key = first + lane() % 4 * 2 + i % 2 + i / 2 * 8, row = shuffle(cache_row, key);
    const T* from = at_row(values, row, width, rows, ANYWHERE ? shuffle(staged, key) : -1);
    word[i] = ANYWHERE ? load_fresh_any_4(from) : (u32)load_fresh((const int*)from);
  }
}
/// The lower or upper elements of two words.
__device__ __forceinline__ u32 lower(u32 one, u32 other) { return (one & 0xffff) | other << 16; }
__device__ __forceinline__ u32 upper(u32 one, u32 other) { return one >> 16 | (other & 0xffff0000u); }

/// One block: 8 · NT pairs of a group and a key/value head over one split, in rounds. If ROTATES, the group has no more pairs,
/// and the queries, and keys and values of its own rows, are rotated here.
template <int NT, bool ROTATES>
__device__ __forceinline__ void attend(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  constexpr int PAIRS = 8 * NT;
  DYNAMIC_SHARED(shared);
  T* staged = (T*)shared;
  Round<NT>* rounds = (Round<NT>*)(shared + 3 * PAIRS * STAGED * sizeof(T));
  float* records = (float*)shared;
  int key = lane() / 4, column = lane() % 4 * 2;
  if (!reads_ahead) await_predecessor();
  Pairs pairs;
  if (!find_pairs<PAIRS>(pairs, page_table, table_width, page_size, row_slot, row_prefix, group_own, group_own_count,
                         own_stride, group_first, group_rows, rows, heads, kv_heads)) {
    return;
  }
  Split split = find_split<KEYS>(pairs, WARPS, max_splits);
  if ((int)blockIdx.x >= split.count) return;

  // Of a round, whose first piece this is, the keys of lane + i · WARP: what tells their cache rows, and these.
  int begin = split.begin, own = same(warp()), found[LOOK_UPS], cache_row[LOOK_UPS], in_stage[LOOK_UPS];
  auto find = [&](int first) {
#pragma unroll
    for (int i = 0; i < LOOK_UPS; i++) {
      int piece = first + (i * WARP + lane()) / KEYS;
      found[i] = piece < split.end ? look_up<KEYS>(pairs, split, piece, lane() % KEYS, page_size) : 0;
    }
  };
  auto take_found = [&](int first) {
#pragma unroll
    for (int i = 0; i < LOOK_UPS; i++) {
      int piece = first + (i * WARP + lane()) / KEYS;
      cache_row[i] = cache_row_of<KEYS>(pairs, split, piece, lane() % KEYS, page_size, found[i]);
      in_stage[i] = -1;
    }
  };
  // Of row `lane` of the group.
  int row_position = 0, row_write = -1;
  if (ROTATES) {
    int own_row = pairs.first_row + min(lane(), pairs.rows - 1);
    row_position = load_fresh(position + own_row);
    row_write = load_fresh(write + own_row);
  }
  // What this pass writes stands in shared memory if the block rotates.
  auto find_in_stage = [&] {
    for (int r = 0; ROTATES && r < pairs.rows; r++) {
      int written = shuffle(row_write, r);
#pragma unroll
      for (int i = 0; i < LOOK_UPS; i++) in_stage[i] = written == cache_row[i] ? r : in_stage[i];
    }
  };
  find(begin);
  // Of columns 2 (lane % 4) and the next; the words are the masks' for the warp's piece.
  int prefix[NT][2], pair_row[NT][2];
  u32 mask[NT][2];
  auto look = [&](int piece) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 2; i++) mask[n][i] = look_at_mask<KEYS>(split, piece, row_own_mask, mask_words, pair_row[n][i]);
    }
  };
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      pair_row[n][i] = row_of(pairs, pairs.first_pair + n * 8 + column + i);
      prefix[n][i] = load_fresh(row_prefix + pair_row[n][i]);
      mask[n][i] = 0;
    }
  }
  int width = kv_heads * HEAD_DIM, value_column = own * 16 + lane() / 4 * 2;
  const T* key_from = keys + pairs.kv_head * HEAD_DIM + lane() % 4 * 8;
  const T* value_from = values + pairs.kv_head * HEAD_DIM + value_column;
  const T* staged_keys = staged + PAIRS * STAGED + lane() % 4 * 8;
  const T* staged_values = staged + 2 * PAIRS * STAGED + value_column;
  if (begin + own < split.end) look(begin + own);
  Keys some_keys;
  Values some_values;
  auto settled = [&](int piece) { return is_settled<KEYS>(pairs, split, piece); };
  // Of the warp's own piece.
  auto load_own_keys = [&](bool anywhere) {
    int row = 0, stage = -1;
#pragma unroll
    for (int i = 0; i < LOOK_UPS; i++) {
      row = own / 2 == i ? cache_row[i] : row;
      stage = own / 2 == i ? in_stage[i] : stage;
    }
    row = shuffle(row, own % 2 * KEYS + lane() % KEYS);
    stage = shuffle(stage, own % 2 * KEYS + lane() % KEYS);
    if (anywhere)
      load_keys<ROTATES>(some_keys, key_from, row, width, staged_keys, stage);
    else
      load_keys<false>(some_keys, key_from, row, width, staged_keys, -1);
  };
  // Those of the round's pieces that are settled, or that are not.
  auto load_all_values = [&](int first, bool of_settled) {
    if (own >= TILES) return;
#pragma unroll
    for (int p = 0; p < WARPS; p++) {
      if (first + p >= split.end || settled(first + p) != of_settled) continue;
      if (of_settled)
        load_values<false>(some_values.word[p], value_from, cache_row[p / 2], p % 2 * KEYS, width, staged_values, -1);
      else
        load_values<ROTATES>(some_values.word[p], value_from, cache_row[p / 2], p % 2 * KEYS, width, staged_values,
                             in_stage[p / 2]);
    }
  };
#pragma unroll
  for (int p = 0; p < WARPS; p++) {
#pragma unroll
    for (int i = 0; i < 4; i++) some_values.word[p][i] = 0;
  }
  take_found(begin);
  find(begin + WARPS);
  if (begin + own < split.end && settled(begin + own)) load_own_keys(false);
  load_all_values(begin, true);
  if (!ROTATES) release_successor();
  await_predecessor();
  if (ROTATES) {
    bool is_last = (int)blockIdx.x == split.count - 1;
    bool with_new = is_last || !settled(split.end - 1);
    rotate_group<PAIRS, WARPS>(staged, pairs, with_new, is_last, keys, values, query, query_stride, rows, heads, kv_heads,
                               parts, part_count, table, query_norm, key_norm, epsilon,
                               min(max(row_position, 0), positions - 1), row_write);
  } else {
    for (int i = (int)threadIdx.x; i < PAIRS * (HEAD_DIM / 8); i += WARPS * WARP) {
      int pair = pairs.first_pair + i / (HEAD_DIM / 8), d = i % (HEAD_DIM / 8) * 8;
      *(uint4*)(staged + i / (HEAD_DIM / 8) * STAGED + d) =
          load_fresh_16(query + wide(row_of(pairs, pair), query_stride) + head_of(pairs, pair) * HEAD_DIM + d);
    }
  }
  block_sync();
  if (ROTATES) release_successor();
  bool last_is_settled = settled(min(begin + WARPS, split.end) - 1);
  if (!last_is_settled) {
    find_in_stage();
    if (begin + own < split.end && !settled(begin + own)) load_own_keys(true);
    load_all_values(begin, false);
  }
  // Of pair lane / 4: dims as of keys. What lies behind the last pair repeats it.
  const T* query_from = staged + lane() % 4 * 8;
  int last_pair = pairs.end_pair - pairs.first_pair - 1;

  // Of the two columns.
  float most[NT][2], total[NT][2];
  // Of the warp's dims 2 (lane / 4) and the next, for each of the two columns.
  float acc[NT][4];
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      acc[n][i] = 0.0f;
      most[n][i % 2] = -infinity();
      total[n][i % 2] = 0.0f;
    }
  }
#pragma unroll 1
  for (int turn = 0; begin < split.end; turn ^= 1, begin += WARPS) {
    Round<NT>& round = rounds[turn];
    int piece = begin + own;
    bool more = begin + WARPS < split.end;
    if (piece < split.end) {
      float score[NT][4], second[NT][4];
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) score[n][i] = second[n][i] = 0.0f;
      }
#pragma unroll
      for (int j = 0; j < KEY_PARTS; j++) {
        uint4 low = some_keys.part[0][j], high = some_keys.part[1][j];
        const u32 a[4] = {low.x, high.x, low.y, high.y}, c[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int n = 0; n < NT; n++) {
          uint4 q = *(const uint4*)(query_from + min(n * 8 + key, last_pair) * STAGED + j * 32);
          const u32 b[2] = {q.x, q.y}, d[2] = {q.z, q.w};
          mma_16816(score[n], a, b);
          mma_16816(second[n], c, d);
        }
      }
#pragma unroll
      for (int n = 0; n < NT; n++) {
        float w[4], larger[2], sum[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          u32 seen = seen_keys<KEYS>(split, piece, prefix[n][i], mask[n][i]);
          float low = seen >> key & 1 ? (score[n][i] + second[n][i]) * scale : -infinity();
          float high = seen >> (key + 8) & 1 ? (score[n][i + 2] + second[n][i + 2]) * scale : -infinity();
          larger[i] = max(low, high);
#pragma unroll
          for (int by = 4; by < WARP; by *= 2) larger[i] = max(larger[i], shuffle_xor(larger[i], by));
          w[i] = exp2_fast(low - reference_of(larger[i]));
          w[i + 2] = exp2_fast(high - reference_of(larger[i]));
          sum[i] = w[i] + w[i + 2];
#pragma unroll
          for (int by = 4; by < WARP; by *= 2) sum[i] += shuffle_xor(sum[i], by);
        }
        round.weight[own][n][lane()] = make_uint2(transpose_8x8(pack(w[0], w[1])), transpose_8x8(pack(w[2], w[3])));
        if (key == 0) {
          *(float2*)&round.most[own][n * 8 + column] = make_float2(larger[0], larger[1]);
          *(float2*)&round.total[own][n * 8 + column] = make_float2(sum[0], sum[1]);
        }
      }
    }
    int pieces = min(WARPS, split.end - begin);
    if (more) {
      take_found(begin + WARPS);
      find(begin + 2 * WARPS);
      last_is_settled = settled(min(begin + 2 * WARPS, split.end) - 1);
      if (!last_is_settled) find_in_stage();
      if (piece + WARPS < split.end) {
        look(piece + WARPS);
        load_own_keys(!settled(piece + WARPS));
      }
    }
    block_sync();
    if (own < TILES) {
#pragma unroll
      for (int n = 0; n < NT; n++) {
        float reference[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float larger = most[n][i];
#pragma unroll
          for (int p = 0; p < WARPS; p++) larger = p < pieces ? max(larger, round.most[p][n * 8 + column + i]) : larger;
          reference[i] = reference_of(larger);
          float keep = exp2_fast(most[n][i] - reference[i]);
          most[n][i] = larger;
          total[n][i] *= keep;
          acc[n][i] *= keep;
          acc[n][i + 2] *= keep;
        }
#pragma unroll
        for (int p = 0; p < WARPS; p++) {
          if (p >= pieces) continue;
          const u32(&v)[4] = some_values.word[p];
          const u32 a[4] = {lower(v[0], v[1]), upper(v[0], v[1]), lower(v[2], v[3]), upper(v[2], v[3])};
          uint2 weight = round.weight[p][n][lane()];
          const u32 b[2] = {weight.x, weight.y};
          float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          mma_16816(part, a, b);
#pragma unroll
          for (int i = 0; i < 2; i++) {
            float share = exp2_fast(round.most[p][n * 8 + column + i] - reference[i]);
            total[n][i] += share * round.total[p][n * 8 + column + i];
            acc[n][i] += share * part[i];
            acc[n][i + 2] += share * part[i + 2];
          }
        }
      }
    }
    if (more) {
      load_all_values(begin + WARPS, true);
      if (!last_is_settled) load_all_values(begin + WARPS, false);
    }
  }

  // All have done with staged queries and keys: the last sync of a round stands behind their last use.
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int own_pair = n * 8 + column + i, pair = pairs.first_pair + own_pair, d = value_column;
      if (own >= TILES || pair >= pairs.end_pair) continue;
      int place = row_of(pairs, pair) * heads + head_of(pairs, pair);
      if (split.count == 1) {
        // A row that sees nothing is padding: zeros.
        float inverse = total[n][i] > 0.0f ? 1.0f / total[n][i] : 0.0f;
        *(u32*)(out + wide(place, HEAD_DIM) + d) = pack(acc[n][i] * inverse, acc[n][i + 2] * inverse);
      } else {
        float* mine = record_of(records, partial, own_pair, place, max_splits);
        *(float2*)(mine + d) = make_float2(acc[n][i], acc[n][i + 2]);
        if (value_column == 0) *(float4*)(mine + HEAD_DIM) = make_float4(most[n][i], total[n][i], 0.0f, 0.0f);
      }
    }
  }
  if (split.count > 1) {
    merge_splits<PAIRS, WARPS * WARP>(out, pairs, split.count, heads, records, partial, counters, max_splits);
  }
}
