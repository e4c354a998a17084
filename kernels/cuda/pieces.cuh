// A piece of 16 keys and their values, as a warp of few.cuh loads and multiplies it: as it lies in memory, in whole 16-byte accesses.
// A product sums over all dims of a head and over all keys of a piece, in any order as long as both factors have the same; so a lane
// takes neighbouring dims where the instruction speaks of scattered ones.
#pragma once

/// Keys of a piece.
#define KEYS 16
/// 32 dims of a key are one access of four lanes.
#define KEY_PARTS (HEAD_DIM / 32)
/// Dims of a value that one access takes, and how many accesses a lane makes for its HEAD_DIM / 8.
#define VALUE_PART (HEAD_DIM % 64 == 0 ? 8 : 4)
#define VALUE_PARTS (HEAD_DIM / 8 / VALUE_PART)
/// Tiles of 16 dims.
#define TILES (HEAD_DIM / 16)

struct Keys {
  /// Of keys lane / 4 and lane / 4 + 8: dims 32 j + 8 (lane % 4) and the 7 after.
  uint4 part[2][KEY_PARTS];
};
struct Values {
  /// Of keys 2 (lane % 4), the next, and these + 8: dims VALUE_PART (8 j + lane / 4) and those after, two a word.
  u32 word[4][HEAD_DIM / 16];
};

/// Where the head of a key and that of its value begin, in the cache or in shared memory. Of a piece, lane i knows it of key i % 16.
struct Begin {
  const T *key, *value;
};
__device__ __forceinline__ const T* shuffle(const T* at, int lane) { return (const T*)shuffle((u64)at, lane); }

/// Whence keys and values are loaded: from the cache, there to stay in second-level cache or to pass through it, or from the cache
/// and from shared memory.
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
/// The elements of dim i of a lane of two keys.
__device__ __forceinline__ u32 of_dim(const u32* one, const u32* other, int i) {
  return i % 2 == 0 ? (one[i / 2] & 0xffff) | other[i / 2] << 16 : one[i / 2] >> 16 | (other[i / 2] & 0xffff0000u);
}
