// Gated delta nets: the recurrence over the rows of sequences or trees, the commit of an accepted
// path, and the gate of the normed outputs. T is the element type of activations; states are float.
//
// A state is a matrix S `[KEY_DIM, VALUE_DIM]` for each value head; reference/delta.rs defines what
// a row does to it. Columns of S do not depend on each other, and are in registers. With few states
// a block has COLUMNS of a head, four lanes each a quarter of a column's keys (`Quarter`), so that
// there are enough blocks. With many a block has a head, a lane a column (`Column`): warps then
// access whole lines of memory, and what rows are made of is computed once for a head. Sums have
// one order in both, so a committed path has the bits that the rows of its tree saw. Rows that
// several branches follow are not written to memory as states: a state is kept in shared memory
// where paths part, or the path is walked again (`delta_steps` decides).
#include "common.cuh"
#include "delta.cuh"

// As many as a warp has lanes.
#define COLUMNS 32
#define LANES 4
#define DELTA_THREADS (COLUMNS * LANES)
// Blocks on a multiprocessor of kernels for chains and paths, of quarters and of columns: as many
// as fit without spilling registers in loops over steps (NVRTC 13.5).
#if KEY_DIM > 128
#define BLOCKS 2
#elif __CUDA_ARCH__ >= 900
#define BLOCKS 6
#else
#define BLOCKS 4
#endif
#define BLOCKS_OF_HEADS (384 / VALUE_DIM > 0 ? 384 / VALUE_DIM : 1)
// Keys of a lane that has a quarter, in runs of four.
#define OWN_KEYS (KEY_DIM / LANES)
#define RUNS (OWN_KEYS / 4)
// Steps whose inputs are in shared memory at once: at most 40 KiB of them.
#define TOGETHER (2 * KEY_DIM + VALUE_DIM > 640 ? 8 : 16)

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
  float query[TOGETHER][KEY_DIM], key[TOGETHER][KEY_DIM], value[TOGETHER][VALUE_DIM];
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

/// Columns of a head.
struct Span {
  int first, count;
};

/// The inputs of `count` steps from `begin` on, for some columns; queries only if they are needed.
/// Called by a whole block. What `delta_convolve` does not write is read before the wait.
template <int THREADS, bool YIELDS>
__device__ __forceinline__ void prepare(Inputs& inputs, const Head& of, const Order& order, int begin, int count, Span columns) {
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
  for (int step = warp(); step < count; step += THREADS / WARP) {
    const T* row = of.convolved + (u64)order.row(shuffle(own, step)) * channels_of(of.key_heads, of.value_heads);
    const T* query = row + key_head * KEY_DIM;
#pragma unroll 1
    for (int column = columns.first + lane(); column < columns.first + columns.count; column += WARP) {
      inputs.value[step][column] = to_float(row[2 * width + of.head * VALUE_DIM + column]);
    }
    norm_vector(inputs.key[step], query + width, 1.0f);
    if (YIELDS) norm_vector(inputs.query[step], query, inverse_root((float)KEY_DIM));
  }
  block_sync();
}

/// A zero of which the compiler does not know that it is one.
__device__ __forceinline__ int unknown_zero() { return (int)blockDim.y - 1; }

/// Four elements of a vector in shared memory.
__device__ __forceinline__ float4 four_at(const float* vector, int at) { return *(const float4*)(vector + at); }

/// Some keys of a column of a state, in a lane: of QUARTERS runs of four keys after each other,
/// then of as many LANES · 4 keys on, and so on. Each quarter has sums of its own.
template <int QUARTERS>
struct Keys {
  float s[QUARTERS * OWN_KEYS];

  /// A key of a run, from the first key of this lane.
  static __device__ __forceinline__ constexpr int key(int run, int quarter) { return (run * LANES + quarter) * 4; }

  __device__ __forceinline__ void load(const float* first) {
#pragma unroll
    for (int i = 0; i < QUARTERS * OWN_KEYS; i++) s[i] = load_fresh_float(first + place(i));
  }
  __device__ __forceinline__ void store(float* first) const {
#pragma unroll
    for (int i = 0; i < QUARTERS * OWN_KEYS; i++) first[place(i)] = s[i];
  }

  /// `S ← decay · S`; returns the quarters' sums of Sᵀk.
  __device__ __forceinline__ void decay(float sums[QUARTERS], const float* vector, float decay) {
    float all[QUARTERS][4] = {};
#pragma unroll
    for (int run = 0; run < RUNS; run++) {
#pragma unroll
      for (int quarter = 0; quarter < QUARTERS; quarter++) {
        float4 by = four_at(vector, key(run, quarter));
        const float k[4] = {by.x, by.y, by.z, by.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float& own = s[(run * QUARTERS + quarter) * 4 + i];
          own *= decay;
          all[quarter][i] = multiply_add(k[i], own, all[quarter][i]);
        }
      }
    }
    sum(sums, all);
  }

  /// `S ← S + k dᵀ`; returns the quarters' sums of Sᵀq if they are needed.
  template <bool YIELDS>
  __device__ __forceinline__ void correct(float sums[QUARTERS], const float* vector, const float* query, float correction) {
    float all[QUARTERS][4] = {};
    // The key of a whole column does not fit into registers beside the column: it is read again.
    if (QUARTERS > 1) vector += unknown_zero();
#pragma unroll
    for (int run = 0; run < RUNS; run++) {
#pragma unroll
      for (int quarter = 0; quarter < QUARTERS; quarter++) {
        float4 by = four_at(vector, key(run, quarter)), asked = by;
        if (YIELDS) asked = four_at(query, key(run, quarter));
        const float k[4] = {by.x, by.y, by.z, by.w}, q[4] = {asked.x, asked.y, asked.z, asked.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float& own = s[(run * QUARTERS + quarter) * 4 + i];
          own = multiply_add(k[i], correction, own);
          if (YIELDS) all[quarter][i] = multiply_add(q[i], own, all[quarter][i]);
        }
      }
    }
    if (YIELDS) sum(sums, all);
  }

 private:
  /// How far the i-th element of a column of `[KEY_DIM, VALUE_DIM]` is from the first.
  static __device__ __forceinline__ constexpr int place(int i) {
    return (key(i / 4 / QUARTERS, i / 4 % QUARTERS) + i % 4) * VALUE_DIM;
  }
  static __device__ __forceinline__ void sum(float sums[QUARTERS], const float all[QUARTERS][4]) {
#pragma unroll
    for (int quarter = 0; quarter < QUARTERS; quarter++) {
      sums[quarter] = (all[quarter][0] + all[quarter][1]) + (all[quarter][2] + all[quarter][3]);
    }
  }
};

/// A lane's quarter of a column of a state.
struct Quarter {
  static constexpr int THREADS = DELTA_THREADS, WIDTH = COLUMNS;
  Keys<1> keys;

  /// The column of this thread within its block, and whether it writes that column's outputs.
  static __device__ __forceinline__ int column() { return warp() * 8 + lane() % 8; }
  static __device__ __forceinline__ bool yields() { return lane() < 8; }
  /// The first key of this thread.
  static __device__ __forceinline__ int first() { return lane() / 8 * 4; }
  static __device__ __forceinline__ float total(const float sums[1]) {
    float value = sums[0] + shuffle_xor(sums[0], 8);
    return value + shuffle_xor(value, 16);
  }
};

/// A lane's column of a state.
struct Column {
  static constexpr int THREADS = VALUE_DIM, WIDTH = VALUE_DIM;
  Keys<LANES> keys;

  static __device__ __forceinline__ int column() { return (int)threadIdx.x; }
  static __device__ __forceinline__ bool yields() { return true; }
  static __device__ __forceinline__ int first() { return 0; }
  static __device__ __forceinline__ float total(const float sums[LANES]) {
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
};

/// A thread's first element of a state `[KEY_DIM, VALUE_DIM]`.
template <typename Part>
__device__ __forceinline__ float* first_of(float* matrix, int column) {
  return matrix + Part::first() * VALUE_DIM + column;
}

/// One row: `S ← decay · S`, `d = β · (v − Sᵀk)`, `S ← S + k dᵀ`, for a column of a head. Returns
/// `Sᵀq` if that is needed.
template <bool YIELDS, typename Part>
__device__ __forceinline__ float take_step(Part& state, const Inputs& inputs, int step, int column) {
  const float *query = inputs.query[step] + Part::first(), *key = inputs.key[step] + Part::first();
  float sums[LANES];
  state.keys.decay(sums, key, inputs.decay[step]);
  float correction = inputs.beta[step] * (inputs.value[step][column] - Part::total(sums));
  state.keys.template correct<YIELDS>(sums, key, query, correction);
  return YIELDS ? Part::total(sums) : 0.0f;
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

/// What a block has of the heads: some columns of one.
struct Share {
  int head;
  Span columns;
};
template <typename Part>
__device__ __forceinline__ Share own_share() {
  constexpr int BLOCKS_OF_HEAD = VALUE_DIM / Part::WIDTH;
  return Share{(int)blockIdx.x / BLOCKS_OF_HEAD, Span{(int)blockIdx.x % BLOCKS_OF_HEAD * Part::WIDTH, Part::WIDTH}};
}

/// Takes the steps of `order` for the columns of a block, and stores the states after them if
/// `writes`. `out` is the head's output of the first row, unless there are none.
template <typename Part, bool YIELDS>
__device__ __forceinline__ void take_steps(float* matrix, T* out, const Head& of, const Order& order, Span columns, bool writes,
                                           Inputs& inputs) {
  int column = columns.first + Part::column();
  Part state;
  state.keys.load(first_of<Part>(matrix, column));
#pragma unroll 1
  for (int begin = 0; begin < order.count; begin += TOGETHER) {
    int count = min(TOGETHER, order.count - begin);
    prepare<Part::THREADS, YIELDS>(inputs, of, order, begin, count, columns);
#pragma unroll 1
    for (int step = 0; step < count; step++) {
      float value = take_step<YIELDS>(state, inputs, step, column);
      if (YIELDS && Part::yields()) out[(u64)(begin + step) * of.value_heads * VALUE_DIM + column] = from_float(value);
    }
  }
  if (writes) state.keys.store(first_of<Part>(matrix, column));
}

/// Outputs of the rows of a group whose slot has no state.
template <typename Part>
__device__ __forceinline__ void yield_zeros(T* out, int begin, int rows, int value_heads, const Share& share) {
  await_predecessor();
  T* to = out + (u64)begin * value_heads * VALUE_DIM + share.head * VALUE_DIM + share.columns.first + Part::column();
  for (int row = 0; Part::yields() && row < rows; row++) to[(u64)row * value_heads * VALUE_DIM] = from_float(0.0f);
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
  float* kept = (float*)dynamic;
  release_successor();
  int group = (int)blockIdx.y, first = group * each;
  if (each <= 0) return;
  const Share share = own_share<Quarter>();
  int place = load_fresh(row_slot + first), column = share.columns.first + Quarter::column();
  if (place == dummy_slot) return yield_zeros<Quarter>(out, first, each, value_heads, share);
  float* matrix = matrix_of(matrices, layers, value_heads, layer, place, share.head);
  steps += (u64)group * steps_stride;
  Order order{first, load_fresh(steps), steps + 1, true};
  Head of = head_of(DELTA_ARGUMENTS, layer, 0, share.head);
  T* to = out + share.head * VALUE_DIM + column;
  Quarter state;
  state.keys.load(first_of<Quarter>(matrix, column));
#pragma unroll 1
  for (int begin = 0; begin < order.count; begin += TOGETHER) {
    int count = min(TOGETHER, order.count - begin);
    prepare<DELTA_THREADS, true>(inputs, of, order, begin, count, share.columns);
#pragma unroll 1
    for (int step = 0; step < count; step++) {
      int what = inputs.entry[step];
      u64 at = (u64)order.row(what) * value_heads * VALUE_DIM;
      if (what & STEP_ABSENT) {
        if (lane() < 8) to[at] = from_float(0.0f);
        continue;
      }
      int from = what >> STEP_FROM & STEP_LEVELS, keep = what >> STEP_KEEP & STEP_LEVELS;
      if (from == 1) state.keys.load(first_of<Quarter>(matrix, column));
      if (from > 1) {
#pragma unroll
        for (int i = 0; i < OWN_KEYS; i++) state.keys.s[i] = kept[((from - 2) * OWN_KEYS + i) * DELTA_THREADS + threadIdx.x];
      }
      float value = take_step<true>(state, inputs, step, column);
      if (keep) {
#pragma unroll
        for (int i = 0; i < OWN_KEYS; i++) kept[((keep - 1) * OWN_KEYS + i) * DELTA_THREADS + threadIdx.x] = state.keys.s[i];
      }
      if (lane() < 8 && (what & STEP_YIELDS)) to[at] = from_float(value);
    }
  }
}

template <typename Part>
__device__ __forceinline__ void run_chains(T* out, DELTA, int layer, const int* row_slot, int dummy_slot, const int* first,
                                           int each, int writes, Inputs& inputs) {
  release_successor();
  int group = (int)blockIdx.y, begin = first ? load_fresh(first + group) : group * each;
  int count = first ? load_fresh(first + group + 1) - begin : each;
  if (count <= 0) return;
  const Share share = own_share<Part>();
  int place = load_fresh(row_slot + begin);
  if (place == dummy_slot) return yield_zeros<Part>(out, begin, count, value_heads, share);
  float* matrix = matrix_of(matrices, layers, value_heads, layer, place, share.head);
  T* to = out + (u64)begin * value_heads * VALUE_DIM + share.head * VALUE_DIM;
  const Order order{begin, count, nullptr, false};
  take_steps<Part, true>(matrix, to, head_of(DELTA_ARGUMENTS, layer, 0, share.head), order, share.columns, writes != 0, inputs);
}

/// The same for rows each of which follows the one before it in its group: `first[group]` to
/// `first[group + 1]`, or without `first`, `each` of them. If `writes`, rows continue their
/// sequences, and the states become those after their last rows. Grid (blocks of heads, groups):
/// DELTA_THREADS threads for COLUMNS of a head, or VALUE_DIM threads for a head.
///
/// Without the code for trees, and with registers limited to what it needs then, twice as many
/// blocks fit on a multiprocessor: a short chain is little more than loads that wait.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS, BLOCKS)
delta_chains(T* out, DELTA, int layer, const int* row_slot, int dummy_slot, const int* first, int each, int writes) {
  __shared__ Inputs inputs;
  run_chains<Quarter>(out, DELTA_ARGUMENTS, layer, row_slot, dummy_slot, first, each, writes, inputs);
}

template <typename Part>
__device__ __forceinline__ void commit_paths(DELTA, const int* batch_slot, int dummy_slot, int nodes, const int* path,
                                             int most, const int* counts, Inputs& inputs) {
  const Share share = own_share<Part>();
  int request = (int)blockIdx.y, layer = (int)blockIdx.z;
  wait_for_predecessor();
  int place = batch_slot[request];
  if (place == dummy_slot) return;
  const Order order{request * nodes, counts[request], path + (u64)request * most, false};
  float* matrix = matrix_of(matrices, layers, value_heads, layer, place, share.head);
  take_steps<Part, false>(matrix, nullptr, head_of(DELTA_ARGUMENTS, layer, layer, share.head), order, share.columns, true, inputs);
}

/// Commits the accepted paths of trees, in all layers: `count[request]` nodes of path
/// `[requests, most]`, nodes of the `nodes` rows of the request, whose inputs are those that the
/// kernels above have read. Requests whose slot is the dummy have no state. Grid (blocks of heads,
/// requests, layers), threads as above.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS, BLOCKS)
delta_commit(DELTA, const int* batch_slot, int dummy_slot, int nodes, const int* path, int most, const int* counts) {
  __shared__ Inputs inputs;
  commit_paths<Quarter>(DELTA_ARGUMENTS, batch_slot, dummy_slot, nodes, path, most, counts, inputs);
}

#if KEY_DIM <= 128
extern "C" __global__ void __launch_bounds__(VALUE_DIM, BLOCKS_OF_HEADS)
delta_chains_of_heads(T* out, DELTA, int layer, const int* row_slot, int dummy_slot, const int* first, int each, int writes) {
  __shared__ Inputs inputs;
  run_chains<Column>(out, DELTA_ARGUMENTS, layer, row_slot, dummy_slot, first, each, writes, inputs);
}
extern "C" __global__ void __launch_bounds__(VALUE_DIM, BLOCKS_OF_HEADS)
delta_commit_of_heads(DELTA, const int* batch_slot, int dummy_slot, int nodes, const int* path, int most, const int* counts) {
  __shared__ Inputs inputs;
  commit_paths<Column>(DELTA_ARGUMENTS, batch_slot, dummy_slot, nodes, path, most, counts, inputs);
}
#endif

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
