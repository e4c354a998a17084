// Attention over the paged cache on tensor cores for many (row, head) pairs: chunks of prompts, the
// trees of a batch; and for small groups if there are enough of them to keep the device busy. See
// groups.cuh for what is read and when.
//
// A block's warps share tiles of keys and values in shared memory, which asynchronous copies fill
// in advance. Queries are in shared memory too: a warp spends most of its time waiting for its own
// last instruction, so occupancy counts, and registers limit it.
//
// Faster than attention.cu where rows share what they see. The order of its sums depends on the
// group, so it is not used in batch-invariant mode.
//
// -DHEAD_DIM: elements of a head. -DKV_FP8: keys and values are FP8 (cache.cuh). Not for float.
#include "common.cuh"

#ifdef T_PAIRS
#include "cache.cuh"
#include "groups.cuh"
#include "splits.cuh"
#include "softmax.cuh"

/// Keys of a tile: one per bit of a mask word and one per lane.
#define KEYS 32
/// Tiles that are in shared memory or in flight. Those in FP8 are half as large.
#ifdef KV_FP8
#define STAGES (HEAD_DIM <= 128 ? 5 : 4)
#else
#define STAGES (HEAD_DIM <= 128 ? 3 : 2)
#endif
/// Bytes from one key or query to the next in shared memory: an odd number of 16-byte pieces, so
/// that the eight rows of an 8×8 tile are in different banks.
#define KEY_BYTES (HEAD_DIM * (int)sizeof(C) + 16)
#define QUERY_BYTES (HEAD_DIM * 2 + 16)
#define STEPS (HEAD_DIM / 16)
/// 16-byte accesses per key, and per query.
#define PIECES (HEAD_DIM / CACHE_VECTOR)
#define QUERY_PIECES (HEAD_DIM / 8)
/// Bytes of a tile's keys and values. A block's dynamic shared memory is STAGES of these, and its
/// queries.
#define BUFFER (2 * KEYS * KEY_BYTES)

/// Floats of a lane's running softmax.
#define STATE (HEAD_DIM / 2 + 4)

/// Merges KW warps that hold the same pairs: the first adds the others, in order. Called by a whole
/// block.
template <int KW>
__device__ __forceinline__ void merge_warps(Softmax& s, float* state, int tile, int part, float scale) {
  if (part > 0) {
    float* mine = state + (tile * (KW - 1) + part - 1) * STATE * WARP + lane();
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) mine[i * WARP] = s.acc[i];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      mine[(HEAD_DIM / 2 + half) * WARP] = s.most[half];
      mine[(HEAD_DIM / 2 + 2 + half) * WARP] = s.sum[half];
    }
  }
  block_sync();
  if (part > 0) return;
  for (int p = 0; p < KW - 1; p++) {
    const float* other = state + (tile * (KW - 1) + p) * STATE * WARP + lane();
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = other[(HEAD_DIM / 2 + half) * WARP];
      raise(s, half, max(most, s.most[half]), scale);
      share[half] = exp2_fast((most - reference_of(s.most[half])) * scale);
      s.sum[half] += share[half] * other[(HEAD_DIM / 2 + 2 + half) * WARP];
    }
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) s.acc[i] += share[i % 4 / 2] * other[i * WARP];
  }
}

// FP8 is converted between shared memory and products. A load of 8×8 elements of 2 bytes gives a
// lane four consecutive dims of a key, or two dims of two keys; either way the bytes at even places
// are one factor, and those at odd places another. So each 16 columns of products with values are
// the even dims, then the odd ones (`each_four`), and so are the dims of queries in shared memory.

/// Copies the queries of a warp's tile of 16 pairs, the first of which is `first`, to shared
/// memory: every `step`-th access from `begin` on.
__device__ __forceinline__ void copy_queries(unsigned char* queries, const T* query, int query_stride, const Pairs& pairs,
                                             int first, int begin, int step) {
  constexpr int TOGETHER = sizeof(C) == 1 ? 2 : 1;
  for (int i = begin; i < 16 * QUERY_PIECES / TOGETHER; i += step) {
    int own = i / (QUERY_PIECES / TOGETHER), piece = i % (QUERY_PIECES / TOGETHER) * TOGETHER, pair = first + own;
    const T* from = query + wide(row_of(pairs, pair), query_stride) + head_of(pairs, pair) * HEAD_DIM + piece * 8;
    unsigned char* to = queries + own * QUERY_BYTES + piece * 16;
#ifdef KV_FP8
    uint4 a = load_fresh_16(from), b = load_fresh_16(from + 8);
    *(uint4*)to = make_uint4(bytes_of(a.x, a.y, 0x5410), bytes_of(a.z, a.w, 0x5410), bytes_of(b.x, b.y, 0x5410),
                             bytes_of(b.z, b.w, 0x5410));
    *(uint4*)(to + 16) = make_uint4(bytes_of(a.x, a.y, 0x7632), bytes_of(a.z, a.w, 0x7632), bytes_of(b.x, b.y, 0x7632),
                                    bytes_of(b.z, b.w, 0x7632));
#else
    copy_async_16(to, from);
#endif
  }
}

/// Scores of PART keys of a tile, of which a lane has PART / 2.
template <int PART>
__device__ __forceinline__ void multiply_keys(float (&score)[PART / 2], const unsigned char* queries,
                                              const unsigned char* keys) {
#pragma unroll
  for (int i = 0; i < PART / 2; i++) score[i] = 0.0f;
  // Tiles: rows 0, dims k; rows 8, dims k; rows 0, dims k + 8; rows 8, dims k + 8.
  const unsigned char* query = queries + lane() % 16 * QUERY_BYTES + lane() / 16 * 16;
#ifdef KV_FP8
#pragma unroll
  for (int k = 0; k < STEPS; k += 2) {
    u32 a[4], c[4];
    ldmatrix_x4(a, query + k * 32);
    ldmatrix_x4(c, query + k * 32 + 32);
#pragma unroll
    for (int n = 0; n < PART / 8; n += 2) {
      // Tiles: keys n, dims k; keys n, dims k + 16; keys n + 8, dims k; keys n + 8, dims k + 16.
      u32 raw[4];
      int key = n * 8 + lane() % 8 + lane() / 16 * 8;
      ldmatrix_x4(raw, keys + key * KEY_BYTES + k * 16 + lane() / 8 % 2 * 16);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const u32 b[2] = {even_bytes(raw[2 * h]), odd_bytes(raw[2 * h])};
        const u32 d[2] = {even_bytes(raw[2 * h + 1]), odd_bytes(raw[2 * h + 1])};
        mma_16816(score + (n + h) * 4, a, b);
        mma_16816(score + (n + h) * 4, c, d);
      }
    }
  }
#else
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    u32 a[4];
    ldmatrix_x4(a, query + k * 32);
#pragma unroll
    for (int n = 0; n < PART / 8; n += 2) {
      // Tiles: keys n, dims k; keys n, dims k + 8; keys n + 8, dims k; keys n + 8, dims k + 8.
      u32 b[4];
      int key = n * 8 + lane() % 8 + lane() / 16 * 8, dim = k * 16 + lane() / 8 % 2 * 8;
      ldmatrix_x4(b, keys + key * KEY_BYTES + dim * 2);
      mma_16816(score + n * 4, a, b);
      mma_16816(score + n * 4 + 4, a, b + 2);
    }
  }
#endif
}

/// Adds the values of PART keys of a tile with these weights.
template <int PART>
__device__ __forceinline__ void add_values(Softmax& s, const u32 (&weight)[PART / 16][4], const unsigned char* values) {
#pragma unroll
  for (int k = 0; k < PART / 16; k++) {
    const unsigned char* from = values + (k * 16 + lane() % 16) * KEY_BYTES + lane() / 16 * 16;
#ifdef KV_FP8
#pragma unroll
    for (int c = 0; c < HEAD_DIM; c += 32) {
      // Tiles: keys k, dims c; keys k + 8, dims c; keys k, dims c + 16; keys k + 8, dims c + 16.
      u32 raw[4];
      ldmatrix_x4_transposed(raw, from + c);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const u32 even[2] = {even_bytes(raw[2 * h]), even_bytes(raw[2 * h + 1])};
        const u32 odd[2] = {odd_bytes(raw[2 * h]), odd_bytes(raw[2 * h + 1])};
        mma_16816(s.acc + c / 2 + h * 8, weight[k], even);
        mma_16816(s.acc + c / 2 + h * 8 + 4, weight[k], odd);
      }
    }
#else
#pragma unroll
    for (int c = 0; c < HEAD_DIM / 8; c += 2) {
      // Tiles: keys k, dims c; keys k + 8, dims c; keys k, dims c + 8; keys k + 8, dims c + 8.
      u32 b[4];
      ldmatrix_x4_transposed(b, from + c * 16);
      mma_16816(s.acc + c * 4, weight[k], b);
      mma_16816(s.acc + c * 4 + 4, weight[k], b + 2);
    }
#endif
  }
}

/// One block: MT tiles of 16 pairs of a group and a key/value head over one split. Each tile has KW
/// warps, which take parts of each tile of keys and are merged at the end.
template <int MT, int KW>
__device__ __forceinline__ void attend(GROUP_PARAMETERS) {
  constexpr int THREADS = MT * KW * WARP, PAIRS = MT * 16;
  constexpr int PART = KEYS / KW;  // keys of a tile that one warp takes
  constexpr int COPIES = (KEYS * PIECES + THREADS - 1) / THREADS;
  DYNAMIC_SHARED(shared);
  int thread = (int)threadIdx.x;
  int tile = warp() / KW, part = warp() % KW;
  Pairs pairs;
  SET_SCALES(pairs);
  if (!find_pairs<PAIRS>(pairs, page_table, table_width, page_size, row_slot, row_prefix, group_own, group_own_count,
                         own_stride, group_first, group_rows, rows, heads, kv_heads WINDOW_ARGUMENTS)) {
    return;
  }
  Split split = find_split<KEYS>(pairs, 1, max_splits);
  if ((int)blockIdx.x >= split.count) return;

  int width = kv_heads * HEAD_DIM;
  // The next tile to load, and the page-table word or own row for its key `lane`.
  int next = split.begin, found = 0;
  auto find = [&] {
    if (next < split.end) found = look_up<KEYS>(pairs, split, next, lane(), page_size);
  };
  auto load = [&] {
    if (next < split.end) {
      unsigned char* buffer = shared + (next - split.begin) % STAGES * BUFFER;
      int cache_row = cache_row_of<KEYS>(pairs, split, next, lane(), page_size, found);
#pragma unroll
      for (int n = 0; n < COPIES; n++) {
        int i = thread + n * THREADS, key = i / PIECES, piece = i % PIECES;
        u64 from = wide(shuffle(cache_row, key), width) + (u32)(pairs.kv_head * HEAD_DIM + piece * CACHE_VECTOR);
        if (i >= KEYS * PIECES) continue;
        copy_async_16(buffer + key * KEY_BYTES + piece * 16, keys + from);
        copy_async_16(buffer + (KEYS + key) * KEY_BYTES + piece * 16, values + from);
      }
    }
    copy_async_commit();
    next++;
    find();
  };
  find();

  Sight<KEYS / 32> sight(pairs, pairs.first_pair + tile * 16, row_prefix WINDOW_ARGUMENTS);
  if (split.begin < split.end) sight.look(pairs, split, split.begin, row_own_mask, mask_words);
  load_ahead<KEYS>(STAGES - 1, pairs, split, split.begin, 1, load);

  // The queries of this warp's tile.
  unsigned char* queries = shared + STAGES * BUFFER + tile * 16 * QUERY_BYTES;
  copy_queries(queries, query, query_stride, pairs, pairs.first_pair + tile * 16, part * WARP + lane(), KW * WARP);
  copy_async_commit();
  copy_async_wait<0>();
  Softmax s;
  begin(s);
#ifdef SINKS
  if (part == 0) begin_with_sinks(s, pairs, pairs.first_pair + tile * 16, sinks, scale);
#endif

  for (int t = split.begin; t < split.end; t++) {
    copy_async_wait<STAGES - 2>();
    // Also: all warps are done with the tile whose place the next one takes.
    block_sync();
    load();
    const unsigned char* key_tile = shared + (t - split.begin) % STAGES * BUFFER + part * PART * KEY_BYTES;
    const unsigned char* value_tile = key_tile + KEYS * KEY_BYTES;
    float score[PART / 2];
    multiply_keys<PART>(score, queries, key_tile);
    u32 seen[2][KEYS / 32], weight[PART / 16][4];
    sight.seen(seen, split, t);
    if (t + 1 < split.end) sight.look(pairs, split, t + 1, row_own_mask, mask_words);
    weigh(s, score, weight, seen, part * PART, scale);
    add_values<PART>(s, weight, value_tile);
  }
  copy_async_wait<0>();
  add_up_lanes(s);

  float *state = (float*)shared, *records = state + MT * (KW - 1) * STATE * WARP;
  // All warps are done with tiles and queries, whose memory is reused.
  block_sync();
  if (KW > 1) merge_warps<KW>(s, state, tile, part, scale);
  if (part == 0) write_pairs(s, out, pairs, split, tile * 16, heads, scale, records, partial, max_splits);
  if (split.count > 1) {
    merge_splits<PAIRS, THREADS>(out, pairs, split.count, heads, records, partial, counters, max_splits);
  }
}

/// As attention_few_16, but with 64 threads for 16 pairs, 256 for 128 pairs, and 128 otherwise;
/// dynamic shared memory for STAGES tiles of keys and values, KEY_BYTES each, and for the queries,
/// QUERY_BYTES each.
extern "C" __global__ void __launch_bounds__(64, 4) attention_tiles_16(GROUP_PARAMETERS) { attend<1, 2>(GROUP_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM <= 128 ? 4 : 1) attention_tiles_32(GROUP_PARAMETERS) { attend<2, 2>(GROUP_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM <= 128 ? 4 : 1) attention_tiles_64(GROUP_PARAMETERS) { attend<4, 1>(GROUP_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, HEAD_DIM <= 128 ? 2 : 1) attention_tiles_128(GROUP_PARAMETERS) { attend<8, 1>(GROUP_ARGUMENTS); }

#endif
