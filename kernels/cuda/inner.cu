// Verification of some nodes of the trees.
//
// In two passes: whether a draft is accepted depends only on the target's token after its parent,
// so the target first runs over the nodes that have children, and then, for each request, over the
// one node at which its walk ends. In one pass within a budget of rows: the target runs over the
// likeliest nodes of all requests together, and a walk ends where a node was left out.
#include "common.cuh"
#include "order.cuh"

#define MOST_NODES 128
#define NODES_A_LANE (MOST_NODES / WARP)
#define INNER_WARPS 32

/// The nodes of a request's tree that have children, or all (`leaves`): one bit per node (`lane +
/// 32·i` in word i), in all lanes. None for padding, and no node that pads a tree.
__device__ __forceinline__ void find_nodes(u32 (&found)[NODES_A_LANE], const int* parents, int nodes, bool runs,
                                           bool leaves) {
#pragma unroll
  for (int word = 0; word < NODES_A_LANE; word++) found[word] = 0;
#pragma unroll
  for (int i = 0; i < NODES_A_LANE; i++) {
    int node = i * WARP + lane(), parent = runs && node < nodes ? parents[node] : -1;
    if (leaves && runs && (node == 0 || parent >= 0)) found[i] |= 1u << lane();
#pragma unroll
    for (int word = 0; word < NODES_A_LANE; word++) {
      if (parent >= 0 && parent / WARP == word) found[word] |= 1u << parent % WARP;
    }
  }
#pragma unroll
  for (int i = 0; i < NODES_A_LANE; i++) {
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) found[i] |= shuffle_xor(found[i], mask);
  }
}

/// The sort keys of a lane's nodes: larger if the draft considers a visit more likely, the largest
/// for the root, and 0 for what was not found.
__device__ __forceinline__ void find_keys(u32 (&key)[NODES_A_LANE], const u32 (&found)[NODES_A_LANE], const float* scores) {
#pragma unroll
  for (int i = 0; i < NODES_A_LANE; i++) {
    key[i] = 0;
    // Nodes that were not found may be beyond the scores.
    if (!(found[i] >> lane() & 1)) continue;
    // No number has the key 0, and NaN is the smallest.
    key[i] = i + lane() == 0 ? 0xFFFFFFFFu : max(ordered(scores[i * WARP + lane()]), 1u);
  }
}

/// Lists the nodes of trees, or without `leaves` only those that have children: all of them, or if
/// there are more than `capacity` the likeliest of the batch, ties to the first. Roots come first
/// of all. Since no node is likelier than its parent, the path to a listed node is listed too.
///
/// Reads node_parent and node_score `[batch, nodes]` (the draft's log-probability of the path to a
/// node), batch_slot `[batch]`. Writes row `[capacity]`: request by request b·nodes + node of each
/// listed node, in ascending order, and −1 after the last; place `[batch·nodes]`: the index of a
/// node in the list, −1 for all others; group_first `[batch + 1]`: the index of the first node of
/// each request, then the number of listed nodes. No node of padding is listed, nor one that pads a
/// tree. Grid 1, 1024 threads; a warp takes one request at a time; nodes ≤ 128.
extern "C" __global__ void __launch_bounds__(1024)
    list_nodes(int* place, int* row, int* group_first, int capacity, const int* node_parent, const float* node_score,
               const int* batch_slot, int batch, int nodes, int dummy_slot, int leaves) {
  __shared__ int histogram[256], above_of[INNER_WARPS], tied_of[INNER_WARPS], total, cut[2];
  int thread = (int)threadIdx.x;
  wait_for_predecessor();
  u32 found[NODES_A_LANE], key[NODES_A_LANE];
  auto look_at = [&](int request) {
    u64 begin = (u64)request * nodes;
    find_nodes(found, node_parent + begin, nodes, request < batch && batch_slot[request] != dummy_slot, leaves);
    find_keys(key, found, node_score + begin);
  };

  // Radix select: `bound` becomes the key of the last listed node and `ties` the number of listed
  // nodes with this key, one byte of the key at a time from the top, each from a histogram of the
  // keys that agree so far.
  u32 bound = 0;
  int ties = 0, left = capacity;
#pragma unroll 1
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread < 256) histogram[thread] = 0;
    if (thread == 0) total = 0;
    block_sync();
#pragma unroll 1
    for (int request = warp(); request < batch; request += INNER_WARPS) {
      look_at(request);
#pragma unroll
      for (int i = 0; i < NODES_A_LANE; i++) {
        if (key[i] == 0 || (u64)key[i] >> (shift + 8) != bound) continue;
        atomic_add(&histogram[key[i] >> shift & 255], 1);
        atomic_add(&total, 1);
      }
    }
    block_sync();
    if (shift == 24 && total <= capacity) break;
    if (thread == 0) {
      int byte = 255;
      for (; histogram[byte] < left; byte--) left -= histogram[byte];
      cut[0] = byte;
      cut[1] = left;
    }
    block_sync();
    bound = bound << 8 | (u32)cut[0];
    left = ties = cut[1];
  }

  int above_before = 0, tied_before = 0;
#pragma unroll 1
  for (int first = 0; first < batch; first += INNER_WARPS) {
    int request = first + warp();
    look_at(request);
    u32 above[NODES_A_LANE], tied[NODES_A_LANE];
    int count_above = 0, count_tied = 0;
#pragma unroll
    for (int i = 0; i < NODES_A_LANE; i++) {
      above[i] = ballot(key[i] > bound);
      tied[i] = ballot(key[i] > 0 && key[i] == bound);
      count_above += __popc(above[i]);
      count_tied += __popc(tied[i]);
    }
    if (lane() == 0) {
      above_of[warp()] = count_above;
      tied_of[warp()] = count_tied;
    }
    block_sync();
    int others_above = above_of[lane()], others_tied = tied_of[lane()];
    int tied_so_far = tied_before + sum_of(lane() < warp() ? others_tied : 0, WARP);
    int at = above_before + sum_of(lane() < warp() ? others_above : 0, WARP) + min(tied_so_far, ties);
    above_before += sum_of(others_above, WARP);
    tied_before += sum_of(others_tied, WARP);
    // The next iteration overwrites the counts.
    block_sync();
    if (request >= batch) continue;
    if (lane() == 0) group_first[request] = at;
    u32 below = (1u << lane()) - 1;
#pragma unroll
    for (int i = 0; i < NODES_A_LANE; i++) {
      bool is_tied = tied[i] >> lane() & 1 && tied_so_far + __popc(tied[i] & below) < ties;
      u32 listed = above[i] | ballot(is_tied);
      tied_so_far += __popc(tied[i]);
      int node = i * WARP + lane(), to = at + __popc(listed & below);
      at += __popc(listed);
      if (node >= nodes) continue;
      u64 own = (u64)request * nodes + node;
      bool is_listed = listed >> lane() & 1;
      place[own] = is_listed ? to : -1;
      if (is_listed) row[to] = (int)own;
    }
  }
  int listed = above_before + min(tied_before, ties);
  if (thread == 0) group_first[batch] = listed;
  for (int at = listed + thread; at < capacity; at += INNER_WARPS * WARP) row[at] = -1;
}

#define PICKING_WARPS 4

/// Lays out a pass over some rows of another pass.
///
/// Reads picked `[count]`, a row of the other pass each, or −1 for padding; known (null, or
/// `[rows of the other]`): a row for which it is not NOT_ASKED is not needed, and padding replaces
/// it; and the other pass's row descriptions (see attention.cu) and row_sample, the positions of
/// the tokens after them. Writes the same for rows 0 to count − 1. Padding belongs to the dummy
/// slot, sees nothing and writes nothing (−1); its token, position and sample are 0. Grid
/// ceil(count / 4), 128 threads: one warp per row.
extern "C" __global__ void __launch_bounds__(PICKING_WARPS * WARP)
    pick_rows(const int* picked, const int* known, int count, int dummy_slot, int own_stride, const int* row_token,
              const int* row_position, const int* row_write, const int* row_slot, const int* row_prefix,
              const int* row_own_count, const int* row_own, const int* row_sample, int* token, int* position, int* write,
              int* slot, int* prefix, int* own_count, int* own, int* sample) {
  wait_for_predecessor();
  int at = (int)blockIdx.x * PICKING_WARPS + warp();
  if (at >= count) return;
  int row = picked[at];
  bool is_wanted = row >= 0 && !(known && known[row] != NOT_ASKED);
  int seen = is_wanted ? row_own_count[row] : 0;
  for (int i = lane(); i < seen; i += WARP) own[(u64)at * own_stride + i] = row_own[(u64)row * own_stride + i];
  if (lane() > 0) return;
  token[at] = is_wanted ? row_token[row] : 0;
  position[at] = is_wanted ? row_position[row] : 0;
  write[at] = is_wanted ? row_write[row] : -1;
  slot[at] = is_wanted ? row_slot[row] : dummy_slot;
  prefix[at] = is_wanted ? row_prefix[row] : 0;
  own_count[at] = seen;
  sample[at] = is_wanted ? row_sample[row] : 0;
}
