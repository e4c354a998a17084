// An order on logits and scores that is the same for every kernel and for the CPU: larger first,
// ties to the lower index, NaN after everything. Also helpers of the kernels of trees and sampling.
#pragma once

/// Placeholders for the target's token after a row that has none: NOT_ASKED if it was not
/// requested; NOT_FINITE if the row's largest logit is not finite. The latter is a known choice,
/// which no draft equals.
#define NOT_ASKED -1
#define NOT_FINITE -2

/// Values as integers with the same order: −0 and +0 are equal, and NaN is 0, which no number maps
/// to.
__device__ __forceinline__ u32 ordered(float value) {
  if (value != value) return 0;
  u32 bits = float_bits(value + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/// The inverse of `ordered`; −∞ for NaN.
__device__ __forceinline__ float unordered(u32 key) {
  if (key == 0) return -infinity();
  return bits_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/// A value and its index as one integer. All are distinct, larger is better, and 0 means none.
__device__ __forceinline__ u64 composite(float value, u32 index) { return (u64)ordered(value) << 32 | (u64)~index; }
__device__ __forceinline__ u32 composite_index(u64 key) { return ~(u32)key; }
__device__ __forceinline__ float composite_value(u64 key) { return unordered((u32)(key >> 32)); }

/// Whether such an integer has a finite value; the infinities are 0x007fffff and 0xff800000.
__device__ __forceinline__ bool is_finite_key(u64 key) { return (u32)(key >> 32) - 0x00800000u < 0xff000000u; }

__device__ __forceinline__ u64 warp_best(u64 key) {
  return fold_warp(key, [](u64 own, u64 other) { return other > own ? other : own; });
}

/// Maximum number of groups of threads that find their best key together.
#define SELECT_GROUPS 128

/// Shared memory of `select_best`.
struct Selection {
  u64 group[SELECT_GROUPS];
  u64 bound;
  int candidates;
};

/// The sum over `lanes` neighbouring lanes of a warp, a power of two, in all of them.
__device__ __forceinline__ int sum_of(int value, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) value += shuffle_xor(value, mask);
  return value;
}

/// Writes the keys that fewer than `count` others surpass at their ranks. Called by a block after a
/// barrier. As many threads compare a key with the others as there are available for each.
__device__ __forceinline__ void rank_candidates(const u64* candidate, int candidates, u64* best, int count) {
  int threads = (int)blockDim.x, shift = 5;
  while (shift > 0 && candidates << shift > threads) shift--;
  int lanes = 1 << shift, place = (int)threadIdx.x & lanes - 1;
#pragma unroll 1
  for (int first = 0; first < candidates; first += threads >> shift) {
    int at = first + ((int)threadIdx.x >> shift), rank = 0;
    u64 own = at < candidates ? candidate[at] : 0;
#pragma unroll 2
    for (int i = place; i < candidates; i += lanes) rank += candidate[i] > own;
    rank = sum_of(rank, lanes);
    if (place == 0 && at < candidates && rank < count) best[rank] = own;
  }
}

/// Writes the `count` largest of a block's keys to `best`, largest first, padded with 0. Keys are
/// distinct except for
/// 0. `keys(bound, take)` calls `take` with all of a thread's keys that reach the bound, and runs
///    only in the few
/// threads that have one; `largest` is the thread's largest key. `group` threads find their best
/// key together: a power of two up to 32, with at least `count` and at most SELECT_GROUPS groups in
/// a block; `candidate` has room for all keys of `count` groups. It may be called again at once.
///
/// The count-th largest of the groups' maxima is a lower bound that few keys reach; these are
/// ranked by counting. So there is neither a sort nor a loop over `count`, and four barriers in
/// all.
template <class Keys>
__device__ __forceinline__ void select_best(Selection& selection, u64* candidate, u64* best, Keys keys, u64 largest, int count,
                                            int group) {
  int thread = (int)threadIdx.x, groups = (int)blockDim.x / group;
  u64 of_group = largest;
#pragma unroll 1
  for (int mask = 1; mask < group; mask *= 2) {
    u64 other = shuffle_xor(of_group, mask);
    of_group = other > of_group ? other : of_group;
  }
  bool first = (thread & group - 1) == 0;
  if (first) selection.group[thread / group] = of_group;
  if (thread < count) best[thread] = 0;
  if (thread == 0) {
    selection.bound = 0;
    selection.candidates = 0;
  }
  block_sync();
  // The threads of a group each compare it with a share of the others.
  int better = 0;
#pragma unroll 1
  for (int i = thread & group - 1; i < groups; i += group) better += selection.group[i] > of_group;
  better = sum_of(better, group);
  if (first && of_group > 0 && better == count - 1) selection.bound = of_group;
  block_sync();
  u64 bound = selection.bound;
  if (largest > 0 && largest >= bound) {
    keys(bound, [&](u64 own) {
      if (own > 0 && own >= bound) candidate[atomic_add(&selection.candidates, 1)] = own;
    });
  }
  block_sync();
  rank_candidates(candidate, selection.candidates, best, count);
  block_sync();
}

/// The cache row of a position of a slot; −1 after its pages. A sequence that has ended may run
/// past them for a round, until the host has seen its end: nothing is written, and what it reads no
/// longer matters. The host writes page tables between rounds, so they may be read before the
/// previous kernel has ended.
__device__ __forceinline__ int cache_row(const int* page_table, int table_width, int page_size, int slot, int position) {
  int page = position / page_size;
  if (page >= table_width) return -1;
  return load_fresh(page_table + (u64)slot * table_width + page) * page_size + (position - page * page_size);
}

/// SplitMix64's output function.
__device__ __forceinline__ u64 mix(u64 value) {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ value >> 27) * 0x94D049BB133111EBull;
  return value ^ value >> 31;
}
/// 53 random bits, a function of seed and position; the CPU's `uniform` is this over 2⁵³.
__device__ __forceinline__ u64 random_bits(u64 seed, int position) {
  return mix(mix(seed + 0x9E3779B97F4A7C15ull) ^ (u64)position * 0xD1B54A32D192ED03ull) >> 11;
}
