// Attention of rows over the paged cache, each row separately.
//
// A row sees a list of cache rows: positions 0 .. prefix − 1 of its slot through the page table,
// then the row's own rows (the nodes on its path through a tree, or a beam's scratch rows). A
// prompt token, a decoded token, a node of a tree and a beam are all rows of this kind.
//
// The order in which a row's keys are summed depends only on the number of keys that it sees: not
// on the batch, the other rows or the pass. So a position has the same bits whether it was
// prefilled, decoded or verified. Products are accumulated with explicit `multiply_add`: a compiler
// that may contract could do so differently in different kernels. A block computes one row or
// several; several rows share only the loads of keys that all of them see.
//
// -DHEAD_DIM: elements of a head. -DKV_FP8: keys and values are FP8 (cache.cuh). -DSINKS adds a
// sink for each query head (one more score in its softmax, without a value; null for none), and a
// window (0 for none): then a row sees only the last `window` of its keys, and the order depends
// only on how many these are.
#include "common.cuh"
#include "cache.cuh"
#include "rows.cuh"
#include "merge.cuh"

/// Sums COUNT values per lane over the lanes of a team. While a lane has more than one value left,
/// it keeps one half of them, exchanges the other half for its partner's and adds; the last value
/// is reduced by a butterfly. A lane ends with the sums of the values from COUNT · place / LANES
/// on.
template <int COUNT, int MASK = LANES / 2>
__device__ __forceinline__ void team_sums(float* values, int place) {
  if constexpr (MASK > 0 && COUNT > 1) {
    bool upper = (place & MASK) != 0;
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
      float kept = upper ? values[i + COUNT / 2] : values[i], given = upper ? values[i] : values[i + COUNT / 2];
      values[i] = kept + shuffle_xor(given, MASK);
    }
    team_sums<COUNT / 2, MASK / 2>(values, place);
  } else if constexpr (MASK > 0) {
    values[0] += shuffle_xor(values[0], MASK);
    team_sums<1, MASK / 2>(values, place);
  }
}

/// Scores keys and turns them into softmax weights for a row. The row sees the team's keys `key`,
/// `key + TEAMS`, … that are below `live`.
template <int GROUP, int ROWS>
__device__ __forceinline__ void weigh(Block<GROUP, ROWS>& block, Lane<GROUP, ROWS>& lane, int r,
                                      const float keys[TOGETHER][OWN], int key, int live) {
  constexpr int SHARERS = Lane<GROUP, ROWS>::SHARERS, HELD = Lane<GROUP, ROWS>::HELD;
  float score[GROUP * TOGETHER];
#pragma unroll
  for (int h = 0; h < GROUP; h++) {
    float q[OWN];
#pragma unroll
    for (int d = 0; d < OWN; d += 4) {
      float4 four = block.queries[r * GROUP + h][d / 4][lane.place];
      q[d] = four.x, q[d + 1] = four.y, q[d + 2] = four.z, q[d + 3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) {
      float product = 0.0f;
#pragma unroll
      for (int d = 0; d < OWN; d++) product = multiply_add(q[d], keys[i][d], product);
      score[h * TOGETHER + i] = product;
    }
  }
  team_sums<GROUP * TOGETHER>(score, lane.place);
  float larger = lane.most[r];
#pragma unroll
  for (int i = 0; i < HELD; i++) {
    if (key + (lane.first_held + i) * TEAMS >= live) score[i] = -infinity();
    larger = score[i] > larger ? score[i] : larger;
  }
#pragma unroll
  for (int mask = HELD == 1 ? SHARERS / TOGETHER : 1; mask < SHARERS; mask *= 2) {
    float other = shuffle_xor(larger, mask);
    larger = other > larger ? other : larger;
  }
  float reference = reference_of(larger);
  auto weights = block.weights[lane.team][r];
  weights[TOGETHER].of[lane.head] = exp_fast(lane.most[r] - reference);
#pragma unroll
  for (int i = 0; i < HELD; i++) weights[lane.first_held + i].of[lane.head] = exp_fast(score[i] - reference);
  lane.most[r] = larger;
}

/// Adds weighted values for a row.
template <int GROUP, int ROWS>
__device__ __forceinline__ void add(const Block<GROUP, ROWS>& block, Lane<GROUP, ROWS>& lane, int r,
                                    const float values[TOGETHER][OWN]) {
  auto weights = block.weights[lane.team][r];
  lane.sum[r] = multiply_add(weights[TOGETHER].of[lane.head], lane.sum[r], weights[0].of[lane.head]);
#pragma unroll
  for (int i = 1; i < TOGETHER; i++) lane.sum[r] += weights[i].of[lane.head];
  auto keep = weights[TOGETHER];
#pragma unroll
  for (int i = 0; i < TOGETHER; i++) {
    auto weight = weights[i];
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
#pragma unroll
      for (int d = 0; d < OWN; d++) {
        float& acc = lane.acc[r][h][d];
        acc = i == 0 ? multiply_add(keep.of[h], acc, weight.of[h] * values[i][d])
                     : multiply_add(weight.of[h], values[i][d], acc);
      }
    }
  }
}

__device__ __forceinline__ void unpack_heads(const Raw raw[TOGETHER][PIECES], float heads[TOGETHER][OWN]) {
#pragma unroll
  for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
    for (int p = 0; p < PIECES; p++) unpack_cached(raw[i][p], heads[i] + p * VECTOR);
  }
}

/// Attends to the keys of the split: rows of one slot whose splits begin at the same key.
template <int GROUP, int ROWS>
__device__ __forceinline__ void attend_rows(Block<GROUP, ROWS>& block, Lane<GROUP, ROWS>& lane, const Operands& given,
                                            const Piece& piece, int first, int behind) {
  // The largest end, and the end of the keys that are positions which all rows see.
  int end = 0, same = block.seen[first].end;
#pragma unroll 1
  for (int r = first; r < behind; r++) {
    end = max(end, block.seen[r].end);
    same = min(same, min(block.seen[r].end, block.seen[r].prefix));
  }
  // The first team of the warp, known to the compiler as uniform over its lanes.
  int first_team = shuffle(lane.team, 0);
  u32 stride = (u32)(given.kv_heads * HEAD_DIM);
  for (int tile = piece.split * block.seen[first].chunk; tile < end; tile += TILE) {
    block_sync();
    look_up(block, given, piece, first, behind, tile);
    block_sync();
    // All teams of a warp run as long as its first one: shuffles need every lane.
    for (int step = first_team; step < min(TILE, end - tile); step += SPAN) {
      int key = step + lane.team - first_team;
      bool alike = tile + step + (TOGETHER - 1) * TEAMS + WARP / LANES <= same;
      for (int lead = first, next; lead < behind; lead = next) {
        next = alike ? behind : lead + 1;
        int live = min(TILE, block.seen[lead].end - tile);
        if (step >= live) continue;
        Raw k[TOGETHER][PIECES], v[TOGETHER][PIECES];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
          int mine = key + i * TEAMS;
          u64 from = (u64)(u32)block.cache_row[lead][mine < live ? mine : 0] * stride + piece.kv_head * HEAD_DIM;
          read_head(given.keys + from, lane.place, k[i]);
          read_head(given.values + from, lane.place, v[i]);
        }
        float unpacked[TOGETHER][OWN];
        unpack_heads(k, unpacked);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          if (lead <= r && r < next) weigh(block, lane, r, unpacked, key, live);
        }
        warp_sync();
        unpack_heads(v, unpacked);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          if (lead <= r && r < next) add(block, lane, r, unpacked);
        }
        warp_sync();
      }
    }
  }
}

/// One block: up to ROWS rows, a key/value head, a split of the keys, and GROUP of the query heads
/// that share the key/value head. Teams of LANES lanes take keys in turn; each keeps a running
/// softmax, and they are merged in order at the end.
template <int GROUP, int ROWS>
__device__ __forceinline__ void attend(const Operands& given) {
  __shared__ Block<GROUP, ROWS> block;
  wait_for_predecessor();
  Piece piece = piece_of_block<ROWS>(given, GROUP);
  read_rows(block, given, piece);
  block_sync();
  bool live = false, in_splits = false, alike = true;
#pragma unroll 1
  for (int r = 0; r < piece.rows; r++) {
    live = live || block.seen[r].live;
    in_splits = in_splits || block.seen[r].splits > 1;
    alike = alike && block.seen[r].slot == block.seen[0].slot && block.seen[r].chunk == block.seen[0].chunk &&
            begin_alike(block.seen[r], block.seen[0]);
  }
  if (!live) return;
  Lane<GROUP, ROWS> lane;
  lane.team = (int)threadIdx.x / LANES;
  lane.place = (int)threadIdx.x % LANES;
  lane.head = lane.place / lane.SHARERS;
  lane.first_held = lane.place % lane.SHARERS * TOGETHER / lane.SHARERS;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int i = 0; i < GROUP * OWN; i++) lane.acc[r][i / OWN][i % OWN] = 0.0f;
    lane.most[r] = -infinity();
    lane.sum[r] = 0.0f;
#ifdef SINKS
    if (given.sinks && lane.team == 0 && piece.split == 0 && lane.head < piece.heads) {
      lane.most[r] = to_float(given.sinks[piece.first_head + lane.head]);
      lane.sum[r] = 1.0f;
    }
#endif
  }
  // Rows of different slots, or whose splits begin at different keys, are processed one after the
  // other.
  int beside = alike ? piece.rows : 1;
  for (int first = 0; first < piece.rows; first += beside) {
    attend_rows(block, lane, given, piece, first, first + beside);
  }
  merge_teams(block, lane, given, piece);
  if (in_splits) merge_splits(block, given, piece);
}

#ifdef SINKS
#define SINK_PARAMETERS , const T *sinks, int window
#define SINK_ARGUMENTS , sinks, window
#else
#define SINK_PARAMETERS
#define SINK_ARGUMENTS
#endif

// The keys' scale is part of `scale`.
#ifdef KV_FP8
#define VALUE_SCALE_PARAMETER , float value_scale
#define VALUE_SCALE_ARGUMENT , value_scale
#else
#define VALUE_SCALE_PARAMETER
#define VALUE_SCALE_ARGUMENT
#endif

#define PARAMETERS                                                                                                      \
  T *out, const T *query, int query_stride, const C *keys, const C *values, const int *page_table, int table_width,     \
      int page_size, const int *row_slot, const int *row_prefix, const int *row_own_count, const int *row_own,          \
      int own_stride, int rows, int together, int heads, int kv_heads, float scale, float *partial, int *counters,      \
      int max_splits VALUE_SCALE_PARAMETER SINK_PARAMETERS
#define OPERANDS                                                                                                        \
  {out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix, row_own_count,     \
   row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits VALUE_SCALE_ARGUMENT SINK_ARGUMENTS}

/// out `[rows, heads · HEAD_DIM]`; query rows `query_stride` apart; keys and values
/// `[cache rows, kv_heads, HEAD_DIM]`; page_table `[slots, table_width]`; row_slot, row_prefix,
/// row_own_count `[rows]`, row_own `[rows, own_stride]`. Rows come in runs of `together` (the last
/// one may be shorter) that are expected to have one slot; only speed depends on it. Workspace:
/// partial, float `[rows, heads, max_splits, HEAD_DIM + 4]`; counters `[rows, grid.x]`, zero before
/// and after. Grid (kv_heads · ceil(group / n), blocks, max_splits), 128 threads. group = heads /
/// kv_heads; n, the first number in the name, is the number of query heads that share the loads of
/// their key/value head. blocks is the sum of ceil(run / m) over the runs; m, the second number in
/// the name (default: 1), is the number of rows of a block. At most 512 splits. Splits are the
/// slowest grid dimension, so that blocks of splits that rows do not have come last; they end at
/// once.
extern "C" __global__ void __launch_bounds__(128) attention_rows_1(PARAMETERS) { attend<1, 1>(OPERANDS); }
extern "C" __global__ void __launch_bounds__(128, 4) attention_rows_1_of_4(PARAMETERS) { attend<1, 4>(OPERANDS); }
extern "C" __global__ void __launch_bounds__(128) attention_rows_2(PARAMETERS) { attend<2, 1>(OPERANDS); }
extern "C" __global__ void __launch_bounds__(128, 3) attention_rows_2_of_4(PARAMETERS) { attend<2, 4>(OPERANDS); }
extern "C" __global__ void __launch_bounds__(128) attention_rows_4(PARAMETERS) { attend<4, 1>(OPERANDS); }
extern "C" __global__ void __launch_bounds__(128, 3) attention_rows_4_of_2(PARAMETERS) { attend<4, 2>(OPERANDS); }
extern "C" __global__ void __launch_bounds__(128, 3) attention_rows_8(PARAMETERS) { attend<8, 1>(OPERANDS); }
