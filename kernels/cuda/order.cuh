// An order on logits and scores that is the same for every kernel and for the CPU: larger first, ties to the lower
// index, NaN behind everything; and what the kernels around trees and sampling share.
#pragma once

/// Values as integers that compare alike: −0 and +0 are one value, NaN is 0, which no number is.
__device__ __forceinline__ u32 ordered(float value) {
  if (value != value) return 0;
  u32 bits = float_bits(value + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/// The number of such an integer; −∞ for NaN's.
__device__ __forceinline__ float unordered(u32 key) {
  if (key == 0) return -infinity();
  return bits_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/// A value and its index as one integer. All are different, larger is better, and 0 is none at all.
__device__ __forceinline__ u64 composite(float value, u32 index) { return (u64)ordered(value) << 32 | (u64)~index; }
__device__ __forceinline__ u32 composite_index(u64 key) { return ~(u32)key; }
__device__ __forceinline__ float composite_value(u64 key) { return unordered((u32)(key >> 32)); }

__device__ __forceinline__ u64 warp_best(u64 key) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) {
    u64 other = shuffle_xor(key, mask);
    key = other > key ? other : key;
  }
  return key;
}

#define SELECT_THREADS 256
/// Most values that are selected at once.
#define SELECT_MOST 64

/// Shared memory of `select_best`.
struct Selection {
  u64 group[SELECT_THREADS / 2];
  u64 candidate[SELECT_MOST * WARP];
  u64 best[SELECT_MOST];
  u64 bound;
  int candidates;
};

/// Puts the `count` largest of a block's keys into `selection.best`, largest first, 0 where there are fewer. Keys are
/// all different but for 0. A block of SELECT_THREADS calls it; ITEMS is at most 16 keys a thread, `count` SELECT_MOST.
///
/// The count-th largest of the maxima of pairs of threads is a lower bound that at most count·32 keys reach; these few
/// are ranked by counting. So there is neither a sort nor a loop over `count`, and four barriers in all.
template <int ITEMS>
__device__ __forceinline__ void select_best(Selection& selection, const u64 (&keys)[ITEMS], int count) {
  int thread = (int)threadIdx.x;
  u64 best = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) best = keys[i] > best ? keys[i] : best;
  u64 other = shuffle_xor(best, 1);
  best = other > best ? other : best;
  if (thread % 2 == 0) selection.group[thread / 2] = best;
  if (thread < SELECT_MOST) selection.best[thread] = 0;
  if (thread == 0) {
    selection.bound = 0;
    selection.candidates = 0;
  }
  block_sync();
  // The two threads of a pair compare it with one half of the others each.
  int better = 0;
#pragma unroll 8
  for (int i = thread % 2; i < SELECT_THREADS / 2; i += 2) better += selection.group[i] > best;
  better += shuffle_xor(better, 1);
  if (thread % 2 == 0 && best > 0 && better == count - 1) selection.bound = best;
  block_sync();
  u64 bound = selection.bound;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (keys[i] > 0 && keys[i] >= bound) selection.candidate[atomic_add(&selection.candidates, 1)] = keys[i];
  }
  block_sync();
  int candidates = selection.candidates;
  for (int at = thread; at < candidates; at += SELECT_THREADS) {
    u64 own = selection.candidate[at];
    int rank = 0;
    for (int i = 0; i < candidates; i++) rank += selection.candidate[i] > own;
    if (rank < count) selection.best[rank] = own;
  }
  block_sync();
}

/// Whether this block is the last of `blocks` to arrive at a counter, which then stands at zero again; what the others
/// wrote before is visible. All threads call it with the same arguments.
__device__ __forceinline__ bool last_to_arrive(int* counter, int blocks) {
  __shared__ int arrived;
  block_sync();
  if (threadIdx.x == 0) {
    arrived = atomic_add_ordered(counter, 1);
    if (arrived == blocks - 1) *counter = 0;
  }
  block_sync();
  return arrived == blocks - 1;
}

/// The cache row of a position of a slot; −1 behind its pages. A sequence that has ended may run there for a round,
/// until the host has seen its end: nothing is written, and what it reads no longer matters.
__device__ __forceinline__ int cache_row(const int* page_table, int table_width, int page_size, int slot, int position) {
  if (position / page_size >= table_width) return -1;
  return page_table[(u64)slot * table_width + position / page_size] * page_size + position % page_size;
}

/// SplitMix64's output function.
__device__ __forceinline__ u64 mix(u64 value) {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ value >> 27) * 0x94D049BB133111EBull;
  return value ^ value >> 31;
}
/// 53 random bits, a function of seed and position: `uniform` of the CPU is this over 2⁵³.
__device__ __forceinline__ u64 random_bits(u64 seed, int position) {
  return mix(mix(seed + 0x9E3779B97F4A7C15ull) ^ (u64)position * 0xD1B54A32D192ED03ull) >> 11;
}
