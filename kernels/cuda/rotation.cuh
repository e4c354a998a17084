// Rotation of the heads of a qkv layer: for rotate_and_write, and for the attention kernels that
// rotate themselves.
#pragma once

/// Two consecutive elements as floats; the index of the first is even.
__device__ __forceinline__ float2 read_pair(const T* at) {
#ifdef T_PAIRS
  return unpack(*(const u32*)at);
#else
  return *(const float2*)at;
#endif
}
__device__ __forceinline__ void write_pair(T* at, float2 values) {
#ifdef T_PAIRS
  *(u32*)at = pack(values.x, values.y);
#else
  *(float2*)at = values;
#endif
}
/// The same in the cache: a key or a value, with its scale.
#ifdef KV_FP8
__device__ __forceinline__ void write_cached(C* at, float2 values, float scale) {
  *(u16*)at = e4m3_pair(values.x / scale, values.y / scale);
}
#else
__device__ __forceinline__ void write_cached(C* at, float2 values, float) { write_pair(at, values); }
#endif
__device__ __forceinline__ float2 rounded(float2 x) {
  return make_float2(to_float(from_float(x.x)), to_float(from_float(x.y)));
}

/// Sums, rounded to T, of pairs of elements that a linear layer has left in parts: one pair at each
/// of PLACES addresses in the first part; the next parts follow `part` elements apart. The loads of
/// TOGETHER parts at all addresses are in flight together.
template <int PLACES, int TOGETHER>
__device__ __forceinline__ void read_pairs_of_parts(float2 (&sum)[PLACES], const float* const (&at)[PLACES], int count,
                                                    u64 part) {
#pragma unroll
  for (int k = 0; k < PLACES; k++) sum[k] = make_float2(0.0f, 0.0f);
#pragma unroll 1
  for (int first = 0; first < count; first += TOGETHER) {
    float2 two[TOGETHER][PLACES];
#pragma unroll
    for (int p = 0; p < TOGETHER; p++) {
#pragma unroll
      for (int k = 0; k < PLACES; k++) {
        two[p][k] = load_if(first + p < count, (const float2*)(at[k] + (first + p) * part));
      }
    }
#pragma unroll
    for (int p = 0; p < TOGETHER; p++) {
#pragma unroll
      for (int k = 0; k < PLACES; k++) {
        sum[k].x += two[p][k].x;
        sum[k].y += two[p][k].y;
      }
    }
  }
#pragma unroll
  for (int k = 0; k < PLACES; k++) sum[k] = rounded(sum[k]);
}

/// Two consecutive elements of a head, normed: `scale` is that of the head.
__device__ __forceinline__ float2 normed(float2 x, float scale, float2 weight) {
  return rounded(make_float2(x.x * scale * weight.x, x.y * scale * weight.y));
}
/// Rotates two consecutive elements with the two half a head later. `turns` are cosine and sine of
/// the first, then of the second.
__device__ __forceinline__ void turn(float2& low, float2& high, float4 turns) {
  float2 turned = make_float2(low.x * turns.x - high.x * turns.y, low.y * turns.z - high.y * turns.w);
  high = make_float2(high.x * turns.x + low.x * turns.y, high.y * turns.z + low.y * turns.w);
  low = turned;
}
