// Rows of a draft that is a whole model. A head reads a token at the position before it, where the
// target's state is that it joins with the token; a whole model reads it at its own. The kernels
// that lay out beams and accepted tokens do so for heads, and rows are moved afterwards.
#include "common.cuh"
#include "order.cuh"

/// Moves rows to the next position.
///
/// Reads row_slot `[rows]`; rows of the dummy slot are padding and stay as they are. Changes
/// row_position and row_prefix `[rows]`: each is one more, the prefix up to the number of positions
/// of a slot's pages. If page_table `[slots, table_width]` is given, row_write becomes the cache
/// row of the new position, −1 after the pages. Grid ceil(rows / 64), 64 threads.
extern "C" __global__ void __launch_bounds__(64)
    next_positions(int* row_position, int* row_prefix, int* row_write, const int* row_slot, const int* page_table,
                   int table_width, int page_size, int dummy_slot, int rows) {
  wait_for_predecessor();
  int row = (int)(blockIdx.x * 64 + threadIdx.x);
  if (row >= rows) return;
  int slot = row_slot[row];
  if (slot == dummy_slot) return;
  int position = row_position[row] + 1;
  row_position[row] = position;
  row_prefix[row] = min(row_prefix[row] + 1, table_width * page_size);
  if (page_table) row_write[row] = cache_row(page_table, table_width, page_size, slot, position);
}
