// Shared by the attention kernels for tensor cores: the rows that a block works on, the cache rows
// of their keys, and the share of a split.
//
// A group is a run of rows of one slot: a chunk of a prompt, the nodes of a tree, the beams of a
// draft step. A row sees positions 0 .. prefix − 1 of its slot, and those of the group's own rows
// that are set in its mask (see own_rows.cu). Keys are read once for all rows of a group and all
// query heads of a key/value head: in pieces of KEYS, first the positions, then the own rows.
// Splits take equal numbers of pieces.
//
// Before their wait these kernels read what is older than the pass: prefixes, groups, pages, own
// rows and masks, and the keys and values of `settled` positions. What this pass writes (own rows,
// or in a group without own rows the positions from its first row's last on) is read after the
// wait, as are the queries. This is safe because the last kernel that released its successor only
// after its own wait runs after all kernels that write these inputs. That kernel is
// rotate_and_write, or the previous layer's attention if rotate_and_write releases early or the
// attention kernels rotate themselves. In the first layer of a pass rotate_and_write always
// releases late, and kernels that rotate themselves wait first.
//
// -DSINKS adds a sink for each query head (one more score in its softmax, without a value; null for
// none), and a window (0 for none): then a row sees the last `window` of its positions and own
// rows. These cover at least its own rows, so that only positions are left out (row_own_count
// `[rows]`, null for none), and pieces before the window of all rows of a block are not read.
#pragma once

#ifdef SINKS
#define LOG2_E 1.4426950408889634f
#define SINK_PARAMETERS , const T *sinks, int window, const int *row_own_count
#define SINK_ARGUMENTS , sinks, window, row_own_count
#define WINDOW_PARAMETERS , int window, const int *row_own_count
#define WINDOW_ARGUMENTS , window, row_own_count
#else
#define SINK_PARAMETERS
#define SINK_ARGUMENTS
#define WINDOW_PARAMETERS
#define WINDOW_ARGUMENTS
#endif

#define GROUP_PARAMETERS                                                                                                \
  T *out, const T *query, int query_stride, C *keys, C *values, const int *page_table, int table_width,                 \
      int page_size, const int *row_slot, const int *row_prefix, const int *group_own,                  \
      const int *group_own_count, const u32 *row_own_mask, int own_stride, int mask_words, const int *group_first,      \
      int group_rows, int rows, int heads, int kv_heads, float scale, float *partial, int *counters, int max_splits        \
      CACHE_PARAMETERS SINK_PARAMETERS
#define GROUP_ARGUMENTS                                                                                                 \
  out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,                     \
      group_own, group_own_count, row_own_mask, own_stride, mask_words, group_first, group_rows, rows, heads, kv_heads, \
      scale, partial, counters, max_splits CACHE_ARGUMENTS SINK_ARGUMENTS

/// The (row, query head) pairs of a block, numbered row by row within the group, and what they see.
struct Pairs {
  int first_row, first_pair;
  /// Rows of the whole group, and its number of pairs, where the block's pairs end too.
  int rows, end_pair;
  /// Query heads per key/value head, and the index of the latter.
  int group, kv_head;
  float inverse_group, inverse_page;
  /// Positions that the longest of the block's rows sees, and number of own rows of the group.
  int longest, own;
  /// Number of positions that were written before this pass.
  int settled;
  const int *table, *own_rows;
#ifdef SINKS
  /// The first position that any of the block's rows sees.
  int first;
#endif
#ifdef KV_FP8
  float value_scale;
#endif
};

#ifdef KV_FP8
#define SET_SCALES(pairs) pairs.value_scale = value_scale
#else
#define SET_SCALES(pairs)
#endif

/// The factor that turns a sum of weighted values into the result. A row that sees nothing is
/// padding: zeros.
__device__ __forceinline__ float inverse_weight(const Pairs& pairs, float weight) {
  float inverse = weight > 0.0f ? 1.0f / weight : 0.0f;
#ifdef KV_FP8
  inverse *= pairs.value_scale;
#endif
  return inverse;
}

/// The part of a block's pieces that this split takes.
struct Split {
  /// Number of pieces of positions; pieces of own rows follow them.
  int positions;
  int begin, end;
  /// Number of splits that have pieces.
  int count;
};

/// ⌊number / by⌋, with `inverse` about 1 / by: a division takes many more instructions, each
/// dependent on the one before.
__device__ __forceinline__ int quotient(int number, int by, float inverse) {
  int about = (int)((float)number * inverse);
  about -= about * by > number;
  return about + ((about + 1) * by <= number);
}

__device__ __forceinline__ int row_of(const Pairs& pairs, int pair) {
  return pairs.first_row + quotient(min(pair, pairs.end_pair - 1), pairs.group, pairs.inverse_group);
}
__device__ __forceinline__ int head_of(const Pairs& pairs, int pair) {
  pair = min(pair, pairs.end_pair - 1);
  return pairs.kv_head * pairs.group + pair - quotient(pair, pairs.group, pairs.inverse_group) * pairs.group;
}

#ifdef SINKS
/// The first position that a row sees.
__device__ __forceinline__ int first_seen(int row, int prefix, int window, const int* row_own_count) {
  int own = window > 0 && row_own_count ? load_fresh(row_own_count + row) : 0;
  return window > 0 ? max(prefix + own - window, 0) : 0;
}
#endif

/// Finds the up to PAIRS pairs of block (y, z) of a grid; every warp computes it for itself. False
/// if the block has no work.
template <int PAIRS>
__device__ __forceinline__ bool find_pairs(Pairs& pairs, const int* page_table, int table_width, int page_size,
                                           const int* row_slot, const int* row_prefix, const int* group_own,
                                           const int* group_own_count, int own_stride, const int* group_first,
                                           int group_rows, int rows, int heads, int kv_heads WINDOW_PARAMETERS) {
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
#ifdef SINKS
  pairs.first = 0x7fffffff;
#endif
#pragma unroll
  for (int i = 0; i < (PAIRS + WARP - 1) / WARP; i++) {
    int row = min(block_row + i * WARP + lane(), last_row), seen = load_fresh(row_prefix + row);
    pairs.longest = max(pairs.longest, seen);
#ifdef SINKS
    pairs.first = min(pairs.first, first_seen(row, seen, window, row_own_count));
#endif
  }
  int slot = load_fresh(row_slot + pairs.first_row), first_prefix = load_fresh(row_prefix + pairs.first_row);
  pairs.own = group_own ? same(load_fresh(group_own_count + z)) : 0;
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) pairs.longest = max(pairs.longest, shuffle_xor(pairs.longest, mask));
  pairs.longest = same(pairs.longest);
#ifdef SINKS
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) pairs.first = min(pairs.first, shuffle_xor(pairs.first, mask));
  pairs.first = same(pairs.first);
#endif
  pairs.settled = group_own ? pairs.longest : same(first_prefix - 1);
  pairs.table = page_table + wide(slot, table_width);
  pairs.own_rows = group_own + wide(pairs.first_row, own_stride);
  return true;
}

/// The share of split `blockIdx.x` in pieces of KEYS; a block takes `together` pieces at a time.
/// There are as many splits as such turns (at most `max_splits`), with the same number of pieces
/// each, since the multiprocessor with the most bytes to read finishes last.
template <int KEYS>
__device__ __forceinline__ Split find_split(const Pairs& pairs, int together, int max_splits) {
  Split split;
  split.positions = (pairs.longest + KEYS - 1) / KEYS;
  int pieces = split.positions + (pairs.own + KEYS - 1) / KEYS;
#ifdef SINKS
  int skipped = min(pairs.first / KEYS, split.positions);
  pieces -= skipped;
#else
  constexpr int skipped = 0;
#endif
  int splits = min(max((pieces + together - 1) / together, 1), max_splits);
  int share = max(quotient(pieces + splits - 1, splits, inverse_fast((float)splits)), 1);
  split.count = max(quotient(pieces + share - 1, share, inverse_fast((float)share)), 1);
  split.begin = skipped + (int)blockIdx.x * share;
  split.end = min(split.begin + share, skipped + pieces);
  return split;
}

/// Whether all positions of a piece were written before this pass.
template <int KEYS>
__device__ __forceinline__ bool is_settled(const Pairs& pairs, const Split& split, int piece) {
  return piece < split.positions && min((piece + 1) * KEYS, pairs.longest) <= pairs.settled;
}

/// Calls `load` for `count` pieces, every `step`-th from `first`. Settled pieces at the start are
/// loaded before the wait. After the wait the successor is released.
template <int KEYS, class Load>
__device__ __forceinline__ void load_ahead(int count, const Pairs& pairs, const Split& split, int first, int step, Load&& load) {
  bool waits = true;
  auto wait = [&] {
    await_predecessor();
    release_successor();
    waits = false;
  };
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    if (waits && !is_settled<KEYS>(pairs, split, first + i * step)) wait();
    load();
  }
  if (waits) wait();
}

/// The word that gives the cache row of a key of a piece: its page, or the row itself. Indices
/// after the last key give the last key: no row sees it, but its values have to be finite. The
/// loaded word is not touched before it is used, because the warp would wait for it.
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

/// The word of a row's mask for the keys of a piece from its key `from` on; 0 for pieces of
/// positions.
template <int KEYS>
__device__ __forceinline__ u32 look_at_mask(const Pairs& pairs, const Split& split, int piece, const u32* row_own_mask,
                                            int mask_words, int row, int from = 0) {
  if (piece < split.positions) return 0;
  int own = (piece - split.positions) * KEYS + from;
  // Words after the last are uninitialised.
  if (from > 0 && own >= pairs.own) return 0;
  return (u32)load_fresh((const int*)row_own_mask + wide(row, mask_words) + (u32)(own / 32));
}
/// The keys of a piece that a row sees, as bits, from its key `from` on, a multiple of 32; KEYS is
/// 16 or such a multiple.
template <int KEYS>
__device__ __forceinline__ u32 seen_keys(const Split& split, int piece, int prefix, u32 mask, int from = 0) {
  if (piece >= split.positions) return mask >> (piece - split.positions) * KEYS % 32;
  int seen = prefix - piece * KEYS - from;
  return seen >= 32 ? ~0u : seen <= 0 ? 0u : (1u << seen) - 1;
}
#ifdef SINKS
/// The same for a row that sees positions from `first` on.
template <int KEYS>
__device__ __forceinline__ u32 seen_keys_from(int first, const Split& split, int piece, int prefix, u32 mask, int from = 0) {
  u32 seen = seen_keys<KEYS>(split, piece, prefix, mask, from);
  int before = piece >= split.positions ? 0 : first - piece * KEYS - from;
  return before <= 0 ? seen : before >= 32 ? 0u : seen & ~((1u << before) - 1);
}
#endif
