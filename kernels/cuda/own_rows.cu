// Lists each own row of a group once, for attention_few.cu and attention_tiles.cu, whose blocks
// then read cache rows and masks instead of the rows' own lists. The lists are the same for all
// layers of a pass, so this runs once per pass.
#include "common.cuh"

#define MOST_ROWS 128

/// Finds each distinct (place in a row's list, cache row) of a group once, ordered by place and
/// then by row.
///
/// Reads row_own_count `[rows]`, row_own `[rows, own_stride]`, and the groups as in
/// attention_few.cu. Writes for each group g: group_own_count `[groups]`; that many cache rows at
/// group_own `[first row · own_stride]`; and for its rows row_own_mask `[rows, mask_words]`: bit i
/// is set if the row sees own row i. Only the words that hold these bits are written. Grid: groups,
/// 128 threads; a group has at most 128 rows, and 32 · mask_words ≥ rows of a group · own_stride.
extern "C" __global__ void __launch_bounds__(128)
    gather_own(int* group_own, int* group_own_count, u32* row_own_mask, int mask_words, const int* row_own_count,
               const int* row_own, int own_stride, const int* group_first, int group_rows, int rows) {
  wait_for_predecessor();
  __shared__ int entry[MOST_ROWS], place[MOST_ROWS], warp_firsts[MOST_ROWS / WARP], warp_deepest[MOST_ROWS / WARP];
  int thread = (int)threadIdx.x, group = (int)blockIdx.x;
  int first_row = group_first ? group_first[group] : group * group_rows;
  int end_row = group_first ? group_first[group + 1] : min(first_row + group_rows, rows);
  int row = first_row + thread;
  int count = row < end_row ? min(row_own_count[row], own_stride) : 0;
  const int* own = row_own + (u64)row * own_stride;
  u32* mask = row_own_mask + (u64)row * mask_words;
  group_own += (u64)first_row * own_stride;

  int deepest = count;
#pragma unroll
  for (int by = WARP / 2; by > 0; by /= 2) deepest = max(deepest, shuffle_xor(deepest, by));
  if (lane() == 0) warp_deepest[warp()] = deepest;
  block_sync();
#pragma unroll
  for (int w = 0; w < MOST_ROWS / WARP; w++) deepest = max(deepest, warp_deepest[w]);

  int found = 0, word = 0, next = count > 0 ? own[0] : -1;
  u32 bits = 0;
  for (int depth = 0; depth < deepest; depth++) {
    int mine = next;
    next = depth + 1 < count ? own[depth + 1] : -1;
    entry[thread] = mine;
    block_sync();
    int like = thread;
    for (int other = thread - 1; other >= 0; other--) like = entry[other] == mine ? other : like;
    bool first = mine >= 0 && like == thread;
    u32 firsts = ballot(first);
    if (lane() == 0) warp_firsts[warp()] = __popc(firsts);
    block_sync();
    int at = found + __popc(firsts & ((1u << lane()) - 1));
#pragma unroll
    for (int w = 0; w < MOST_ROWS / WARP; w++) {
      if (w < warp()) at += warp_firsts[w];
      found += warp_firsts[w];
    }
    place[thread] = at;
    if (first) group_own[at] = mine;
    block_sync();
    if (mine >= 0) {
      // Places grow with depth, so words are written in order.
      at = place[like];
      for (; word < at / 32; word++, bits = 0) mask[word] = bits;
      bits |= 1u << at % 32;
    }
  }
  if (row < end_row) {
    for (; word < (found + 31) / 32; word++, bits = 0) mask[word] = bits;
  }
  if (thread == 0) group_own_count[group] = found;
}
