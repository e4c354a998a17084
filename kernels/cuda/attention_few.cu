// Attention over the paged cache on tensor cores for few (row, head) pairs: a round without speculation, short chains, or
// narrow blocks where the device would else be idle. See few.cuh.
//
// -DHEAD_DIM: elements of a head. Not for float, nor for heads of 256.
#include "common.cuh"

#if defined(T_PAIRS) && HEAD_DIM <= 128
#include "groups.cuh"
#include "few.cuh"

/// Softmax attention of rows in groups: `out` and `query` as attention_rows', rows of the query `query_stride` apart,
/// `scale` times the logarithm of e to base 2. Keys and values `[cache rows, kv_heads, HEAD_DIM]`; page_table
/// `[slots, table_width]`; row_slot and row_prefix `[rows]`.
/// Own rows as gather_own leaves them, or null where rows see positions alone: then the rows of a group are consecutive
/// positions, each the last that its row sees. Groups: row `group_first[g]` to row `group_first[g + 1]`, or where that is null
/// `group_rows` rows each; all rows of a group have the slot of its first.
/// partial: HEAD_DIM + 4 floats for each of `rows · heads · max_splits`, max_splits ≤ 32. Counters `[groups, grid.y]`,
/// zero before and after.
/// Grid (max_splits, kv_heads · ceil(largest group · heads / kv_heads / pairs), groups), where pairs is the number in the
/// name; 128 threads, WARP_BYTES of dynamic shared memory for each 32.
extern "C" __global__ void __launch_bounds__(128, 3) attention_few_8(GROUP_PARAMETERS) { attend<1, 4>(GROUP_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, 2) attention_few_16(GROUP_PARAMETERS) { attend<2, 4>(GROUP_ARGUMENTS); }

#endif
