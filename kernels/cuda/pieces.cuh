// A piece of 16 keys and their values, as a warp of few.cuh loads and multiplies it: in its memory
// layout, in whole 16-byte accesses. A product sums over all dims of a head and over all keys of a
// piece, in any order that both factors share; so a lane takes consecutive dims where the
// instruction's fragment layout has scattered ones.
#pragma once

/// Keys of a piece.
#define KEYS 16
/// Parts of a key that are multiplied together: eight dims per lane.
#define KEY_PARTS (HEAD_DIM / 32)
/// Dims of a key that a lane reads in one access.
#define KEY_LANE (HEAD_DIM % 64 == 0 && sizeof(C) == 1 ? 16 : 8)
/// Dims of a value per access, and accesses of a lane for its HEAD_DIM / 8 dims.
#define VALUE_PART (HEAD_DIM % 128 == 0 && sizeof(C) == 1 ? 16 : HEAD_DIM % 64 == 0 ? 8 : 4)
#define VALUE_PARTS (HEAD_DIM / 8 / VALUE_PART)
/// Elements of the cache in a 4-byte word.
#define WORD (4 / (int)sizeof(C))
/// Tiles of 16 dims.
#define TILES (HEAD_DIM / 16)

struct Keys {
  /// For keys lane / 4 and lane / 4 + 8: KEY_LANE dims from KEY_LANE (4 j + lane % 4) on, WORD per
  /// word.
  u32 word[2][HEAD_DIM / 4 / WORD];
};
struct Values {
  /// For keys 2 (lane % 4), the next, and these + 8: VALUE_PART dims from VALUE_PART (8 j + lane
  /// / 4) on, WORD per word.
  u32 word[4][HEAD_DIM / 8 / WORD];
};

/// Where the dims of part j of a key begin, from KEY_LANE (lane % 4) on.
__device__ __forceinline__ constexpr int part_begin(int j) { return KEY_LANE == 8 ? j * 32 : j / 2 * 64 + j % 2 * 8; }
/// Part j of a key as pairs of T.
__device__ __forceinline__ uint4 part_of(const u32* word, int j) {
#ifdef KV_FP8
  uint2 one = in_pairs(word[2 * j]), other = in_pairs(word[2 * j + 1]);
  return make_uint4(one.x, one.y, other.x, other.y);
#else
  return make_uint4(word[4 * j], word[4 * j + 1], word[4 * j + 2], word[4 * j + 3]);
#endif
}

/// Addresses of the head of a key and of its value, in the cache or in shared memory. Lane i holds
/// those of key i % 16 of a piece.
struct Begin {
  const C *key, *value;
};
__device__ __forceinline__ const C* shuffle(const C* at, int lane) { return (const C*)shuffle((u64)at, lane); }

/// Where keys and values are loaded from: the cache, with L2 policy "evict normal" or "evict
/// first", or either the cache or shared memory.
enum Source { STAYING, PASSING, ANYWHERE };
template <Source SOURCE>
__device__ __forceinline__ u32 load_4_of(const C* at) {
  return SOURCE == ANYWHERE ? load_fresh_any_4(at) : SOURCE == PASSING ? load_passing_4(at) : (u32)load_fresh((const int*)at);
}
template <Source SOURCE>
__device__ __forceinline__ uint2 load_8_of(const C* at) {
  return SOURCE == ANYWHERE ? load_fresh_any_8(at) : SOURCE == PASSING ? load_passing_8(at) : load_fresh_8(at);
}
template <Source SOURCE>
__device__ __forceinline__ uint4 load_16_of(const C* at) {
  return SOURCE == ANYWHERE ? load_fresh_any_16(at) : SOURCE == PASSING ? load_passing_16(at) : load_fresh_16(at);
}

/// Loads DIMS elements: one access.
template <Source SOURCE, int DIMS>
__device__ __forceinline__ void load_words(u32* to, const C* from) {
  if constexpr (DIMS == 4 * WORD) {
    uint4 part = load_16_of<SOURCE>(from);
    to[0] = part.x, to[1] = part.y, to[2] = part.z, to[3] = part.w;
  } else if constexpr (DIMS == 2 * WORD) {
    uint2 part = load_8_of<SOURCE>(from);
    to[0] = part.x, to[1] = part.y;
  } else {
    to[0] = load_4_of<SOURCE>(from);
  }
}
template <Source SOURCE>
__device__ __forceinline__ void load_keys(Keys& to, const Begin& begin) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const C* from = shuffle(begin.key, lane() / 4 + 8 * half) + lane() % 4 * KEY_LANE;
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 4 / KEY_LANE; j++) {
      load_words<SOURCE, KEY_LANE>(to.word[half] + j * (KEY_LANE / WORD), from + j * 4 * KEY_LANE);
    }
  }
}
template <Source SOURCE>
__device__ __forceinline__ void load_values(Values& to, const Begin& begin) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const C* from = shuffle(begin.value, lane() % 4 * 2 + i % 2 + i / 2 * 8) + lane() / 4 * VALUE_PART;
#pragma unroll
    for (int j = 0; j < VALUE_PARTS; j++) {
      load_words<SOURCE, VALUE_PART>(to.word[i] + j * (VALUE_PART / WORD), from + j * 8 * VALUE_PART);
    }
  }
}
/// The elements of a lane's dim i of two keys, as T.
__device__ __forceinline__ u32 of_dim(const u32* one, const u32* other, int i) {
#ifdef KV_FP8
  return odd_bytes(bytes_of(one[i / 4], other[i / 4], 0x4400 + i % 4 * 0x1111));
#else
  return i % 2 == 0 ? (one[i / 2] & 0xffff) | other[i / 2] << 16 : one[i / 2] >> 16 | (other[i / 2] & 0xffff0000u);
#endif
}
