// Acceptance: the walk down the tree along the target's choices, the rows of the draft's extend,
// and the move of accepted cache rows to the rows of their positions. The rule is that of the CPU's
// `tree::walk`.
#include "common.cuh"
#include "order.cuh"

#define MOST_NODES 128
#define NODES_A_LANE (MOST_NODES / WARP)

/// Separates the random draws of simulated acceptance from those of tokens.
#define SIMULATION 0xA5C3D2E1F0B49687ull

/// The lowest node whose flag is set (node `lane + 32·i` in item i), or −1.
__device__ __forceinline__ int first_node(const bool (&holds)[NODES_A_LANE]) {
  int found = -1;
#pragma unroll
  for (int i = NODES_A_LANE - 1; i >= 0; i--) {
    u32 lanes = ballot(holds[i]);
    if (lanes) found = i * WARP + __ffs((int)lanes) - 1;
  }
  return found;
}

/// What a request accepts if acceptance is simulated.
struct Simulated {
  /// Number of tokens that it produces, from 1 to min(`most`, `nodes`); 0 if acceptance is not
  /// simulated or the request is padding.
  int count;
  /// The node to which the path leads; 0 for the first one of its depth.
  int end;
};

/// Simulated acceptance.
///
/// If texts are played (`accepted` is not null), the count is one more than the drafts that their
/// trace accepts, in the low 16 bits of an entry, and the end is in the high ones: played `[slots,
/// 4]` is, for each slot, where its text begins in `accepted`, how many
/// positions that has (0: none, acceptance is not simulated), and the position of the text at
/// position 0 of the sequence; a text that ends starts again. Else the count is ⌊simulate⌋, plus
/// one with the probability of the fraction: a function of the slot's seed and length.
__device__ __forceinline__ Simulated simulated_count(float simulate, const int* accepted, const int* played, bool runs,
                                                     const u64* seed, int slot, int start, int most, int nodes) {
  if (!runs) return {0, 0};
  if (accepted) {
    const int* text = played + 4 * (u64)slot;
    int begin = load_fresh(text), positions = load_fresh(text + 1), origin = load_fresh(text + 2);
    if (positions <= 0) return {0, 0};
    int entry = load_fresh(accepted + begin + (origin + start) % positions);
    return {max(1, min(1 + (entry & 0xFFFF), min(most, nodes))), min(entry >> 16, nodes - 1)};
  }
  if (!(simulate > 0.0f)) return {0, 0};
  simulate = simulate < (float)MOST_NODES ? simulate : (float)MOST_NODES;
  int whole = (int)simulate;
  uint2 words = load_fresh_8(seed + slot);
  u64 bits = random_bits(((u64)words.y << 32 | words.x) ^ SIMULATION, start);
  // True with the probability of the fraction, by a draw of 53 bits.
  u64 fraction = (u64)(((double)simulate - (double)whole) * 9007199254740992.0);
  return {max(1, min(whole + (bits < fraction ? 1 : 0), min(most, nodes))), 0};
}

/// A tree in shared memory: parent (−1: none), token, depth and target's choice of each node.
struct Tree {
  int parents[MOST_NODES], tokens[MOST_NODES], depths[MOST_NODES], choices[MOST_NODES];
};

/// Reads this thread's node of a request's tree, except its choice.
__device__ __forceinline__ void read_node(Tree& tree, const int* token, const int* parent, const int* depth, u64 first,
                                          int nodes) {
  int node = (int)threadIdx.x;
  bool real = node < nodes;
  tree.parents[node] = real ? load_fresh(parent + first + node) : -1;
  tree.tokens[node] = real ? load_fresh(token + first + node) : 0;
  tree.depths[node] = real ? load_fresh(depth + first + node) : -1;
}

/// Writes the path from the root, at most `most` nodes, and returns its length: from each node to
/// the lowest child whose token is the node's choice. For padding (`runs` is false) it is the root
/// alone. If acceptance is simulated, choices are ignored: the path leads to its end, or without
/// one to the first node of depth `count` − 1, or consists of the first `count` nodes if the tree
/// is not that deep. Called by one warp.
__device__ __forceinline__ int walk(const Tree& tree, bool runs, Simulated simulated, int most, int* path) {
  bool holds[NODES_A_LANE];
  if (int count = simulated.count) {
#pragma unroll
    for (int i = 0; i < NODES_A_LANE; i++) holds[i] = tree.depths[i * WARP + lane()] == count - 1;
    int node = simulated.end && tree.depths[simulated.end] == count - 1 ? simulated.end : first_node(holds);
    if (lane() == 0) {
#pragma unroll 1
      for (int i = count - 1; i >= 0; i--) {
        path[i] = node < 0 ? i : node;
        node = node < 0 ? node : tree.parents[node];
      }
    }
    return count;
  }
  // The parent of a node that holds its parent's choice, else −1: the walk goes from that parent to
  // this node.
  int from[NODES_A_LANE];
#pragma unroll
  for (int i = 0; i < NODES_A_LANE; i++) {
    int node = i * WARP + lane(), parent = tree.parents[node];
    from[i] = parent >= 0 && runs && tree.tokens[node] == tree.choices[parent] ? parent : -1;
  }
  int node = 0, found = 0;
#pragma unroll 1
  for (; node >= 0 && found < most; found++) {
    if (lane() == 0) path[found] = node;
#pragma unroll
    for (int i = 0; i < NODES_A_LANE; i++) holds[i] = from[i] == node;
    node = first_node(holds);
  }
  return found;
}

/// One step of walks down trees whose choices are computed along the way: stores the choices after
/// the walks' current nodes, and advances to the next nodes without a known choice.
///
/// Reads choice `[batch]`, the target's token after row `row[request]`; row_slot and row_sample
/// `[batch·nodes]` of the rows of the target's pass; ahead_place `[batch·nodes]` as list_nodes left
/// it and the choices ahead_choice that were computed in advance (null: none were); the rest as in
/// accept_drafts. Writes chosen `[batch·nodes]`: at step 0 ahead_choice[place], or NOT_ASKED, which
/// no node holds; later chosen[row] = choice if it is still NOT_ASKED. A known choice stays,
/// because `choice` is an arbitrary token if no walk needed one. Then writes row `[batch]`, the
/// first node on the path from the root whose choice is not known, or the last node; and slot and
/// sample `[batch]` of that row.
///
/// needed[step mod 2] becomes 1 if a walk (padding excluded) is at a node whose choice is not
/// known, and otherwise stays 0; the other element is reset to 0. needed[0] is 0 when a round
/// begins: after its last step, `most`, all choices on the paths are known; a round that ends with
/// step 1, where some may be unknown, has reset it in that step.
///
/// Tree, slots and lengths are older than the target's pass and are read before the wait. Grid
/// batch, 128 threads; nodes ≤ 128, most ≤ 128.
extern "C" __global__ void __launch_bounds__(128)
    advance_accept(int* chosen, const int* node_token, const int* node_parent, const int* node_depth, const int* batch_slot,
            const u64* seed, int nodes, int most, int dummy_slot, float simulate, const int* accepted,
            const int* played, const int* length, int step,
            const int* choice, const int* row_slot, const int* row_sample, const int* ahead_place, const int* ahead_choice,
            int* row, int* slot_of, int* sample_of, int* needed) {
  __shared__ Tree tree;
  __shared__ int path[MOST_NODES];
  int request = (int)blockIdx.x, node = (int)threadIdx.x;
  u64 first = (u64)request * nodes;
  int slot = load_fresh(batch_slot + request);
  bool runs = slot != dummy_slot;
  read_node(tree, node_token, node_parent, node_depth, first, nodes);
  int start = runs ? load_fresh(length + slot) : 0;
  Simulated simulated = simulated_count(simulate, accepted, played, runs, seed, slot, start, most, nodes);
  wait_for_predecessor();
  int own = NOT_ASKED;
  if (node < nodes) {
    if (step > 0) {
      own = chosen[first + node];
      if (own == NOT_ASKED && (u64)row[request] == first + node) chosen[first + node] = own = choice[request];
    } else {
      int place = ahead_place ? ahead_place[first + node] : -1;
      chosen[first + node] = own = place < 0 ? NOT_ASKED : ahead_choice[place];
    }
  }
  tree.choices[node] = own;
  if (request == 0 && node == 0) needed[(step + 1) % 2] = 0;
  block_sync();
  if (warp() > 0) return;
  int found = walk(tree, runs, simulated, most, path);
  if (lane() > 0) return;
  int at = 0;
  while (at < found - 1 && tree.choices[path[at]] != NOT_ASKED) at++;
  if (runs && tree.choices[path[at]] == NOT_ASKED) needed[step % 2] = 1;
  u64 next = first + path[at];
  row[request] = (int)next;
  slot_of[request] = row_slot[next];
  sample_of[request] = row_sample[next];
}

/// Accepts along the target's choices and makes the accepted tokens part of the sequences.
///
/// Reads chosen `[batch·nodes]` (the target's token after each node), node_token, node_parent,
/// node_depth `[batch, nodes]`, batch_slot `[batch]`, seed `[slots]`, accepted and played (only for
/// simulation), page_table. The path is that of `walk`, of `simulated_count` nodes if acceptance is
/// simulated. It ends before the first node, other than the root, whose choice is not known
/// (NOT_ASKED). Choices off the path are not used. A path ends at a choice that is NOT_FINITE,
/// unless it is simulated. The host receives the position without a token; everything else uses
/// token 0 there.
///
/// Writes, with `most` = steps + 1:
/// - accepted_node `[batch, most]`: the path from the root.
/// - For the host, in its own memory, at place *output_place of output `[places, output_ints]`:
///   `[batch]` counts of
/// produced tokens, 1 to most, and `[batch, most]` tokens: the choices along the path, drafts and
/// then the bonus token. A choice that is NOT_FINITE is written as its position, negated. Tokens
/// after the count have no meaning.
/// - move_from, move_to `[batch, most]`: cache rows for compact_cache, −1 after the count.
/// - The rows r = b·most + i of the draft's extend: row_token = token i; row_position = length + i;
///   row_write = the
/// cache row of that position; row_slot; row_prefix = length + i + 1; row_own_count = 0;
/// row_source, the row whose features they read: b·nodes + accepted_node[i]. If the target ran over
/// listed nodes (ahead_place `[batch·nodes]` as list_nodes left it, not null), it is ahead_first +
/// the place of a listed node, or the request itself for the node at which its walk ended after two
/// passes. If it ran over no others, ahead_choice are its tokens after them, and `chosen` is not
/// read (null otherwise). Rows after
/// the count are padding: they belong to the dummy slot, see nothing, write nothing (−1), and
/// repeat the last token and source.
/// - last_row `[batch]`: b·most + count − 1.
/// - group_prefix, group_rows `[batch]`: length and count (null: not written).
/// - text `[slots, text_width]` (null: not written): the root at position length, and the produced
/// tokens after it.
/// - length[slot] += count, clamped to the slot's pages (rows after them are padding too), and
///   root[slot] = the last
/// token. Those of the dummy slot stay unchanged: its requests accept the root alone, and all their
/// rows are padding.
///
/// All inputs but `chosen` are older than the target's pass, in which rotation or attention
/// releases late, and are read before the previous kernel has ended (see `await_predecessor`). Grid
/// batch, 128 threads; nodes ≤ 128, most ≤ 128.
extern "C" __global__ void __launch_bounds__(128)
    accept_drafts(const int* chosen, const int* node_token, const int* node_parent, const int* node_depth,
                  const int* batch_slot, const u64* seed, int nodes, int most, int dummy_slot, float simulate,
                  const int* accepted, const int* played, const int* page_table, int table_width, int page_size,
                  int* length, int* root, int* output,
                  int output_ints, const int* output_place, int* accepted_node, int* move_from, int* move_to,
                  int* row_token, int* row_position, int* row_write, int* row_slot, int* row_prefix, int* row_own_count,
                  int* row_source, int* last_row, int* group_prefix, int* group_rows, const int* ahead_place,
                  const int* ahead_choice, int ahead_first, int* text, int text_width) {
  __shared__ Tree tree;
  __shared__ int path[MOST_NODES];
  // Cache rows of the positions from the request's length on.
  __shared__ int cache_rows[MOST_NODES];
  __shared__ int count;
  int request = (int)blockIdx.x, thread = (int)threadIdx.x;
  u64 first = (u64)request * nodes;
  int slot = load_fresh(batch_slot + request);
  bool runs = slot != dummy_slot;
  int start = runs ? load_fresh(length + slot) : 0, limit = table_width * page_size;
  read_node(tree, node_token, node_parent, node_depth, first, nodes);
  cache_rows[thread] = runs ? cache_row(page_table, table_width, page_size, slot, start + thread) : -1;
  output += (u64)load_fresh(output_place) * output_ints;
  Simulated simulated = simulated_count(simulate, accepted, played, runs, seed, slot, start, most, nodes);
  wait_for_predecessor();
  if (!ahead_choice) {
    tree.choices[thread] = thread < nodes ? chosen[first + thread] : 0;
  } else {
    int place = thread < nodes ? ahead_place[first + thread] : -1;
    tree.choices[thread] = place < 0 ? NOT_ASKED : ahead_choice[place];
  }
  block_sync();

  if (warp() == 0) {
    int found = walk(tree, runs, simulated, most, path);
    if (lane() == 0) {
      count = 1;
      while (count < found && tree.choices[path[count]] != NOT_ASKED) count++;
    }
  }
  block_sync();

  int last = tree.choices[path[count - 1]];
  if (int i = thread; i < most) {
    u64 at = (u64)request * most + i;
    bool accepted = i < count;
    int node = path[accepted ? i : count - 1];
    int token = accepted ? tree.choices[node] : last;
    bool sees = accepted && runs && start + i < limit;
    int from = sees ? cache_rows[node] : -1, to = sees ? cache_rows[i] : -1;
    accepted_node[at] = node;
    output[gridDim.x + at] = token < 0 ? -(start + i + 1) : token;
    token = max(token, 0);
    if (text && accepted && runs && start + i + 1 < text_width) text[(u64)slot * text_width + start + i + 1] = token;
    move_from[at] = from;
    move_to[at] = from >= 0 ? to : -1;
    row_token[at] = token;
    row_position[at] = sees ? start + i : 0;
    row_write[at] = to;
    row_slot[at] = sees ? slot : dummy_slot;
    row_prefix[at] = sees ? start + i + 1 : 0;
    row_own_count[at] = 0;
    int place = ahead_place ? ahead_place[first + node] : -1;
    row_source[at] = !ahead_place ? request * nodes + node : place >= 0 ? ahead_first + place : request;
  }
  if (thread == 0) {
    output[request] = count;
    last_row[request] = request * most + count - 1;
    if (group_prefix) group_prefix[request] = start;
    if (group_rows) group_rows[request] = count;
    if (runs) {
      if (text && start < text_width) text[(u64)slot * text_width + start] = root[slot];
      length[slot] = min(start + count, limit);
      root[slot] = max(last, 0);
    }
  }
}

#define COPY_THREADS 128
#define COPIES 8

/// Moves the accepted rows of all caches to the rows of their positions.
///
/// base: `planes` = 2 · layers planes (keys, then values) of `plane_bytes`, in which row r starts
/// at r · row_bytes; both multiples of 16. move_from, move_to `[batch, most]` as `accept_drafts`
/// left them. In ascending order a row's destination is never after its source, and no later source
/// is an earlier destination. So several rows may be read before the first is written; each thread
/// does so for its own columns of 16 bytes. Grid (planes, batch), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
    compact_cache(unsigned char* base, u64 plane_bytes, int row_bytes, const int* move_from, const int* move_to, int most) {
  wait_for_predecessor();
  __shared__ int from[COPIES], to[COPIES];
  int thread = (int)threadIdx.x;
  unsigned char* plane = base + (u64)blockIdx.x * plane_bytes;
  move_from += (u64)blockIdx.y * most;
  move_to += (u64)blockIdx.y * most;
  for (int first = 0; first < most; first += COPIES) {
    if (thread < COPIES) {
      int at = first + thread;
      from[thread] = at < most ? move_from[at] : -1;
      to[thread] = at < most ? move_to[at] : -1;
    }
    block_sync();
    for (int column = thread * 16; column < row_bytes; column += COPY_THREADS * 16) {
      uint4 values[COPIES];
#pragma unroll
      for (int i = 0; i < COPIES; i++) {
        if (from[i] != to[i]) values[i] = load_16(plane + (u64)from[i] * row_bytes + column);
      }
#pragma unroll
      for (int i = 0; i < COPIES; i++) {
        if (from[i] != to[i]) *(uint4*)(plane + (u64)to[i] * row_bytes + column) = values[i];
      }
    }
    block_sync();
  }
}
