// The best logits of a row: a cluster of blocks reads the row, each block its share, and the first
// block merges the results that the others leave in their shared memory. So a row costs one round
// trip to memory.
#include "common.cuh"
#include "order.cuh"

// Instructions come from memory like data, and after a large layer none of them are in any cache: a
// few thousand would take longer than everything else here. So loops are short and only unrolled
// where loads have to be in flight together.

#define THREADS 512
#define WARPS (THREADS / WARP)
/// Values that a thread processes at a time.
#define ITEMS 8
/// Maximum number of reads before the block selects.
#define TURN 2
/// Threads that find their best value together: a group's is found by shuffles, and compared with
/// those of all others. For small counts a few large groups suffice.
#define LARGE_GROUP 16
#define SMALL_GROUP 4

/// A part of a row with a separate sum of exponentials: what a block reads, or one of several
/// shares of it.
struct Share {
  const float* row;
  int begin, end;
};

/// `length` is a multiple of 4.
__device__ __forceinline__ Share share_of(const float* row, int vocabulary, int length, int number) {
  int begin = min(number * length, vocabulary);
  return Share{row, begin, min(begin + length, vocabulary)};
}

/// The index of a thread's item: four consecutive values per load, loads of neighbouring threads
/// adjacent, from `first` on.
__device__ __forceinline__ int index_of(int first, int item) {
  return first + item / 4 * (4 * THREADS) + 4 * (int)threadIdx.x + item % 4;
}
/// A thread's items from `first` on, all loads in flight together. NaN after the end; `index < end`
/// distinguishes it from NaN in the row.
template <int ITEMS_AT_ONCE>
__device__ __forceinline__ void load_items(float (&values)[ITEMS_AT_ONCE], const Share& share, int first) {
  bool aligned = ((u64)share.row & 15) == 0;
#pragma unroll
  for (int i = 0; i < ITEMS_AT_ONCE; i += 4) {
    int index = index_of(first, i);
    if (aligned && index + 4 <= share.end) {
      uint4 words = load_16(share.row + index);
      values[i] = bits_float(words.x);
      values[i + 1] = bits_float(words.y);
      values[i + 2] = bits_float(words.z);
      values[i + 3] = bits_float(words.w);
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++) values[i + j] = index + j < share.end ? share.row[index + j] : bits_float(0x7fc00000u);
    }
  }
}

/// The best of a thread's items as a key, 0 if it has none.
template <int ITEMS_AT_ONCE>
__device__ __forceinline__ u64 best_of_items(const float (&values)[ITEMS_AT_ONCE], int first, int end) {
  float largest = -infinity();
  int item = -1;
#pragma unroll
  for (int i = 0; i < ITEMS_AT_ONCE; i++) {
    bool more = values[i] > largest;
    largest = more ? values[i] : largest;
    item = more ? i : item;
  }
  if (item >= 0) return composite(largest, (u32)index_of(first, item));
  // Nothing but −∞, and NaN after it.
#pragma unroll
  for (int i = ITEMS_AT_ONCE - 1; i >= 0; i--) item = values[i] == -infinity() ? i : item;
  int index = index_of(first, item < 0 ? 0 : item);
  return index < end ? composite(item < 0 ? values[0] : largest, (u32)index) : 0;
}

/// The best of some keys, computed by one warp.
__device__ __forceinline__ u64 best_of(const u64* keys, int count) {
  u64 best = 0;
#pragma unroll 1
  for (int at = lane(); at < count; at += WARP) best = keys[at] > best ? keys[at] : best;
  return warp_best(best);
}

/// Copies `count` values at `own` of block `block` of the cluster to their place in `all`, ordered
/// by block. Called by a warp.
template <class Value>
__device__ __forceinline__ void gather(Value* all, const Value* own, int count, int block) {
#pragma unroll 1
  for (int at = lane(); at < count; at += WARP) all[block * count + at] = load_from_block(own + at, block);
}

/// The largest of some values, and the sum of exponentials relative to it. NaN counts as −∞; if the
/// largest value is infinite, the logarithm of the sum is that value, so the sum is not used.
struct Mass {
  float largest, sum;
};

__device__ __forceinline__ bool is_finite(float value) { return value > -infinity() && value < infinity(); }

__device__ __forceinline__ Mass mass_of(const float (&values)[ITEMS]) {
  Mass mass = {-infinity(), 0.0f};
#pragma unroll
  for (int i = 0; i < ITEMS; i++) mass.largest = values[i] > mass.largest ? values[i] : mass.largest;
  if (is_finite(mass.largest)) {
#pragma unroll
    for (int i = 0; i < ITEMS; i++) mass.sum += values[i] > -infinity() ? exp_fast(values[i] - mass.largest) : 0.0f;
  }
  return mass;
}
/// The sum relative to another largest value.
__device__ __forceinline__ float sum_under(Mass mass, float largest) {
  return is_finite(largest) ? mass.sum * exp_fast(mass.largest - largest) : 0.0f;
}
__device__ __forceinline__ Mass join(Mass a, Mass b) {
  float largest = a.largest > b.largest ? a.largest : b.largest;
  return Mass{largest, sum_under(a, largest) + sum_under(b, largest)};
}
/// Over a warp, in a fixed order, in all its lanes.
__device__ __forceinline__ Mass warp_mass(Mass mass) {
  float largest = warp_max(mass.largest);
  return Mass{largest, warp_sum(sum_under(mass, largest))};
}
/// Over all shares of a row, computed by one warp: `masses` are those of each share's warps. The
/// order is that of the shares, regardless of the number of blocks.
__device__ __forceinline__ Mass mass_of_shares(const Mass* masses, int count) {
  Mass mass = {-infinity(), 0.0f};
#pragma unroll 1
  for (int at = lane(); at < count; at += WARP) mass = join(mass, masses[at]);
  return warp_mass(mass);
}

__device__ __forceinline__ float log_sum_exp(Mass mass) {
  return is_finite(mass.largest) ? mass.largest + log_accurate(mass.sum) : mass.largest;
}
/// The log-probability of a logit: −∞ for NaN, and for NaN that results from infinite logits.
__device__ __forceinline__ float log_probability(float logit, float shift) {
  float value = logit - shift;
  return value == value ? value : -infinity();
}

/// Number of reads of a block for a share.
__device__ __forceinline__ int pieces_of(int length) { return (length + ITEMS * THREADS - 1) / (ITEMS * THREADS); }

/// How a row is divided: `length` values per share, and `shares` consecutive shares per block.
struct Deal {
  const float* row;
  int vocabulary, length, shares;
};

/// Dynamic shared memory of `best_of_row`.
struct Handed {
  /// What threads have read since the block last selected, item by item.
  float* kept;
  /// Of the warps of each share of this block; and in the first block of all blocks.
  Mass *own_masses, *masses;
  /// The best `count` keys of the block, largest first, or if count is 1 the best of each warp; and
  /// in the first block the keys of all blocks.
  u64 *best, *keys;
  /// Candidates of `select_best`.
  u64* candidate;
};

__device__ __forceinline__ int group_for(int count) { return 2 * LARGE_GROUP * count <= THREADS ? LARGE_GROUP : SMALL_GROUP; }

/// Keys that each block leaves.
__device__ __forceinline__ int own_keys_of(int count) { return count == 1 ? WARPS : count; }

/// The common part of `top_k_rows` and `logprob_rows`: the best `count` of a row, or as many as it
/// has, in `handed.best`, and the mass of the row, in the first block of its cluster, for which it
/// returns true after a block barrier.
__device__ __forceinline__ bool best_of_row(Handed handed, Mass& mass, const Deal& deal, int count) {
  __shared__ Selection selection;
  // For each turn its first index and the end of its share.
  __shared__ int2 range[TURN];
  int thread = (int)threadIdx.x, blocks = (int)gridDim.x, rank = cluster_rank();
  int own_masses = deal.shares * WARPS, own_keys = own_keys_of(count);
  int pieces = pieces_of(deal.length), all = pieces * deal.shares;
  int number = 0, piece = 0, turn = 0;
  // The next piece of a share, which is loaded while this one is processed.
  int next_first = 0, next_end = 0;
  float next[ITEMS] = {};
  bool selected = false;
  u64 best = 0;
#pragma unroll 1
  for (int read = 0; read <= all; read++) {
    float values[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) values[i] = next[i];
    int first = next_first, end = next_end, share = number;
    bool begins = piece <= 1, ends = piece == pieces;
    if (ends) piece = 0;
    number += ends;
    if (read < all) {
      Share asked = share_of(deal.row, deal.vocabulary, deal.length, rank * deal.shares + number);
      next_first = asked.begin + piece++ * (ITEMS * THREADS);
      next_end = asked.end;
      load_items(next, asked, next_first);
    }
    if (read == 0) continue;
    Mass own = mass_of(values);
    mass = begins ? own : join(mass, own);
    u64 found = best_of_items(values, first, end);
    best = found > best ? found : best;
    if (count > 1) {
#pragma unroll
      for (int i = 0; i < ITEMS; i++) handed.kept[(turn * ITEMS + i) * THREADS + thread] = values[i];
      if (thread == 0) range[turn] = make_int2(first, end);
      turn++;
    }
    if (ends) {
      Mass whole = warp_mass(mass);
      if (lane() == 0) handed.own_masses[share * WARPS + warp()] = whole;
    }
    if (count == 1 || turn < TURN && read < all) continue;
    // The best so far take part again.
    u64 before = selected && thread < count ? handed.best[thread] : 0;
    auto keys = [&](u64 bound, auto take) {
      take(before);
#pragma unroll 1
      for (int at = 0; at < turn; at++) {
        u32 reach = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
          reach |= ordered(handed.kept[(at * ITEMS + i) * THREADS + thread]) >= (u32)(bound >> 32) ? 1u << i : 0;
        }
#pragma unroll 1
        for (; reach; reach &= reach - 1) {
          int i = __ffs((int)reach) - 1, index = index_of(range[at].x, i);
          if (index < range[at].y) take(composite(handed.kept[(at * ITEMS + i) * THREADS + thread], (u32)index));
        }
      }
    };
    select_best(selection, handed.candidate, handed.best, keys, before > best ? before : best, count, group_for(count));
    selected = true;
    best = 0;
    turn = 0;
  }
  if (count == 1) {
    best = warp_best(best);
    if (lane() == 0) handed.best[warp()] = best;
  }
  cluster_arrive_with_own();
  cluster_wait();
  if (rank != 0) {
    // No block ends while the first reads its results.
    cluster_arrive_relaxed();
    cluster_wait();
    return false;
  }
#pragma unroll 1
  for (int turn = warp(); turn < 2 * blocks; turn += WARPS) {
    if (turn % 2 == 0)
      gather(handed.keys, handed.best, own_keys, turn / 2);
    else
      gather(handed.masses, handed.own_masses, own_masses, turn / 2);
  }
  cluster_arrive_relaxed();
  block_sync();
  mass = mass_of_shares(handed.masses, blocks * own_masses);
  if (count == 1) {
    best = best_of(handed.keys, blocks * own_keys);
    if (thread == 0) handed.best[0] = best;
  } else {
    rank_candidates(handed.keys, blocks * own_keys, handed.best, count);
  }
  block_sync();
  return true;
}

__device__ __forceinline__ Handed handed_in(unsigned char* dynamic, int length, int shares, int count) {
  int blocks = (int)gridDim.x, turns = count == 1 ? 0 : min(pieces_of(length) * shares, TURN);
  float* kept = (float*)dynamic;
  int own_masses = shares * WARPS, own_keys = own_keys_of(count);
  Mass* masses = (Mass*)(kept + ITEMS * THREADS * turns);
  u64* keys = (u64*)(masses + (blocks + 1) * own_masses);
  return Handed{kept, masses, masses + own_masses, keys, keys + own_keys, keys + (blocks + 1) * own_keys};
}

/// The best of each row with their log-probabilities (log-softmax over the row), best first, ties
/// to the lower index.
///
/// logits `[rows, row_stride]`, of which `vocabulary` count; ids and logprobs `[rows, count]`,
/// count ≤ 64. `token_map[index]` is the token of an index (null: the index itself). NaN counts as
/// −∞, after it in the order. If the row has fewer than `count` values, the rest is id 0 with −∞.
///
/// Grid (blocks, rows) in clusters of all `blocks` of a row, at most 8, 512 threads: block b takes
/// `shares` shares from b · shares on, share s indices s · length to (s + 1) · length − 1, `length`
/// a multiple of 4. Length and number of shares depend on the vocabulary alone, and so does the
/// order of the result's sums: a row depends neither on the other rows nor on the number of blocks.
/// Dynamic shared memory: `handed_in`, and if `count` > 1, group · (8 · n + 1) candidates for each
/// of `count`, n being the number of reads before a block selects.
extern "C" __global__ void __launch_bounds__(THREADS)
    top_k_rows(int* ids, float* logprobs, const float* logits, int row_stride, int vocabulary, int length, int shares,
               int count, const int* token_map) {
  wait_for_predecessor();
  DYNAMIC_SHARED(dynamic);
  Handed handed = handed_in(dynamic, length, shares, count);
  u64 row = blockIdx.y;
  Mass mass;
  if (!best_of_row(handed, mass, Deal{logits + row * row_stride, vocabulary, length, shares}, count)) return;
  float shift = log_sum_exp(mass);
  if (int i = (int)threadIdx.x; i < count) {
    bool exists = i < vocabulary;
    int index = exists ? (int)composite_index(handed.best[i]) : 0;
    ids[row * count + i] = exists && token_map ? token_map[index] : index;
    logprobs[row * count + i] = exists ? log_probability(composite_value(handed.best[i]), shift) : -infinity();
  }
}

/// The index of the largest logit of each row, ties to the lower index; NaN loses against
/// everything. NOT_FINITE if the largest is not finite.
///
/// logits `[rows, row_stride]`, of which `vocabulary` count; chosen `[rows]`. Grid and clusters as
/// in `top_k_rows`, one share per block; dynamic shared memory: 8 bytes per warp, for this block
/// and for all blocks.
extern "C" __global__ void __launch_bounds__(THREADS)
    argmax_rows(int* chosen, const float* logits, int row_stride, int vocabulary, int length) {
  wait_for_predecessor();
  DYNAMIC_SHARED(dynamic);
  u64* best = (u64*)dynamic;
  int row = (int)blockIdx.y;
  Share share = share_of(logits + (u64)row * row_stride, vocabulary, length, cluster_rank());
  u64 key = 0;
#pragma unroll 1
  for (int first = share.begin; first < share.end; first += 2 * ITEMS * THREADS) {
    float values[2 * ITEMS];
    load_items(values, share, first);
    u64 found = best_of_items(values, first, share.end);
    key = found > key ? found : key;
  }
  key = warp_best(key);
  if (lane() == 0) best[warp()] = key;
  cluster_arrive_with_own();
  cluster_wait();
  if (cluster_rank() != 0) {
    cluster_arrive_relaxed();
    cluster_wait();
    return;
  }
  u64* keys = best + WARPS;
  if (warp() < (int)gridDim.x) gather(keys, best, WARPS, warp());
  cluster_arrive_relaxed();
  block_sync();
  if (warp() != 0) return;
  key = best_of(keys, (int)gridDim.x * WARPS);
  if (lane() == 0) chosen[row] = is_finite_key(key) ? (int)composite_index(key) : NOT_FINITE;
}

/// For requests that want log-probabilities: that of a token, and the best tokens with theirs,
/// before temperature and filters.
///
/// Row r is about token[r] after logits row row_source[r] (null: r), for slot row_slot[r]; rows
/// whose logprob_count[slot] is negative are skipped. Writes logprobs `[rows]`, top_ids and
/// top_logprobs `[rows, count]`, 1 ≤ count ≤ 64, of which a request uses as many as it requested.
/// All else as in `top_k_rows`.
extern "C" __global__ void __launch_bounds__(THREADS)
    logprob_rows(float* logprobs, int* top_ids, float* top_logprobs, const int* token, const float* logits, int row_stride,
                 int vocabulary, int length, int shares, int count, const int* row_slot, const int* logprob_count,
                 const int* row_source) {
  wait_for_predecessor();
  DYNAMIC_SHARED(dynamic);
  Handed handed = handed_in(dynamic, length, shares, count);
  u64 row = blockIdx.y;
  if (logprob_count[row_slot[row]] < 0) return;
  const float* own = logits + (u64)(row_source ? row_source[row] : (int)row) * row_stride;
  Mass mass;
  if (!best_of_row(handed, mass, Deal{own, vocabulary, length, shares}, count)) return;
  float shift = log_sum_exp(mass);
  if (int i = (int)threadIdx.x; i < count) {
    bool exists = i < vocabulary;
    top_ids[row * count + i] = exists ? (int)composite_index(handed.best[i]) : 0;
    top_logprobs[row * count + i] = exists ? log_probability(composite_value(handed.best[i]), shift) : -infinity();
  }
  if (threadIdx.x == 0) {
    int id = token[row];
    logprobs[row] = id >= 0 && id < vocabulary ? log_probability(own[id], shift) : -infinity();
  }
}
