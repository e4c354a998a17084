// Attention over the paged cache on tensor cores for few (row, head) pairs: a round without
// speculation, short chains, or narrow blocks where the device would otherwise be idle. See
// few.cuh.
//
// -DHEAD_DIM: elements of a head. -DKV_FP8: keys and values are FP8 (cache.cuh). Not for float, nor
// for heads of 256.
#include "common.cuh"

#if defined(T_PAIRS) && HEAD_DIM <= 128
#include "cache.cuh"
#include "rotation.cuh"
#include "groups.cuh"
#include "splits.cuh"
#include "staged.cuh"
#include "pieces.cuh"
#include "few.cuh"

/// Softmax attention of rows in groups: `out` and `query` as in attention_rows, query rows
/// `query_stride` apart, `scale` multiplied by log2(e). Keys and values
/// `[cache rows, kv_heads, HEAD_DIM]`; page_table `[slots, table_width]`; row_slot and row_prefix
/// `[rows]`. Own rows as gather_own leaves them, or null if rows see positions alone: then the rows
/// of a group are consecutive positions, each the last that its row sees. Groups: rows
/// `group_first[g]` to `group_first[g + 1]`, or `group_rows` rows each if that is null; all rows of
/// a group have the slot of its first row. Splits are clusters in x, up to 8. On architectures
/// without clusters, up to 32 are merged through `partial`, HEAD_DIM + 4 floats for each of
/// `rows · heads · max_splits`, and counters `[groups, grid.y]`, zero before and after. Grid
/// (max_splits, kv_heads · ceil(largest group · heads / kv_heads / 16), groups), 256 threads,
/// dynamic shared memory as described in few.cuh.
extern "C" __global__ void __launch_bounds__(256, 1) attention_few_16(GROUP_PARAMETERS) {
  attend<2, 8, false, true>(GROUP_ARGUMENTS, NO_ROTATION);
}

/// The same, fused with rotate_and_write, for groups of at most as many pairs as the name says.
/// `query` is the rows of the qkv layer, or its parts; their keys and values also go to the cache.
/// `query` is unchanged.
extern "C" __global__ void __launch_bounds__(256, 1) rotate_and_attend_8(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  attend<1, 8, true, true>(GROUP_ARGUMENTS, ROTATION_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(256, 1) rotate_and_attend_16(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  attend<2, 8, true, true>(GROUP_ARGUMENTS, ROTATION_ARGUMENTS);
}
/// The same with fewer registers, so that blocks fit next to those of the previous and the next
/// layer. Heads of at most 64 use half the registers, with spills: for few blocks, which gain more
/// from the room than they lose. Larger heads use as many as leave room for a block of
/// linear_group.cu for 8 rows, with several requests; room for blocks of more rows was measured to
/// gain nothing.
#define BESIDE_REGISTERS (HEAD_DIM <= 64 ? 128 : 208)
extern "C" __global__ void __maxnreg__(BESIDE_REGISTERS) rotate_and_attend_16_beside(GROUP_PARAMETERS, ROTATION_PARAMETERS) {
  attend<2, 8, true, true>(GROUP_ARGUMENTS, ROTATION_ARGUMENTS);
}

#endif
