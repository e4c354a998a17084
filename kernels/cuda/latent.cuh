// Shared by the kernels of latent attention: sizes, the splits of a row's keys, and their cache
// rows.
#pragma once

#define WIDTH (RANK + ROTATED)
/// Floats of a split's record: RANK sums, their largest score, their weight, and padding to 16
/// bytes.
#define RECORD (RANK + 4)
/// Keys of a split are a multiple of this, whatever the kernel's tile.
#define UNIT 64
/// Minimum number of keys of a split that is not the last one.
#define FEWEST_KEYS 128

/// The splits of a row: a function of the number of keys that it sees and of `max_splits` alone.
struct Splits {
  int chunk, count;
};
__device__ __forceinline__ Splits splits_of(int total, int max_splits) {
  int chunk = (total + max_splits - 1) / max_splits;
  chunk = chunk <= FEWEST_KEYS ? FEWEST_KEYS : (chunk + UNIT - 1) / UNIT * UNIT;
  return Splits{chunk, max((total + chunk - 1) / chunk, 1)};
}

/// What a block sees of a row's keys.
struct Seen {
  const int *table, *own;
  int prefix, begin, end, page_size;
  /// The word that gives the cache row of a key. It is not touched before use, because the warp
  /// would wait for it.
  __device__ __forceinline__ int look_up(int key) const {
    key = min(key, end - 1);
    return load_fresh(key < prefix ? table + key / page_size : own + (key - prefix));
  }
  __device__ __forceinline__ int cache_row(int key, int found) const {
    key = min(key, end - 1);
    return key < prefix ? found * page_size + key % page_size : found;
  }
};

#define PARAMETERS                                                                                                      \
  T *out, const T *query, const T *latents, const int *page_table, int table_width, int page_size, const int *row_slot, \
      const int *row_prefix, const int *row_own_count, const int *row_own, int own_stride, int heads, float scale,      \
      float *partial, int max_splits
#define ARGUMENTS                                                                                                       \
  out, query, latents, page_table, table_width, page_size, row_slot, row_prefix, row_own_count, row_own, own_stride,    \
      heads, scale, partial, max_splits
