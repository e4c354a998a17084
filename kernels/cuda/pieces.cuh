// A piece of 16 keys and their values, as a warp of few.cuh loads and multiplies it: in its memory layout, in whole
// 16-byte accesses. A product sums over all dims of a head and over all keys of a piece, in any order that both factors
// share; so a lane takes consecutive dims where the instruction's fragment layout has scattered ones.
#pragma once

/// Keys of a piece.
#define KEYS 16
/// Four lanes read 32 dims of a key in one access.
#define KEY_PARTS (HEAD_DIM / 32)
/// Dims of a value per access, and accesses of a lane for its HEAD_DIM / 8 dims.
#define VALUE_PART (HEAD_DIM % 64 == 0 ? 8 : 4)
#define VALUE_PARTS (HEAD_DIM / 8 / VALUE_PART)
/// Tiles of 16 dims.
#define TILES (HEAD_DIM / 16)

struct Keys {
  /// For keys lane / 4 and lane / 4 + 8: dims 32 j + 8 (lane % 4) to + 7.
  uint4 part[2][KEY_PARTS];
};
struct Values {
  /// For keys 2 (lane % 4), the next, and these + 8: VALUE_PART dims from VALUE_PART (8 j + lane / 4) on, two per word.
  u32 word[4][HEAD_DIM / 16];
};

/// Addresses of the head of a key and of its value, in the cache or in shared memory. Lane i holds those of key i % 16
/// of a piece.
struct Begin {
  const T *key, *value;
};
__device__ __forceinline__ const T* shuffle(const T* at, int lane) { return (const T*)shuffle((u64)at, lane); }

/// Where keys and values are loaded from: the cache, with L2 policy "evict normal" or "evict first", or either the
/// cache or shared memory.
enum Source { STAYING, PASSING, ANYWHERE };
template <Source SOURCE>
__device__ __forceinline__ uint2 load_8_of(const T* at) {
  return SOURCE == ANYWHERE ? load_fresh_any_8(at) : SOURCE == PASSING ? load_passing_8(at) : load_fresh_8(at);
}
template <Source SOURCE>
__device__ __forceinline__ uint4 load_16_of(const T* at) {
  return SOURCE == ANYWHERE ? load_fresh_any_16(at) : SOURCE == PASSING ? load_passing_16(at) : load_fresh_16(at);
}

template <Source SOURCE>
__device__ __forceinline__ void load_keys(Keys& to, const Begin& begin) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const T* from = shuffle(begin.key, lane() / 4 + 8 * half) + lane() % 4 * 8;
#pragma unroll
    for (int j = 0; j < KEY_PARTS; j++) to.part[half][j] = load_16_of<SOURCE>(from + j * 32);
  }
}
template <Source SOURCE>
__device__ __forceinline__ void load_values(Values& to, const Begin& begin) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const T* from = shuffle(begin.value, lane() % 4 * 2 + i % 2 + i / 2 * 8) + lane() / 4 * VALUE_PART;
#pragma unroll
    for (int j = 0; j < VALUE_PARTS; j++) {
      if (VALUE_PART == 8) {
        uint4 part = load_16_of<SOURCE>(from + j * 64);
        to.word[i][4 * j] = part.x;
        to.word[i][4 * j + 1] = part.y;
        to.word[i][4 * j + 2] = part.z;
        to.word[i][4 * j + 3] = part.w;
      } else {
        uint2 part = load_8_of<SOURCE>(from + j * 32);
        to.word[i][2 * j] = part.x;
        to.word[i][2 * j + 1] = part.y;
      }
    }
  }
}
/// The elements of a lane's dim i of two keys.
__device__ __forceinline__ u32 of_dim(const u32* one, const u32* other, int i) {
  return i % 2 == 0 ? (one[i / 2] & 0xffff) | other[i / 2] << 16 : one[i / 2] >> 16 | (other[i / 2] & 0xffff0000u);
}
