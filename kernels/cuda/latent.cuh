// What the kernels of latent attention share: how the keys of a row are split.
#pragma once

/// Keys of a split are a multiple of so many, whatever tile a kernel takes.
#define UNIT 64
/// Keys of a split that is not the last one, at least.
#define FEWEST_KEYS 128

/// The splits of a row: a function of how many keys it sees and of the splits that there may be, of nothing else.
struct Splits {
  int chunk, count;
};
__device__ __forceinline__ Splits splits_of(int total, int max_splits) {
  int chunk = (total + max_splits - 1) / max_splits;
  chunk = chunk <= FEWEST_KEYS ? FEWEST_KEYS : (chunk + UNIT - 1) / UNIT * UNIT;
  return Splits{chunk, max((total + chunk - 1) / chunk, 1)};
}
