// A chain that the host has looked up in a text, joined with a draft's tree. The rules are those of
// the CPU's `tree::joined`: a token that both have below the same node is one node, with the larger
// of its two chances, and of all nodes the likeliest are kept.
//
// Runs after the kernel that drafts the tree, which also lays out its rows: both are replaced.
#include "common.cuh"
#include "order.cuh"
#include "nodes.cuh"

/// Candidates of a request: the root, MOST_NODES − 1 further nodes of its tree, and a chain of as
/// many tokens.
#define MOST_CANDIDATES 256

/// What may become a node, by place: node n of the tree at n, the token of depth d of the chain at
/// nodes − 1 + d. Order by depth, then by place, is the order of nodes.
struct Candidates {
  int token[MOST_CANDIDATES], depth[MOST_CANDIDATES];
  /// The candidate above; −1 for the root, and for a place that holds no candidate.
  int above[MOST_CANDIDATES];
  /// The log-probability after the candidate above, and from the root.
  float chance[MOST_CANDIDATES], score[MOST_CANDIDATES];
  /// The number of the node that it becomes; 0 for the root, and for none.
  int node[MOST_CANDIDATES];

  __device__ __forceinline__ bool exists(int at) const { return at > 0 && above[at] >= 0; }
  __device__ __forceinline__ bool before(int at, int other) const {
    return depth[at] != depth[other] ? depth[at] < depth[other] : at < other;
  }
  __device__ __forceinline__ bool better(int at, int other) const {
    u32 own = ordered(score[at]), others = ordered(score[other]);
    return own != others ? own > others : before(at, other);
  }
};

/// The log-probability of a step, never NaN and at most 0.
__device__ __forceinline__ float step_chance(float score, float above) {
  float chance = score - above;
  if (chance != chance) return -infinity();
  return chance < 0.0f ? chance : 0.0f;
}

__device__ __forceinline__ float larger(float one, float other) { return one > other ? one : other; }

/// Replaces the trees of a batch by trees of the same number of nodes, joined with chains.
///
/// Reads chain_length `[batch]` (0 to `steps`; 0 joins nothing), chain_token and chain_chance
/// `[batch, steps]` (log-probabilities of each token after the one before), and the trees that
/// draft_finish or block_grow left in node_*, and batch_slot, length, root and page_table as they
/// do. Writes the nodes and the rows as draft_finish does: see there. Nodes are ordered by depth.
/// Grid batch, 256 threads; 2 ≤ nodes ≤ 128, steps ≤ 127.
extern "C" __global__ void __launch_bounds__(MOST_CANDIDATES)
    join_chains(const int* chain_length, const int* chain_token, const float* chain_chance, const int* batch_slot,
                const int* length, const int* root, const int* page_table, int table_width, int page_size, int steps,
                int nodes, int dummy_slot, VERIFY_PARAMETERS) {
  __shared__ Candidates all;
  __shared__ int candidate_of[MOST_NODES], parents[MOST_NODES], writes[MOST_NODES], met;
  wait_for_predecessor();
  int request = (int)blockIdx.x, thread = (int)threadIdx.x, slot = batch_slot[request];
  bool runs = slot != dummy_slot;
  int start = runs ? length[slot] : 0, chain = runs ? chain_length[request] : 0;
  chain = chain < steps ? chain : steps;
  chain_token += (u64)request * steps;
  chain_chance += (u64)request * steps;

  u64 row = (u64)request * nodes + thread;
  all.node[thread] = 0;
  all.above[thread] = -1;
  all.score[thread] = 0.0f;
  all.depth[thread] = 0;
  if (thread < nodes) {
    int parent = node_parent[row];
    all.token[thread] = node_token[row];
    all.depth[thread] = node_depth[row];
    all.above[thread] = parent;
    all.chance[thread] = parent < 0 ? 0.0f : step_chance(node_score[row], node_score[row - thread + parent]);
    candidate_of[thread] = 0;
    writes[thread] = runs ? cache_row(page_table, table_width, page_size, slot, start + thread) : -1;
  }

  // The chain follows the tree as long as the tree has its tokens; what comes after is new.
  int known = 0, end = 0;
#pragma unroll 1
  for (; known < chain; known++) {
    if (thread == 0) met = 0;
    block_sync();
    bool is_next = thread > 0 && thread < nodes && all.above[thread] == end && all.token[thread] == chain_token[known];
    if (is_next) met = thread;
    block_sync();
    if (met == 0) break;
    end = met;
    if (thread == end) all.chance[end] = larger(all.chance[end], step_chance(chain_chance[known], 0.0f));
    block_sync();
  }
  int depth = thread - (nodes - 1);
  if (depth > known && depth <= chain) {
    all.token[thread] = chain_token[depth - 1];
    all.depth[thread] = depth;
    all.above[thread] = depth == known + 1 ? end : thread - 1;
    all.chance[thread] = step_chance(chain_chance[depth - 1], 0.0f);
  }
#pragma unroll 1
  for (int level = 1; level <= steps; level++) {
    block_sync();
    if (all.exists(thread) && all.depth[thread] == level) {
      all.score[thread] = all.score[all.above[thread]] + all.chance[thread];
    }
  }
  block_sync();

  int better = 0, number = 1;
#pragma unroll 1
  for (int other = 1; other < nodes + chain; other++) better += all.exists(other) && all.better(other, thread);
  bool is_kept = all.exists(thread) && better < nodes - 1;
  if (is_kept) all.node[thread] = 1;
  block_sync();
#pragma unroll 1
  for (int other = 1; other < nodes + chain; other++) number += all.node[other] > 0 && all.before(other, thread);
  block_sync();
  if (is_kept) {
    all.node[thread] = number;
    candidate_of[number] = thread;
  }
  block_sync();
  // A kept candidate's parent is kept, since it scores at least as high and comes before it.
  int at = thread < nodes ? candidate_of[thread] : 0;
  if (thread < nodes) parents[thread] = at > 0 ? all.node[all.above[at]] : -1;
  block_sync();
  if (thread >= nodes) return;
  float score = thread == 0 ? 0.0f : at > 0 ? all.score[at] : -infinity();
  lay_out_node(Verified{nodes, slot, start, runs}, thread, at > 0 ? all.token[at] : root[slot], parents[thread],
               at > 0 ? all.depth[at] : 0, score, parents, writes, VERIFY_ARGUMENTS);
}
