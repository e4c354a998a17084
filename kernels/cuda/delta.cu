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

// As many as a warp has lanes.
#define COLUMNS 32
#define LANES 4
#define DELTA_THREADS (COLUMNS * LANES)
// Blocks on a multiprocessor of kernels for chains and paths: as many as fit without spilling
// registers in loops over steps (NVRTC 13.5).
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
  /// Entries of the order.
  int entry[TOGETHER];
};

/// Rows in the order in which they change a state.
struct Order {
  int first, count;
  /// The nodes of a path, or with `is_tree` the steps over a tree; null: consecutive rows.
  const int* entries;
  bool is_tree;

  __device__ __forceinline__ int entry(int step) const { return entries ? load_fresh(entries + step) : step; }
  __device__ __forceinline__ int row(int entry) const { return first + (is_tree ? entry & STEP_NODE : entry); }
};

/// One layer's operands, for one value head.
struct Head {
  const T *convolved, *gates;
  u64 gates_stride;
  float rate, offset;
  int key_heads, value_heads, head;
};

/// `vector` in shared memory becomes KEY_DIM elements of a row, normed, times `factor`. Called by a
/// warp.
__device__ __forceinline__ void norm_vector(float* vector, const T* row, float factor) {
  float x[KEY_DIM / WARP], squares = 0.0f;
#pragma unroll
  for (int i = 0; i < KEY_DIM / WARP; i++) x[i] = to_float(row[i * WARP + lane()]);
#pragma unroll
  for (int i = 0; i < KEY_DIM / WARP; i++) squares = multiply_add(x[i], x[i], squares);
  float scale = inverse_root(warp_sum(squares) + EPSILON) * factor;
#pragma unroll
  for (int i = 0; i < KEY_DIM / WARP; i++) vector[i * WARP + lane()] = x[i] * scale;
}

/// The inputs of `count` steps from `begin` on, for the columns from `column` on; queries only if
/// they are needed. Called by a whole block. What `delta_convolve` does not write is read before
/// the wait.
template <bool YIELDS>
__device__ __forceinline__ void prepare(Inputs& inputs, const Head& of, const Order& order, int begin, int count, int column) {
  // The steps before still read what is overwritten now.
  if (begin > 0) block_sync();
  int own = 0;
  if (lane() < count) {
    own = order.entry(begin + lane());
    if (warp() == 0) {
      const T* gates = of.gates + (u64)order.row(own) * of.gates_stride + of.head;
      inputs.beta[lane()] = beta_of(load_fresh_element(gates));
      inputs.decay[lane()] = exp_accurate(log_decay(of.rate, of.offset, load_fresh_element(gates + of.value_heads)));
      inputs.entry[lane()] = own;
    }
  }
  await_predecessor();
  int width = of.key_heads * KEY_DIM, key_head = of.head * of.key_heads / of.value_heads;
#pragma unroll 1
  for (int step = warp(); step < count; step += DELTA_THREADS / WARP) {
    const T* row = of.convolved + (u64)order.row(shuffle(own, step)) * channels_of(of.key_heads, of.value_heads);
    const T* query = row + key_head * KEY_DIM;
    inputs.value[step][lane()] = to_float(row[2 * width + of.head * VALUE_DIM + column + lane()]);
    norm_vector(inputs.key[step], query + width, 1.0f);
    if (YIELDS) norm_vector(inputs.query[step], query, inverse_root((float)KEY_DIM));
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

/// A lane's first element of a column of a state `[KEY_DIM, VALUE_DIM]`, and how far its i-th is
/// from there.
__device__ __forceinline__ float* first_of(float* matrix, int column) {
  return matrix + first_key(0) * VALUE_DIM + column + own_column();
}
__device__ __forceinline__ constexpr int from_first(int i) { return (i / 4 * LANES * 4 + i % 4) * VALUE_DIM; }

__device__ __forceinline__ void load_state(Column& state, float* matrix, int column) {
  const float* own = first_of(matrix, column);
#pragma unroll
  for (int i = 0; i < OWN_KEYS; i++) state.s[i] = load_fresh_float(own + from_first(i));
}
__device__ __forceinline__ void store_state(const Column& state, float* matrix, int column) {
  float* own = first_of(matrix, column);
#pragma unroll
  for (int i = 0; i < OWN_KEYS; i++) own[from_first(i)] = state.s[i];
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

/// What all kernels that change states read: `convolved` `[layers, rows, channels]`, layers
/// `convolved_layer` elements apart, which `delta_convolve` has written; `gates` (of β, then of the
/// decay, one for each value head) of rows, whose strides are in elements, layer by layer; `rates`
/// and `offsets` `[layers, value heads]`; and states
/// `[places, layers, value heads, KEY_DIM, VALUE_DIM]`.
#define DELTA                                                                                                          \
  const T *convolved, u64 convolved_layer, const T *gates, u64 gates_stride, u64 gates_layer, const float *rates,      \
      const float *offsets, float *matrices, int layers, int key_heads, int value_heads
#define DELTA_ARGUMENTS                                                                                                \
  convolved, convolved_layer, gates, gates_stride, gates_layer, rates, offsets, matrices, layers, key_heads, value_heads

/// The operands of a head of a layer. `of_layer` is the place of the layer's rows among those of
/// several.
__device__ __forceinline__ Head head_of(DELTA, int layer, int of_layer, int head) {
  Head of;
  of.convolved = convolved + of_layer * convolved_layer;
  of.gates = gates + of_layer * gates_layer;
  of.gates_stride = gates_stride;
  of.rate = rates[layer * value_heads + head];
  of.offset = offsets[layer * value_heads + head];
  of.key_heads = key_heads;
  of.value_heads = value_heads;
  of.head = head;
  return of;
}
__device__ __forceinline__ float* matrix_of(float* matrices, int layers, int value_heads, int layer, int place, int head) {
  return matrices + (((u64)place * layers + layer) * value_heads + head) * (KEY_DIM * VALUE_DIM);
}

/// Runs the rows of a group, `begin` to `begin + rows`, from the state of its slot: consecutive
/// rows, or with TREE those of a tree by `steps`.
template <bool TREE>
__device__ __forceinline__ void run_rows(T* out, DELTA, int layer, int place, int dummy_slot, int begin, int rows,
                                         const int* steps, int writes, float* kept, Inputs& inputs) {
  constexpr int PIECES = VALUE_DIM / COLUMNS;
  int head = (int)blockIdx.x / PIECES, column = (int)blockIdx.x % PIECES * COLUMNS;
  int width = value_heads * VALUE_DIM, to = head * VALUE_DIM + column + own_column();
  if (place == dummy_slot) {
    await_predecessor();
    for (int row = 0; lane() < 8 && row < rows; row++) out[(u64)(begin + row) * width + to] = from_float(0.0f);
    return;
  }
  float* matrix = matrix_of(matrices, layers, value_heads, layer, place, head);
  Column state;
  load_state(state, matrix, column);
  Order order{begin, TREE ? load_fresh(steps) : rows, TREE ? steps + 1 : nullptr, TREE};
  Head of = head_of(DELTA_ARGUMENTS, layer, 0, head);
#pragma unroll 1
  for (int begin = 0; begin < order.count; begin += TOGETHER) {
    int count = min(TOGETHER, order.count - begin);
    prepare<true>(inputs, of, order, begin, count, column);
#pragma unroll 1
    for (int step = 0; step < count; step++) {
      int what = TREE ? inputs.entry[step] : STEP_YIELDS;
      u64 at = (u64)order.row(TREE ? what : begin + step) * width + to;
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
/// `steps`, `[groups, steps_stride]`, are those of `delta_steps`. Trees whose slot, that of their
/// first row, is the dummy yield zeros.
///
/// Follows `delta_convolve`, which releases its successor late: what that does not write is read
/// before it has ended. out `[rows, value heads · VALUE_DIM]`. Dynamic shared memory: the levels of
/// `delta_steps`, COLUMNS · KEY_DIM floats each. Grid (value heads · VALUE_DIM / COLUMNS, groups),
/// DELTA_THREADS threads.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS)
delta_trees(T* out, DELTA, int layer, const int* row_slot, int dummy_slot, int each, const int* steps, int steps_stride) {
  DYNAMIC_SHARED(dynamic);
  __shared__ Inputs inputs;
  release_successor();
  int group = (int)blockIdx.y, begin = group * each;
  if (each <= 0) return;
  run_rows<true>(out, DELTA_ARGUMENTS, layer, load_fresh(row_slot + begin), dummy_slot, begin, each,
                 steps + (u64)group * steps_stride, 0, (float*)dynamic, inputs);
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
  release_successor();
  int group = (int)blockIdx.y, begin = first ? load_fresh(first + group) : group * each;
  int count = first ? load_fresh(first + group + 1) - begin : each;
  if (count <= 0) return;
  run_rows<false>(out, DELTA_ARGUMENTS, layer, load_fresh(row_slot + begin), dummy_slot, begin, count, nullptr, writes,
                  nullptr, inputs);
}

/// Commits the accepted paths of trees, in all layers: `count[request]` nodes of path
/// `[requests, most]`, nodes of the `nodes` rows of the request, whose inputs are those that
/// `delta_trees` or `delta_chains` has read. Requests whose slot is the dummy have no state. Grid
/// (value heads · VALUE_DIM / COLUMNS, requests, layers), DELTA_THREADS threads.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS, BLOCKS)
delta_commit(DELTA, const int* batch_slot, int dummy_slot, int nodes, const int* path, int most, const int* counts) {
  __shared__ Inputs inputs;
  constexpr int PIECES = VALUE_DIM / COLUMNS;
  int head = (int)blockIdx.x / PIECES, column = (int)blockIdx.x % PIECES * COLUMNS, request = (int)blockIdx.y;
  int layer = (int)blockIdx.z;
  wait_for_predecessor();
  int place = batch_slot[request];
  if (place == dummy_slot) return;
  float* matrix = matrix_of(matrices, layers, value_heads, layer, place, head);
  Column state;
  load_state(state, matrix, column);
  Order order{request * nodes, counts[request], path + (u64)request * most, false};
  Head of = head_of(DELTA_ARGUMENTS, layer, layer, head);
#pragma unroll 1
  for (int begin = 0; begin < order.count; begin += TOGETHER) {
    int count = min(TOGETHER, order.count - begin);
    prepare<false>(inputs, of, order, begin, count, column);
#pragma unroll 1
    for (int step = 0; step < count; step++) take_step<false>(state, inputs, step);
  }
  store_state(state, matrix, column);
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
