// Gated delta nets: the convolution of rows before the recurrence (delta.cu) or the chunks
// (delta_chunks.cu), and the rows that it still needs of a sequence. T is the element type.
#include "common.cuh"
#include "delta.cuh"

#define CONVOLVE_THREADS 128
// Rows of a block at most, and rows whose loads are in flight together.
#define MOST_TILE 16
#define ABREAST 4

/// Rows of a group, and the history before them: row −1 is its newest.
struct Source {
  const T *rows, *history;
  u64 stride;
  int channels;

  __device__ __forceinline__ const T* at(int row) const {
    return row >= 0 ? rows + (u64)row * stride : history + (TAPS - 1 + row) * channels;
  }
};

/// SiLU of the sum over the taps, the oldest first, rounded as activations are.
__device__ __forceinline__ T convolve(const float weight[TAPS], const float read[TAPS]) {
  float sum = 0.0f;
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) sum = multiply_add(weight[tap], read[tap], sum);
  return from_float(sum / (1.0f + exp_accurate(-sum)));
}

/// A channel of rows each of which follows the one before it. `to` is that of the first one.
__device__ __forceinline__ void convolve_chain(T* to, const Source& source, int channel, int from, int end,
                                               const float weight[TAPS]) {
  const T* at = source.rows + (u64)from * source.stride + channel;
  float read[TAPS - 1 + ABREAST];
#pragma unroll
  for (int i = 0; i < TAPS - 1; i++) read[ABREAST + i] = to_float(source.at(from - (TAPS - 1) + i)[channel]);
#pragma unroll 1
  for (int row = from; row < end; row += ABREAST) {
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) read[i] = read[ABREAST + i];
#pragma unroll
    for (int i = 0; i < ABREAST; i++) {
      read[TAPS - 1 + i] = row + i < end ? to_float(*at) : 0.0f;
      at += source.stride;
    }
#pragma unroll
    for (int i = 0; i < ABREAST; i++) {
      if (row + i < end) *to = convolve(weight, read + i);
      to += source.channels;
    }
  }
}

/// A channel of nodes of a tree, which read what `find_ancestors` has found. `to` is that of the
/// first one.
__device__ __forceinline__ void convolve_tree(T* to, const T* const (*ancestors)[TAPS], int channels, int channel, int count,
                                              const float weight[TAPS]) {
#pragma unroll 1
  for (int row = 0; row < count; row += ABREAST) {
    float read[ABREAST][TAPS];
#pragma unroll
    for (int i = 0; i < ABREAST; i++) {
#pragma unroll
      for (int tap = 0; tap < TAPS; tap++) read[i][tap] = to_float(ancestors[min(row + i, count - 1)][tap][channel]);
    }
#pragma unroll
    for (int i = 0; i < ABREAST; i++) {
      if (row + i < count) *to = convolve(weight, read[i]);
      to += channels;
    }
  }
}

/// The rows that a node reads, the oldest first.
__device__ __forceinline__ void find_ancestors(const T* ancestors[TAPS], const Source& source, const int* parent, int node) {
  int back = 0;
#pragma unroll
  for (int tap = TAPS - 1; tap >= 0; tap--) {
    ancestors[tap] = source.at(node >= 0 ? node : --back);
    if (node >= 0) node = parent[node];
  }
}

/// The convolution of the rows of each group, `first[group]` to `first[group + 1]`, or without
/// `first`, `each` of them: convolved `[rows, channels]`. They continue the history of their slot:
/// each follows the one before it, or with `parent`, the node before it in its group, −1 if that is
/// the committed row. Groups whose slot is the dummy are left out.
///
/// mixed (queries, keys and values of rows, which are `mixed_stride` apart); convolution
/// `[layers, channels, TAPS]`, the oldest tap first; histories
/// `[places, layers, TAPS − 1, channels]`, the oldest first. Releases its successor after its wait.
/// Grid (channels / 128, the largest group's rows / tile, groups), 128 threads, each for `tile`
/// rows of a channel, at most MOST_TILE.
extern "C" __global__ void __launch_bounds__(CONVOLVE_THREADS)
delta_convolve(T* convolved, const T* mixed, u64 mixed_stride, const T* convolution, const T* histories, int layers,
               int layer, int channels, const int* row_slot, int dummy_slot, const int* first, int each,
               const int* parent, int tile) {
  __shared__ const T* ancestors[MOST_TILE][TAPS];
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x), group = (int)blockIdx.z, from = (int)blockIdx.y * tile;
  float weight[TAPS];
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) {
    weight[tap] = to_float(convolution[((u64)layer * channels + min(channel, channels - 1)) * TAPS + tap]);
  }
  await_predecessor();
  release_successor();
  int begin = first ? first[group] : group * each, rows = first ? first[group + 1] - begin : each;
  if (from >= rows) return;
  int place = row_slot[begin], end = min(from + tile, rows);
  if (place == dummy_slot) return;
  const T* history = histories + ((u64)place * layers + layer) * (TAPS - 1) * channels;
  const Source source{mixed + (u64)begin * mixed_stride, history, mixed_stride, channels};
  T* to = convolved + (u64)(begin + from) * channels + channel;
  if (parent) {
    int own = (int)threadIdx.x;
    if (own < end - from) find_ancestors(ancestors[own], source, parent + begin, from + own);
    block_sync();
    if (channel < channels) convolve_tree(to, ancestors, channels, channel, end - from, weight);
  } else if (channel < channels) {
    convolve_chain(to, source, channel, from, end, weight);
  }
}

/// The last rows before the convolution after rows of `mixed` (rows `mixed_stride` apart, layers
/// `mixed_layer`), in `some` of all `layers` from `layer` on: histories as above. The rows of group
/// g are those of a path, as in `delta_commit`, or without a path those of the group, as in
/// `delta_chains`. `slot` is that of a group, or without a path that of a row. Follows all kernels
/// that read the histories. Grid (channels / 128, groups, some), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
delta_history(T* histories, const T* mixed, u64 mixed_stride, u64 mixed_layer, int layers, int layer, int channels,
              const int* slot, int dummy_slot, const int* first, int each, const int* path, int most, const int* counts) {
  wait_for_predecessor();
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x), group = (int)blockIdx.y, of_layer = (int)blockIdx.z;
  if (channel >= channels) return;
  int begin = first ? first[group] : group * each, count = counts ? counts[group] : first ? first[group + 1] - begin : each;
  if (count <= 0) return;
  int place = slot[path ? group : begin];
  if (place == dummy_slot) return;
  T* history = histories + ((u64)place * layers + layer + of_layer) * (TAPS - 1) * channels + channel;
  T row[TAPS - 1];
#pragma unroll
  for (int i = 0; i < TAPS - 1; i++) {
    int at = count - (TAPS - 1) + i;
    int from = at < 0 ? 0 : begin + (path ? path[(u64)group * most + at] : at);
    row[i] = at < 0 ? history[(TAPS - 1 + at) * channels] : mixed[of_layer * mixed_layer + from * mixed_stride + channel];
  }
#pragma unroll
  for (int i = 0; i < TAPS - 1; i++) history[i * channels] = row[i];
}
