// Attention over the paged cache with Hopper's warp-group products for many (row, head) pairs:
// chunks of prompts, the trees of a batch. See groups.cuh for what is read and when.
//
// As attention_tiles.cu, but a product takes 64 pairs and reads queries, keys and values directly
// from shared memory (wgmma.cuh), so they take neither load instructions nor registers. Two blocks
// run on a multiprocessor: while one weighs scores between its two products, the other multiplies,
// and the loads of both keep the L2 cache busy. A block is one warp group, or two that take tiles
// in turn.
//
// -DHEAD_DIM: elements of a head, 64 or 128. Not for float.
#include "common.cuh"

#if defined(T_PAIRS) && (HEAD_DIM == 64 || HEAD_DIM == 128) && (defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL))
#include "cache.cuh"
#include "groups.cuh"
#include "splits.cuh"
#include "softmax.cuh"
#include "wgmma.cuh"

/// Keys of a tile, and mask words for them.
#define KEYS 64
#define WORDS (KEYS / 32)
/// 16-byte accesses per key.
#define PIECES (HEAD_DIM / 8)
/// Bytes of 64 dims of 64 keys, values or queries: rows of 128 bytes.
#define SQUARE (64 * 128)
/// Bytes of 64 keys, values or queries: consecutive squares.
#define ALL_DIMS (HEAD_DIM / 64 * SQUARE)
/// Bytes of a tile's keys and values. A block's dynamic shared memory is STAGES of these per team,
/// and its queries.
#define BUFFER (2 * ALL_DIMS)

/// Offset of a 16-byte piece of a key, value or query.
__device__ __forceinline__ u32 place_of_piece(int row, int piece) { return piece / 8 * SQUARE + place_of<128>(row, piece % 8); }

/// Threads of a team (a warp group), and pairs per product.
#define THREADS 128
#define PAIRS 64

/// PAIRS pairs of a group and a key/value head over one split, whose tiles TEAMS warp groups take
/// in turn; each team has STAGES tiles in shared memory or in flight.
template <int TEAMS, int STAGES>
__device__ __forceinline__ void attend(GROUP_PARAMETERS) {
  constexpr int COPIES = KEYS * PIECES / THREADS;
  static_assert(32 % (THREADS / PIECES) == 0, "keys whose rows the same register tells are copied together");
  DYNAMIC_SHARED(shared);
  int team = TEAMS == 1 ? 0 : same((int)threadIdx.x / THREADS), thread = (int)threadIdx.x - team * THREADS;
  Pairs pairs;
  if (!find_pairs<PAIRS>(pairs, page_table, table_width, page_size, row_slot, row_prefix, group_own, group_own_count,
                         own_stride, group_first, group_rows, rows, heads, kv_heads WINDOW_ARGUMENTS)) {
    return;
  }
  Split split = find_split<KEYS>(pairs, TEAMS, max_splits);
  if ((int)blockIdx.x >= split.count) return;

  int width = kv_heads * HEAD_DIM;
  unsigned char* tiles = shared + team * (STAGES * BUFFER);
  // The next tile to load, and the words that give the cache rows of its keys `lane` and
  // `lane + 32`, for it and the tile after it.
  int next = split.begin + team, found[WORDS] = {}, found_behind[WORDS] = {};
  auto find = [&](int at, int (&to)[WORDS]) {
    if (at >= split.end) return;
#pragma unroll
    for (int i = 0; i < WORDS; i++) to[i] = look_up<KEYS>(pairs, split, at, i * 32 + lane(), page_size);
  };
  // If a group is a single block, no other block reads its keys and values.
  u64 policy = (int)gridDim.y == kv_heads ? passing() : staying();
  auto load = [&] {
    if (next < split.end) {
      unsigned char* buffer = tiles + (next - split.begin) / TEAMS % STAGES * BUFFER;
      int cache_row[WORDS];
#pragma unroll
      for (int i = 0; i < WORDS; i++) {
        cache_row[i] = cache_row_of<KEYS>(pairs, split, next, i * 32 + lane(), page_size, found[i]);
      }
#pragma unroll
      for (int n = 0; n < COPIES; n++) {
        int key = n * (THREADS / PIECES) + thread / PIECES, piece = thread % PIECES;
        u64 from = wide(shuffle(cache_row[n * (THREADS / PIECES) / 32], key % 32), width) +
                   (u32)(pairs.kv_head * HEAD_DIM + piece * 8);
        copy_async_16(buffer + place_of_piece(key, piece), keys + from, policy);
        copy_async_16(buffer + ALL_DIMS + place_of_piece(key, piece), values + from, policy);
      }
    }
    copy_async_commit();
    next += TEAMS;
#pragma unroll
    for (int i = 0; i < WORDS; i++) found[i] = found_behind[i];
    find(next + TEAMS, found_behind);
  };
  find(next, found);
  find(next + TEAMS, found_behind);

  int first = (warp() - team * (THREADS / WARP)) * 16;
  Sight<WORDS> sight(pairs, pairs.first_pair + first, row_prefix WINDOW_ARGUMENTS);
  if (next < split.end) sight.look(pairs, split, next, row_own_mask, mask_words);
  // The addresses of a thread's pieces of the queries are computed before the queries are
  // available.
  constexpr int QUERY_COPIES = PAIRS * PIECES / (TEAMS * THREADS);
  auto own_pair = [](int n) { return n * (TEAMS * THREADS / PIECES) + (int)threadIdx.x / PIECES; };
  const T* asked[QUERY_COPIES];
#pragma unroll
  for (int n = 0; n < QUERY_COPIES; n++) {
    int pair = pairs.first_pair + own_pair(n);
    asked[n] = query + wide(row_of(pairs, pair), query_stride) + head_of(pairs, pair) * HEAD_DIM + thread % PIECES * 8;
  }
  load_ahead<KEYS>(STAGES - 1, pairs, split, next, TEAMS, load);

  unsigned char* queries = shared + TEAMS * STAGES * BUFFER;
#pragma unroll
  for (int n = 0; n < QUERY_COPIES; n++) copy_async_16(queries + place_of_piece(own_pair(n), thread % PIECES), asked[n]);
  copy_async_commit();
  copy_async_wait<0>();
  Softmax s;
  begin(s);
#ifdef SINKS
  if (team == 0) begin_with_sinks(s, pairs, pairs.first_pair + first, sinks, scale);
#endif

  Place left = queries;
  for (int turn = split.begin; turn < split.end; turn += TEAMS) {
    copy_async_wait<STAGES - 2>();
    fence_for_products();
    // Also: all warps are done with the tile whose place the next one takes.
    block_sync();
    load();
    int t = turn + team;
    if (t >= split.end) continue;
    Place tile = tiles + (turn - split.begin) / TEAMS % STAGES * BUFFER;
    float score[KEYS / 2];
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) score[i] = 0.0f;
    products_begin();
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
      u32 at = (u32)(k / 4 * SQUARE + k % 4 * 32);
      product_start<KEYS>(score, left + at, tile + at);
    }
    products_commit();
    u32 seen[2][WORDS], weight[KEYS / 16][4] = {};
    sight.seen(seen, split, t);
    if (t + TEAMS < split.end) sight.look(pairs, split, t + TEAMS, row_own_mask, mask_words);
    products_wait(score);
    // A warp past the last pair has no work.
    if (pairs.first_pair + first < pairs.end_pair) weigh(s, score, weight, seen, 0, scale);
    products_begin();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
      product_of_registers_start<HEAD_DIM>(s.acc, weight[k], tile + (u32)(ALL_DIMS + k * 16 * 128), SQUARE);
    }
    products_commit();
    products_wait(s.acc);
  }
  copy_async_wait<0>();
  add_up_lanes(s);
  // All warps are done with tiles and queries, whose memory the records reuse.
  block_sync();
  static_assert(TEAMS <= 2, "one team takes in what one other has summed");
  if (TEAMS == 2) {
    float* others = (float*)(shared + STAGES * BUFFER) + thread;
    if (team == 1) hand_over(s, others, THREADS);
    block_sync();
    if (team == 0) take_in(s, others, THREADS, scale);
  }
  if (team == 0) write_pairs(s, out, pairs, split, first, heads, scale, (float*)shared, partial, max_splits);
  if (split.count > 1) {
    merge_splits<PAIRS, TEAMS * THREADS>(out, pairs, split.count, heads, (float*)shared, partial, counters, max_splits);
  }
}

/// As attention_few_16, but with THREADS threads; dynamic shared memory for three tiles of keys and
/// values and for the queries.
extern "C" __global__ void __launch_bounds__(THREADS, 2) attention_wide(GROUP_PARAMETERS) { attend<1, 3>(GROUP_ARGUMENTS); }

/// The same with two teams, 2 · THREADS threads and four tiles: a single warp per scheduler waits
/// for its own instructions most of the time. With heads of 128, registers allow only one such
/// block on a multiprocessor, which is slower than two of the above.
extern "C" __global__ void __launch_bounds__(2 * THREADS, HEAD_DIM == 64 ? 2 : 1) attention_wide_by_two(GROUP_PARAMETERS) {
  attend<2, 2>(GROUP_ARGUMENTS);
}

#endif
