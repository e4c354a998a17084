// Rows of a block head in the element type: the keys and values that it keeps of the target's
// features, and the latent vectors of its Markov head.
#include "common.cuh"
#include "cache.cuh"
#include "rotation.cuh"

/// Writes the keys and values of all layers to their caches.
///
/// kv `[rows, layers, 2, kv_heads · head_dim]`: keys, then values. Keys are normed (key_norms
/// `[layers, head_dim]`, or null) and rotated as in rotate_and_write. Layer l's keys are at cache
/// `l · layer_stride`, its values `plane_stride` later; a row goes to cache row `write[row]` (below
/// 0: not written). Grid: (ceil(layers · 2 · kv_heads / 4), rows), 128 threads, one head per warp;
/// head_dim is a multiple of 4.
extern "C" __global__ void __launch_bounds__(128)
    write_context(const T* kv, const float2* table, int positions, const int* position, const int* write, T* cache,
                  u64 layer_stride, u64 plane_stride, const T* key_norms, float epsilon, int layers, int kv_heads,
                  int head_dim) {
  wait_for_predecessor();
  int at = (int)blockIdx.x * 4 + warp(), row = (int)blockIdx.y, half = head_dim / 2, to = write[row];
  if (at >= layers * 2 * kv_heads || to < 0) return;
  int layer = at / (2 * kv_heads), plane = at / kv_heads % 2, head = at % kv_heads;
  const T* from = kv + ((u64)row * layers * 2 * kv_heads + at) * head_dim;
  T* out = cache + layer * layer_stride + plane * plane_stride + ((u64)to * kv_heads + head) * head_dim;
  const T* norm = key_norms && plane == 0 ? key_norms + layer * head_dim : nullptr;
  float scale = 0.0f;
  for (int i = lane() * 2; norm && i < head_dim; i += WARP * 2) {
    float2 x = read_pair(from + i);
    scale += x.x * x.x + x.y * x.y;
  }
  if (norm) scale = inverse_root(warp_sum(scale) / (float)head_dim + epsilon);
  int turned = position[row];
  turned = turned < 0 ? 0 : turned >= positions ? positions - 1 : turned;
  const float2* turns = table + (u64)turned * half;
  for (int i = lane() * 2; i < half; i += WARP * 2) {
    float2 low = read_pair(from + i), high = read_pair(from + i + half);
    if (norm) {
      low = normed(low, scale, read_pair(norm + i));
      high = normed(high, scale, read_pair(norm + i + half));
    }
    if (plane == 0) turn(low, high, *(const float4*)(turns + i));
    write_pair(out + i, low);
    write_pair(out + i + half, high);
  }
}

/// The inputs of a Markov head's cell: out `[rows, inputs]`, of each row the `rank` values of its
/// state (only if `has_state`), then the embedding of its token and the hidden row, in this order,
/// or the hidden row first if `hidden_first`. State r is row `source[r]` of `states`, or zeros if
/// that is null; the hidden row is row `base[r]`. embedding `[vocabulary, rank]`, hidden rows of
/// `width` elements, `hidden_stride` apart. Grid: rows, 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    markov_inputs(T* out, const T* states, const int* source, int has_state, const T* embedding, int vocabulary,
                  const int* token, const T* hidden, int hidden_stride, const int* base, int hidden_first, int rank,
                  int width) {
  wait_for_predecessor();
  int row = (int)blockIdx.x, own = token[row];
  own = own < 0 || own >= vocabulary ? 0 : own;
  int inputs = width + rank + (has_state ? rank : 0);
  T* to = out + (u64)row * inputs;
  const T* embedded = embedding + (u64)own * rank;
  const T* from = hidden + (u64)base[row] * hidden_stride;
  const T* state = has_state && states ? states + (u64)source[row] * rank : nullptr;
  for (int i = (int)threadIdx.x; i < inputs; i += (int)blockDim.x) {
    int at = i - (has_state ? rank : 0);
    if (at < 0) {
      to[i] = state ? state[i] : from_float(0.0f);
    } else if (hidden_first) {
      to[i] = at < width ? from[at] : embedded[at - width];
    } else {
      to[i] = at < rank ? embedded[at] : from[at - rank];
    }
  }
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + exp_accurate(-x)); }
/// Accurate to a few roundings of the result's distance from ±1.
__device__ __forceinline__ float tangent(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

/// latent = sigmoid(gates) ⊙ the embedding of each row's token; latent and gates `[rows, rank]`.
/// Grid: (pieces of the rank, rows), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    markov_gate(T* latent, const T* gates, const T* embedding, int vocabulary, const int* token, int rank) {
  wait_for_predecessor();
  int row = (int)blockIdx.y, i = (int)(blockIdx.x * 256 + threadIdx.x), own = token[row];
  if (i >= rank) return;
  own = own < 0 || own >= vocabulary ? 0 : own;
  u64 at = (u64)row * rank + i;
  latent[at] = from_float(sigmoid(to_float(gates[at])) * to_float(embedding[(u64)own * rank + i]));
}

/// The recurrent cell: joint `[rows, 3, rank]` is gate, candidate and output of each row; before
/// it, the state is row `source[r]` of `states`, or zeros if that is null. Writes state
/// `[rows, rank]` = g ⊙ before + (1 − g) ⊙ tanh(c) with g = sigmoid(gate), and latent =
/// tanh(output). Grid as markov_gate.
extern "C" __global__ void __launch_bounds__(256)
    markov_cell(T* latent, T* state, const T* joint, const T* states, const int* source, int rank) {
  wait_for_predecessor();
  int row = (int)blockIdx.y, i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= rank) return;
  const T* own = joint + (u64)row * 3 * rank + i;
  float before = states ? to_float(states[(u64)source[row] * rank + i]) : 0.0f;
  float gate = sigmoid(to_float(own[0]));
  u64 at = (u64)row * rank + i;
  state[at] = from_float(gate * before + (1.0f - gate) * tangent(to_float(own[rank])));
  latent[at] = from_float(tangent(to_float(own[2 * rank])));
}
