// Rows in the caches of layers with a window, whose pages have a numbering of their own: a page
// that such a layer may see or write has a window page, given by window_of `[pages + 1]` (−1 for
// none; the last entry is for the page of padding).
#include "common.cuh"

/// The row of these layers for a row of the others; −1 if its page has no window page.
__device__ __forceinline__ int window_row(const int* window_of, int pages, int page_size, int row) {
  int page = row / page_size;
  int window = row >= 0 && page <= pages ? window_of[page] : -1;
  return window < 0 ? -1 : window * page_size + row % page_size;
}

/// Positions that attention reads together: it may read up to this many before a row's window,
/// whose values have to be finite.
#define READ_TOGETHER 64

/// Translates the rows of a pass.
///
/// Reads row_write, row_slot and row_prefix `[rows]`, row_own `[rows, own_stride]` and group_own,
/// which is the same or null: then rows have no lists. Writes window_write `[rows]` (−1: not
/// written); window_row_own and window_group_own, of which entries that are no rows become rows of
/// the page `absent`, which holds zeros; and in window_table `[slots, table_width]` the pages of
/// each row's slot that hold its last `window` positions or are read together with these. Grid
/// ceil(rows / 4), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
    window_rows(int* window_write, int* window_row_own, int* window_group_own, int* window_table, const int* window_of,
                int pages, int absent, int window, const int* row_write, const int* row_own, const int* group_own,
                int own_stride, const int* row_slot, const int* row_prefix, const int* page_table, int table_width,
                int page_size, int rows) {
  wait_for_predecessor();
  int row = (int)blockIdx.x * 4 + warp();
  if (row >= rows) return;
  if (lane() == 0) window_write[row] = window_row(window_of, pages, page_size, row_write[row]);
  auto listed = [&](int own) {
    int found = window_row(window_of, pages, page_size, own);
    return found < 0 ? absent * page_size : found;
  };
  if (group_own) {
    for (int i = lane(); i < own_stride; i += WARP) {
      u64 at = (u64)row * own_stride + i;
      window_row_own[at] = listed(row_own[at]);
      window_group_own[at] = listed(group_own[at]);
    }
  }
  int prefix = row_prefix[row];
  u64 table = (u64)row_slot[row] * table_width;
  int begin = max(prefix - window, 0) / READ_TOGETHER * READ_TOGETHER / page_size;
  int end = min((prefix + page_size - 1) / page_size, table_width);
  for (int i = begin + lane(); i < end; i += WARP) {
    int found = window_row(window_of, pages, 1, page_table[table + i]);
    window_table[table + i] = found < 0 ? absent : found;
  }
}

/// Translates moves of rows: move_from and move_to `[count]`, −1 for none. Grid ceil(count / 64),
/// 64 threads.
extern "C" __global__ void __launch_bounds__(64)
    window_moves(int* window_from, int* window_to, const int* move_from, const int* move_to, const int* window_of,
                 int pages, int page_size, int count) {
  wait_for_predecessor();
  int at = (int)(blockIdx.x * 64 + threadIdx.x);
  if (at >= count) return;
  int from = window_row(window_of, pages, page_size, move_from[at]);
  int to = window_row(window_of, pages, page_size, move_to[at]);
  bool moves = from >= 0 && to >= 0;
  window_from[at] = moves ? from : -1;
  window_to[at] = moves ? to : -1;
}

/// Changes the window pages of distinct pages: changes `[count, 2]` holds pages and their window
/// pages. Grid ceil(count / 64), 64 threads.
extern "C" __global__ void __launch_bounds__(64) change_windows(int* window_of, const int* changes, int count) {
  wait_for_predecessor();
  int at = (int)(blockIdx.x * 64 + threadIdx.x);
  if (at < count) window_of[changes[2 * at]] = changes[2 * at + 1];
}
