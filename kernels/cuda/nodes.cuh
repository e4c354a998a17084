// The nodes of a draft tree: their scores, choosing the best of them, and the rows with which the
// target verifies them. Shared by tree.cu and block.cu.
#pragma once

#define TREE_THREADS 256
#define MOST_NODES 128

/// Log-probabilities are at most 0, NaN counts as impossible, and there is no −0: see `sane` of the
/// CPU.
__device__ __forceinline__ float sane(float score) {
  if (score != score) return -infinity();
  return (score < 0.0f ? score : 0.0f) + 0.0f;
}
/// The place where `accept_drafts` writes its output for the host: places alternate, so that the
/// host may read one while the next round writes another. The kernel that lays out the rows of a
/// round advances it.
__device__ __forceinline__ void next_output(int* place, int places) {
  int next = *place + 1;
  *place = next < places ? next : 0;
}
__device__ __forceinline__ float absent() { return bits_float(0x7fc00000u); }

/// The sum over the threads before this one in a block of TREE_THREADS, and the sum over all.
/// `warps` is shared.
__device__ __forceinline__ int sum_before(int value, int* warps, int& total) {
  int sum = value;
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    int other = shuffle_up(sum, by);
    if (lane() >= by) sum += other;
  }
  block_sync();
  if (lane() == WARP - 1) warps[warp()] = sum;
  block_sync();
  int before = sum - value;
  total = 0;
#pragma unroll
  for (int i = 0; i < TREE_THREADS / WARP; i++) {
    if (i < warp()) before += warps[i];
    total += warps[i];
  }
  return before;
}

/// The best of a pool: places with a key above `bound`, and the first `ties` of those with that
/// key.
struct Cut {
  u32 bound;
  int ties;
};

/// The cut that keeps the best `count` of the nonzero keys (all of them if there are fewer). Radix
/// select: one byte of the key at a time, from the top, each from a histogram of the keys that
/// agree so far.
__device__ __forceinline__ Cut cut_pool(const u32* keys, int places, int count, int* histogram, int* warps, int* chosen) {
  int thread = (int)threadIdx.x;
  u32 agreed = 0;
  int left = count;
#pragma unroll 1
  for (int shift = 24; shift >= 0; shift -= 8) {
    histogram[thread] = 0;
    block_sync();
#pragma unroll 1
    for (int at = thread; at < places; at += TREE_THREADS) {
      u32 key = keys[at];
      if (key > 0 && (u64)key >> (shift + 8) == agreed) atomic_add(&histogram[key >> shift & 255], 1);
    }
    block_sync();
    // Thread t has byte 255 − t, so that threads before it have the better ones.
    int own = histogram[255 - thread], total;
    int better = sum_before(own, warps, total);
    if (shift == 24 && total <= count) return Cut{0, 0};
    if (better < left && left <= better + own) {
      chosen[0] = 255 - thread;
      chosen[1] = left - better;
    }
    block_sync();
    agreed = agreed << 8 | (u32)chosen[0];
    left = chosen[1];
  }
  return Cut{agreed, left};
}

/// Numbers the places that a cut keeps from 1 on, in order: writes the number to the key of each,
/// and its place to `place_of`. Returns how many there are. Called by a block; the caller has to
/// follow with a barrier.
__device__ __forceinline__ int number_kept(u32* keys, int places, Cut cut, int* place_of, int* warps) {
  int thread = (int)threadIdx.x;
  // Each thread numbers those of its own run.
  int run = (places + TREE_THREADS - 1) / TREE_THREADS;
  int begin = thread * run, end = begin + run < places ? begin + run : places;
  int above = 0, tied = 0;
#pragma unroll 1
  for (int at = begin; at < end; at++) {
    above += keys[at] > cut.bound;
    tied += keys[at] == cut.bound;
  }
  int kept, ignored;
  int above_before = sum_before(above, warps, kept), tied_before = sum_before(tied, warps, ignored);
#pragma unroll 1
  for (int at = begin; at < end; at++) {
    u32 key = keys[at];
    bool keep = key > cut.bound || (key == cut.bound && tied_before < cut.ties);
    if (keep) {
      int node = 1 + above_before + (tied_before < cut.ties ? tied_before : cut.ties);
      keys[at] = (u32)node;
      place_of[node] = at;
    }
    above_before += key > cut.bound;
    tied_before += key == cut.bound;
  }
  return kept + cut.ties;
}

/// What the nodes of a tree and the rows of the verify pass are written to; see draft_finish.
#define VERIFY_PARAMETERS                                                                                               \
  int *node_token, int *node_parent, int *node_depth, float *node_score, int *row_token, int *row_position,             \
      int *row_write, int *row_slot, int *row_prefix, int *row_own_count, int *row_own, int own_stride, int *group_own, \
      int *group_own_count, u32 *row_own_mask, int mask_words, int *row_sample_position, int *group_prefix,             \
      int *output_place, int output_places
#define VERIFY_ARGUMENTS                                                                                                \
  node_token, node_parent, node_depth, node_score, row_token, row_position, row_write, row_slot, row_prefix,            \
      row_own_count, row_own, own_stride, group_own, group_own_count, row_own_mask, mask_words, row_sample_position,    \
      group_prefix, output_place, output_places

/// A request's tree in the verify pass.
struct Verified {
  int nodes, slot, start;
  bool runs;
};

/// Writes a node of a request's tree and its row of the verify pass. `parents` and `writes` are of
/// all nodes of the request, in shared memory.
__device__ __forceinline__ void lay_out_node(const Verified& tree, int node, int token, int parent, int depth, float score,
                                             const int* parents, const int* writes, VERIFY_PARAMETERS) {
  int request = (int)blockIdx.x, nodes = tree.nodes, start = tree.start;
  bool runs = tree.runs;
  u64 row = (u64)request * nodes + node;
  node_token[row] = token;
  node_parent[row] = parent;
  node_depth[row] = depth;
  node_score[row] = score;
  row_token[row] = token;
  row_position[row] = start + depth;
  row_write[row] = writes[node];
  row_slot[row] = tree.slot;
  row_prefix[row] = start;
  row_own_count[row] = runs ? depth + 1 : 0;
  row_sample_position[row] = start + depth + 1;
  u32 mask[MOST_NODES / 32] = {0, 0, 0, 0};
#pragma unroll 1
  for (int at = node, left = depth; left >= 0; left--, at = parents[at]) {
    row_own[row * own_stride + left] = writes[at] > 0 ? writes[at] : 0;
#pragma unroll
    for (int word = 0; word < MOST_NODES / 32; word++) mask[word] |= at / 32 == word ? 1u << at % 32 : 0u;
  }
  if (group_own && runs) {
    group_own[(u64)request * nodes * own_stride + node] = writes[node] > 0 ? writes[node] : 0;
#pragma unroll
    for (int word = 0; word < MOST_NODES / 32; word++) {
      if (word < (nodes + 31) / 32) row_own_mask[row * mask_words + word] = mask[word];
    }
  }
  if (node == 0 && group_own) group_own_count[request] = runs ? nodes : 0;
  if (node == 0 && group_prefix) group_prefix[request] = start;
  if (node == 0 && request == 0 && output_place) next_output(output_place, output_places);
}
