// The best of a row of logits: for one row as for many, spread over the device.
#include "common.cuh"
#include "order.cuh"

#define CHUNK 4096
#define ITEMS (CHUNK / SELECT_THREADS)

/// Logits of a chunk: item i of a thread is element i / 4 · 1024 + 4 · thread + i % 4, so that loads are 16 bytes wide
/// and adjacent. Elements behind the end of the row are NaN, which `index < vocabulary` tells from NaN in the row.
__device__ __forceinline__ int chunk_index(int chunk, int item) {
  return chunk * CHUNK + item / 4 * (4 * SELECT_THREADS) + 4 * (int)threadIdx.x + item % 4;
}
__device__ __forceinline__ void load_chunk(float (&values)[ITEMS], const float* row, int vocabulary, int chunk) {
  bool aligned = ((u64)row & 15) == 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i += 4) {
    int index = chunk_index(chunk, i);
    if (aligned && index + 4 <= vocabulary) {
      uint4 words = load_16(row + index);
      values[i] = bits_float(words.x);
      values[i + 1] = bits_float(words.y);
      values[i + 2] = bits_float(words.z);
      values[i + 3] = bits_float(words.w);
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++) values[i + j] = index + j < vocabulary ? row[index + j] : bits_float(0x7fc00000u);
    }
  }
}

/// The largest number of values that are at hand, and the sum of exponentials relative to it.
struct Mass {
  float largest, sum;
};

/// The mass of a block's values in a fixed order; NaN counts as −∞. All threads get it.
__device__ __forceinline__ Mass block_mass(const float (&values)[ITEMS], float* scratch) {
  float largest = -infinity();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) largest = values[i] > largest ? values[i] : largest;
  largest = block_max(largest, scratch);
  float sum = 0.0f;
  // Of an infinite largest value the logarithm is that value, whatever else there is.
  if (largest > -infinity() && largest < infinity()) {
#pragma unroll
    for (int i = 0; i < ITEMS; i++) sum += values[i] > -infinity() ? exp_accurate(values[i] - largest) : 0.0f;
  }
  return Mass{largest, block_sum(sum, scratch)};
}

__device__ __forceinline__ float log_sum_exp(Mass mass) {
  return mass.largest > -infinity() && mass.largest < infinity() ? mass.largest + log_accurate(mass.sum) : mass.largest;
}
/// The log-probability of a logit: −∞ for what is no number (NaN, and what infinite logits make).
__device__ __forceinline__ float log_probability(float logit, float shift) {
  float value = logit - shift;
  return value == value ? value : -infinity();
}

/// The common part of `top_k_rows` and `logprob_rows`: the best `count` of a row in `selection.best`, and the mass of
/// the row, in the last block of the row to arrive, which gets `true`.
__device__ __forceinline__ bool best_of_row(Selection& selection, Mass& mass, const float* row, int vocabulary, int count,
                                            u64* partial_best, float* partial_mass, int* counter) {
  __shared__ float scratch[33];
  int chunk = (int)blockIdx.x, chunks = (int)gridDim.x, thread = (int)threadIdx.x;
  u64 keys[ITEMS];
  {
    float values[ITEMS];
    load_chunk(values, row, vocabulary, chunk);
    mass = block_mass(values, scratch);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      int index = chunk_index(chunk, i);
      keys[i] = index < vocabulary ? composite(values[i], (u32)index) : 0;
    }
  }
  select_best(selection, keys, count);
  if (chunks == 1) return true;

  for (int i = thread; i < count; i += SELECT_THREADS) partial_best[chunk * count + i] = selection.best[i];
  if (thread == 0) {
    partial_mass[2 * chunk] = mass.largest;
    partial_mass[2 * chunk + 1] = mass.sum;
  }
  if (!last_to_arrive(counter, chunks)) return false;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    int at = i * SELECT_THREADS + thread;
    keys[i] = at < chunks * count ? partial_best[at] : 0;
  }
  select_best(selection, keys, count);
  // At most 64 chunks: two a lane, in every warp alike.
  float largest[2], sum[2], most = -infinity(), total = 0.0f;
  for (int i = 0; i < 2; i++) {
    int at = lane() + i * WARP;
    largest[i] = at < chunks ? partial_mass[2 * at] : -infinity();
    sum[i] = at < chunks ? partial_mass[2 * at + 1] : 0.0f;
    most = largest[i] > most ? largest[i] : most;
  }
  most = warp_max(most);
  if (most > -infinity() && most < infinity()) {
    for (int i = 0; i < 2; i++) total += sum[i] > 0.0f ? sum[i] * exp_accurate(largest[i] - most) : 0.0f;
  }
  mass = Mass{most, warp_sum(total)};
  return true;
}

/// The best of each row with their log-probabilities (log-softmax over the row), best first, ties to the lower index.
///
/// logits `[rows, row_stride]`, of which `vocabulary` ≤ 262144 count; ids and logprobs `[rows, count]`, count ≤ 64.
/// `token_map[index]` is the token of an index (null: the index itself). NaN counts as −∞, behind it in the order. Where
/// the row has fewer than `count` values, the rest is id 0 with −∞.
///
/// Grid (ceil(vocabulary / 4096), rows), 256 threads: one block a chunk, and the last block of a row merges the chunks,
/// so that one row of a large vocabulary is read by many multiprocessors. The chunks depend on the vocabulary alone:
/// a row's result does not depend on the other rows. Workspace: partial_best `[rows, chunks, count]`, partial_mass
/// `[rows, chunks, 2]`, counters `[rows]`, zero before and after; none of it is used with one chunk.
extern "C" __global__ void __launch_bounds__(256)
    top_k_rows(int* ids, float* logprobs, const float* logits, int row_stride, int vocabulary, int count,
               const int* token_map, u64* partial_best, float* partial_mass, int* counters) {
  wait_for_predecessor();
  __shared__ Selection selection;
  int row = (int)blockIdx.y, chunks = (int)gridDim.x;
  Mass mass;
  bool last = best_of_row(selection, mass, logits + (u64)row * row_stride, vocabulary, count,
                          partial_best + (u64)row * chunks * count, partial_mass + (u64)row * chunks * 2, counters + row);
  if (!last) return;
  float shift = log_sum_exp(mass);
  for (int i = (int)threadIdx.x; i < count; i += SELECT_THREADS) {
    u64 key = selection.best[i];
    int index = key > 0 ? (int)composite_index(key) : 0;
    ids[(u64)row * count + i] = key > 0 && token_map ? token_map[index] : index;
    logprobs[(u64)row * count + i] = key > 0 ? log_probability(composite_value(key), shift) : -infinity();
  }
}

/// The index of the largest logit of each row, ties to the lower index; NaN loses against everything.
///
/// logits `[rows, row_stride]`, of which `vocabulary` count; chosen `[rows]`. Grid (ceil(vocabulary / 4096), rows),
/// 256 threads, for the reason that `top_k_rows` gives; any vocabulary up to 2³¹. Workspace: partial_best
/// `[rows, chunks]`, counters `[rows]`, zero before and after; none of it is used with one chunk.
extern "C" __global__ void __launch_bounds__(256)
    argmax_rows(int* chosen, const float* logits, int row_stride, int vocabulary, u64* partial_best, int* counters) {
  wait_for_predecessor();
  __shared__ u64 warps[SELECT_THREADS / WARP];
  int row = (int)blockIdx.y, chunk = (int)blockIdx.x, chunks = (int)gridDim.x, thread = (int)threadIdx.x;
  float values[ITEMS];
  load_chunk(values, logits + (u64)row * row_stride, vocabulary, chunk);
  u64 best = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    int index = chunk_index(chunk, i);
    u64 key = index < vocabulary ? composite(values[i], (u32)index) : 0;
    best = key > best ? key : best;
  }
  best = warp_best(best);
  if (lane() == 0) warps[warp()] = best;
  block_sync();
  best = warp_best(warps[lane() % (SELECT_THREADS / WARP)]);
  if (chunks > 1) {
    u64* partial = partial_best + (u64)row * chunks;
    if (thread == 0) partial[chunk] = best;
    if (!last_to_arrive(counters + row, chunks)) return;
    best = 0;
    for (int i = lane(); i < chunks; i += WARP) best = partial[i] > best ? partial[i] : best;
    best = warp_best(best);
  }
  if (thread == 0) chosen[row] = best > 0 ? (int)composite_index(best) : 0;
}

/// For requests that ask: the log-probability of a token, and the best tokens with theirs, before temperature and
/// filters.
///
/// Row r is about token[r] behind logits row row_source[r] (null: r), for slot row_slot[r]; rows whose
/// logprob_count[slot] is negative are left alone. Writes logprobs `[rows]`, top_ids and top_logprobs `[rows, count]`,
/// 1 ≤ count ≤ 64, of which a request takes as many as it asked for. All else as `top_k_rows`.
extern "C" __global__ void __launch_bounds__(256)
    logprob_rows(float* logprobs, int* top_ids, float* top_logprobs, const int* token, const float* logits, int row_stride,
                 int vocabulary, int count, const int* row_slot, const int* logprob_count, const int* row_source,
                 u64* partial_best, float* partial_mass, int* counters) {
  wait_for_predecessor();
  __shared__ Selection selection;
  int row = (int)blockIdx.y, chunks = (int)gridDim.x, thread = (int)threadIdx.x;
  if (logprob_count[row_slot[row]] < 0) return;
  const float* own = logits + (u64)(row_source ? row_source[row] : row) * row_stride;
  Mass mass;
  bool last = best_of_row(selection, mass, own, vocabulary, count, partial_best + (u64)row * chunks * count,
                          partial_mass + (u64)row * chunks * 2, counters + row);
  if (!last) return;
  float shift = log_sum_exp(mass);
  for (int i = thread; i < count; i += SELECT_THREADS) {
    u64 key = selection.best[i];
    top_ids[(u64)row * count + i] = key > 0 ? (int)composite_index(key) : 0;
    top_logprobs[(u64)row * count + i] = key > 0 ? log_probability(composite_value(key), shift) : -infinity();
  }
  if (thread == 0) {
    int id = token[row];
    logprobs[row] = id >= 0 && id < vocabulary ? log_probability(own[id], shift) : -infinity();
  }
}
