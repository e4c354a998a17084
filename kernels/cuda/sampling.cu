// From logits to a token: temperature, then top-k, top-p and min-p, each applied to the result of
// the previous one. The rules are those of the CPU's `sampling::distribution`.
//
// Weights are integers, 2⁴⁴ for the best token, so that sums do not depend on the order of the
// terms: the same logits, seed and position give the same token in any batch. Nothing is sorted: a
// filter is a cut in one order of all tokens (by weight, then by lower id), which is found with
// histograms.
#include "common.cuh"
#include "order.cuh"

#define SAMPLE_THREADS 512
#define SAMPLE_WARPS (SAMPLE_THREADS / WARP)
#define BINS_A_THREAD 4
#define BINS (BINS_A_THREAD * SAMPLE_THREADS)
#define DIGIT_BITS 11
/// Maximum number of tokens that are ranked by counting.
#define LISTED 1024

/// Tokens farther from the best one have weight 0: 2⁴⁴·e⁻³¹ is the last that rounds to 1.
#define FARTHEST -31.0f
/// Bins per unit of logit, so that the farthest token still has one.
#define BINS_A_UNIT 66.0f

struct Sampling {
  u64 histogram[BINS];
  u64 list_key[LISTED], list_weight[LISTED];
  u64 warps[SAMPLE_WARPS];
  u64 before, cut;
  int listed, bin;
};

/// A row, its scale, and what the filters leave of it.
struct Row {
  const float* logits;
  int vocabulary;
  float temperature, largest;
  /// Tokens with a smaller key (see `composite`, of the distance) are excluded.
  u64 cut;
  /// So are tokens farther from the best one.
  float farthest;
};

/// Scaled logit minus the best one.
__device__ __forceinline__ float distance_of(const Row& row, float logit) { return logit / row.temperature - row.largest; }
__device__ __forceinline__ u64 weight_of(float distance) {
  return (u64)(exp_accurate(distance) * 17592186044416.0f + 0.5f);
}
/// Whether the filters leave a token; false for NaN.
__device__ __forceinline__ bool is_left(const Row& row, float distance, int index) {
  return distance >= row.farthest && (row.cut == 0 || composite(distance, (u32)index) >= row.cut);
}

/// Loads in flight per lane.
#define LOADS 4

/// Calls `visit(index, distance)` for all remaining tokens from `begin` to `end`, which a warp
/// shares.
template <class Visit>
__device__ __forceinline__ void visit_tokens(const Row& row, int begin, int end, Visit visit) {
  bool aligned = ((u64)(row.logits + begin) & 15) == 0;
  for (int first = begin + 4 * lane(); first < end; first += LOADS * 4 * WARP) {
    float values[LOADS][4];
#pragma unroll
    for (int load = 0; load < LOADS; load++) {
      int at = first + load * 4 * WARP;
      if (aligned && at + 4 <= end) {
        uint4 words = load_16(row.logits + at);
        values[load][0] = bits_float(words.x);
        values[load][1] = bits_float(words.y);
        values[load][2] = bits_float(words.z);
        values[load][3] = bits_float(words.w);
      } else {
#pragma unroll
        for (int i = 0; i < 4; i++) values[load][i] = at + i < end ? row.logits[at + i] : bits_float(0x7fc00000u);
      }
    }
#pragma unroll
    for (int load = 0; load < LOADS; load++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int index = first + load * 4 * WARP + i;
        float distance = distance_of(row, values[load][i]);
        if (is_left(row, distance, index)) visit(index, distance);
      }
    }
  }
}

/// Tokens per warp: the vocabulary in equal parts, in order.
__device__ __forceinline__ int part_of_a_warp(int vocabulary) {
  int part = (vocabulary + SAMPLE_WARPS - 1) / SAMPLE_WARPS;
  return (part + 3) / 4 * 4;
}
template <class Visit>
__device__ __forceinline__ void visit_all(const Row& row, Visit visit) {
  int part = part_of_a_warp(row.vocabulary), begin = warp() * part;
  int end = begin + part < row.vocabulary ? begin + part : row.vocabulary;
  visit_tokens(row, begin, end, visit);
}

/// The sum over the threads before this one in the block, and the sum over all.
__device__ __forceinline__ u64 sum_before(u64 value, u64* warps, u64& total) {
  u64 sum = value;
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    u64 other = shuffle_up(sum, by);
    if (lane() >= by) sum += other;
  }
  block_sync();
  if (lane() == WARP - 1) warps[warp()] = sum;
  block_sync();
  u64 own = lane() < SAMPLE_WARPS ? warps[lane()] : 0, through = own;
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    u64 other = shuffle_up(through, by);
    if (lane() >= by) through += other;
  }
  total = shuffle(through, WARP - 1);
  return sum - value + shuffle(through - own, warp());
}

/// The key of the last token that stays: tokens stay, in order, as long as those before them
/// measure less than an amount. By count (top-k) the amount is given and each token measures 1; by
/// weight (top-p) it is `share` of the sum, at least 1 so that the best token stays. Returns the
/// old cut if all stay.
///
/// A histogram gives the bin in which the amount is reached; if it has few tokens, they are listed
/// and ranked by counting. If it has many, the bin is divided again: first by distance from the
/// best token, which spreads typical rows evenly, then by the digits of the key, which are distinct
/// in the end.
template <bool BY_WEIGHT>
__device__ __forceinline__ u64 find_cut(Sampling& shared, const Row& row, u64 amount, float share) {
  int thread = (int)threadIdx.x;
  int first_bin = -1, shift = 64 - DIGIT_BITS;
  // The known digits, and the shift of a key to compare with them.
  u64 known = 0;
  int known_shift = 0;
  u64 before = 0;
  for (int level = 0;; level++) {
    auto bin_of = [&](int index, float distance) {
      int first = (int)(-distance * BINS_A_UNIT);
      first = first < BINS ? first : BINS - 1;
      if (level == 0) return first;
      u64 key = composite(distance, (u32)index);
      if (first != first_bin || (level > 1 && key >> known_shift != known)) return -1;
      return BINS - 1 - (int)(key >> shift & (BINS - 1));
    };
    for (int i = 0; i < BINS_A_THREAD; i++) shared.histogram[i * SAMPLE_THREADS + thread] = 0;
    block_sync();
    visit_all(row, [&](int index, float distance) {
      int bin = bin_of(index, distance);
      if (bin >= 0) atomic_add(&shared.histogram[bin], BY_WEIGHT ? weight_of(distance) : (u64)1);
    });
    block_sync();
    // Not earlier: the previous level's count is read until the barriers above.
    if (thread == 0) shared.listed = 0;
    u64 bins[BINS_A_THREAD], sum = 0, total;
#pragma unroll
    for (int i = 0; i < BINS_A_THREAD; i++) sum += bins[i] = shared.histogram[BINS_A_THREAD * thread + i];
    u64 better = before + sum_before(sum, shared.warps, total);
    if (level == 0) {
      if (BY_WEIGHT) {
        double reached = share > 0.0f ? (double)share * (double)total : 0.0;
        amount = (u64)reached;
        amount += (double)amount < reached;
        amount = amount > 0 ? amount : 1;
      }
      if (total < amount) return row.cut;
    }
#pragma unroll
    for (int i = 0; i < BINS_A_THREAD; i++) {
      if (better < amount && amount <= better + bins[i]) {
        shared.bin = BINS_A_THREAD * thread + i;
        shared.before = better;
      }
      better += bins[i];
    }
    block_sync();
    int found = shared.bin;
    before = shared.before;
    visit_all(row, [&](int index, float distance) {
      if (bin_of(index, distance) == found) {
        int at = atomic_add(&shared.listed, 1);
        if (at < LISTED) {
          shared.list_key[at] = composite(distance, (u32)index);
          shared.list_weight[at] = BY_WEIGHT ? weight_of(distance) : 1;
        }
      }
    });
    block_sync();
    int listed = shared.listed;
    if (listed <= LISTED) {
      for (int at = thread; at < listed; at += SAMPLE_THREADS) {
        u64 own = shared.list_key[at], sum = before;
        for (int i = 0; i < listed; i++) sum += shared.list_key[i] > own ? shared.list_weight[i] : 0;
        if (sum < amount && amount <= sum + shared.list_weight[at]) shared.cut = own;
      }
      block_sync();
      return shared.cut;
    }
    if (level == 0) {
      first_bin = found;
    } else {
      known = known << DIGIT_BITS | (u64)(BINS - 1 - found);
      known_shift = shift;
      shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0;
    }
  }
}

/// ⌊a · b / 2⁶⁴⌋.
__device__ __forceinline__ u64 multiply_high(u64 a, u64 b) {
  u64 low = (a & 0xffffffffu) * (b & 0xffffffffu);
  u64 left = (a >> 32) * (b & 0xffffffffu), right = (a & 0xffffffffu) * (b >> 32);
  u64 middle = (low >> 32) + (left & 0xffffffffu) + (right & 0xffffffffu);
  return (a >> 32) * (b >> 32) + (left >> 32) + (right >> 32) + (middle >> 32);
}

/// Draws the token of each row whose slot does not choose greedily (temperature 0).
///
/// logits `[rows, row_stride]`, of which `vocabulary` count; row_slot and row_sample_position (the
/// number of tokens before the one to be drawn) `[rows]`; temperature, top_p (≥ 1: off), top_k (0:
/// off), min_p (≤ 0: off) and seed `[slots]`. `chosen` `[rows]` holds the index of the largest
/// logit (argmax_rows) at the start, and the draw at the end: the token at which the sum of weights
/// by id exceeds a random share of the total. Greedy rows keep theirs, as do rows whose largest
/// scaled logit is not finite (the limit of a vanishing temperature), and rows without a token
/// (NOT_FINITE). Grid rows, 512 threads: one block per row, which reads the row from the L2 cache a
/// few times; once without filters.
extern "C" __global__ void __launch_bounds__(512)
    sample_rows(int* chosen, const float* logits, int row_stride, int vocabulary, const int* row_slot,
                const int* row_sample_position, const float* temperature, const float* top_p, const int* top_k,
                const float* min_p, const u64* seed) {
  wait_for_predecessor();
  __shared__ Sampling shared;
  int at = (int)blockIdx.x, thread = (int)threadIdx.x, slot = row_slot[at];
  Row row;
  row.logits = logits + (u64)at * row_stride;
  row.vocabulary = vocabulary;
  row.temperature = temperature[slot];
  if (row.temperature == 0.0f) return;
  int best = chosen[at];
  if (best < 0) return;
  row.largest = row.logits[best] / row.temperature;
  if (!(row.largest > -infinity() && row.largest < infinity())) return;
  row.cut = 0;
  row.farthest = FARTHEST;
  if (top_k[slot] > 0) row.cut = find_cut<false>(shared, row, (u64)top_k[slot], 0.0f);
  if (top_p[slot] < 1.0f) row.cut = find_cut<true>(shared, row, 0, top_p[slot]);
  // A share of the best one's probability is a distance from it; the best one itself stays.
  if (min_p[slot] > 0.0f) row.farthest = min(max(log_accurate(min_p[slot]), FARTHEST), 0.0f);

  // First the warp whose part contains the draw, then the token within the part.
  u64 sum = 0, total;
  visit_all(row, [&](int, float distance) { sum += weight_of(distance); });
  u64 before = sum_before(sum, shared.warps, total);
  if (total == 0) return;
  u64 drawn = multiply_high(random_bits(seed[slot], row_sample_position[at]) << 11, total);
  // The last lane of a warp has the largest sum.
  if (lane() == WARP - 1) shared.list_weight[warp()] = before + sum;
  block_sync();
  int part = part_of_a_warp(vocabulary), chosen_part = 0;
  u64 start = 0;
  for (int i = 0; i < SAMPLE_WARPS - 1; i++) {
    bool behind = drawn >= shared.list_weight[i];
    chosen_part += behind;
    start = behind ? shared.list_weight[i] : start;
  }
  int run = (part + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
  int begin = chosen_part * part + thread * run, end = (chosen_part + 1) * part;
  end = end < vocabulary ? end : vocabulary;
  end = begin + run < end ? begin + run : end;
  auto weight_at = [&](int index) {
    float distance = distance_of(row, row.logits[index]);
    return is_left(row, distance, index) ? weight_of(distance) : (u64)0;
  };
  sum = 0;
  for (int index = begin; index < end; index++) sum += weight_at(index);
  start += sum_before(sum, shared.warps, total);
  if (start <= drawn && drawn < start + sum) {
    for (int index = begin; index < end; index++) {
      start += weight_at(index);
      if (drawn < start) {
        chosen[at] = index;
        break;
      }
    }
  }
}
