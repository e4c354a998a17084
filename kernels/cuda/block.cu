// Drafting with a block head on the device: the rows of the block, and the tree that grows from the
// rankings of its rows, level by level. The rules are those of the CPU's `tree::Levels`; ties go to
// the node that comes first.
//
// A round:
//   block_begin for each view, then the pass over the block, and its logits without a Markov head:
//   top_k_rows, and block_grow over all levels with one: for each level its corrected logits
//   (add_base), top_k_rows, and block_grow over that level
//
// A proposal scores at most as high as its parent and comes after it. So of everything proposed so
// far only the best `nodes − 1` can be in the tree, and no more is kept between levels: the tree
// itself, whose nodes are ordered by level, and within a level by parent and rank.
//
// A view is what the rows of a block see in some of the head's layers: all kept positions, or those
// within a window; all rows of the block, or those before. Padding requests, and positions after a
// slot's pages, as in tree.cu.
#include "common.cuh"
#include "order.cuh"
#include "nodes.cuh"

#define BLOCK_THREADS 128

/// Lays out the rows of a block after each root, for a view.
///
/// Reads batch_slot `[batch]`, length and root `[slots]`, or, where they are given, starts and
/// roots `[batch]` in their place; page_table. Writes the rows r = b·rows + j: token = the root for
/// j = 0, else `mask`; position = start + j; write = scratch_base + r; slot; prefix; own. Without a
/// window (`window` 0) a row sees all positions before start, and the rows of the block up to its
/// own (`causal`) or all of them. With one, it sees of both only what is less than `window` before
/// its own position. Then prefix counts the positions before start that all rows see, from a page's
/// begin on; view_table `[batch, view_width]` lists their pages, and slot is b. The positions
/// before that page are own rows, in ascending order, before those of the block; `own_stride` ≥
/// 2·rows + page_size − 2. Own rows of a request: the same, each once. Unless null, first_token and
/// first_base `[batch]`: the root, and b·steps; proposing `[batch, steps]`: the rows from `skipped`
/// on. Grid batch, 128 threads; skipped + steps ≤ rows ≤ 128.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    block_begin(const int* batch_slot, const int* length, const int* root, const int* starts, const int* roots,
                const int* page_table, int table_width, int page_size, int rows, int mask, int causal, int window,
                int dummy_slot, int scratch_base, int* row_token, int* row_position, int* row_write, int* row_slot,
                int* row_prefix, int* row_own_count, int* row_own, int own_stride, int* group_own, int* group_own_count,
                u32* row_own_mask, int mask_words, int* view_table, int view_width, int* first_token, int* first_base,
                int* proposing, int skipped, int steps) {
  wait_for_predecessor();
  int request = (int)blockIdx.x, thread = (int)threadIdx.x, slot = batch_slot[request];
  bool runs = slot != dummy_slot;
  int start = !runs ? 0 : starts ? starts[request] : length[slot], token = roots ? roots[request] : root[slot];
  // Positions before start: from `first` on the first row sees them, from `common` on all rows do.
  int first = 0, common = 0;
  if (window) {
    first = min(max(start + 1 - window, 0), start);
    common = max(start + rows - window, 0);
    common = min((common + page_size - 1) / page_size * page_size, start);
  }
  int older = common - first, all = older + rows, scratch = scratch_base + request * rows;
  auto own_row = [&](int at) {
    return at < older ? max(cache_row(page_table, table_width, page_size, slot, first + at), 0) : scratch + at - older;
  };
  if (view_table) {
    for (int i = thread; i < view_width; i += BLOCK_THREADS) {
      int page = common / page_size + i;
      view_table[request * view_width + i] = page < table_width ? page_table[slot * table_width + page] : 0;
    }
  }
  if (group_own) {
    for (int i = thread; i < (runs ? all : 0); i += BLOCK_THREADS) {
      group_own[(u64)request * rows * own_stride + i] = own_row(i);
    }
    if (thread == 0) group_own_count[request] = runs ? all : 0;
  }
  if (thread == 0 && first_token) first_token[request] = token;
  if (thread == 0 && first_base) first_base[request] = request * steps;
  if (thread < steps && proposing) proposing[request * steps + thread] = request * rows + skipped + thread;
  if (thread >= rows) return;

  int row = request * rows + thread;
  row_token[row] = thread == 0 ? token : mask;
  row_position[row] = start + thread;
  row_write[row] = runs ? scratch + thread : -1;
  row_slot[row] = view_table ? request : slot;
  row_prefix[row] = runs ? start - common : 0;
  // The row's own rows: from `begin` to `older`, then from `from` to `to`.
  int begin = window ? min(max(start + thread + 1 - window - first, 0), older) : 0;
  int from = older + (window ? max(thread + 1 - window, 0) : 0), to = older + (causal ? thread + 1 : rows);
  row_own_count[row] = runs ? older - begin + to - from : 0;
  if (!runs) return;
  for (int at = begin; at < to; at++) {
    if (at < older || at >= from) {
      row_own[(u64)row * own_stride + (at < older ? at - begin : older - begin + at - from)] = own_row(at);
    }
  }
  if (!group_own) return;
  for (int word = 0; word < (all + 31) / 32; word++) {
    u32 bits = 0;
    for (int bit = 0; bit < 32; bit++) {
      int at = word * 32 + bit;
      if (at >= begin && at < to && (at < older || at >= from)) bits |= 1u << bit;
    }
    row_own_mask[(u64)row * mask_words + word] = bits;
  }
}

/// The nodes of a growing tree, in shared memory: the root is node 0.
struct Grown {
  int token[MOST_NODES], parent[MOST_NODES], depth[MOST_NODES];
  float score[MOST_NODES];
  /// Among the nodes of its parent's level, the parent's number.
  int above[MOST_NODES];
};

/// Adds levels to the trees of a batch: the proposals after nodes of depth `level`, for level =
/// begin .. end − 1, of which those stay that are among the best nodes − 1 of all so far. With the
/// last level, `end` = steps, it lays out the rows that the target verifies.
///
/// Reads ids and logprobs `[batch·rankings, topk]` (best first, `width` of each row count): row
/// b·rankings + level is of all nodes of that depth, or if `by_node` row b·rankings + n is of the
/// n-th of them (then end = begin + 1, and no more than `rankings` nodes can have children). Reads
/// batch_slot, length, root, page_table; and, unless begin = 0, the nodes as the level before left
/// them. Writes the nodes, and the rows as draft_finish does: see there, also for trees with fewer
/// candidates. Unless end = steps, it writes no rows, but for each request and n < next_rankings:
/// next_token, the token of the n-th node of depth `end`; next_source, the row of the ranking that
/// proposed it; and next_base = b·steps + end. Where there is no such node, token 0 and a valid
/// source. Grid batch, 256 threads, 4 bytes of shared memory for each of nodes − 1 + topk · (1 or
/// the most nodes of a depth); 2 ≤ nodes ≤ 128.
extern "C" __global__ void __launch_bounds__(TREE_THREADS)
    block_grow(const int* ids, const float* logprobs, int rankings, int by_node, int begin, int end, int steps, int topk,
               int width, int nodes, const int* batch_slot, const int* length, const int* root, const int* page_table,
               int table_width, int page_size, int dummy_slot, int* next_token, int* next_source, int* next_base,
               int next_rankings, VERIFY_PARAMETERS) {
  DYNAMIC_SHARED(dynamic);
  __shared__ int histogram[TREE_THREADS], warps[TREE_THREADS / WARP], chosen[2], place_of[MOST_NODES], writes[MOST_NODES];
  __shared__ int first_parent;
  __shared__ Grown trees[2];
  u32* keys = (u32*)dynamic;
  int request = (int)blockIdx.x, thread = (int)threadIdx.x, node = thread;
  int slot = load_fresh(batch_slot + request);
  bool runs = slot != dummy_slot;
  int start = runs ? load_fresh(length + slot) : 0, root_token = load_fresh(root + slot);
  u64 own = (u64)request * nodes;
  if (node < nodes && end == steps) {
    writes[node] = runs ? cache_row(page_table, table_width, page_size, slot, start + node) : -1;
  }
  wait_for_predecessor();
  if (node < nodes) {
    bool known = begin > 0;
    trees[0].token[node] = known ? node_token[own + node] : root_token;
    trees[0].parent[node] = known ? node_parent[own + node] : -1;
    trees[0].depth[node] = known ? node_depth[own + node] : 0;
    trees[0].score[node] = known ? node_score[own + node] : node == 0 ? 0.0f : -infinity();
  }
  block_sync();

  int now = 0;
  bool is_chain = topk == 1 && !by_node;
  if (is_chain && node > 0 && node < nodes) {
    // There is nothing to choose.
    u64 own_ranking = (u64)request * rankings;
    float score = 0.0f;
#pragma unroll 1
    for (int at = 0; at < node; at++) score += sane(logprobs[own_ranking + at]);
    trees[0].token[node] = ids[own_ranking + node - 1];
    trees[0].parent[node] = node - 1;
    trees[0].depth[node] = node;
    trees[0].score[node] = score;
  }
  if (is_chain) block_sync();
#pragma unroll 1
  for (int level = is_chain ? end : begin; level < end; level++, now ^= 1) {
    const Grown& old = trees[now];
    Grown& grown = trees[now ^ 1];
    // Copies of the root have no parent.
    bool real = node < nodes && (node == 0 || old.parent[node] >= 0);
    int parents, kept;
    int number = sum_before(real && old.depth[node] == level, warps, parents);
    sum_before(real && node > 0, warps, kept);
    if (real && old.depth[node] == level && number == 0) first_parent = node;
    block_sync();
    int first = first_parent;
    if (by_node) parents = min(parents, rankings);
    auto ranking = [&](int parent) { return ((u64)request * rankings + (by_node ? parent : level)) * topk; };
    auto score_of = [&](int proposal) {
      int parent = proposal / topk;
      return old.score[first + parent] + sane(logprobs[ranking(parent) + (proposal - parent * topk)]);
    };
    int places = kept + parents * topk;
#pragma unroll 1
    for (int at = thread; at < places; at += TREE_THREADS) {
      bool exists = at < kept || (at - kept) % topk < width;
      keys[at] = !exists ? 0 : ordered(at < kept ? old.score[1 + at] : score_of(at - kept));
    }
    block_sync();
    Cut cut = cut_pool(keys, places, nodes - 1, histogram, warps, chosen);
    int stay = number_kept(keys, places, cut, place_of, warps);
    block_sync();
    if (node < nodes) {
      bool stays = node > 0 && node <= stay;
      int place = stays ? place_of[node] : 0, proposal = place - kept, parent = -1, above = 0;
      if (stays && place < kept) {
        int before = old.parent[1 + place];
        parent = before == 0 ? 0 : (int)keys[before - 1];
      } else if (stays) {
        above = proposal / topk;
        parent = first + above == 0 ? 0 : (int)keys[first + above - 1];
      }
      bool is_new = stays && place >= kept;
      grown.parent[node] = parent;
      grown.above[node] = above;
      int token = !stays ? root_token : is_new ? ids[ranking(above) + (proposal - above * topk)] : old.token[1 + place];
      grown.token[node] = token;
      grown.depth[node] = !stays ? 0 : is_new ? level + 1 : old.depth[1 + place];
      grown.score[node] = node == 0 ? 0.0f : !stays ? -infinity() : is_new ? score_of(proposal) : old.score[1 + place];
    }
    block_sync();
  }

  const Grown& tree = trees[now];
  if (end < steps) {
    bool is_last = node < nodes && tree.parent[node] >= 0 && tree.depth[node] == end;
    int all, number = sum_before(is_last, warps, all);
    u64 next = (u64)request * next_rankings;
    int from = request * rankings;
    if (is_last && number < next_rankings) {
      next_token[next + number] = tree.token[node];
      next_source[next + number] = from + tree.above[node];
      next_base[next + number] = request * steps + end;
    }
    if (thread >= all && thread < next_rankings) {
      next_token[next + thread] = 0;
      next_source[next + thread] = from;
      next_base[next + thread] = request * steps + end;
    }
    if (node >= nodes) return;
    node_token[own + node] = tree.token[node];
    node_parent[own + node] = tree.parent[node];
    node_depth[own + node] = tree.depth[node];
    node_score[own + node] = tree.score[node];
    return;
  }
  if (node >= nodes) return;
  lay_out_node(Verified{nodes, slot, start, runs}, node, tree.token[node], tree.parent[node], tree.depth[node],
               tree.score[node], tree.parent, writes, VERIFY_ARGUMENTS);
}

/// Adds a row of `base` to each row: `logits[r] += base[source[r]]`, of `width` floats each, rows
/// `stride` and `width` apart. Grid: (pieces of 1024, rows), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    add_base(float* logits, int stride, const float* base, const int* source, int width) {
  wait_for_predecessor();
  u64 row = blockIdx.y;
  const float* from = base + (u64)source[row] * width;
  float* to = logits + row * stride;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int at = (int)(blockIdx.x * 1024 + i * 256 + threadIdx.x);
    if (at < width) to[at] += from[at];
  }
}
