// The best of a row of logits: a cluster of blocks reads the row, each block its own share of it, and the first one
// merges what they have found. There is no memory but theirs between them, so a row costs one trip to memory.
#include "common.cuh"
#include "order.cuh"

// Instructions come from memory like data, and behind a large layer nothing of them is in any cache: a few thousand of them
// take longer than all else here. So loops are short and only unrolled where loads have to be under way together.

#define THREADS 512
#define WARPS (THREADS / WARP)
/// Values of a thread at a time.
#define ITEMS 8

/// The part of a row that a block reads.
struct Share {
  const float* row;
  int begin, end;
};

/// Rows lie in the grid's y; `length` is a multiple of 4.
__device__ __forceinline__ Share share_of(const float* row, int vocabulary, int length) {
  int begin = min(cluster_rank() * length, vocabulary);
  return Share{row, begin, min(begin + length, vocabulary)};
}

/// The index of a thread's item: four neighbours a load, loads of the threads side by side, from `first` on.
__device__ __forceinline__ int index_of(int first, int item) {
  return first + item / 4 * (4 * THREADS) + 4 * (int)threadIdx.x + item % 4;
}
/// A thread's items from `first` on, all loads under way together. NaN behind the end, which `index < end` tells from NaN in
/// the row.
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

/// The best of a thread's items as a key, 0 where it has none.
template <int ITEMS_AT_ONCE>
__device__ __forceinline__ u64 best_of_items(const float (&values)[ITEMS_AT_ONCE], const Share& share, int first) {
  int at = index_of(first, 0);
  bool has = at < share.end;
  u32 largest = 0;
#pragma unroll
  for (int i = 0; i < ITEMS_AT_ONCE; i++) {
    u32 value = ordered(values[i]);
    at = value > largest ? index_of(first, i) : at;
    largest = value > largest ? value : largest;
  }
  return has ? (u64)largest << 32 | (u64)~(u32)at : 0;
}

/// Two keys that another block has where this one has `own`.
struct KeyPair {
  u64 first, second;
};
__device__ __forceinline__ KeyPair load_keys(const u64* own, int rank) {
  float4 words = load_from_block((const float*)own, rank);
  return KeyPair{(u64)float_bits(words.y) << 32 | float_bits(words.x),
                 (u64)float_bits(words.w) << 32 | float_bits(words.z)};
}

/// The best of the keys that the warps of a cluster have found, as one warp sees it.
__device__ __forceinline__ u64 best_of_cluster(const u64* best) {
  constexpr int LOADS = WARPS / 2;
  u64 key = 0;
#pragma unroll 1
  for (int at = lane(); at < LOADS * (int)gridDim.x; at += WARP) {
    KeyPair pair = load_keys(best + at % LOADS * 2, at / LOADS);
    pair.first = pair.second > pair.first ? pair.second : pair.first;
    key = pair.first > key ? pair.first : key;
  }
  return warp_best(key);
}

/// The largest of some values, and the sum of exponentials relative to it. NaN counts as −∞; of an infinite largest value
/// the logarithm is that value, whatever else there is, so that the sum is not used.
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
/// Of a warp, in a fixed order, in all its lanes.
__device__ __forceinline__ Mass warp_mass(Mass mass) {
  float largest = warp_max(mass.largest);
  return Mass{largest, warp_sum(sum_under(mass, largest))};
}
/// Of all blocks of a cluster, as one warp sees it; `warps` are those of a block.
__device__ __forceinline__ Mass cluster_mass(const Mass* warps) {
  constexpr int LOADS = WARPS / 2;
  Mass mass = {-infinity(), 0.0f};
#pragma unroll 1
  for (int at = lane(); at < LOADS * (int)gridDim.x; at += WARP) {
    float4 two = load_from_block((const float*)(warps + at % LOADS * 2), at / LOADS);
    mass = join(mass, join(Mass{two.x, two.y}, Mass{two.z, two.w}));
  }
  return warp_mass(mass);
}

__device__ __forceinline__ float log_sum_exp(Mass mass) {
  return is_finite(mass.largest) ? mass.largest + log_accurate(mass.sum) : mass.largest;
}
/// The log-probability of a logit: −∞ for what is no number (NaN, and what infinite logits make).
__device__ __forceinline__ float log_probability(float logit, float shift) {
  float value = logit - shift;
  return value == value ? value : -infinity();
}

/// Dynamic shared memory of `best_of_row`; other blocks read the first two.
struct Handed {
  /// Of each warp.
  Mass* masses;
  /// The best `kept` keys of the block, largest first; where one is wanted, the best of each warp.
  u64* best;
  /// What `select_best` ranks.
  u64* candidate;
};

/// The common part of `top_k_rows` and `logprob_rows`: the best `count` of a row, or as many as it has, in `handed.best`,
/// and the mass of the row, in the first block of its cluster, which gets `true`.
__device__ __forceinline__ bool best_of_row(Handed handed, Mass& mass, const Share& share, int count) {
  __shared__ Selection selection;
  int thread = (int)threadIdx.x, blocks = (int)gridDim.x;
  u64 best = 0;
  mass = Mass{-infinity(), 0.0f};
  int first = share.begin;
  // More than one turn only where a share is longer than 4096.
#pragma unroll 1
  do {
    float values[ITEMS];
    load_items(values, share, first);
    mass = join(mass, mass_of(values));
    // The best of this turn: a thread's indices rise, so that of equal values the first stays.
    u64 before = best;
    best = best_of_items(values, share, first);
    if (count == 1) {
      best = before > best ? before : best;
    } else {
      // What was best so far takes part again.
      before = first > share.begin && thread < count ? handed.best[thread] : 0;
      select_best(
          selection, handed.candidate, handed.best, ITEMS + 1,
          [&](int i) {
            int index = index_of(first, i);
            return i == ITEMS ? before : index < share.end ? composite(share.row[index], (u32)index) : 0;
          },
          before > best ? before : best, count);
    }
    first += ITEMS * THREADS;
  } while (first < share.end);
  mass = warp_mass(mass);
  if (lane() == 0) handed.masses[warp()] = mass;
  if (count == 1) {
    best = warp_best(best);
    if (lane() == 0) handed.best[warp()] = best;
  }
  cluster_sync();
  bool merges = cluster_rank() == 0;
  int pairs = (count + 1) / 2;
  if (merges) {
    mass = cluster_mass(handed.masses);
    if (count == 1) {
      best = best_of_cluster(handed.best);
    } else if (thread < blocks * pairs) {
      KeyPair pair = load_keys(handed.best + thread % pairs * 2, thread / pairs);
      handed.candidate[2 * thread] = pair.first;
      handed.candidate[2 * thread + 1] = thread % pairs * 2 + 1 < count ? pair.second : 0;
    }
  }
  cluster_sync();
  if (!merges) return false;
  if (count == 1) {
    if (thread == 0) handed.best[0] = best;
  } else {
    rank_candidates(handed.candidate, 2 * blocks * pairs, handed.best, count);
  }
  block_sync();
  return true;
}

__device__ __forceinline__ Handed handed_in(unsigned char* dynamic, int count) {
  Mass* masses = (Mass*)dynamic;
  u64* best = (u64*)(masses + WARPS);
  return Handed{masses, best, best + (count == 1 ? WARPS : (count + 1) / 2 * 2)};
}

/// The best of each row with their log-probabilities (log-softmax over the row), best first, ties to the lower index.
///
/// logits `[rows, row_stride]`, of which `vocabulary` count; ids and logprobs `[rows, count]`, count ≤ 64.
/// `token_map[index]` is the token of an index (null: the index itself). NaN counts as −∞, behind it in the order. Where
/// the row has fewer than `count` values, the rest is id 0 with −∞.
///
/// Grid (blocks, rows) in clusters of all `blocks` of a row, 8 at most, 512 threads: block b takes indices b · length to
/// (b + 1) · length − 1, `length` a multiple of 4. Both depend on the vocabulary alone: a row's result does not depend on
/// the other rows. Dynamic shared memory: `handed_in`, and 36 candidates for each of `count` > 1.
extern "C" __global__ void __launch_bounds__(THREADS)
    top_k_rows(int* ids, float* logprobs, const float* logits, int row_stride, int vocabulary, int length, int count,
               const int* token_map) {
  wait_for_predecessor();
  DYNAMIC_SHARED(dynamic);
  Handed handed = handed_in(dynamic, count);
  u64 row = blockIdx.y;
  Mass mass;
  if (!best_of_row(handed, mass, share_of(logits + row * row_stride, vocabulary, length), count)) return;
  float shift = log_sum_exp(mass);
  if (int i = (int)threadIdx.x; i < count) {
    bool exists = i < vocabulary;
    int index = exists ? (int)composite_index(handed.best[i]) : 0;
    ids[row * count + i] = exists && token_map ? token_map[index] : index;
    logprobs[row * count + i] = exists ? log_probability(composite_value(handed.best[i]), shift) : -infinity();
  }
}

/// The index of the largest logit of each row, ties to the lower index; NaN loses against everything.
///
/// logits `[rows, row_stride]`, of which `vocabulary` count; chosen `[rows]`. Grid, clusters and `length` as `top_k_rows`,
/// 128 bytes of dynamic shared memory.
extern "C" __global__ void __launch_bounds__(THREADS)
    argmax_rows(int* chosen, const float* logits, int row_stride, int vocabulary, int length) {
  wait_for_predecessor();
  DYNAMIC_SHARED(dynamic);
  u64* best = (u64*)dynamic;
  int row = (int)blockIdx.y;
  Share share = share_of(logits + (u64)row * row_stride, vocabulary, length);
  u64 key = 0;
#pragma unroll 1
  for (int first = share.begin; first < share.end; first += 2 * ITEMS * THREADS) {
    float values[2 * ITEMS];
    load_items(values, share, first);
    u64 found = best_of_items(values, share, first);
    key = found > key ? found : key;
  }
  key = warp_best(key);
  if (lane() == 0) best[warp()] = key;
  cluster_sync();
  if (cluster_rank() == 0 && warp() == 0) {
    key = best_of_cluster(best);
    if (lane() == 0) chosen[row] = (int)composite_index(key);
  }
  cluster_sync();
}

/// For requests that ask: the log-probability of a token, and the best tokens with theirs, before temperature and
/// filters.
///
/// Row r is about token[r] behind logits row row_source[r] (null: r), for slot row_slot[r]; rows whose
/// logprob_count[slot] is negative are left alone. Writes logprobs `[rows]`, top_ids and top_logprobs `[rows, count]`,
/// 1 ≤ count ≤ 64, of which a request takes as many as it asked for. All else as `top_k_rows`.
extern "C" __global__ void __launch_bounds__(THREADS)
    logprob_rows(float* logprobs, int* top_ids, float* top_logprobs, const int* token, const float* logits, int row_stride,
                 int vocabulary, int length, int count, const int* row_slot, const int* logprob_count,
                 const int* row_source) {
  wait_for_predecessor();
  DYNAMIC_SHARED(dynamic);
  Handed handed = handed_in(dynamic, count);
  u64 row = blockIdx.y;
  if (logprob_count[row_slot[row]] < 0) return;
  const float* own = logits + (u64)(row_source ? row_source[row] : (int)row) * row_stride;
  Mass mass;
  if (!best_of_row(handed, mass, share_of(own, vocabulary, length), count)) return;
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
