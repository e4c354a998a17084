// Attention of many heads over the latent plane with Hopper's warp-group products. As
// latent_attention.cu, whose order of splits it keeps, but a product takes 64 heads, and reads
// queries and cache rows directly from shared memory (wgmma.cuh).
//
// A block is two warp groups, which take 64 heads of a row through one split. Each group scores one
// half of each piece of 64 keys for all heads; weights go through shared memory, and each group
// sums one half of the columns of the values. A warp has the same 16 heads in both steps, so it
// knows by itself by how much its sums shrink when the largest score grows.
//
// -DRANK, a multiple of 256, and -DROTATED, of 16: sizes of a latent vector and of the rotated key.
// Not for float.
#include "common.cuh"

#if defined(T_PAIRS) && (defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL))
#include "latent.cuh"
#include "wgmma.cuh"

#define KEYS 64
#define HEADS 64
#define THREADS 256
/// Keys that a group scores, and keys that a warp copies.
#define PART (KEYS / 2)
#define COPIED (KEYS / (THREADS / WARP))
/// 16-byte accesses per cache row.
#define CHUNKS (WIDTH / 8)
/// Bytes of 64 values of 64 rows, and of all values of 64 rows: rows of 128 bytes, squares one
/// after the other.
#define SQUARE (64 * 128)
#define ALL_VALUES ((WIDTH + 63) / 64 * SQUARE)
/// Columns of a product, and number of products per group.
#define COLUMNS 128
#define PRODUCTS (RANK / 2 / COLUMNS)

/// Offset of a chunk of a row.
__device__ __forceinline__ u32 place_of_chunk(int row, int chunk) { return chunk / 8 * SQUARE + place_of<128>(row, chunk % 8); }

/// As latent_attention.cu. Grid (ceil(heads / 64), rows, max_splits), 256 threads; dynamic shared
/// memory: three times ALL_VALUES, one SQUARE, and 5 · 64 floats.
extern "C" __global__ void __launch_bounds__(THREADS, 1) latent_wide(PARAMETERS) {
  DYNAMIC_SHARED(shared);
  unsigned char *queries = shared, *keys = queries + ALL_VALUES, *weights = keys + 2 * ALL_VALUES;
  float *most_of = (float*)(weights + SQUARE), *sum_of = most_of + 2 * HEADS, *last_of = sum_of + 2 * HEADS;
  wait_for_predecessor();

  int thread = (int)threadIdx.x, row = (int)blockIdx.y, split = (int)blockIdx.z, first_head = (int)blockIdx.x * HEADS;
  int live = min(HEADS, heads - first_head), total = row_prefix[row] + row_own_count[row];
  Splits splits = splits_of(total, max_splits);
  if (split >= splits.count) return;
  Seen seen = {page_table + (u64)row_slot[row] * table_width, row_own + (u64)row * own_stride, row_prefix[row],
               split * splits.chunk, min(split * splits.chunk + splits.chunk, total), page_size};
  int pieces = (seen.end - seen.begin + KEYS - 1) / KEYS;

  for (int i = thread; i < HEADS * CHUNKS; i += THREADS) {
    int pair = i / CHUNKS, chunk = i % CHUNKS;
    const T* from = query + ((u64)row * heads + first_head + min(pair, live - 1)) * WIDTH + chunk * 8;
    copy_async_16_or_zero(queries + place_of_chunk(pair, chunk), from, pair < live);
  }
  // The word that gives the cache row of this lane's key in the next piece, whose copies this warp
  // starts.
  int found = 0;
  auto first_key = [&](int piece) { return seen.begin + piece * KEYS + warp() * COPIED; };
  auto look = [&](int piece) {
    if (piece < pieces) found = seen.look_up(first_key(piece) + lane() % COPIED);
  };
  auto load = [&](int piece) {
    if (piece < pieces) {
      unsigned char* buffer = keys + piece % 2 * ALL_VALUES;
      int cache_row = seen.cache_row(first_key(piece) + lane() % COPIED, found);
#pragma unroll 6
      for (int n = 0; n < (COPIED * CHUNKS + WARP - 1) / WARP; n++) {
        int i = n * WARP + lane(), key = i / CHUNKS, chunk = i % CHUNKS;
        int from = shuffle(cache_row, key % COPIED);
        if (i >= COPIED * CHUNKS) continue;
        copy_async_16_or_zero(buffer + place_of_chunk(warp() * COPIED + key, chunk),
                              latents + (u64)(u32)from * WIDTH + chunk * 8, first_key(piece) + key < seen.end);
      }
    }
    copy_async_commit();
  };
  look(0);
  load(0);
  look(1);

  int group = same(thread / 128), pair = warp() % 4 * 16 + lane() / 4;
  float most[2] = {-infinity(), -infinity()}, sum[2] = {0.0f, 0.0f}, acc[PRODUCTS][COLUMNS / 2];
#pragma unroll
  for (int p = 0; p < PRODUCTS; p++) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) acc[p][i] = 0.0f;
  }
  Place left = queries;

#pragma unroll 1
  for (int piece = 0; piece < pieces; piece++) {
    copy_async_wait<0>();
    fence_for_products();
    // Also: all warps are done with the piece whose place the next one takes.
    block_sync();
    load(piece + 1);
    look(piece + 2);
    const unsigned char* here = keys + piece % 2 * ALL_VALUES;
    Place right = here + group * PART * 128;
    float score[PART / 2];
#pragma unroll
    for (int i = 0; i < PART / 2; i++) score[i] = 0.0f;
    products_begin();
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
      u32 at = (u32)(k / 4 * SQUARE + k % 4 * 32);
      product_start<PART>(score, left + at, right + at);
    }
    products_commit();
    products_wait(score);
    int behind = seen.end - (seen.begin + piece * KEYS);
    float larger[2] = {-infinity(), -infinity()};
#pragma unroll
    for (int i = 0; i < PART / 2; i++) {
      int key = group * PART + i / 4 * 8 + lane() % 4 * 2 + i % 2;
      if (key >= behind) score[i] = -infinity();
      larger[i / 2 % 2] = max(larger[i / 2 % 2], score[i]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      larger[h] = max(larger[h], shuffle_xor(larger[h], 1));
      larger[h] = max(larger[h], shuffle_xor(larger[h], 2));
      if (lane() % 4 == 0) most_of[group * HEADS + pair + 8 * h] = larger[h];
    }
    block_sync();
    float reference[2], keep[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      larger[h] = max(most[h], max(most_of[pair + 8 * h], most_of[HEADS + pair + 8 * h]));
      reference[h] = reference_of(larger[h]) * scale;
      keep[h] = exp2_fast(most[h] * scale - reference[h]);
      most[h] = larger[h];
      sum[h] *= keep[h];
    }
#pragma unroll
    for (int n = 0; n < PART / 8; n++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float one = exp2_fast(score[n * 4 + 2 * h] * scale - reference[h]);
        float other = exp2_fast(score[n * 4 + 2 * h + 1] * scale - reference[h]);
        sum[h] += one;
        sum[h] += other;
        u32 at = place_of<128>(pair + 8 * h, group * PART / 8 + n);
        *(u32*)(weights + at + lane() % 4 * 4) = pack(one, other);
      }
    }
    if (ballot(keep[0] != 1.0f || keep[1] != 1.0f) != 0) {
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) acc[p][i] *= keep[i / 2 % 2];
      }
    }
    block_sync();
    u32 weight[KEYS / 16][4];
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
      ldmatrix_x4(weight[k], weights + place_of<128>(warp() % 4 * 16 + lane() % 16, k * 2 + lane() / 16));
    }
    products_begin();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++) {
        Place values = here + (group * PRODUCTS + p) * (COLUMNS / 64) * SQUARE;
        product_of_registers_start<COLUMNS>(acc[p], weight[k], values + (u32)(k * 16 * 128), SQUARE);
      }
    }
    products_commit();
#pragma unroll
    for (int p = 0; p < PRODUCTS; p++) products_wait(acc[p]);
  }
  copy_async_wait<0>();

#pragma unroll
  for (int h = 0; h < 2; h++) {
    sum[h] += shuffle_xor(sum[h], 1);
    sum[h] += shuffle_xor(sum[h], 2);
    if (lane() % 4 == 0) sum_of[group * HEADS + pair + 8 * h] = sum[h];
    if (lane() % 4 == 0 && group == 0) last_of[pair + 8 * h] = most[h];
  }
  block_sync();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int own = pair + 8 * h, column = group * (RANK / 2) + lane() % 4 * 2;
    if (own >= live) continue;
    float weight = sum_of[own] + sum_of[HEADS + own];
    u64 place = (u64)row * heads + first_head + own;
    float* record = partial + (place * max_splits + split) * RECORD;
    // A row that sees nothing is padding: zeros.
    float inverse = weight > 0.0f ? 1.0f / weight : 0.0f;
#pragma unroll
    for (int p = 0; p < PRODUCTS; p++) {
#pragma unroll
      for (int c = 0; c < COLUMNS / 8; c++) {
        const float* two = acc[p] + c * 4 + 2 * h;
        int at = column + p * COLUMNS + c * 8;
        if (splits.count == 1) {
          *(u32*)(out + place * RANK + at) = pack(two[0] * inverse, two[1] * inverse);
        } else {
          *(float2*)(record + at) = make_float2(two[0], two[1]);
        }
      }
    }
    if (splits.count > 1 && column == 0) *(float2*)(record + RANK) = make_float2(last_of[own] * scale, weight);
  }
}

#endif
