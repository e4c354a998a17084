// The state of a block of attention.cu: rows and heads, queries, what the rows see, and sums.
#pragma once

#define VECTOR (16 / (int)sizeof(T))
#define WARPS 4
#define TILE (WARPS * WARP)  // keys whose cache rows are looked up at once, one per thread
#define TOGETHER 4           // keys that a team has in flight
#define FEWEST_KEYS 128      // of a split that is not the last one

/// Lanes that hold one key: a power of two that covers the head in 16-byte pieces.
constexpr int lanes_of(int pieces) { return pieces <= 4 ? 4 : pieces <= 8 ? 8 : pieces <= 16 ? 16 : 32; }
constexpr int LANES = lanes_of(HEAD_DIM / VECTOR);
/// Pieces of a key that one lane holds.
constexpr int PIECES = (HEAD_DIM / VECTOR + LANES - 1) / LANES;
constexpr int TEAMS = WARPS * WARP / LANES;
constexpr int OWN = PIECES * VECTOR;
/// Keys that all teams together have in flight.
constexpr int SPAN = TOGETHER * TEAMS;
/// Floats of a split's partial result: HEAD_DIM sums, their largest score, their weight, and
/// padding to 16 bytes.
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

/// VECTOR elements of the cache.
#if !defined(KV_FP8)
typedef uint4 Raw;
__device__ __forceinline__ Raw load_raw(const C* at) { return load_16(at); }
__device__ __forceinline__ void unpack_cached(Raw raw, float* values) { unpack_piece(raw, values); }
#elif defined(T_PAIRS)
typedef uint2 Raw;
__device__ __forceinline__ Raw load_raw(const C* at) { return *(const uint2*)at; }
__device__ __forceinline__ void unpack_cached(Raw raw, float* values) {
  e4m3_values(values, raw.x);
  e4m3_values(values + 4, raw.y);
}
#else
typedef u32 Raw;
__device__ __forceinline__ Raw load_raw(const C* at) { return *(const u32*)at; }
__device__ __forceinline__ void unpack_cached(Raw raw, float* values) { e4m3_values(values, raw); }
#endif

/// Reads this lane's part of a head.
__device__ __forceinline__ void read_head(const C* head, int place, Raw raw[PIECES]) {
#pragma unroll
  for (int p = 0; p < PIECES; p++) {
    int at = (p * LANES + place) * VECTOR;
    raw[p] = at < HEAD_DIM ? load_raw(head + at) : Raw{};
  }
}

/// The arguments of the kernels.
struct Operands {
  T* out;
  const T* query;
  int query_stride;
  const C *keys, *values;
  const int* page_table;
  int table_width, page_size;
  const int *row_slot, *row_prefix, *row_own_count, *row_own;
  int own_stride, rows, together, heads, kv_heads;
  float scale, *partial;
  int *counters, max_splits;
#ifdef KV_FP8
  float value_scale;
#endif
#ifdef SINKS
  const T* sinks;
  int window;
#endif
};

/// The work of a block: rows, heads, and one split.
struct Piece {
  int first_row, rows, kv_head, first_head, heads, split;
};

/// What a row sees in a split: `prefix` positions of a slot, then its own rows, up to `end`.
struct Seen {
  int slot, prefix, chunk, splits, end;
#ifdef SINKS
  /// Positions and own rows before the window.
  int skipped, own_skipped;
#endif
  /// Whether the split has a result: the first always has one, possibly zeros.
  bool live;
};

/// Shared memory of a block. A pair is a row and a head.
template <int GROUP, int ROWS>
struct Block {
  static constexpr int PAIRS = ROWS * GROUP;
  struct __align__(GROUP < 4 ? GROUP * 4 : 16) OfHeads {
    float of[GROUP];
  };
  float4 queries[PAIRS][OWN / 4][LANES];
  float4 team_acc[TEAMS][PAIRS][LANES * OWN / 4];
  /// Weights of the keys in flight, followed by the factor that rescales the sums so far.
  OfHeads weights[TEAMS][ROWS][TOGETHER + 1];
  float team_max[PAIRS][TEAMS], team_sum[PAIRS][TEAMS], team_share[PAIRS][TEAMS];
  Seen seen[ROWS];
  int cache_row[ROWS][TILE];
  bool is_last[ROWS];
};

/// The state of a lane. Scores, their maximum and the sum of their weights are of one head only.
template <int GROUP, int ROWS>
struct Lane {
  /// Lanes of a team that hold scores of the same head, and number of scores per lane.
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
  // Rows of one run. With one row per block this is the block's number, without a division.
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
  Seen seen;
  seen.slot = slot;
  seen.prefix = prefix;
  seen.chunk = chunk;
  seen.splits = splits;
  seen.end = min(split * chunk + chunk, total);
  seen.live = split < splits || split == 0;
  return seen;
}
#ifdef SINKS
/// The same if the row sees only the last `window` of them; 0 for all.
__device__ __forceinline__ Seen seen_within(int window, int slot, int prefix, int own_count, int split, int max_splits) {
  int outside = window > 0 ? max(prefix + own_count - window, 0) : 0, skipped = min(outside, prefix);
  Seen seen = seen_by(slot, prefix - skipped, own_count - (outside - skipped), split, max_splits);
  seen.skipped = skipped;
  seen.own_skipped = outside - skipped;
  return seen;
}
/// Whether the keys at the same places in what two rows see are at the same positions.
__device__ __forceinline__ bool begin_alike(const Seen& one, const Seen& other) { return one.skipped == other.skipped; }
#else
__device__ __forceinline__ bool begin_alike(const Seen&, const Seen&) { return true; }
#endif

/// Reads queries, scaled, and what the rows see.
template <int GROUP, int ROWS>
__device__ __forceinline__ void read_rows(Block<GROUP, ROWS>& block, const Operands& given, const Piece& piece) {
  int thread = (int)threadIdx.x, row = piece.first_row + thread, slot = 0, prefix = 0, own_count = 0;
  if (thread < piece.rows) {
    // In flight while queries are read.
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
#ifdef SINKS
  if (thread < piece.rows) {
    block.seen[thread] = seen_within(given.window, slot, prefix, own_count, piece.split, given.max_splits);
  }
#else
  if (thread < piece.rows) block.seen[thread] = seen_by(slot, prefix, own_count, piece.split, given.max_splits);
#endif
}

/// Finds the cache rows of a tile, for rows of one slot.
template <int GROUP, int ROWS>
__device__ __forceinline__ void look_up(Block<GROUP, ROWS>& block, const Operands& given, const Piece& piece, int first,
                                        int behind, int tile) {
  int key = tile + (int)threadIdx.x, page_size = given.page_size, end = 0;
#pragma unroll 1
  for (int r = first; r < behind; r++) end = max(end, min(block.seen[r].prefix, block.seen[r].end));
  const int* table = given.page_table + (u64)block.seen[first].slot * given.table_width;
#ifdef SINKS
  int at = key + block.seen[first].skipped;
#else
  int at = key;
#endif
  int position = key < end ? table[at / page_size] * page_size + at % page_size : 0;
#pragma unroll 1
  for (int r = first; r < behind; r++) {
    int own = key - block.seen[r].prefix;
#ifdef SINKS
    if (own >= 0) own += block.seen[r].own_skipped;
#endif
    if (key >= block.seen[r].end) continue;
    block.cache_row[r][threadIdx.x] =
        own < 0 ? position : given.row_own[(u64)(piece.first_row + r) * given.own_stride + own];
  }
}
