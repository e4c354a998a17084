// FP8 matrices in the order of the streaming kernels (weights.cuh): dequantised to T for other
// kernels, and random matrices.
#define W_FP8 1
#include "common.cuh"
#include "weights.cuh"

/// `out[r, i] = w[r, i] · scale`, rounded once: w `[rows, inputs]` in the order of the streaming
/// kernels, `inputs` a multiple of 16. Grid: any, 256 threads.
extern "C" __global__ void __launch_bounds__(256)
dequantise(T* out, const W* w, int rows, int inputs W_PARAMETERS) {
  wait_for_predecessor();
  int across = inputs / W_CHUNK;
  u64 all = (u64)rows * (u32)across;
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += (u64)gridDim.x * blockDim.x) {
    u64 row = at / (u32)across;
    int column = (int)(at - row * (u32)across) * W_CHUNK;
    uint4 raw = load_passing_16(w + at * W_CHUNK);
    float scale = w_scales[(row >> w_shift) * (u32)w_columns + (w_columns > 1 ? column / W_BLOCK : 0)];
    const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
    u32 low[4], high[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      // Inputs 2i and 2i + 1, and the two 8 after them.
      decode(low[i], high[i], words[i]);
      float2 one = unpack(low[i]), other = unpack(high[i]);
      low[i] = pack(one.x * scale, one.y * scale);
      high[i] = pack(other.x * scale, other.y * scale);
    }
    uint4* to = (uint4*)(out + at * W_CHUNK);
    to[0] = make_uint4(low[0], low[1], low[2], low[3]);
    to[1] = make_uint4(high[0], high[1], high[2], high[3]);
  }
}

/// Fills with uniformly random bytes without NaN, a function of seed and index. Grid: any.
extern "C" __global__ void __launch_bounds__(256) fill_random_fp8(W* out, u64 count, u64 seed) {
  wait_for_predecessor();
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
    u64 x = (i + seed * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    W number = (W)(x >> 40);
    out[i] = (number & 0x7f) == 0x7f ? (W)(number ^ 1) : number;
  }
}
