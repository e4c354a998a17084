// As attention_few_16 of attention_few.cu, for so many groups that nothing is split: four blocks
// fit on a multiprocessor, and 512 blocks on most devices at once. Their keys and values in flight
// wait in the L1 cache, of which they need more. That setting is per file, so this is a separate
// file.
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

/// As attention_few_16, for groups of up to 8 pairs, but with 96 threads and grid.x = 1: partial
/// and counters are not used.
extern "C" __global__ void __launch_bounds__(96, 4) attention_alone_8(GROUP_PARAMETERS) {
  attend<1, 3, false, false>(GROUP_ARGUMENTS, NO_ROTATION);
}

#endif
