// Attention of rows over the paged cache, each row on its own.
//
// What a row sees is a list of cache rows: positions 0 .. prefix − 1 of its slot through the page table, then rows of its
// own (the nodes on its way through a tree, or a beam's scratch rows). A prompt, a decoded token, a node of a tree and a
// beam are all rows of this kind.
//
// The order in which a row's keys are summed is a function of how many it sees, of nothing else: not of the batch, the
// other rows or the pass. So a position has the same bits whether it was prefilled, decoded or verified. Where products are
// added up, `multiply_add` says how: a compiler that may choose could choose otherwise in another of these kernels.
//
// A block takes one row or several. Several share the loads of the keys that they see alike, and nothing else.
//
// -DHEAD_DIM: elements of a head.
#include "common.cuh"

#define VECTOR (16 / (int)sizeof(T))
#define WARPS 4
#define TILE (WARPS * WARP)  // keys whose cache rows are looked up at once, one by a thread
#define TOGETHER 4       // keys that a team has under way
#define FEWEST_KEYS 128  // of a split that is not the last one

/// Lanes that hold one key: a power of two that covers the head in 16-byte pieces.
constexpr int lanes_of(int pieces) { return pieces <= 4 ? 4 : pieces <= 8 ? 8 : pieces <= 16 ? 16 : 32; }
constexpr int LANES = lanes_of(HEAD_DIM / VECTOR);
/// Pieces of a key that one lane holds.
constexpr int PIECES = (HEAD_DIM / VECTOR + LANES - 1) / LANES;
constexpr int TEAMS = WARPS * WARP / LANES;
constexpr int OWN = PIECES * VECTOR;
/// Keys that all teams together have under way.
constexpr int SPAN = TOGETHER * TEAMS;
/// Floats of the partial result of a split: HEAD_DIM sums, their largest score, their weight, and what fills 16 bytes.
constexpr int PARTIAL = HEAD_DIM + 4;

__device__ __forceinline__ void unpack_piece(uint4 raw, float* values) {
  const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
#ifdef T_PAIRS
    float2 pair = unpack(words[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
#else
    values[i] = bits_float(words[i]);
#endif
  }
}

__device__ __forceinline__ float4 multiply_add(float share, float4 values, float4 sums) {
  return make_float4(multiply_add(share, values.x, sums.x), multiply_add(share, values.y, sums.y),
                     multiply_add(share, values.z, sums.z), multiply_add(share, values.w, sums.w));
}

__device__ __forceinline__ void write_quotients(T* at, float4 sums, float weight) {
  float4 quotients = make_float4(sums.x / weight, sums.y / weight, sums.z / weight, sums.w / weight);
#ifdef T_PAIRS
  *(uint2*)at = make_uint2(pack(quotients.x, quotients.y), pack(quotients.z, quotients.w));
#else
  *(float4*)at = quotients;
#endif
}

/// Reads what this lane holds of a head.
__device__ __forceinline__ void read_head(const T* head, int place, uint4 raw[PIECES]) {
#pragma unroll
  for (int p = 0; p < PIECES; p++) {
    int at = (p * LANES + place) * VECTOR;
    raw[p] = at < HEAD_DIM ? load_16(head + at) : make_uint4(0, 0, 0, 0);
  }
}

/// What the kernels are given.
struct Operands {
  T* out;
  const T* query;
  int query_stride;
  const T *keys, *values;
  const int* page_table;
  int table_width, page_size;
  const int *row_slot, *row_prefix, *row_own_count, *row_own;
  int own_stride, rows, together, heads, kv_heads;
  float scale, *partial;
  int *counters, max_splits;
};

/// What a block computes: rows, heads, and one split.
struct Piece {
  int first_row, rows, kv_head, first_head, heads, split;
};

/// What a row sees in a split: positions below `prefix` of a slot, then rows of its own, up to `end`.
struct Seen {
  int slot, prefix, chunk, splits, end;
  /// Whether the split has a result: the first always has one, be it zeros.
  bool live;
};

/// Shared memory of a block. Pairs are of a row and a head.
template <int GROUP, int ROWS>
struct Block {
  static constexpr int PAIRS = ROWS * GROUP;
  struct __align__(GROUP < 4 ? GROUP * 4 : 16) OfHeads {
    float of[GROUP];
  };
  float4 queries[PAIRS][OWN / 4][LANES];
  float4 team_acc[TEAMS][PAIRS][LANES * OWN / 4];
  /// Of the keys under way, and behind them what is kept of the sums so far.
  OfHeads weights[TEAMS][ROWS][TOGETHER + 1];
  float team_max[PAIRS][TEAMS], team_sum[PAIRS][TEAMS], team_share[PAIRS][TEAMS];
  Seen seen[ROWS];
  int cache_row[ROWS][TILE];
  bool is_last[ROWS];
};

/// What a lane holds. Scores, and so their largest and the sum of their weights, it has of one head.
template <int GROUP, int ROWS>
struct Lane {
  /// Lanes of a team that hold scores of the same head, and how many each.
  static constexpr int SHARERS = LANES / GROUP, HELD = SHARERS < TOGETHER ? TOGETHER / SHARERS : 1;
  int team, place, head, first_held;
  float acc[ROWS][GROUP][OWN], most[ROWS], sum[ROWS];
};

template <int ROWS>
__device__ __forceinline__ Piece piece_of_block(const Operands& given, int group_part) {
  Piece piece;
  int group = given.heads / given.kv_heads, part = (int)blockIdx.x / given.kv_heads;
  piece.kv_head = (int)blockIdx.x % given.kv_heads;
  piece.first_head = piece.kv_head * group + part * group_part;
  piece.heads = min(group_part, group - part * group_part);
  piece.split = (int)blockIdx.z;
  // Rows of one run.
  int blocks = (given.together + ROWS - 1) / ROWS, run = (int)blockIdx.y / blocks * given.together;
  piece.first_row = ROWS == 1 ? (int)blockIdx.y : run + (int)blockIdx.y % blocks * ROWS;
  piece.rows = ROWS == 1 ? 1 : min(ROWS, min(run + given.together, given.rows) - piece.first_row);
  return piece;
}

__device__ __forceinline__ Seen seen_by(int slot, int prefix, int own_count, int split, int max_splits) {
  int total = prefix + own_count;
  // A function of `total` alone.
  int chunk = (total + max_splits - 1) / max_splits;
  chunk = chunk <= FEWEST_KEYS ? FEWEST_KEYS : (chunk + 63) / 64 * 64;
  int splits = (total + chunk - 1) / chunk;
  return Seen{slot, prefix, chunk, splits, min(split * chunk + chunk, total), split < splits || split == 0};
}

/// Reads queries, scaled, and what the rows see.
template <int GROUP, int ROWS>
__device__ __forceinline__ void read_rows(Block<GROUP, ROWS>& block, const Operands& given, const Piece& piece) {
  int thread = (int)threadIdx.x, row = piece.first_row + thread, slot = 0, prefix = 0, own_count = 0;
  if (thread < piece.rows) {
    // On their way while queries are read.
    slot = given.row_slot[row];
    prefix = given.row_prefix[row];
    own_count = given.row_own_count[row];
  }
#pragma unroll 1
  for (int i = thread; i < ROWS * GROUP * PIECES * LANES; i += WARPS * WARP) {
    int place = i % LANES, p = i / LANES % PIECES, pair = i / LANES / PIECES, r = pair / GROUP, h = pair % GROUP;
    int at = (p * LANES + place) * VECTOR;
    const T* head = given.query + (u64)(piece.first_row + r) * given.query_stride + (piece.first_head + h) * HEAD_DIM;
    bool real = r < piece.rows && h < piece.heads && at < HEAD_DIM;
    float q[VECTOR];
    unpack_piece(real ? load_16(head + at) : make_uint4(0, 0, 0, 0), q);
#pragma unroll
    for (int d = 0; d < VECTOR; d++) q[d] *= given.scale;
#pragma unroll
    for (int d = 0; d < VECTOR; d += 4) {
      block.queries[pair][(p * VECTOR + d) / 4][place] = make_float4(q[d], q[d + 1], q[d + 2], q[d + 3]);
    }
  }
  if (thread < piece.rows) block.seen[thread] = seen_by(slot, prefix, own_count, piece.split, given.max_splits);
}

/// Finds the cache rows of a tile, for rows of one slot.
template <int GROUP, int ROWS>
__device__ __forceinline__ void look_up(Block<GROUP, ROWS>& block, const Operands& given, const Piece& piece, int first,
                                        int behind, int tile) {
  int key = tile + (int)threadIdx.x, page_size = given.page_size, end = 0;
#pragma unroll 1
  for (int r = first; r < behind; r++) end = max(end, min(block.seen[r].prefix, block.seen[r].end));
  const int* table = given.page_table + (u64)block.seen[first].slot * given.table_width;
  int position = key < end ? table[key / page_size] * page_size + key % page_size : 0;
#pragma unroll 1
  for (int r = first; r < behind; r++) {
    int own = key - block.seen[r].prefix;
    if (key >= block.seen[r].end) continue;
    block.cache_row[r][threadIdx.x] =
        own < 0 ? position : given.row_own[(u64)(piece.first_row + r) * given.own_stride + own];
  }
}

/// Adds up, over the lanes of a team, COUNT values that each of them has. In every step a lane adds what another lane has: of
/// all its values if it has only one left, else of one half of them, and the other lane takes the other half. What a lane ends
/// with are sums of the values from COUNT · place / LANES on.
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

/// Weighs keys for a row. The row sees those keys of the team, TEAMS apart, that come before `live`, the first being `key`.
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
  float reference = larger == -infinity() ? 0.0f : larger;
  auto weights = block.weights[lane.team][r];
  weights[TOGETHER].of[lane.head] = exp_fast(lane.most[r] - reference);
#pragma unroll
  for (int i = 0; i < HELD; i++) weights[lane.first_held + i].of[lane.head] = exp_fast(score[i] - reference);
  lane.most[r] = larger;
}

/// Adds weighed values for a row.
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

__device__ __forceinline__ void unpack_heads(const uint4 raw[TOGETHER][PIECES], float heads[TOGETHER][OWN]) {
#pragma unroll
  for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
    for (int p = 0; p < PIECES; p++) unpack_piece(raw[i][p], heads[i] + p * VECTOR);
  }
}

/// Takes rows through the keys of the split: rows of one slot, whose splits begin at the same key.
template <int GROUP, int ROWS>
__device__ __forceinline__ void attend_rows(Block<GROUP, ROWS>& block, Lane<GROUP, ROWS>& lane, const Operands& given,
                                            const Piece& piece, int first, int behind) {
  // The last end, and up to where keys are positions that all rows see.
  int end = 0, same = block.seen[first].end;
#pragma unroll 1
  for (int r = first; r < behind; r++) {
    end = max(end, block.seen[r].end);
    same = min(same, min(block.seen[r].end, block.seen[r].prefix));
  }
  // The first team of the warp, which all its lanes know to be the same.
  int first_team = shuffle(lane.team, 0);
  u32 stride = (u32)(given.kv_heads * HEAD_DIM);
  for (int tile = piece.split * block.seen[first].chunk; tile < end; tile += TILE) {
    block_sync();
    look_up(block, given, piece, first, behind, tile);
    block_sync();
    // All teams of a warp run as long as the first of them: shuffles need every lane.
    for (int step = first_team; step < min(TILE, end - tile); step += SPAN) {
      int key = step + lane.team - first_team;
      bool alike = tile + step + (TOGETHER - 1) * TEAMS + WARP / LANES <= same;
      for (int lead = first, next; lead < behind; lead = next) {
        next = alike ? behind : lead + 1;
        int live = min(TILE, block.seen[lead].end - tile);
        if (step >= live) continue;
        uint4 k[TOGETHER][PIECES], v[TOGETHER][PIECES];
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

/// Merges the teams, in their order: to the result of a row that has one split, else to that of the split.
template <int GROUP, int ROWS>
__device__ __forceinline__ void merge_teams(Block<GROUP, ROWS>& block, const Lane<GROUP, ROWS>& lane,
                                            const Operands& given, const Piece& piece) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
#pragma unroll
      for (int d = 0; d < OWN; d += 4) {
        const float* four = lane.acc[r][h] + d;
        int at = (d / VECTOR * LANES + lane.place) * VECTOR + d % VECTOR;
        block.team_acc[lane.team][r * GROUP + h][at / 4] = make_float4(four[0], four[1], four[2], four[3]);
      }
    }
    if (lane.place % Lane<GROUP, ROWS>::SHARERS == 0) {
      block.team_max[r * GROUP + lane.head][lane.team] = lane.most[r];
      block.team_sum[r * GROUP + lane.head][lane.team] = lane.sum[r];
    }
  }
  block_sync();
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < ROWS * GROUP * TEAMS; i += WARPS * WARP) {
    int pair = i / TEAMS, t = i % TEAMS;
    float largest = -infinity();
    for (int other = 0; other < TEAMS; other++) largest = max(largest, block.team_max[pair][other]);
    // A team without keys has the largest score −∞ and weighs nothing.
    bool weighs = block.team_sum[pair][t] > 0.0f;
    block.team_share[pair][t] = weighs ? exp_fast(block.team_max[pair][t] - largest) : 0.0f;
  }
  block_sync();
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < ROWS * GROUP * HEAD_DIM / 4; i += WARPS * WARP) {
    int pair = i / (HEAD_DIM / 4), four = i % (HEAD_DIM / 4), r = pair / GROUP, h = pair % GROUP;
    if (r >= piece.rows || h >= piece.heads || !block.seen[r].live) continue;
    float weight = 0.0f;
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int t = 0; t < TEAMS; t++) {
      weight = multiply_add(block.team_share[pair][t], block.team_sum[pair][t], weight);
      value = multiply_add(block.team_share[pair][t], block.team_acc[t][pair][four], value);
    }
    u64 head = (u64)(piece.first_row + r) * given.heads + piece.first_head + h;
    if (block.seen[r].splits <= 1) {
      // A row that sees nothing is padding: zeros.
      bool sees = weight > 0.0f;
      write_quotients(given.out + head * HEAD_DIM + four * 4, sees ? value : make_float4(0.0f, 0.0f, 0.0f, 0.0f),
                      sees ? weight : 1.0f);
      continue;
    }
    float* own = given.partial + (head * given.max_splits + piece.split) * PARTIAL;
    ((float4*)own)[four] = value;
    if (four == 0) {
      float largest = -infinity();
      for (int t = 0; t < TEAMS; t++) largest = max(largest, block.team_max[pair][t]);
      own[HEAD_DIM] = largest;
      own[HEAD_DIM + 1] = weight;
    }
  }
}

/// The last block of a row's heads merges the splits, in their order.
template <int GROUP, int ROWS>
__device__ __forceinline__ void merge_splits(Block<GROUP, ROWS>& block, const Operands& given, const Piece& piece) {
  int thread = (int)threadIdx.x, max_splits = given.max_splits;
  memory_fence();
  block_sync();
  if (thread < ROWS) {
    const Seen& seen = block.seen[thread];
    int* counter = given.counters + (u64)(piece.first_row + thread) * gridDim.x + blockIdx.x;
    bool counts = thread < piece.rows && seen.live && seen.splits > 1;
    bool is_last = counts && atomic_add(counter, 1) == seen.splits - 1;
    if (is_last) *counter = 0;
    block.is_last[thread] = is_last;
  }
  block_sync();
  bool any = false;
#pragma unroll
  for (int r = 0; r < ROWS; r++) any = any || block.is_last[r];
  if (!any) return;
  memory_fence();
  // Where the teams' sums were: the share of each split, and its weight.
  float2* shares = (float2*)block.team_acc;
#pragma unroll 1
  for (int i = thread; i < ROWS * GROUP * max_splits; i += WARPS * WARP) {
    int pair = i / max_splits, split = i % max_splits, r = pair / GROUP, h = pair % GROUP;
    if (!block.is_last[r] || h >= piece.heads || split >= block.seen[r].splits) continue;
    u64 head = (u64)(piece.first_row + r) * given.heads + piece.first_head + h;
    const float* most = given.partial + head * max_splits * PARTIAL + HEAD_DIM;
    float largest = -infinity();
#pragma unroll 4
    for (int s = 0; s < block.seen[r].splits; s++) largest = max(largest, most[s * PARTIAL]);
    shares[i] = make_float2(exp_fast(most[split * PARTIAL] - largest), most[split * PARTIAL + 1]);
  }
  block_sync();
#pragma unroll 1
  for (int i = thread; i < ROWS * GROUP * HEAD_DIM / 4; i += WARPS * WARP) {
    int pair = i / (HEAD_DIM / 4), four = i % (HEAD_DIM / 4), r = pair / GROUP, h = pair % GROUP;
    if (!block.is_last[r] || h >= piece.heads) continue;
    u64 head = (u64)(piece.first_row + r) * given.heads + piece.first_head + h;
    const float* values = given.partial + head * max_splits * PARTIAL + four * 4;
    float weight = 0.0f;
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int s = 0; s < block.seen[r].splits; s++) {
      float2 share = shares[pair * max_splits + s];
      weight = multiply_add(share.x, share.y, weight);
      value = multiply_add(share.x, *(const float4*)(values + s * PARTIAL), value);
    }
    write_quotients(given.out + head * HEAD_DIM + four * 4, value, weight);
  }
}

/// One block: ROWS rows or fewer, a key/value head, a split of the keys, and GROUP of the query heads that share the key/value
/// head. Teams of LANES lanes take keys in turn; each keeps a running softmax, and they are merged in order at the end.
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
    alike = alike && block.seen[r].slot == block.seen[0].slot && block.seen[r].chunk == block.seen[0].chunk;
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
  }
  // Rows that are not of one slot, or whose splits begin at different keys, go one after the other.
  int beside = alike ? piece.rows : 1;
  for (int first = 0; first < piece.rows; first += beside) {
    attend_rows(block, lane, given, piece, first, first + beside);
  }
  merge_teams(block, lane, given, piece);
  if (in_splits) merge_splits(block, given, piece);
}

/// out `[rows, heads · HEAD_DIM]`; query rows `query_stride` apart; keys and values `[cache rows, kv_heads, HEAD_DIM]`;
/// page_table `[slots, table_width]`; row_slot, row_prefix, row_own_count `[rows]`, row_own `[rows, own_stride]`. Rows come in
/// runs of `together`, the last one perhaps shorter, of which one slot is expected; only speed depends on it.
/// Workspace: partial, float `[rows, heads, max_splits, HEAD_DIM + 4]`; counters `[rows, grid.x]`, zero before and after.
/// Grid (kv_heads · ceil(group / n), blocks, max_splits), 128 threads, where group = heads / kv_heads, n is the first number in
/// the name: query heads that share the loads of their key/value head, and blocks are ceil(run / m) for each run, m being the
/// second number: rows of a block, 1 if there is none. At most 512 splits. Splits that rows do not have come last, since theirs
/// are blocks that end at once.
extern "C" __global__ void __launch_bounds__(128)
attention_rows_1(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int rows, int together, int heads, int kv_heads, float scale,
                 float* partial, int* counters, int max_splits) {
  attend<1, 1>({out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
                row_own_count, row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits});
}
extern "C" __global__ void __launch_bounds__(128, 4)
attention_rows_1_of_4(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                      int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                      const int* row_own, int own_stride, int rows, int together, int heads, int kv_heads, float scale,
                      float* partial, int* counters, int max_splits) {
  attend<1, 4>({out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
                row_own_count, row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits});
}
extern "C" __global__ void __launch_bounds__(128)
attention_rows_2(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int rows, int together, int heads, int kv_heads, float scale,
                 float* partial, int* counters, int max_splits) {
  attend<2, 1>({out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
                row_own_count, row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits});
}
extern "C" __global__ void __launch_bounds__(128, 3)
attention_rows_2_of_4(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                      int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                      const int* row_own, int own_stride, int rows, int together, int heads, int kv_heads, float scale,
                      float* partial, int* counters, int max_splits) {
  attend<2, 4>({out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
                row_own_count, row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits});
}
extern "C" __global__ void __launch_bounds__(128)
attention_rows_4(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int rows, int together, int heads, int kv_heads, float scale,
                 float* partial, int* counters, int max_splits) {
  attend<4, 1>({out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
                row_own_count, row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits});
}
extern "C" __global__ void __launch_bounds__(128, 3)
attention_rows_4_of_2(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                      int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                      const int* row_own, int own_stride, int rows, int together, int heads, int kv_heads, float scale,
                      float* partial, int* counters, int max_splits) {
  attend<4, 2>({out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
                row_own_count, row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits});
}
extern "C" __global__ void __launch_bounds__(128, 3)
attention_rows_8(T* out, const T* query, int query_stride, const T* keys, const T* values, const int* page_table,
                 int table_width, int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                 const int* row_own, int own_stride, int rows, int together, int heads, int kv_heads, float scale,
                 float* partial, int* counters, int max_splits) {
  attend<8, 1>({out, query, query_stride, keys, values, page_table, table_width, page_size, row_slot, row_prefix,
                row_own_count, row_own, own_stride, rows, together, heads, kv_heads, scale, partial, counters, max_splits});
}
