// Elements of rows in 16-byte accesses, rows that a linear layer has left in parts, and magnitudes.
#pragma once

// Elements per 16-byte access.
#define VECTOR (16 / (int)sizeof(T))

/// 16 bytes of T as floats. Separate from the load where something else is loaded too: the compiler
/// waits for a load at a branch if it unpacks it before that.
__device__ __forceinline__ void unpack_vector(uint4 raw, float values[VECTOR]) {
  const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#ifdef T_PAIRS
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float2 pair = unpack(words[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
#else
#pragma unroll
  for (int i = 0; i < 4; i++) values[i] = bits_float(words[i]);
#endif
}
__device__ __forceinline__ void read_vector(const T* at, float values[VECTOR]) { unpack_vector(load_16(at), values); }

/// Writes floats as 16 bytes of T.
__device__ __forceinline__ void write_vector(T* at, const float values[VECTOR]) {
  u32 words[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
#ifdef T_PAIRS
    words[i] = pack(values[2 * i], values[2 * i + 1]);
#else
    words[i] = float_bits(values[i]);
#endif
  }
  *(uint4*)at = make_uint4(words[0], words[1], words[2], words[3]);
}

/// A magnitude as bits, which are ordered as magnitudes are: NaN is larger than all others.
__device__ __forceinline__ u32 magnitude(float x) { return float_bits(x) & 0x7fffffffu; }

/// The largest of all lanes of each group of COUNT.
template <int COUNT>
__device__ __forceinline__ u32 largest_of_lanes(u32 most) {
#pragma unroll
  for (int mask = COUNT / 2; mask > 0; mask /= 2) most = max(most, shuffle_xor(most, mask));
  return most;
}

/// Four consecutive elements at an index that is a multiple of 4, in one access; and as floats.
#ifdef T_PAIRS
typedef uint2 Four;
#else
typedef float4 Four;
#endif
__device__ __forceinline__ float4 unpack_four(Four raw) {
#ifdef T_PAIRS
  float2 low = unpack(raw.x), high = unpack(raw.y);
  return make_float4(low.x, low.y, high.x, high.y);
#else
  return raw;
#endif
}
__device__ __forceinline__ float4 read_four(const T* at) { return unpack_four(*(const Four*)at); }
__device__ __forceinline__ void write_four(T* at, float4 values) {
#ifdef T_PAIRS
  *(uint2*)at = make_uint2(pack(values.x, values.y), pack(values.z, values.w));
#else
  *(float4*)at = values;
#endif
}
__device__ __forceinline__ float4 rounded(float4 x) {
  return make_float4(to_float(from_float(x.x)), to_float(from_float(x.y)), to_float(from_float(x.z)),
                     to_float(from_float(x.w)));
}
__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/// The sum of four consecutive elements of a row that is in at most MOST parts, float
/// `[count, rows, width]`. `at` points to them in the first part; `part` is the number of elements
/// of a part.
template <int MOST>
__device__ __forceinline__ float4 sum_parts(const float* at, int count, u64 part) {
  // All loads are in flight before the first is added.
  float4 four[MOST], sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int p = 0; p < MOST; p++) four[p] = load_if(p < count, (const float4*)(at + p * part));
#pragma unroll
  for (int p = 0; p < MOST; p++) {
    // Adding the zeros after the last would be equally correct, but GCC 12 vectorizes that to a
    // wrong sum in the emulator.
    if (p < count) sum = sum + four[p];
  }
  return sum;
}

/// A vector of a row that is in at most MOST parts, rounded to T.
template <int MOST>
__device__ __forceinline__ void read_parts(const float* at, int count, u64 part, float values[VECTOR]) {
#pragma unroll
  for (int k = 0; k < VECTOR; k += 4) {
    float4 sum = sum_parts<MOST>(at + k, count, part);
    values[k] = to_float(from_float(sum.x));
    values[k + 1] = to_float(from_float(sum.y));
    values[k + 2] = to_float(from_float(sum.z));
    values[k + 3] = to_float(from_float(sum.w));
  }
}

/// Four consecutive elements of a residual stream, to which parts, a row, or nothing (`part_count`
/// 0 and `add` null) is added. All loads are in flight together. The sum also goes to `keep` unless
/// that is null. `part` as in `sum_parts`; pointers that may be null come with a separate offset.
__device__ __forceinline__ float4 take_up(T* stream, const T* add, u64 add_at, const float* parts, int part_count, u64 part,
                                          T* keep, u64 keep_at) {
  Four raw = *(const Four*)stream;
  float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (part_count)
    y = rounded(sum_parts<MOST_ADDENDS>(parts, part_count, part));
  else if (add)
    y = read_four(add + add_at);
  float4 x = unpack_four(raw);
  if (part_count || add) {
    x = rounded(x + y);
    write_four(stream, x);
  }
  if (keep) write_four(keep + keep_at, x);
  return x;
}
