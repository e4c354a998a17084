// Gated delta nets: the recurrence over the rows of sequences or trees, the commit of an accepted
// path, and the gate of the normed outputs. T is the element type of activations; states are float.
//
// A state is a matrix S `[KEY_DIM, VALUE_DIM]` for each value head; reference/delta.rs defines what
// a row does to it. Columns of S do not depend on each other, so a block has COLUMNS of one head,
// in registers: four lanes have a column, each a quarter of its keys. All kernels take a row's step
// with the same code, so a committed path has the bits that the rows of its tree saw. Rows that
// several branches follow are not written to memory as states: a state is kept in shared memory
// where paths part, or the path is walked again (`delta_steps` decides).
#include "common.cuh"
#include "delta.cuh"

#define COLUMNS 32
#define LANES 4
#define DELTA_THREADS (COLUMNS * LANES)
// Blocks on a multiprocessor of kernels for chains and paths: as many as fit without spilling
// registers (NVRTC 13.0).
#if KEY_DIM > 128
#define BLOCKS 2
#elif __CUDA_ARCH__ >= 900
#define BLOCKS 6
#else
#define BLOCKS 4
#endif
// Keys of a lane, in runs of four.
#define OWN_KEYS (KEY_DIM / LANES)
#define RUNS (OWN_KEYS / 4)
// Steps whose inputs are in shared memory at once.
#define TOGETHER 16

// A step over the rows of a tree, in one integer: the node; whether the output is wanted; whether
// the node does not exist, so that its output is zero; the state before, if it is not that after
// the step before (1: the committed one, from 2 on: the one that is kept at this level); and the
// level at which the state after it is kept, plus one.
#define STEP_NODE 0xff
#define STEP_YIELDS 0x100
#define STEP_ABSENT 0x200
#define STEP_FROM 12
#define STEP_KEEP 20
#define STEP_LEVELS 0xff
#define MOST_NODES 128
#define MOST_LEVELS 8

/// What the recurrence reads of some rows.
struct __align__(16) Inputs {
  float query[TOGETHER][KEY_DIM], key[TOGETHER][KEY_DIM], value[TOGETHER][COLUMNS];
  float decay[TOGETHER], beta[TOGETHER];
  /// For each of the rows, the rows that the convolution reads, newest first: rows of the pass;
  /// below 0, rows of the history, −1 the newest.
  int read[TOGETHER][TAPS];
};

/// Rows in the order in which they change a state: consecutive rows of the pass, or the nodes of a
/// path, or the steps over a tree.
struct Order {
  int first, count;
  /// Null: consecutive rows.
  const int* path;
  /// With `steps`, `path` is null, and these are the parents of the nodes.
  const int *steps, *parent;

  __device__ __forceinline__ int row(int step) const {
    return first + (steps ? steps[step] & STEP_NODE : path ? path[step] : step);
  }
};

/// One layer's operands, for one value head.
struct Head {
  const T* mixed;
  u64 mixed_stride;
  const T* gates;
  u64 gates_stride;
  const T* convolution;
  float rate, offset;
  const T* history;
  int key_heads, value_heads, head;

  __device__ __forceinline__ int key_head() const { return head / (value_heads / key_heads); }
  __device__ __forceinline__ int channels() const { return channels_of(key_heads, value_heads); }
};

/// The rows that the convolution reads for the steps from `begin` on.
__device__ __forceinline__ void find_reads(Inputs& inputs, const Order& order, int begin, int count) {
  int own = (int)threadIdx.x;
  if (own >= count) return;
  int step = begin + own;
  if (order.steps) {
    int node = order.steps[step] & STEP_NODE, back = 0;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
      inputs.read[own][tap] = node >= 0 ? order.first + node : --back;
      if (node >= 0) node = order.parent[node];
    }
  } else {
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) inputs.read[own][tap] = step >= tap ? order.row(step - tap) : step - tap;
  }
}

/// The inputs of `count` steps from `begin` on, for the columns from `column` on; queries only if
/// they are needed. Called by a whole block.
template <bool YIELDS>
__device__ __forceinline__ void prepare(Inputs& inputs, const Head& of, const Order& order, int begin, int count, int column) {
  int thread = (int)threadIdx.x;
  // The steps before still read what is overwritten now.
  block_sync();
  find_reads(inputs, order, begin, count);
  if (thread < count) {
    const T* gates = of.gates + (u64)order.row(begin + thread) * of.gates_stride + of.head;
    inputs.beta[thread] = beta_of(gates[0]);
    inputs.decay[thread] = exp_accurate(log_decay(of.rate, of.offset, gates[of.value_heads]));
  }
  block_sync();
  int channels = of.channels(), width = of.key_heads * KEY_DIM;
#pragma unroll 1
  for (int own = thread + (YIELDS ? 0 : KEY_DIM); own < 2 * KEY_DIM + COLUMNS; own += DELTA_THREADS) {
    int channel = own < KEY_DIM       ? of.key_head() * KEY_DIM + own
                  : own < 2 * KEY_DIM ? width + of.key_head() * KEY_DIM + own - KEY_DIM
                                      : 2 * width + of.head * VALUE_DIM + column + own - 2 * KEY_DIM;
    float weight[TAPS];
    load_taps(weight, of.convolution, channel);
#pragma unroll 4
    for (int step = 0; step < count; step++) {
      float sum = 0.0f;
#pragma unroll
      for (int tap = TAPS - 1; tap >= 0; tap--) {
        int row = inputs.read[step][tap];
        const T* from = row >= 0 ? of.mixed + (u64)row * of.mixed_stride : of.history + (TAPS - 1 + row) * channels;
        sum = multiply_add(weight[tap], to_float(from[channel]), sum);
      }
      float value = to_float(convolved_of(sum));
      if (own < KEY_DIM)
        inputs.query[step][own] = value;
      else if (own < 2 * KEY_DIM)
        inputs.key[step][own - KEY_DIM] = value;
      else
        inputs.value[step][own - 2 * KEY_DIM] = value;
    }
  }
  block_sync();
  // A warp for each vector.
#pragma unroll 1
  for (int at = warp() + (YIELDS ? 0 : count); at < 2 * count; at += DELTA_THREADS / WARP) {
    bool is_key = at >= count;
    float* vector = is_key ? inputs.key[at - count] : inputs.query[at];
    float squares = 0.0f;
    for (int i = lane(); i < KEY_DIM; i += WARP) squares = multiply_add(vector[i], vector[i], squares);
    float scale = inverse_root(warp_sum(squares) + EPSILON);
    if (!is_key) scale *= inverse_root((float)KEY_DIM);
    for (int i = lane(); i < KEY_DIM; i += WARP) vector[i] *= scale;
  }
  block_sync();
}

/// A lane's part of a column of a state.
struct Column {
  float s[OWN_KEYS];
};

/// The first of the four keys of a run.
__device__ __forceinline__ int first_key(int run) { return (run * LANES + lane() / 8) * 4; }
/// The column of this thread within its block.
__device__ __forceinline__ int own_column() { return warp() * 8 + lane() % 8; }

/// The sum over the lanes of a column, in all of them.
__device__ __forceinline__ float column_sum(float value) {
  value += shuffle_xor(value, 8);
  return value + shuffle_xor(value, 16);
}

__device__ __forceinline__ void load_state(Column& state, const float* matrix, int column) {
#pragma unroll
  for (int i = 0; i < OWN_KEYS; i++) {
    state.s[i] = matrix[(first_key(i / 4) + i % 4) * VALUE_DIM + column + own_column()];
  }
}
__device__ __forceinline__ void store_state(const Column& state, float* matrix, int column) {
#pragma unroll
  for (int i = 0; i < OWN_KEYS; i++) {
    matrix[(first_key(i / 4) + i % 4) * VALUE_DIM + column + own_column()] = state.s[i];
  }
}

/// Four elements of a vector in shared memory.
__device__ __forceinline__ float4 four_at(const float* vector, int at) { return *(const float4*)(vector + at); }

/// One row: `S ← decay · S`, `d = β · (v − Sᵀk)`, `S ← S + k dᵀ`. Returns `Sᵀq` if that is needed.
template <bool YIELDS>
__device__ __forceinline__ float take_step(Column& state, const Inputs& inputs, int step) {
  const float *query = inputs.query[step], *key = inputs.key[step];
  float decay = inputs.decay[step], seen[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int run = 0; run < RUNS; run++) {
    float4 by = four_at(key, first_key(run));
    const float k[4] = {by.x, by.y, by.z, by.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float s = state.s[run * 4 + i] * decay;
      state.s[run * 4 + i] = s;
      seen[i] = multiply_add(k[i], s, seen[i]);
    }
  }
  float all = column_sum((seen[0] + seen[1]) + (seen[2] + seen[3]));
  float correction = inputs.beta[step] * (inputs.value[step][own_column()] - all);
  float out[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int run = 0; run < RUNS; run++) {
    float4 by = four_at(key, first_key(run)), asked = by;
    if (YIELDS) asked = four_at(query, first_key(run));
    const float k[4] = {by.x, by.y, by.z, by.w}, q[4] = {asked.x, asked.y, asked.z, asked.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float s = multiply_add(k[i], correction, state.s[run * 4 + i]);
      state.s[run * 4 + i] = s;
      if (YIELDS) out[i] = multiply_add(q[i], s, out[i]);
    }
  }
  return YIELDS ? column_sum((out[0] + out[1]) + (out[2] + out[3])) : 0.0f;
}

/// What all kernels that change states read: `mixed` (queries, keys and values before the
/// convolution) and `gates` (of β, then of the decay, one for each value head) of rows, whose
/// strides are in elements, layer by layer; `convolution` `[layers, channels, TAPS]`, the oldest
/// tap first; `rates` and `offsets` `[layers, value heads]`; states
/// `[places, layers, value heads, KEY_DIM, VALUE_DIM]`, and the last rows before the convolution,
/// `[places, layers, TAPS − 1, channels]`, the oldest first.
#define DELTA                                                                                                          \
  const T *mixed, u64 mixed_stride, u64 mixed_layer, const T *gates, u64 gates_stride, u64 gates_layer,                \
      const T *convolution, const float *rates, const float *offsets, float *matrices, const T *histories, int layers, \
      int key_heads, int value_heads
#define DELTA_ARGUMENTS                                                                                                \
  mixed, mixed_stride, mixed_layer, gates, gates_stride, gates_layer, convolution, rates, offsets, matrices,           \
      histories, layers, key_heads, value_heads

/// The operands of a head of a layer. `of_layer` is the place of the layer's rows among those of
/// several.
__device__ __forceinline__ Head head_of(DELTA, int layer, int of_layer, int place, int head) {
  int channels = channels_of(key_heads, value_heads);
  Head of;
  of.mixed = mixed + of_layer * mixed_layer;
  of.mixed_stride = mixed_stride;
  of.gates = gates + of_layer * gates_layer;
  of.gates_stride = gates_stride;
  of.convolution = convolution + (u64)layer * channels * TAPS;
  of.rate = rates[layer * value_heads + head];
  of.offset = offsets[layer * value_heads + head];
  of.history = histories + ((u64)place * layers + layer) * (TAPS - 1) * channels;
  of.key_heads = key_heads;
  of.value_heads = value_heads;
  of.head = head;
  return of;
}
__device__ __forceinline__ float* matrix_of(float* matrices, int layers, int value_heads, int layer, int place, int head) {
  return matrices + (((u64)place * layers + layer) * value_heads + head) * (KEY_DIM * VALUE_DIM);
}

/// Runs the rows of a group, `first` to `first + count`, from the state of its slot: consecutive
/// rows, or with TREE those of a tree by `steps`, whose parents are `parent`.
template <bool TREE>
__device__ __forceinline__ void run_rows(T* out, DELTA, int layer, int place, int dummy_slot, int begin, int count,
                                         const int* steps, const int* parent, int writes, float* kept, Inputs& inputs) {
  constexpr int PIECES = VALUE_DIM / COLUMNS;
  int head = (int)blockIdx.x / PIECES, column = (int)blockIdx.x % PIECES * COLUMNS;
  int width = value_heads * VALUE_DIM, to = head * VALUE_DIM + column + own_column();
  if (place == dummy_slot) {
    for (int row = 0; lane() < 8 && row < count; row++) out[(u64)(begin + row) * width + to] = from_float(0.0f);
    return;
  }
  Order order;
  order.first = begin;
  order.path = nullptr;
  order.steps = TREE ? steps + 1 : nullptr;
  order.count = TREE ? steps[0] : count;
  order.parent = parent;
  Head of = head_of(DELTA_ARGUMENTS, layer, 0, place, head);
  float* matrix = matrix_of(matrices, layers, value_heads, layer, place, head);
  Column state;
  load_state(state, matrix, column);
#pragma unroll 1
  for (int begin = 0; begin < order.count; begin += TOGETHER) {
    int count = min(TOGETHER, order.count - begin);
    prepare<true>(inputs, of, order, begin, count, column);
#pragma unroll 1
    for (int step = 0; step < count; step++) {
      int what = TREE ? order.steps[begin + step] : STEP_YIELDS;
      u64 at = (u64)order.row(begin + step) * width + to;
      if (what & STEP_ABSENT) {
        if (lane() < 8) out[at] = from_float(0.0f);
        continue;
      }
      if (TREE) {
        int from = what >> STEP_FROM & STEP_LEVELS;
        if (from == 1) load_state(state, matrix, column);
        if (from > 1) {
#pragma unroll
          for (int i = 0; i < OWN_KEYS; i++) state.s[i] = kept[((from - 2) * OWN_KEYS + i) * DELTA_THREADS + threadIdx.x];
        }
      }
      float value = take_step<true>(state, inputs, step);
      int keep = what >> STEP_KEEP & STEP_LEVELS;
      if (TREE && keep) {
#pragma unroll
        for (int i = 0; i < OWN_KEYS; i++) kept[((keep - 1) * OWN_KEYS + i) * DELTA_THREADS + threadIdx.x] = state.s[i];
      }
      if (lane() < 8 && (what & STEP_YIELDS)) out[at] = from_float(value);
    }
  }
  if (writes) store_state(state, matrix, column);
}

/// Runs the rows of a layer, tree by tree, from the states of their slots, which stay as they are.
/// `parent` is for each of the `each` rows of a tree the node before it, −1 if that is the
/// committed row; `steps`, `[groups, steps_stride]`, are those of `delta_steps`. Trees whose slot,
/// that of their first row, is the dummy yield zeros.
///
/// out `[rows, value heads · VALUE_DIM]`. Dynamic shared memory: the levels of `delta_steps`,
/// COLUMNS · KEY_DIM floats each. Grid (value heads · VALUE_DIM / COLUMNS, groups), DELTA_THREADS
/// threads.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS)
delta_trees(T* out, DELTA, int layer, const int* row_slot, int dummy_slot, int each, const int* steps, int steps_stride,
            const int* parent) {
  DYNAMIC_SHARED(dynamic);
  __shared__ Inputs inputs;
  wait_for_predecessor();
  int group = (int)blockIdx.y, begin = group * each;
  if (each <= 0) return;
  run_rows<true>(out, DELTA_ARGUMENTS, layer, row_slot[begin], dummy_slot, begin, each, steps + (u64)group * steps_stride,
                 parent + begin, 0, (float*)dynamic, inputs);
}

/// The same for rows each of which follows the one before it in its group: `first[group]` to
/// `first[group + 1]`, or without `first`, `each` of them. If `writes`, rows continue their
/// sequences, and the states become those after their last rows.
///
/// Without the code for trees, and with registers limited to what it needs then, twice as many
/// blocks fit on a multiprocessor: a short chain is little more than loads that wait.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS, BLOCKS)
delta_chains(T* out, DELTA, int layer, const int* row_slot, int dummy_slot, const int* first, int each, int writes) {
  __shared__ Inputs inputs;
  wait_for_predecessor();
  int group = (int)blockIdx.y, begin = first ? first[group] : group * each;
  int count = first ? first[group + 1] - begin : each;
  if (count <= 0) return;
  run_rows<false>(out, DELTA_ARGUMENTS, layer, row_slot[begin], dummy_slot, begin, count, nullptr, nullptr, writes, nullptr,
                  inputs);
}

/// Commits the accepted paths of trees, in all layers: `count[request]` nodes of path
/// `[requests, most]`, nodes of the `nodes` rows of the request, whose inputs are as `delta_trees`
/// read them. Requests whose slot is the dummy have no state. Grid (value heads · VALUE_DIM /
/// COLUMNS, requests, layers), DELTA_THREADS threads.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS, BLOCKS)
delta_commit(DELTA, const int* batch_slot, int dummy_slot, int nodes, const int* path, int most, const int* counts) {
  __shared__ Inputs inputs;
  constexpr int PIECES = VALUE_DIM / COLUMNS;
  int head = (int)blockIdx.x / PIECES, column = (int)blockIdx.x % PIECES * COLUMNS, request = (int)blockIdx.y;
  int layer = (int)blockIdx.z;
  wait_for_predecessor();
  int place = batch_slot[request];
  if (place == dummy_slot) return;
  Order order;
  order.first = request * nodes;
  order.count = counts[request];
  order.path = path + (u64)request * most;
  order.steps = nullptr;
  order.parent = nullptr;
  Head of = head_of(DELTA_ARGUMENTS, layer, layer, place, head);
  float* matrix = matrix_of(matrices, layers, value_heads, layer, place, head);
  Column state;
  load_state(state, matrix, column);
#pragma unroll 1
  for (int begin = 0; begin < order.count; begin += TOGETHER) {
    int count = min(TOGETHER, order.count - begin);
    prepare<false>(inputs, of, order, begin, count, column);
#pragma unroll 1
    for (int step = 0; step < count; step++) take_step<false>(state, inputs, step);
  }
  store_state(state, matrix, column);
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

/// The steps over the nodes of trees, depth first: steps `[requests, stride]`, their number first.
/// parent `[requests, nodes]`: −1 for the root and for nodes that do not exist. States are kept at
/// up to `levels` levels where paths part; where there is none, the way from the nearest one that
/// is kept is walked again, and yields nothing. Grid requests, 32 threads; nodes ≤ 128, levels ≤ 8.
extern "C" __global__ void __launch_bounds__(32)
delta_steps(int* steps, int stride, const int* parent, int nodes, int levels) {
  __shared__ int parents[MOST_NODES], size[MOST_NODES], next[MOST_NODES], left[MOST_NODES], order[MOST_NODES], way[MOST_NODES];
  wait_for_predecessor();
  for (int node = lane(); node < nodes; node += WARP) {
    parents[node] = parent[(u64)blockIdx.x * nodes + node];
    size[node] = 1;
    left[node] = 0;
  }
  warp_sync();
  if (lane() > 0) return;
  int* own = steps + (u64)blockIdx.x * stride;
  int count = 0, top = 0, levels_of[MOST_LEVELS];
  // The size of each subtree, then the place of each node: after its parent and the subtrees of the
  // siblings before it.
  for (int node = nodes - 1; node > 0; node--) {
    if (parents[node] < 0) {
      if (count + 1 < stride) own[++count] = node | STEP_ABSENT;
      continue;
    }
    size[parents[node]] += size[node];
    left[parents[node]]++;
  }
  order[0] = 0;
  next[0] = 1;
  int all = size[0];
  for (int node = 1; node < nodes; node++) {
    if (parents[node] < 0) continue;
    int place = next[parents[node]];
    next[parents[node]] += size[node];
    next[node] = place + 1;
    order[place] = node;
  }
  int before = -1, from = 0;
  for (int at = 0; at < all; at++) {
    int node = order[at], above = parents[node];
    if (above != before) {
      // The nearest state that is kept on the way to the parent.
      int length = 0, base = above;
      while (base >= 0) {
        while (top > 0 && levels_of[top - 1] > base) top--;
        if (top > 0 && levels_of[top - 1] == base) break;
        way[length++] = base;
        base = parents[base];
      }
      from = base < 0 ? 1 : top + 1;
      for (int i = length - 1; i >= 0 && count + 1 < stride; i--) {
        own[++count] = way[i] | from << STEP_FROM;
        from = 0;
      }
    }
    if (above >= 0 && --left[above] == 0 && top > 0 && levels_of[top - 1] == above) top--;
    int keep = left[node] > 1 && top < levels ? top + 1 : 0;
    if (keep) levels_of[top++] = node;
    if (count + 1 < stride) own[++count] = node | STEP_YIELDS | from << STEP_FROM | keep << STEP_KEEP;
    before = node;
    from = 0;
  }
  own[0] = count;
}

/// `out = rms(out) · weight · silu(gate)` for each head of VALUE_DIM elements, in place: out
/// `[rows, value heads · VALUE_DIM]`, gates `gate_stride` apart. Grid (value heads / 4, rows), 128
/// threads.
extern "C" __global__ void __launch_bounds__(128)
delta_gate(T* out, const T* gate, int gate_stride, const T* weight, int value_heads, float epsilon) {
  wait_for_predecessor();
  int head = (int)blockIdx.x * 4 + warp();
  u64 row = blockIdx.y;
  if (head >= value_heads) return;
  T* own = out + (row * value_heads + head) * VALUE_DIM;
  const T* by = gate + row * gate_stride + head * VALUE_DIM;
  constexpr int EACH = VALUE_DIM / WARP;
  float x[EACH], squares = 0.0f;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    x[i] = to_float(own[i * WARP + lane()]);
    squares = multiply_add(x[i], x[i], squares);
  }
  float scale = inverse_root(warp_sum(squares) / (float)VALUE_DIM + epsilon);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int at = i * WARP + lane();
    own[at] = from_float(gated(to_float(by[at]), x[i] * scale * to_float(weight[at])));
  }
}
