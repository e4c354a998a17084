// Attention of all heads over the latent plane of the paged cache, on tensor cores.
//
// A cache row is one latent vector followed by one rotated key, which all heads read: the whole row
// is the key, and its latent part is the value. So the heads of a row are the rows of a product,
// and each row of the pass is computed separately: with 128 heads it fills the tensor cores alone,
// and sharing keys between rows would gain nothing. What a row sees is a list, as in attention.cu:
// positions 0 .. prefix − 1 of its slot through the page table, then its own cache rows.
//
// The order in which a row's keys are summed depends only on their number and on `max_splits`: not
// on the batch, the other rows or the pass. So a position has the same bits whether it was
// prefilled, decoded or verified.
//
// A block takes 16 · TILES heads of a row through one split. For each piece of KEYS keys, which are
// copied in advance, some warps score their part of the keys for 16 heads; weights then go through
// shared memory, and each warp sums a quarter of the columns of the values.
//
// -DRANK, a multiple of 64, and -DROTATED, of 16: sizes of a latent vector and of the rotated key.
// -DKEYS: 32 or 64. Not for float.
#include "common.cuh"

#ifdef T_PAIRS
#include "latent.cuh"

#define STEPS (WIDTH / 16)
/// 16-byte accesses per cache row, and bytes from one to the next in shared memory: whole lines,
/// within which `place_of` swizzles.
#define CHUNKS (WIDTH / 8)
#define ROW_BYTES ((WIDTH * 2 + 127) / 128 * 128)
#define WEIGHT_BYTES 128
#define COLUMN_WARPS 4
#define COLUMNS (RANK / COLUMN_WARPS)

static_assert(KEYS == 32 || KEYS == 64, "a weight's line holds them, and a split is a multiple");

/// How the warps of a block share its work.
template <int TILES>
struct Shape {
  static constexpr int PAIRS = TILES * 16, WARPS = TILES == 4 ? 8 : 4;
  /// Warps that score the same heads, each a part of the keys; other warps wait meanwhile.
  static constexpr int KEY_WARPS = WARPS / TILES < KEYS / 16 ? WARPS / TILES : KEYS / 16;
  static constexpr int PART = KEYS / KEY_WARPS;
  /// Tiles of 16 heads for which a warp sums its columns.
  static constexpr int OWN_TILES = TILES / (WARPS / COLUMN_WARPS);
  /// Keys that a warp copies.
  static constexpr int COPIED = KEYS / WARPS;
};

template <int TILES>
__device__ __forceinline__ void attend(T* out, const T* query, const T* latents, const int* page_table, int table_width,
                                       int page_size, const int* row_slot, const int* row_prefix, const int* row_own_count,
                                       const int* row_own, int own_stride, int heads, float scale, float* partial,
                                       int max_splits) {
  typedef Shape<TILES> S;
  constexpr int PAIRS = S::PAIRS, PART = S::PART, OWN_TILES = S::OWN_TILES, THREADS = S::WARPS * WARP;
  DYNAMIC_SHARED(shared);
  unsigned char *queries = shared, *keys = queries + PAIRS * ROW_BYTES, *weights = keys + 2 * KEYS * ROW_BYTES;
  float* most_of = (float*)(weights + PAIRS * WEIGHT_BYTES);  // [KEY_WARPS][PAIRS]
  float* sum_of = most_of + S::KEY_WARPS * PAIRS;             // [KEY_WARPS][PAIRS]
  float *keep_of = sum_of + S::KEY_WARPS * PAIRS, *last_of = keep_of + PAIRS;
  wait_for_predecessor();

  int thread = (int)threadIdx.x, row = (int)blockIdx.y, split = (int)blockIdx.z, first_head = (int)blockIdx.x * PAIRS;
  int live = min(PAIRS, heads - first_head), total = row_prefix[row] + row_own_count[row];
  Splits splits = splits_of(total, max_splits);
  if (split >= splits.count) return;
  Seen seen = {page_table + (u64)row_slot[row] * table_width, row_own + (u64)row * own_stride, row_prefix[row],
               split * splits.chunk, min(split * splits.chunk + splits.chunk, total), page_size};
  int pieces = (seen.end - seen.begin + KEYS - 1) / KEYS;

  for (int i = thread; i < PAIRS * CHUNKS; i += THREADS) {
    int pair = i / CHUNKS, chunk = i % CHUNKS;
    const T* from = query + ((u64)row * heads + first_head + min(pair, live - 1)) * WIDTH + chunk * 8;
    copy_async_16_or_zero(queries + place_of<ROW_BYTES>(pair, chunk), from, pair < live);
  }
  // The word that gives the cache row of this lane's key in the next piece, whose copies this warp
  // starts.
  int found = 0;
  auto first_key = [&](int piece) { return seen.begin + piece * KEYS + warp() * S::COPIED; };
  auto look = [&](int piece) {
    if (piece < pieces) found = seen.look_up(first_key(piece) + lane() % S::COPIED);
  };
  auto load = [&](int piece) {
    if (piece < pieces) {
      unsigned char* buffer = keys + piece % 2 * KEYS * ROW_BYTES;
      int cache_row = seen.cache_row(first_key(piece) + lane() % S::COPIED, found);
#pragma unroll 4
      for (int n = 0; n < (S::COPIED * CHUNKS + WARP - 1) / WARP; n++) {
        int i = n * WARP + lane(), key = i / CHUNKS, chunk = i % CHUNKS;
        int from = shuffle(cache_row, key % S::COPIED);
        if (i >= S::COPIED * CHUNKS) continue;
        copy_async_16_or_zero(buffer + place_of<ROW_BYTES>(warp() * S::COPIED + key, chunk),
                              latents + (u64)(u32)from * WIDTH + chunk * 8, first_key(piece) + key < seen.end);
      }
    }
    copy_async_commit();
  };
  look(0);
  load(0);
  look(1);

  // As a scoring warp: its tile, its part of the keys, and for the two rows of a lane the largest
  // score and the sum of weights.
  bool scores = warp() < TILES * S::KEY_WARPS;
  int tile = warp() / S::KEY_WARPS, part = warp() % S::KEY_WARPS;
  float most[2] = {-infinity(), -infinity()}, sum[2] = {0.0f, 0.0f};
  // As a summing warp: its tiles and columns.
  int first_tile = warp() / COLUMN_WARPS * OWN_TILES, first_chunk = warp() % COLUMN_WARPS * (COLUMNS / 8);
  float acc[OWN_TILES][COLUMNS / 2];
#pragma unroll
  for (int m = 0; m < OWN_TILES; m++) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) acc[m][i] = 0.0f;
  }

#pragma unroll 1
  for (int piece = 0; piece < pieces; piece++) {
    copy_async_wait<0>();
    // Also: all warps are done with the piece whose place the next one takes.
    block_sync();
    load(piece + 1);
    look(piece + 2);
    const unsigned char* here = keys + piece % 2 * KEYS * ROW_BYTES;
    float score[PART / 2];
    if (scores) {
#pragma unroll
      for (int i = 0; i < PART / 2; i++) score[i] = 0.0f;
#pragma unroll 4
      for (int k = 0; k < STEPS; k++) {
        u32 a[4];
        ldmatrix_x4(a, queries + place_of<ROW_BYTES>(tile * 16 + lane() % 16, k * 2 + lane() / 16));
#pragma unroll
        for (int n = 0; n < PART / 8; n += 2) {
          u32 b[4];
          int key = part * PART + n * 8 + lane() % 8 + lane() / 16 * 8;
          ldmatrix_x4(b, here + place_of<ROW_BYTES>(key, k * 2 + lane() / 8 % 2));
          mma_16816(score + n * 4, a, b);
          mma_16816(score + n * 4 + 4, a, b + 2);
        }
      }
      int left = seen.end - (seen.begin + piece * KEYS);
      float larger[2] = {-infinity(), -infinity()};
#pragma unroll
      for (int i = 0; i < PART / 2; i++) {
        int key = part * PART + i / 4 * 8 + lane() % 4 * 2 + i % 2;
        if (key >= left) score[i] = -infinity();
        larger[i / 2 % 2] = max(larger[i / 2 % 2], score[i]);
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        larger[h] = max(larger[h], shuffle_xor(larger[h], 1));
        larger[h] = max(larger[h], shuffle_xor(larger[h], 2));
        if (lane() % 4 == 0) most_of[part * PAIRS + tile * 16 + lane() / 4 + 8 * h] = larger[h];
      }
    }
    block_sync();
    if (scores) {
      float reference[2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int pair = tile * 16 + lane() / 4 + 8 * h;
        float larger = most[h];
#pragma unroll
        for (int p = 0; p < S::KEY_WARPS; p++) larger = max(larger, most_of[p * PAIRS + pair]);
        reference[h] = reference_of(larger) * scale;
        float keep = exp2_fast(most[h] * scale - reference[h]);
        if (part == 0 && lane() % 4 == 0) keep_of[pair] = keep;
        most[h] = larger;
        sum[h] *= keep;
      }
#pragma unroll
      for (int n = 0; n < PART / 8; n++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float one = exp2_fast(score[n * 4 + 2 * h] * scale - reference[h]);
          float other = exp2_fast(score[n * 4 + 2 * h + 1] * scale - reference[h]);
          sum[h] += one;
          sum[h] += other;
          u32 at = place_of<WEIGHT_BYTES>(tile * 16 + lane() / 4 + 8 * h, part * PART / 8 + n);
          *(u32*)(weights + at + lane() % 4 * 4) = pack(one, other);
        }
      }
    }
    block_sync();
#pragma unroll
    for (int m = 0; m < OWN_TILES; m++) {
      int pair = (first_tile + m) * 16 + lane() / 4;
      float keep[2] = {keep_of[pair], keep_of[pair + 8]};
      if (ballot(keep[0] != 1.0f || keep[1] != 1.0f) == 0) continue;
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i++) acc[m][i] *= keep[i / 2 % 2];
    }
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
      u32 a[OWN_TILES][4];
#pragma unroll
      for (int m = 0; m < OWN_TILES; m++) {
        ldmatrix_x4(a[m], weights + place_of<WEIGHT_BYTES>((first_tile + m) * 16 + lane() % 16, k * 2 + lane() / 16));
      }
#pragma unroll
      for (int c = 0; c < COLUMNS / 8; c += 2) {
        u32 b[4];
        ldmatrix_x4_transposed(b, here + place_of<ROW_BYTES>(k * 16 + lane() % 16, first_chunk + c + lane() / 16));
#pragma unroll
        for (int m = 0; m < OWN_TILES; m++) {
          mma_16816(acc[m] + c * 4, a[m], b);
          mma_16816(acc[m] + c * 4 + 4, a[m], b + 2);
        }
      }
    }
  }
  copy_async_wait<0>();

  if (scores) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      sum[h] += shuffle_xor(sum[h], 1);
      sum[h] += shuffle_xor(sum[h], 2);
      int pair = tile * 16 + lane() / 4 + 8 * h;
      if (lane() % 4 == 0) sum_of[part * PAIRS + pair] = sum[h];
      if (part == 0 && lane() % 4 == 0) last_of[pair] = most[h];
    }
  }
  block_sync();
#pragma unroll
  for (int m = 0; m < OWN_TILES; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int pair = (first_tile + m) * 16 + lane() / 4 + 8 * h, column = first_chunk * 8 + lane() % 4 * 2;
      if (pair >= live) continue;
      float weight = 0.0f;
#pragma unroll
      for (int p = 0; p < S::KEY_WARPS; p++) weight += sum_of[p * PAIRS + pair];
      u64 place = (u64)row * heads + first_head + pair;
      if (splits.count == 1) {
        // A row that sees nothing is padding: zeros.
        float inverse = weight > 0.0f ? 1.0f / weight : 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; c++) {
          const float* two = acc[m] + c * 4 + 2 * h;
          *(u32*)(out + place * RANK + column + c * 8) = pack(two[0] * inverse, two[1] * inverse);
        }
        continue;
      }
      float* record = partial + (place * max_splits + split) * RECORD;
#pragma unroll
      for (int c = 0; c < COLUMNS / 8; c++) {
        const float* two = acc[m] + c * 4 + 2 * h;
        *(float2*)(record + column + c * 8) = make_float2(two[0], two[1]);
      }
      if (column == 0) *(float2*)(record + RANK) = make_float2(last_of[pair] * scale, weight);
    }
  }
}

/// out `[rows, heads, RANK]`: weighted means of latent vectors, for rows that have one split; query
/// `[rows, heads, WIDTH]`; latents `[cache rows, WIDTH]`; page_table `[slots, table_width]`;
/// row_slot, row_prefix, row_own_count `[rows]`, row_own `[rows, own_stride]`. `scale` includes
/// log2(e). Rows with several splits leave records in partial, float
/// `[rows, heads, max_splits, RECORD]`, for `latent_merge`. Grid (ceil(heads / n), rows,
/// max_splits), 256 threads for 64 heads, else 128; n is the number in the name. Dynamic shared
/// memory: n + 2 · KEYS rows of ROW_BYTES, n of WEIGHT_BYTES, and (2 · KEY_WARPS + 2) · n floats.
extern "C" __global__ void __launch_bounds__(128, 1) latent_attention_16(PARAMETERS) { attend<1>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, 1) latent_attention_32(PARAMETERS) { attend<2>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 1) latent_attention_64(PARAMETERS) { attend<4>(ARGUMENTS); }

/// Merges the splits of rows that have several, in order. Grid (heads, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
latent_merge(T* out, const int* row_prefix, const int* row_own_count, const float* partial, int max_splits) {
  wait_for_predecessor();
  int row = (int)blockIdx.y, count = splits_of(row_prefix[row] + row_own_count[row], max_splits).count;
  if (count == 1) return;
  u64 place = (u64)row * gridDim.x + blockIdx.x;
  const float* records = partial + place * max_splits * RECORD;
  float most = -infinity();
  for (int s = 0; s < count; s++) most = max(most, records[(u64)s * RECORD + RANK]);
  for (int four = (int)threadIdx.x; four < RANK / 4; four += (int)blockDim.x) {
    float weight = 0.0f;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int s = 0; s < count; s++) {
      const float* record = records + (u64)s * RECORD;
      float2 of_split = *(const float2*)(record + RANK);
      float4 values = *(const float4*)(record + four * 4);
      float share = exp2_fast(of_split.x - reference_of(most));
      weight = multiply_add(share, of_split.y, weight);
      total = make_float4(multiply_add(share, values.x, total.x), multiply_add(share, values.y, total.y),
                          multiply_add(share, values.z, total.z), multiply_add(share, values.w, total.w));
    }
    float inverse = weight > 0.0f ? 1.0f / weight : 0.0f;
    *(uint2*)(out + place * RANK + four * 4) =
        make_uint2(pack(total.x * inverse, total.y * inverse), pack(total.z * inverse, total.w * inverse));
  }
}

#endif
