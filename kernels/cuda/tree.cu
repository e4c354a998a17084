// Growing the draft tree on the device: beams, the pool of proposals, the best of the pool as a
// tree, and the rows of the passes that run it. The rules are those of the CPU's `tree::Expansion`;
// ties go to the lower index in the pool.
//
// A round of `steps` ≥ 1:
//   top_k_rows over the requests' logits draft_begin, then for step = 1 .. steps − 1: a draft pass
//   over batch · topk rows, top_k_rows over them, and
//     draft_expand(step) unless step is the last
//   draft_finish, which processes the last top_k_rows itself (with steps = 1 there is neither
//   draft_begin nor draft_expand)
// Without speculation decode_begin replaces all of them.
//
// Layout of a request's pool: first `topk` places for the tokens after the root, then topk² per
// step, beam by beam. If the draft's vocabulary has fewer than topk tokens (`width` = the smaller
// of the two), places stay empty: their score is NaN, and a beam that does not exist has the place
// −1. It runs as padding.
//
// Positions after a slot's pages have no cache row: rows there write nothing (−1), and row 0
// replaces them in lists of own rows (see `cache_row`).
//
// A request whose slot is `dummy_slot` is padding: all its rows see nothing and write nothing
// (write = −1). So do the rows of beams that do not exist. Of the dummy slot only root is read, as
// a valid placeholder token.
//
// Every kernel but decode_begin has one block per request. `row_*` describe the rows of the next
// pass (see attention.cu). If `group_own` is given, they also list the own rows of a request once
// each, as own_rows.cu does (see there for the layout).
//
// Only the output of `top_k_rows` is recent: everything else that these kernels read is older than
// the last draft pass, or than the round, and is read before the previous kernel has ended (see
// `await_predecessor`: in a pass rotation or attention releases late, and a round is a graph or
// follows a copy). Instructions are read like data, and none are in any cache at that point: loops
// that mostly run once are not unrolled.
#include "common.cuh"
#include "order.cuh"
#include "nodes.cuh"

/// Threads that find their best proposal together.
#define SELECT_GROUP 4
#define MOST_BEAMS 64

/// Starts the trees of a batch from the best tokens after each root.
///
/// Reads ids and logprobs `[batch, topk]` (best first, `width` of each row count), batch_slot
/// `[batch]`, length `[slots]`. Writes pool_token, pool_score and pool_parent
/// `[batch, topk + (steps − 1)·topk²]`, beam_place `[batch, topk]`, and the rows r = b·topk + beam
/// of the first draft pass: token; position = length; write = scratch_base + b·scratch_rows + beam,
/// where scratch_rows = (steps − 1)·topk; slot; prefix = length; own = the write row alone
/// (`own_stride` ≥ steps − 1); row_source = b, the row whose state it continues. Own rows of a
/// request: those of its beams, in order. Grid batch, 64 threads; steps ≥ 2, topk ≤ 64.
extern "C" __global__ void __launch_bounds__(64)
    draft_begin(int* pool_token, float* pool_score, int* pool_parent, int* beam_place, const int* ids,
                const float* logprobs, const int* batch_slot, const int* length, int steps, int topk, int width,
                int dummy_slot, int scratch_base, int* row_token, int* row_position, int* row_write, int* row_slot,
                int* row_prefix, int* row_own_count, int* row_own, int own_stride, int* row_source, int* group_own,
                int* group_own_count, u32* row_own_mask, int mask_words) {
  int request = (int)blockIdx.x, beam = (int)threadIdx.x;
  int slot = load_fresh(batch_slot + request), start = load_fresh(length + slot);
  wait_for_predecessor();
  if (beam >= topk) return;
  u64 pool = (u64)request * (topk + (steps - 1) * topk * topk);
  int row = request * topk + beam;
  bool exists = beam < width;
  int token = exists ? ids[row] : 0;
  pool_token[pool + beam] = token;
  pool_score[pool + beam] = exists ? sane(logprobs[row]) : absent();
  pool_parent[pool + beam] = -1;
  beam_place[row] = exists ? beam : -1;

  bool runs = exists && slot != dummy_slot;
  int write = scratch_base + request * ((steps - 1) * topk) + beam;
  row_token[row] = token;
  row_position[row] = runs ? start : 0;
  row_write[row] = runs ? write : -1;
  row_slot[row] = runs ? slot : dummy_slot;
  row_prefix[row] = runs ? start : 0;
  row_own_count[row] = runs ? 1 : 0;
  row_own[(u64)row * own_stride] = write;
  row_source[row] = request;
  if (!group_own) return;
  int beams = slot != dummy_slot ? width : 0;
  if (runs) group_own[(u64)request * topk * own_stride + beam] = write;
#pragma unroll 1
  for (int word = 0; word < (beams + 31) / 32; word++) {
    row_own_mask[(u64)row * mask_words + word] = runs && beam / 32 == word ? 1u << beam % 32 : 0u;
  }
  if (beam == 0) group_own_count[request] = beams;
}

/// The beams from which a step's proposals come, in shared memory: their places in the pool (−1 for
/// none) and scores.
struct Beams {
  int place[MOST_BEAMS];
  float score[MOST_BEAMS];
};
/// Reads the beams before the previous kernel has ended; the caller has to follow with a barrier.
__device__ __forceinline__ void read_beams(Beams& beams, const int* beam_place, const float* pool_score, int topk) {
  int beam = (int)threadIdx.x;
  if (beam >= topk) return;
  int place = load_fresh(beam_place + beam);
  beams.place[beam] = place;
  beams.score[beam] = place >= 0 ? bits_float((u32)load_fresh((const int*)pool_score + place)) : absent();
}

/// Writes a proposal of a step to the pool, whose part for this step begins at `pool_*`. Returns
/// its key for choosing the best: 0 if it does not exist.
__device__ __forceinline__ u64 take_proposal(int at, int* pool_token, float* pool_score, int* pool_parent,
                                             const Beams& beams, const int* ids, const float* logprobs, int topk,
                                             int width, int& token) {
  int beam = at / topk, place = beams.place[beam];
  bool exists = place >= 0 && at - beam * topk < width;
  float score = exists ? beams.score[beam] + sane(logprobs[at]) : absent();
  token = exists ? ids[at] : 0;
  pool_token[at] = token;
  pool_score[at] = score;
  pool_parent[at] = place;
  return exists ? composite(score, (u32)at) : 0;
}

/// Processes the proposals of draft pass `step` (1 ≤ step ≤ steps − 2) and chooses the beams of the
/// next.
///
/// Reads ids and logprobs `[batch·topk, topk]`, batch_slot, length, and the pool, beam_place and
/// row_own as `draft_begin` or the previous step left them. Writes all of these, and the rows of
/// draft pass step + 1: as `draft_begin`, but position = length + step, write = scratch_base +
/// b·scratch_rows + step·topk + beam, own = the write rows of the beam's path, its own last,
/// row_source = b·topk + the beam of this pass that it continues. Own rows of a request: those on
/// the path of any beam, in ascending order. Grid batch, 256 threads; topk ≤ 64. Dynamic shared
/// memory: 8 bytes per proposal; if there are more than 256, also Selection and 8 bytes for each of
/// topk · (1 + 4 · turns), turns being ceil(proposals / 256); then 4 bytes for each of 3 ·
/// (step + 1) · topk.
extern "C" __global__ void __launch_bounds__(256)
    draft_expand(int* pool_token, float* pool_score, int* pool_parent, int* beam_place, const int* ids,
                 const float* logprobs, const int* batch_slot, const int* length, int step, int steps, int topk,
                 int width, int dummy_slot, int scratch_base, int* row_token, int* row_position, int* row_write,
                 int* row_slot, int* row_prefix, int* row_own_count, int* row_own, int own_stride, int* row_source,
                 int* group_own, int* group_own_count, u32* row_own_mask, int mask_words) {
  DYNAMIC_SHARED(dynamic);
  __shared__ Beams beams;
  // For the new beams: −1 if there is none.
  __shared__ int proposal_of[MOST_BEAMS], token_of[MOST_BEAMS], found;
  int request = (int)blockIdx.x, thread = (int)threadIdx.x, proposals = topk * topk, seen = (step + 1) * topk;
  int turns = (proposals + TREE_THREADS - 1) / TREE_THREADS;
  u64* keys = (u64*)dynamic;
  Selection* selection = (Selection*)(keys + proposals);
  u64 *best = (u64*)(selection + 1), *candidate = best + topk;
  // Scratch rows of the old beams' paths, [topk, step]; whether a scratch row is on a new beam's
  // path, and its index there.
  int* ways = (int*)(turns > 1 ? candidate + SELECT_GROUP * turns * topk : keys + proposals);
  int *on_way = ways + seen, *place = on_way + seen;
  u64 pool = (u64)request * (topk + (steps - 1) * proposals);
  int first = topk + (step - 1) * proposals, scratch = scratch_base + request * ((steps - 1) * topk);
  u64 before = (u64)request * proposals;
  row_own += (u64)request * topk * own_stride;

  int slot = load_fresh(batch_slot + request), start = load_fresh(length + slot);
  read_beams(beams, beam_place + request * topk, pool_score + pool, topk);
#pragma unroll 1
  for (int at = thread; at < seen; at += TREE_THREADS) {
    int beam = at / step;
    if (beam < topk) ways[at] = load_fresh(row_own + (u64)beam * own_stride + (at - beam * step)) - scratch;
    on_way[at] = 0;
  }
  if (thread < topk) proposal_of[thread] = -1;
  wait_for_predecessor();
  block_sync();

  int token = 0;
  u64 key = 0, largest = 0;
#pragma unroll 1
  for (int at = thread; at < proposals; at += TREE_THREADS) {
    key = take_proposal(at, pool_token + pool + first, pool_score + pool + first, pool_parent + pool + first, beams,
                        ids + before, logprobs + before, topk, width, token);
    keys[at] = key;
    largest = key > largest ? key : largest;
  }
  block_sync();
  if (turns == 1) {
    int rank = 0;
#pragma unroll 4
    for (int i = 0; i < proposals; i++) rank += keys[i] > key;
    if (key > 0 && rank < topk) {
      proposal_of[rank] = thread;
      token_of[rank] = token;
    }
  } else {
    auto own = [&](u64, auto take) {
#pragma unroll 1
      for (int at = thread; at < proposals; at += TREE_THREADS) take(keys[at]);
    };
    select_best(*selection, candidate, best, own, largest, topk, SELECT_GROUP);
    if (thread < topk && best[thread] > 0) {
      int proposal = (int)composite_index(best[thread]);
      proposal_of[thread] = proposal;
      token_of[thread] = ids[before + proposal];
    }
  }
  block_sync();

  bool runs = slot != dummy_slot;
#pragma unroll 1
  for (int at = thread; at < seen; at += TREE_THREADS) {
    int depth = at / topk, beam = at - depth * topk, proposal = proposal_of[beam];
    if (proposal < 0 || !runs) continue;
    int own = depth < step ? ways[proposal / topk * step + depth] : at;
    row_own[(u64)beam * own_stride + depth] = scratch + own;
    on_way[own] = 1;
  }
  if (thread < topk) {
    int proposal = proposal_of[thread], row = request * topk + thread;
    bool exists = proposal >= 0;
    runs = runs && exists;
    beam_place[row] = exists ? first + proposal : -1;
    row_token[row] = exists ? token_of[thread] : 0;
    row_position[row] = runs ? start + step : 0;
    row_write[row] = runs ? scratch + step * topk + thread : -1;
    row_slot[row] = runs ? slot : dummy_slot;
    row_prefix[row] = runs ? start : 0;
    row_own_count[row] = runs ? step + 1 : 0;
    row_source[row] = request * topk + (exists ? proposal / topk : 0);
  }
  if (!group_own) return;
  block_sync();
  if (warp() == 0) {
    int count = 0;
#pragma unroll 1
    for (int base = 0; base < seen; base += WARP) {
      bool is_on = base + lane() < seen && on_way[base + lane()];
      u32 lanes = ballot(is_on);
      int to = count + __popc(lanes & ((1u << lane()) - 1));
      if (is_on) {
        place[base + lane()] = to;
        group_own[(u64)request * topk * own_stride + to] = scratch + base + lane();
      }
      count += __popc(lanes);
    }
    if (lane() == 0) {
      found = count;
      group_own_count[request] = count;
    }
  }
  block_sync();
  if (thread >= topk) return;
  // Places grow with depth, so words are written in order.
  u32* mask = row_own_mask + (u64)(request * topk + thread) * mask_words;
  u32 bits = 0;
  int word = 0, depths = runs ? step + 1 : 0;
#pragma unroll 1
  for (int depth = 0; depth < depths; depth++) {
    int at = place[depth < step ? ways[proposal_of[thread] / topk * step + depth] : step * topk + thread];
#pragma unroll 1
    for (; word < at / 32; word++, bits = 0) mask[word] = bits;
    bits |= 1u << at % 32;
  }
#pragma unroll 1
  for (; word < (found + 31) / 32; word++, bits = 0) mask[word] = bits;
}

/// Processes the proposals of the last draft step, keeps the best of the pool as a tree, and lays
/// out the rows that the target verifies.
///
/// Reads ids and logprobs `[batch·topk, topk]` of the last step (`[batch, topk]` if steps = 1), the
/// pool and beam_place (if steps > 1), batch_slot, length and root `[slots]`, page_table
/// `[slots, table_width]`. Writes node_token, node_parent (−1 for the root), node_depth, node_score
/// (0 for the root) `[batch, nodes]`, and the rows r = b·nodes + n: token; position = length +
/// depth; write = the cache row of position length + n; slot; prefix = length; own = the write rows
/// of the path from the root to n, its own last (`own_stride` ≥ steps + 1), own_count = depth + 1;
/// row_sample_position = length + depth + 1, the position of the token that follows. Own rows of a
/// request: those of its nodes, in order. group_prefix `[batch]` is each request's length (null:
/// not written). output_place advances, see `next_output`. If there are fewer candidates than nodes
/// − 1, the rest are copies of the root (parent −1, depth 0, score −∞) that see themselves alone
/// after the prefix, and that no walk reaches. Padding requests: prefix and own_count 0. Grid
/// batch, 256 threads, 4 bytes of shared memory per place of the pool; 2 ≤ nodes ≤ 128, any depth.
extern "C" __global__ void __launch_bounds__(256)
    draft_finish(int* pool_token, float* pool_score, int* pool_parent, const int* beam_place, const int* ids,
                 const float* logprobs, const int* batch_slot, const int* length, const int* root, const int* page_table,
                 int table_width, int page_size, int steps, int topk, int nodes, int width, int dummy_slot,
                 VERIFY_PARAMETERS) {
  DYNAMIC_SHARED(dynamic);
  __shared__ int histogram[256], warps[TREE_THREADS / WARP], chosen[2];
  __shared__ int place_of[MOST_NODES], parents[MOST_NODES], writes[MOST_NODES];
  __shared__ Beams beams;
  u32* keys = (u32*)dynamic;
  int request = (int)blockIdx.x, thread = (int)threadIdx.x;
  int places = topk + (steps - 1) * topk * topk;
  pool_token += (u64)request * places;
  pool_score += (u64)request * places;
  pool_parent += (u64)request * places;

  int slot = load_fresh(batch_slot + request);
  bool runs = slot != dummy_slot;
  int start = runs ? load_fresh(length + slot) : 0, node = thread, token = load_fresh(root + slot);
  if (node < nodes) writes[node] = runs ? cache_row(page_table, table_width, page_size, slot, start + node) : -1;
  // The proposals of the last step continue its beams: with one step the root, whose place is not
  // used.
  int width_of_step = steps == 1 ? topk : topk * topk, first = places - width_of_step;
  if (steps > 1) {
    read_beams(beams, beam_place + request * topk, pool_score, topk);
#pragma unroll 1
    for (int at = thread; at < first; at += TREE_THREADS) {
      keys[at] = ordered(bits_float((u32)load_fresh((const int*)pool_score + at)));
    }
  } else if (thread == 0) {
    beams.place[0] = 0;
    beams.score[0] = 0.0f;
  }
  wait_for_predecessor();
  block_sync();
  u64 before = (u64)request * width_of_step;
#pragma unroll 1
  for (int at = thread; at < width_of_step; at += TREE_THREADS) {
    int ignored;
    u64 key = take_proposal(at, pool_token + first, pool_score + first, pool_parent + first, beams, ids + before,
                            logprobs + before, topk, width, ignored);
    if (steps == 1) pool_parent[at] = -1;
    keys[first + at] = (u32)(key >> 32);
  }
  block_sync();

  Cut cut = cut_pool(keys, places, nodes - 1, histogram, warps, chosen);
  int kept = number_kept(keys, places, cut, place_of, warps);
  block_sync();

  int parent = -1, depth = 0;
  float score = node == 0 ? 0.0f : -infinity();
  if (node < nodes) {
    if (node > 0 && node <= kept) {
      int place = place_of[node];
      score = pool_score[place];
      int above = pool_parent[place];
      token = pool_token[place];
      parent = above < 0 ? 0 : (int)keys[above];
      depth = place < topk ? 1 : 2 + (place - topk) / (topk * topk);
    }
    parents[node] = parent;
  }
  block_sync();
  if (node >= nodes) return;
  lay_out_node(Verified{nodes, slot, start, runs}, node, token, parent, depth, score, parents, writes, VERIFY_ARGUMENTS);
}

/// The rows of a round without speculation: r = b, a tree of the root alone, as a causal row.
///
/// Reads batch_slot, length, root and page_table; writes the nodes as `draft_finish` with nodes =
/// 1, and the rows: token = root; position = length; write = the cache row of that position; slot;
/// prefix = length + 1; own_count 0; row_sample_position = length + 1; group_prefix = length (null:
/// not written); output_place as there. Padding requests: prefix 0. Grid ceil(batch / 64), 64
/// threads.
extern "C" __global__ void __launch_bounds__(64)
    decode_begin(const int* batch_slot, const int* length, const int* root, const int* page_table, int table_width,
                 int page_size, int batch, int dummy_slot, int* node_token, int* node_parent, int* node_depth,
                 int* row_token, int* row_position, int* row_write, int* row_slot, int* row_prefix, int* row_own_count,
                 int* row_sample_position, int* group_prefix, int* output_place, int output_places) {
  wait_for_predecessor();
  int request = (int)(blockIdx.x * 64 + threadIdx.x);
  if (request >= batch) return;
  int slot = batch_slot[request];
  bool runs = slot != dummy_slot;
  int start = runs ? length[slot] : 0, token = root[slot];
  node_token[request] = token;
  node_parent[request] = -1;
  node_depth[request] = 0;
  row_token[request] = token;
  row_position[request] = start;
  row_write[request] = runs ? cache_row(page_table, table_width, page_size, slot, start) : -1;
  row_slot[request] = slot;
  row_prefix[request] = runs ? min(start + 1, table_width * page_size) : 0;
  row_own_count[request] = 0;
  row_sample_position[request] = start + 1;
  if (group_prefix) group_prefix[request] = start;
  if (request == 0) next_output(output_place, output_places);
}

/// Lays out the rows with which the target verifies trees that the host has drafted, or that are
/// played.
///
/// Reads given_token, given_parent and given_score `[batch, nodes]`, parents before their children;
/// those of node 0, the root, are not used. A node whose parent does not come before it, or that is
/// deeper than `steps`, does not exist, and neither do the nodes below it. Reads batch_slot,
/// length, root and page_table; writes the nodes and the rows as draft_finish does: see there.
/// Nodes that do not exist are copies of the root, as there. Without given_score (null) the score
/// of a node is −depth. Padding requests have a root only. Grid batch, 128 threads; 2 ≤ nodes ≤
/// 128.
extern "C" __global__ void __launch_bounds__(MOST_NODES)
    host_trees(const int* given_token, const int* given_parent, const float* given_score, const int* batch_slot,
               const int* length, const int* root, const int* page_table, int table_width, int page_size, int steps, int nodes,
               int dummy_slot, VERIFY_PARAMETERS) {
  __shared__ int parents[MOST_NODES], writes[MOST_NODES];
  wait_for_predecessor();
  int request = (int)blockIdx.x, node = (int)threadIdx.x, slot = batch_slot[request];
  bool runs = slot != dummy_slot;
  int start = runs ? length[slot] : 0;
  u64 at = (u64)request * nodes + node;
  if (node < nodes) {
    int parent = given_parent[at];
    parents[node] = runs && node > 0 && parent >= 0 && parent < node ? parent : -1;
    writes[node] = runs ? cache_row(page_table, table_width, page_size, slot, start + node) : -1;
  }
  block_sync();
  if (node >= nodes) return;
  int depth = 0, above = node;
#pragma unroll 1
  for (; parents[above] >= 0; above = parents[above]) depth++;
  bool exists = above == 0 && depth <= steps;
  depth = exists ? depth : 0;
  int token = exists && node > 0 ? max(given_token[at], 0) : root[slot];
  lay_out_node(Verified{nodes, slot, start, runs}, node, token, exists ? parents[node] : -1, depth,
               !exists              ? -infinity()
               : given_score && node ? given_score[at]
                                     : (float)-depth,
               parents, writes, VERIFY_ARGUMENTS);
}

/// Gives trees the form that their texts have in a trace, for simulated acceptance (see
/// `simulated_count` in accept.cu): scores and parents of the nodes, in place of those that a draft
/// of random weights gives them. Tokens stay. Trees of requests without a text stay as they are.
///
/// Reads node_token, node_parent, node_score `[batch, nodes]`; parent and score `[positions,
/// nodes]` of all texts; played `[slots, 4]`, length, batch_slot. Writes given_token, given_parent,
/// given_score `[batch, nodes]` for host_trees. Grid batch, 128 threads; nodes ≤ 128.
extern "C" __global__ void __launch_bounds__(MOST_NODES)
    play_trees(int* given_token, int* given_parent, float* given_score, const int* node_token, const int* node_parent,
               const float* node_score, const int* parent, const float* score, const int* played, const int* length,
               const int* batch_slot, int nodes, int dummy_slot) {
  wait_for_predecessor();
  int request = (int)blockIdx.x, node = (int)threadIdx.x, slot = batch_slot[request];
  if (node >= nodes) return;
  u64 at = (u64)request * nodes + node;
  const int* text = played + 4 * (u64)slot;
  int positions = slot == dummy_slot ? 0 : text[1];
  given_token[at] = node_token[at];
  if (positions <= 0) {
    given_parent[at] = node_parent[at];
    given_score[at] = node_score[at];
    return;
  }
  u64 from = ((u64)text[0] + (u64)((text[2] + length[slot]) % positions)) * nodes + node;
  given_parent[at] = parent[from];
  given_score[at] = score[from];
}
