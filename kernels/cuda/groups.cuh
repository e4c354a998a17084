// What attention_few.cu and attention_tiles.cu share: the rows that a block works for, where their keys lie, and the
// merging of splits.
//
// A group is a run of rows of one slot: a piece of a prompt, the nodes of a tree, the beams of a draft step. A row sees
// positions 0 .. prefix − 1 of its slot and those of the group's own rows that its mask names (see own_rows.cu). Keys are
// read for all rows of a group and all query heads of a key/value head together: in pieces of KEYS, first the positions,
// then the own rows. Splits take equal numbers of pieces.
//
// These kernels read ahead of their wait what is older than the pass: prefixes, groups, pages, own rows and masks; and keys
// and values of `settled` positions. What this pass writes are its own rows, or in a group without own rows the positions
// from its first row's last on; those wait, as do the queries. They may, for each stands right behind a kernel that releases
// its successor only behind its own wait, and from which on nothing writes these: rotate_and_write; or, where they rotate
// themselves, the attention over the layer before, which has released so. Over the first layer of a pass they wait first.
#pragma once

#define GROUP_PARAMETERS                                                                                                \
  T *out, const T *query, int query_stride, T *keys, T *values, const int *page_table, int table_width,                 \
      int page_size, const int *row_slot, const int *row_prefix, const int *group_own,                  \
      const int *group_own_count, const u32 *row_own_mask, int own_stride, int mask_words, const int *group_first,      \
      int group_rows, int rows, int heads, int kv_heads, float scale, float *partial, int *counters, int max_splits
#define GROUP_ARGUMENTS                                                                                                 \
  out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,                     \
      group_own, group_own_count, row_own_mask, own_stride, mask_words, group_first, group_rows, rows, heads, kv_heads, \
      scale, partial, counters, max_splits

/// The (row, query head) pairs of a block, numbered row by row within the group, and what they see.
struct Pairs {
  int first_row, first_pair;
  /// Rows and pairs of the whole group; the block's pairs end there too.
  int rows, end_pair;
  /// Query heads of the key/value head, and which that is.
  int group, kv_head;
  float inverse_group, inverse_page;
  /// Positions that the longest of the block's rows sees, and own rows of the group.
  int longest, own;
  /// Positions that were written before this pass.
  int settled;
  const int *table, *own_rows;
};

/// The part of a block's pieces that this split takes.
struct Split {
  /// Pieces of positions; behind them come pieces of own rows.
  int positions;
  int begin, end;
  /// How many splits take any.
  int count;
};

/// ⌊number / by⌋ where `inverse` is about 1 / by: a division takes many more instructions, all of them one after another.
__device__ __forceinline__ int quotient(int number, int by, float inverse) {
  int about = (int)((float)number * inverse);
  about -= about * by > number;
  return about + ((about + 1) * by <= number);
}

/// A product of numbers that are not negative, as one instruction.
__device__ __forceinline__ u64 wide(int a, int b) { return (u64)(u32)a * (u32)b; }

/// A number that all lanes of a warp have, so that the compiler knows it too and no branch on it parts them.
__device__ __forceinline__ int same(int number) { return shuffle(number, 0); }

__device__ __forceinline__ int row_of(const Pairs& pairs, int pair) {
  return pairs.first_row + quotient(min(pair, pairs.end_pair - 1), pairs.group, pairs.inverse_group);
}
__device__ __forceinline__ int head_of(const Pairs& pairs, int pair) {
  pair = min(pair, pairs.end_pair - 1);
  return pairs.kv_head * pairs.group + pair - quotient(pair, pairs.group, pairs.inverse_group) * pairs.group;
}

/// What block (y, z) of a grid works for, up to PAIRS pairs of it; every warp finds it out for itself. False where there
/// is nothing to do.
template <int PAIRS>
__device__ __forceinline__ bool find_pairs(Pairs& pairs, const int* page_table, int table_width, int page_size,
                                           const int* row_slot, const int* row_prefix, const int* group_own,
                                           const int* group_own_count, int own_stride, const int* group_first,
                                           int group_rows, int rows, int heads, int kv_heads) {
  int z = (int)blockIdx.z;
  float inverse_heads = inverse_fast((float)kv_heads);
  pairs.group = quotient(heads, kv_heads, inverse_heads);
  pairs.inverse_group = inverse_fast((float)pairs.group);
  pairs.inverse_page = inverse_fast((float)page_size);
  int tile = quotient((int)blockIdx.y, kv_heads, inverse_heads);
  pairs.kv_head = (int)blockIdx.y - tile * kv_heads;
  pairs.first_pair = tile * PAIRS;
  pairs.first_row = z * group_rows;
  int end_row = min(pairs.first_row + group_rows, rows);
  if (group_first) {
    pairs.first_row = same(load_fresh(group_first + z));
    end_row = same(load_fresh(group_first + z + 1));
  }
  pairs.rows = end_row - pairs.first_row;
  pairs.end_pair = pairs.rows * pairs.group;
  if (pairs.first_pair >= pairs.end_pair) return false;
  int block_row = row_of(pairs, pairs.first_pair), last_row = row_of(pairs, pairs.first_pair + PAIRS - 1);
  pairs.longest = 0;
#pragma unroll
  for (int i = 0; i < (PAIRS + WARP - 1) / WARP; i++) {
    pairs.longest = max(pairs.longest, load_fresh(row_prefix + min(block_row + i * WARP + lane(), last_row)));
  }
  int slot = load_fresh(row_slot + pairs.first_row), first_prefix = load_fresh(row_prefix + pairs.first_row);
  pairs.own = group_own ? same(load_fresh(group_own_count + z)) : 0;
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) pairs.longest = max(pairs.longest, shuffle_xor(pairs.longest, mask));
  pairs.longest = same(pairs.longest);
  pairs.settled = group_own ? pairs.longest : same(first_prefix - 1);
  pairs.table = page_table + wide(slot, table_width);
  pairs.own_rows = group_own + wide(pairs.first_row, own_stride);
  return true;
}

/// The share of split `blockIdx.x` in pieces of KEYS, of which a block takes `together` at a time: as many splits as there are such
/// turns, and the same number of pieces for each, since the multiprocessor with the most bytes to read is the last.
template <int KEYS>
__device__ __forceinline__ Split find_split(const Pairs& pairs, int together, int max_splits) {
  Split split;
  split.positions = (pairs.longest + KEYS - 1) / KEYS;
  int pieces = split.positions + (pairs.own + KEYS - 1) / KEYS;
  int splits = min(max((pieces + together - 1) / together, 1), max_splits);
  int share = max(quotient(pieces + splits - 1, splits, inverse_fast((float)splits)), 1);
  split.count = max(quotient(pieces + share - 1, share, inverse_fast((float)share)), 1);
  split.begin = (int)blockIdx.x * share;
  split.end = min(split.begin + share, pieces);
  return split;
}

/// Whether all positions of a piece were written before this pass.
template <int KEYS>
__device__ __forceinline__ bool is_settled(const Pairs& pairs, const Split& split, int piece) {
  return piece < split.positions && min((piece + 1) * KEYS, pairs.longest) <= pairs.settled;
}

/// Calls `load` for so many pieces, from the split's first on, each of which it counts: those that are settled ahead of the wait.
template <int KEYS, class Load>
__device__ __forceinline__ void load_ahead(int count, const Pairs& pairs, const Split& split, Load&& load) {
  bool waits = true;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    if (waits && !is_settled<KEYS>(pairs, split, split.begin + i)) {
      wait_for_predecessor();
      waits = false;
    }
    load();
  }
  if (waits) wait_for_predecessor();
}

/// What tells the cache row of a key of a piece: its page, or itself. Behind the last key stands the last: nobody sees it,
/// but its values have to be finite. A loaded word is not touched before it is used: a warp would wait for it.
template <int KEYS>
__device__ __forceinline__ int look_up(const Pairs& pairs, const Split& split, int piece, int key, int page_size) {
  int own = (piece - split.positions) * KEYS + key, position = piece * KEYS + key;
  const int* at = piece < split.positions
                      ? pairs.table + quotient(min(position, pairs.longest - 1), page_size, pairs.inverse_page)
                      : pairs.own_rows + min(own, pairs.own - 1);
  return load_fresh(at);
}
/// The cache row itself.
template <int KEYS>
__device__ __forceinline__ int cache_row_of(const Pairs& pairs, const Split& split, int piece, int key, int page_size,
                                            int found) {
  if (piece >= split.positions) return found;
  int position = min(piece * KEYS + key, pairs.longest - 1);
  return (found - quotient(position, page_size, pairs.inverse_page)) * page_size + position;
}

/// The word of a row's mask that tells which keys of a piece it sees, from its key `from` on; nothing for positions.
template <int KEYS>
__device__ __forceinline__ u32 look_at_mask(const Pairs& pairs, const Split& split, int piece, const u32* row_own_mask,
                                            int mask_words, int row, int from = 0) {
  if (piece < split.positions) return 0;
  int own = (piece - split.positions) * KEYS + from;
  // Nobody has written words behind the last.
  if (from > 0 && own >= pairs.own) return 0;
  return (u32)load_fresh((const int*)row_own_mask + wide(row, mask_words) + (u32)(own / 32));
}
/// Which keys of a piece a row sees, as bits, from its key `from` on, a multiple of 32; KEYS is 16 or such a multiple.
template <int KEYS>
__device__ __forceinline__ u32 seen_keys(const Split& split, int piece, int prefix, u32 mask, int from = 0) {
  if (piece >= split.positions) return mask >> (piece - split.positions) * KEYS % 32;
  int seen = prefix - piece * KEYS - from;
  return seen >= 32 ? ~0u : seen <= 0 ? 0u : (1u << seen) - 1;
}

/// What a split keeps of a pair: HEAD_DIM sums, the largest score, the sum of weights, and nothing, to be whole accesses.
#define RECORD (HEAD_DIM + 4)

/// How the splits of a pair come together where they are the blocks of a cluster. Of few pairs each block writes its records to the
/// block that merges them, which has pairs b, b + splits and so on; of many, whose sums lie scattered over the lanes, each keeps its
/// records, and merges an equal share of all columns, which it reads from the others. Where there are no clusters, records go
/// through device memory, and the last block merges all.
enum Exchange { WRITING, READING };

/// Writes some columns of this split's record of a pair. `records` are those in shared memory, one for each pair of the block, and 7
/// more if they are written by others; `own` is the pair's place among the block's, `place` that among all.
template <Exchange EXCHANGE, class Columns>
__device__ __forceinline__ void leave_record(float* records, float* partial, int own, int place, int splits, int max_splits,
                                             int column, Columns columns) {
#ifdef CLUSTERS
  int turn = quotient(own, splits, inverse_fast((float)splits));
  if (EXCHANGE == WRITING)
    store_to_block(records + (turn * splits + (int)blockIdx.x) * RECORD + column, own - turn * splits, columns);
  else
    *(Columns*)(records + own * RECORD + column) = columns;
#else
  *(Columns*)(partial + (wide(place, max_splits) + blockIdx.x) * RECORD + column) = columns;
#endif
}

/// Four floats of a split's record, where `own` is that of this block, or if it was written here, that of the first split.
template <Exchange EXCHANGE>
__device__ __forceinline__ float4 load_of_split(const float* own, int split) {
#ifdef CLUSTERS
  return EXCHANGE == WRITING ? *(const float4*)(own + split * RECORD) : load_from_block(own, split);
#else
  uint4 raw = load_fresh_16(own + split * RECORD);
  return make_float4(bits_float(raw.x), bits_float(raw.y), bits_float(raw.z), bits_float(raw.w));
#endif
}

/// What a block merges: items of four columns of a pair, from `first` on each `step`-th, of every `apart`-th pair from the `own`-th
/// on.
struct Share {
  int first, step, items, own, apart;
};

/// Merges the splits of ITEMS items together, SPLITS of each at a time.
template <int SPLITS, int ITEMS, Exchange EXCHANGE>
__device__ __forceinline__ void merge_items(T* out, const Pairs& pairs, const Share& share, int splits, int heads,
                                            const float* records, const float* partial, int max_splits) {
  constexpr int LOADS = SPLITS * ITEMS;
#pragma unroll 1
  for (int i = share.first; i < share.items; i += ITEMS * share.step) {
    int place[ITEMS], d[ITEMS];
    const float* from[ITEMS];
    float most[ITEMS], total[ITEMS], sum[ITEMS][4];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
      // Behind the last item stands the last, which is not written.
      int item = min(i + k * share.step, share.items - 1), turn = item / (HEAD_DIM / 4);
      int pair = pairs.first_pair + share.own + turn * share.apart;
      d[k] = item % (HEAD_DIM / 4) * 4;
      place[k] = row_of(pairs, pair) * heads + head_of(pairs, pair);
#ifdef CLUSTERS
      from[k] = records + turn * (EXCHANGE == WRITING ? splits : 1) * RECORD;
#else
      from[k] = partial + wide(place[k], max_splits) * RECORD;
#endif
      most[k] = -infinity();
      total[k] = sum[k][0] = sum[k][1] = sum[k][2] = sum[k][3] = 0.0f;
    }
#pragma unroll 1
    for (int begin = 0; begin < splits; begin += SPLITS) {
      float4 value[LOADS], weight[LOADS];
#pragma unroll
      for (int p = 0; p < LOADS; p++) {
        int split = begin + p % SPLITS;
        value[p] = weight[p] = make_float4(-infinity(), 0.0f, 0.0f, 0.0f);
        if (split >= splits) continue;
        weight[p] = load_of_split<EXCHANGE>(from[p / SPLITS] + HEAD_DIM, split);
        value[p] = load_of_split<EXCHANGE>(from[p / SPLITS] + d[p / SPLITS], split);
      }
#pragma unroll
      for (int p = 0; p < LOADS; p++) {
        if (begin + p % SPLITS >= splits) continue;
        int k = p / SPLITS;
        float larger = max(most[k], weight[p].x), reference = reference_of(larger);
        float keep = exp2_fast(most[k] - reference), share_of_split = exp2_fast(weight[p].x - reference);
        most[k] = larger;
        total[k] = total[k] * keep + share_of_split * weight[p].y;
        sum[k][0] = sum[k][0] * keep + share_of_split * value[p].x;
        sum[k][1] = sum[k][1] * keep + share_of_split * value[p].y;
        sum[k][2] = sum[k][2] * keep + share_of_split * value[p].z;
        sum[k][3] = sum[k][3] * keep + share_of_split * value[p].w;
      }
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
      if (i + k * share.step >= share.items) continue;
      // A row that sees nothing is padding: zeros.
      float inverse = total[k] > 0.0f ? 1.0f / total[k] : 0.0f;
      *(uint2*)(out + wide(place[k], HEAD_DIM) + d[k]) =
          make_uint2(pack(sum[k][0] * inverse, sum[k][1] * inverse), pack(sum[k][2] * inverse, sum[k][3] * inverse));
    }
  }
}

/// Ends a split, behind its records: merges what all splits of these pairs have left, in their order. A whole block calls it.
template <int PAIRS, int THREADS, Exchange EXCHANGE>
__device__ __forceinline__ void merge_splits(T* out, const Pairs& pairs, int splits, int heads, float* records,
                                             float* partial, int* counters, int max_splits) {
  int all = min(PAIRS, pairs.end_pair - pairs.first_pair);
  Share share = {(int)threadIdx.x, THREADS, all * (HEAD_DIM / 4), 0, 1};
#ifdef CLUSTERS
  cluster_sync();
  int rank = (int)blockIdx.x;
  if (EXCHANGE == WRITING) {
    int own = quotient(max(all - rank, 0) + splits - 1, splits, inverse_fast((float)splits));
    share = {(int)threadIdx.x, THREADS, own * (HEAD_DIM / 4), rank, splits};
  } else {
    share.first += rank * THREADS;
    share.step *= splits;
  }
#else
  __shared__ int is_last;
  block_sync();
  int* counter = counters + (u64)blockIdx.z * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) is_last = atomic_add_ordered(counter, 1) == splits - 1;
  block_sync();
  if (!is_last) return;
#endif
#ifdef CLUSTERS
  constexpr bool AT_HAND = EXCHANGE == WRITING;
#else
  constexpr bool AT_HAND = false;
#endif
  // Of what is at hand the code that asks for more at a time would take longer to arrive. Of many pairs a thread has several items:
  // those of few splits are loaded together.
  if (AT_HAND)
    merge_items<4, 1, EXCHANGE>(out, pairs, share, splits, heads, records, partial, max_splits);
  else if (splits <= 2)
    merge_items<2, 4, EXCHANGE>(out, pairs, share, splits, heads, records, partial, max_splits);
  else if (splits <= 4)
    merge_items<4, 2, EXCHANGE>(out, pairs, share, splits, heads, records, partial, max_splits);
  else
    merge_items<8, 1, EXCHANGE>(out, pairs, share, splits, heads, records, partial, max_splits);
#ifdef CLUSTERS
  // No block ends while another reads its records.
  if (EXCHANGE == READING) cluster_sync();
#else
  if (threadIdx.x == 0) *counter = 0;
#endif
}
