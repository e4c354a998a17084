// Attention over the paged cache on tensor cores for few (row, head) pairs: a round without speculation, short chains, or
// narrow blocks where the device would else be idle. See few.cuh.
//
// -DHEAD_DIM: elements of a head. Not for float, nor for heads of 256.
#include "common.cuh"

#if defined(T_PAIRS) && HEAD_DIM <= 128
#include "rotation.cuh"
#include "groups.cuh"
#include "splits.cuh"
#include "staged.cuh"
#include "pieces.cuh"
#include "few.cuh"

/// Softmax attention of rows in groups: `out` and `query` as attention_rows', rows of the query `query_stride` apart,
/// `scale` times the logarithm of e to base 2. Keys and values `[cache rows, kv_heads, HEAD_DIM]`; page_table
/// `[slots, table_width]`; row_slot and row_prefix `[rows]`.
/// Own rows as gather_own leaves them, or null where rows see positions alone: then the rows of a group are consecutive
/// positions, each the last that its row sees. Groups: row `group_first[g]` to row `group_first[g + 1]`, or where that is null
/// `group_rows` rows each; all rows of a group have the slot of its first.
/// Splits are clusters in x, up to 8. Where the architecture has none, up to 32 are merged through `partial`, HEAD_DIM + 4
/// floats for each of `rows · heads · max_splits`, and counters `[groups, grid.y]`, zero before and after.
/// Grid (max_splits, kv_heads · ceil(largest group · heads / kv_heads / 16), groups), 256 threads, dynamic shared memory as
/// few.cuh says.
extern "C" __global__ void __launch_bounds__(256, 1) attention_few_16(GROUP_PARAMETERS) {
  attend<2, 8, false, true>(GROUP_ARGUMENTS, NO_ROTATION);
}

/// The same for groups of no more pairs than the name says, after what rotate_and_write does: of `query`, the rows of
/// the qkv layer, or its parts, and with their keys and values, which also go to the cache. `query` is unchanged.
extern "C" __global__ void __launch_bounds__(256, 1) rotate_and_attend_8(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  attend<1, 8, true, true>(GROUP_ARGUMENTS, ROTATION_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(256, 1) rotate_and_attend_16(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  attend<2, 8, true, true>(GROUP_ARGUMENTS, ROTATION_ARGUMENTS);
}
/// The same with fewer registers, so that blocks fit next to those of the previous and the next layer. Of heads of at
/// most 64 half, in which not all fits: for few blocks, which gain more by room than they lose. Of larger ones as many
/// as leave room for a block of linear_group.cu for 8 rows, where there are several requests; room for those for more
/// rows has been seen to gain nothing.
#define BESIDE_REGISTERS (HEAD_DIM <= 64 ? 128 : 208)
extern "C" __global__ void __maxnreg__(BESIDE_REGISTERS) rotate_and_attend_16_beside(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  attend<2, 8, true, true>(GROUP_ARGUMENTS, ROTATION_ARGUMENTS);
}

#endif
