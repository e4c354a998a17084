// Preparation for attention over expanded keys and values (latent_prompt.cu): a linear layer
// expands contiguous latent vectors by weights that are transposed back from the layout of absorbed
// attention; queries are rotated in place.
//
// Not for float.
#include "common.cuh"

#ifdef T_PAIRS
#include "turned.cuh"

#define TILE 32

/// Transposes `[heads, rank, nope]` of `from` to `[heads, nope, rank]` of `to`; both sizes are
/// multiples of 32. Grid (rank / 32, nope / 32, heads), 256 threads.
extern "C" __global__ void __launch_bounds__(256) latent_turn_weights(T* to, const T* from, int rank, int nope) {
  __shared__ T tile[TILE][TILE + 2];
  wait_for_predecessor();
  int column = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE, r = (int)blockIdx.x * TILE, n = (int)blockIdx.y * TILE;
  u64 head = (u64)blockIdx.z * rank * nope;
#pragma unroll
  for (int i = first; i < TILE; i += 256 / TILE) tile[i][column] = from[head + (u64)(r + i) * nope + n + column];
  block_sync();
#pragma unroll
  for (int i = first; i < TILE; i += 256 / TILE) to[head + (u64)(n + i) * rank + r + column] = tile[column][i];
}

/// Gathers the first `count` positions of a slot: latent vectors to `latents` `[padded, rank]`,
/// keys to `turned` `[padded, rotated]`; zeros from `count` on. `cache` has rows of rank + rotated
/// values, both multiples of 8; `pages` is the slot's page list. Grid: padded · (rank + rotated) /
/// 8 / 256; 256 threads.
///
/// Releases its successor only after its own wait, so that the linear layers that follow may read
/// the transposed weights before their wait.
extern "C" __global__ void __launch_bounds__(256)
latent_gather(T* latents, T* turned, const T* cache, const int* pages, int page_size, int count, int padded, int rank, int rotated) {
  await_predecessor();
  release_successor();
  int chunks = (rank + rotated) / 8, i = (int)(blockIdx.x * blockDim.x + threadIdx.x), position = i / chunks, at = i % chunks * 8;
  if (position >= padded) return;
  uint4 values = make_uint4(0, 0, 0, 0);
  if (position < count) {
    u64 row = (u64)(u32)pages[position / page_size] * (u32)page_size + position % page_size;
    values = load_16(cache + row * (rank + rotated) + at);
  }
  T* to = at < rank ? latents + (u64)position * rank + at : turned + (u64)position * rotated + (at - rank);
  *(uint4*)to = values;
}

/// Rotates the rotary part of each head of rows `x` `[rows, heads, nope + rotated]` in place. Grid:
/// rows; 256 threads.
extern "C" __global__ void __launch_bounds__(256)
latent_turn_queries(T* x, const float2* table, int positions, const int* position, int heads, int nope, int rotated, int interleaved) {
  wait_for_predecessor();
  Turns turns = {table, positions, position, rotated, interleaved};
  T* row = x + (u64)blockIdx.x * heads * (nope + rotated);
  for (int i = (int)threadIdx.x; i < heads * (rotated / 2); i += (int)blockDim.x) {
    T* head = row + i / (rotated / 2) * (nope + rotated) + nope;
    turn_pair(head, head, i % (rotated / 2), (int)blockIdx.x, turns);
  }
}

#endif
