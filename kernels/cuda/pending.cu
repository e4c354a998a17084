// Tokens that the draft has not processed yet. A round without speculation leaves its token for the
// draft of a later round: it is kept here with the index of the corresponding row of the target,
// and laid out when the draft processes several at once. Each slot has a ring of `depth` places;
// position p is at place slot · depth + p mod depth, so the device keeps no counts. The host knows
// how many of a slot's last positions are pending: at most `depth`.
#include "common.cuh"
#include "order.cuh"

/// Keeps the tokens of rows.
///
/// Reads row_token, row_position, row_slot `[rows]` as `accept_drafts` left them with most = 1
/// (padding has the dummy slot and position 0). Writes tokens `[slots, depth]` at each row's place,
/// and that place to `place` `[rows]`, to which gather_rows then copies the target's rows. Grid
/// ceil(rows / 64), 64 threads.
extern "C" __global__ void __launch_bounds__(64)
    keep_pending(int* tokens, int* place, const int* row_token, const int* row_position, const int* row_slot, int depth,
                int rows) {
  wait_for_predecessor();
  int row = (int)(blockIdx.x * 64 + threadIdx.x);
  if (row >= rows) return;
  int at = row_slot[row] * depth + row_position[row] % depth;
  tokens[at] = row_token[row];
  place[row] = at;
}

/// Lays out the rows with which the draft processes the pending tokens of slots.
///
/// Reads batch_slot, pending `[batch]` (1 ≤ pending ≤ most ≤ depth), length `[slots]`, page_table,
/// tokens `[slots, depth]`. Writes the rows r = b·most + i: for i < pending the position length −
/// pending + i with its token, its cache row, its slot, and prefix = position + 1; row_source = its
/// place in the ring. Later rows are padding: they belong to the dummy slot, see nothing, write
/// nothing (−1), and repeat the last token and source. own_count is 0. last_row `[batch]`: b·most +
/// pending − 1. Grid batch, 32 threads.
extern "C" __global__ void __launch_bounds__(32)
    pending_rows(const int* batch_slot, const int* pending, const int* length, const int* page_table, int table_width,
                int page_size, int dummy_slot, const int* tokens, int depth, int most, int* row_token, int* row_position,
                int* row_write, int* row_slot, int* row_prefix, int* row_own_count, int* row_source, int* last_row) {
  wait_for_predecessor();
  int request = (int)blockIdx.x, slot = batch_slot[request], count = pending[request];
  int start = max(length[slot] - count, 0);
  for (int i = (int)threadIdx.x; i < most; i += WARP) {
    int at = request * most + i, position = start + min(i, count - 1);
    int place = slot * depth + position % depth;
    bool reads = i < count;
    row_token[at] = tokens[place];
    row_position[at] = reads ? position : 0;
    row_write[at] = reads ? cache_row(page_table, table_width, page_size, slot, position) : -1;
    row_slot[at] = reads ? slot : dummy_slot;
    row_prefix[at] = reads ? position + 1 : 0;
    row_own_count[at] = 0;
    row_source[at] = place;
  }
  if (threadIdx.x == 0) last_row[request] = request * most + count - 1;
}
