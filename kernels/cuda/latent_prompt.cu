// Attention of a chunk of a prompt over expanded keys and values of latent attention, with Hopper's
// warp-group products (wgmma.cuh).
//
// Absorbed, a pair of row and key costs 2 · rank + rotated products per head; expanded, nope +
// rotated + value: with DeepSeek-V3's sizes 320 instead of 1,088. The heads' keys and values are
// expanded for this kernel only (latent_expand.cu), in the order of positions, so that no page is
// looked up. The key that all heads share is copied after each head's own key.
//
// A block takes 128 rows of a head. Each of its two warp groups takes 64, whose queries stay in
// registers. Scores are weighed while the values of the previous tile are summed; both groups read
// the same tiles, of which two are in shared memory or in flight.
//
// -DNOPE, -DROTATED, -DVALUE: sizes of a head's own part of a key, of the shared part, and of a
// value: multiples of 8, those of the key together of 16; VALUE is 64 or 128. -DKEYS: keys of a
// tile, a multiple of 32, at least 64. Not for float.
#include "common.cuh"

#if defined(T_PAIRS) && (defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL))
#include "wgmma.cuh"

#define ROWS 128
#define THREADS 256
/// Values of a key, and products of 16 of them.
#define WIDTH (NOPE + ROTATED)
#define STEPS (WIDTH / 16)
/// 16-byte accesses.
#define OWN_CHUNKS (NOPE / 8)
#define SHARED_CHUNKS (ROTATED / 8)
#define VALUE_CHUNKS (VALUE / 8)
/// Bytes of 64 columns of a tile's keys or values, of all columns of the keys, and of all columns
/// of the values: column blocks are consecutive.
#define COLUMN (KEYS * 128)
#define ALL_KEYS ((WIDTH + 63) / 64 * COLUMN)
#define ALL_VALUES (VALUE / 64 * COLUMN)
/// The same for a group's queries.
#define QUERY_COLUMN (64 * 128)
#define ALL_QUERIES ((WIDTH + 63) / 64 * QUERY_COLUMN)

/// Offset of a chunk of a row, with column blocks APART bytes apart.
template <int APART>
__device__ __forceinline__ u32 place_of_chunk(int row, int chunk) { return chunk / 8 * APART + place_of<128>(row, chunk % 8); }

/// Copies of a block's keys and values.
struct Copies {
  const T *keys, *values, *turned;
  /// Elements from one position to the next.
  int key_stride, value_stride;
  /// The last position that any row sees. Copies of it fill the last tile: no row sees them, but
  /// their values have to be finite.
  int last;

  __device__ __forceinline__ void load_keys(unsigned char* to, int tile) const {
    each<KEYS * OWN_CHUNKS>([&](int i) {
      int key = i / OWN_CHUNKS, chunk = i % OWN_CHUNKS;
      copy_async_16(to + place_of_chunk<COLUMN>(key, chunk), keys + wide(position(tile, key), key_stride) + chunk * 8);
    });
    each<KEYS * SHARED_CHUNKS>([&](int i) {
      int key = i / SHARED_CHUNKS, chunk = i % SHARED_CHUNKS;
      copy_async_16(to + place_of_chunk<COLUMN>(key, OWN_CHUNKS + chunk), turned + wide(position(tile, key), ROTATED) + chunk * 8);
    });
  }
  __device__ __forceinline__ void load_values(unsigned char* to, int tile) const {
    each<KEYS * VALUE_CHUNKS>([&](int i) {
      int key = i / VALUE_CHUNKS, chunk = i % VALUE_CHUNKS;
      copy_async_16(to + place_of_chunk<COLUMN>(key, chunk), values + wide(position(tile, key), value_stride) + chunk * 8);
    });
  }

 private:
  __device__ __forceinline__ int position(int tile, int key) const { return min(tile * KEYS + key, last); }
  /// Calls `copy` for this thread's share of COUNT.
  template <int COUNT, class Copy>
  static __device__ __forceinline__ void each(Copy&& copy) {
#pragma unroll
    for (int n = 0; n < (COUNT + THREADS - 1) / THREADS; n++) {
      int i = n * THREADS + (int)threadIdx.x;
      if ((n + 1) * THREADS <= COUNT || i < COUNT) copy(i);
    }
  }
};

/// Starts the scores of a group's 64 rows over a tile's keys.
__device__ __forceinline__ void start_scores(float (&score)[KEYS / 2], const u32 (&query)[STEPS][4], Place keys) {
#pragma unroll
  for (int i = 0; i < KEYS / 2; i++) score[i] = 0.0f;
  products_begin();
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    product_with_registers_start<KEYS>(score, query[k], keys + (u32)(k / 4 * COLUMN + k % 4 * 32));
  }
  products_commit();
}

/// Starts the weighted sum of a tile's values.
__device__ __forceinline__ void start_sums(float (&sum)[VALUE / 2], const u32 (&weight)[KEYS / 16][4], Place values) {
  products_begin();
#pragma unroll
  for (int k = 0; k < KEYS / 16; k++) {
    product_of_registers_start<VALUE>(sum, weight[k], values + (u32)(k * 16 * 128), COLUMN);
  }
  products_commit();
}

/// Online softmax of a lane's two rows.
struct Rows {
  /// Number of positions that each row sees.
  int sees[2];
  /// The largest scores, unscaled, and the sum of weights of a lane's own columns.
  float most[2], sum[2];

  /// Turns the scores of tile t into weights, and returns in `keep` the factor for earlier sums.
  __device__ __forceinline__ void weigh(float (&score)[KEYS / 2], float (&keep)[2], int t, float scale) {
    int first = t * KEYS + lane() % 4 * 2;
    if (t * KEYS + KEYS > min(sees[0], sees[1])) {
#pragma unroll
      for (int i = 0; i < KEYS / 2; i++) score[i] = first + i / 4 * 8 + i % 2 < sees[i / 2 % 2] ? score[i] : -infinity();
    }
    float larger[2] = {most[0], most[1]};
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) larger[i / 2 % 2] = max(larger[i / 2 % 2], score[i]);
    float reference[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      larger[half] = max(larger[half], shuffle_xor(larger[half], 1));
      larger[half] = max(larger[half], shuffle_xor(larger[half], 2));
      reference[half] = reference_of(larger[half]) * scale;
      keep[half] = exp2_fast(most[half] * scale - reference[half]);
      most[half] = larger[half];
      sum[half] *= keep[half];
    }
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
      score[i] = exp2_fast(score[i] * scale - reference[i / 2 % 2]);
      sum[i / 2 % 2] += score[i];
    }
  }
};

/// Weights as the left factor of products of 16 keys each.
__device__ __forceinline__ void pack_weights(u32 (&weight)[KEYS / 16][4], const float (&score)[KEYS / 2]) {
#pragma unroll
  for (int i = 0; i < KEYS / 4; i++) weight[i / 4][i % 4] = pack(score[2 * i], score[2 * i + 1]);
}

/// Row `i` of `rows` sees positions 0 .. start + i. query: rows `query_stride` apart, WIDTH values
/// per head, the last ROTATED of them rotated; keys `[positions, heads, NOPE]`, values
/// `[positions, heads, VALUE]`, turned `[positions, ROTATED]`; out: rows `out_stride` apart, VALUE
/// values per head. `scale` includes log2(e). Grid (heads, ceil(rows / 128)), 256 threads; dynamic
/// shared memory: twice ALL_KEYS and ALL_VALUES.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
latent_prompt(T* out, int out_stride, const T* query, int query_stride, const T* all_keys, const T* all_values, const T* turned, int start,
              int rows, float scale) {
  DYNAMIC_SHARED(shared);
  unsigned char* value_tiles = shared + 2 * ALL_KEYS;
  wait_for_predecessor();

  // The blocks with the most keys start first.
  int heads = (int)gridDim.x, head = (int)blockIdx.x, first_row = ((int)gridDim.y - 1 - (int)blockIdx.y) * ROWS;
  int last_row = min(first_row + ROWS, rows) - 1, count = (start + last_row) / KEYS + 1;
  Copies copies = {all_keys + head * NOPE, all_values + head * VALUE, turned, heads * NOPE, heads * VALUE, start + last_row};

  // Queries are staged in the memory of the keys until they are in registers. After the last row,
  // that row is repeated and not written.
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < ROWS * (WIDTH / 8); i += THREADS) {
    int row = i / (WIDTH / 8), chunk = i % (WIDTH / 8);
    const T* from = query + wide(min(first_row + row, rows - 1), query_stride) + head * WIDTH + chunk * 8;
    copy_async_16(shared + row / 64 * ALL_QUERIES + place_of_chunk<QUERY_COLUMN>(row % 64, chunk), from);
  }
  copy_async_commit();
  copies.load_values(value_tiles, 0);
  copy_async_commit();
  copy_async_wait<1>();
  block_sync();
  int group = same((int)threadIdx.x / 128), own_row = warp() % 4 * 16;
  u32 asked[STEPS][4];
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    ldmatrix_x4(asked[k], shared + group * ALL_QUERIES + place_of_chunk<QUERY_COLUMN>(own_row + lane() % 16, k * 2 + lane() / 16));
  }
  block_sync();
  copies.load_keys(shared, 0);
  copy_async_commit();
  copy_async_wait<0>();
  fence_for_products();
  block_sync();

  int first_own = first_row + group * 64 + own_row + lane() / 4;
  Rows own = {{start + min(first_own, rows - 1) + 1, start + min(first_own + 8, rows - 1) + 1},
              {-infinity(), -infinity()},
              {0.0f, 0.0f}};
  float score[KEYS / 2], sum[VALUE / 2], keep[2];
  u32 weight[KEYS / 16][4];
#pragma unroll
  for (int i = 0; i < VALUE / 2; i++) sum[i] = 0.0f;
  start_scores(score, asked, Place(shared));
  if (count > 1) copies.load_keys(shared + ALL_KEYS, 1);
  copy_async_commit();
  products_wait(score);
  own.weigh(score, keep, 0, scale);
  pack_weights(weight, score);

#pragma unroll 1
  for (int t = 0; t + 1 < count; t++) {
    copy_async_wait<0>();
    fence_for_products();
    // Also: all warps are done with the keys of tile t and with the values of tile t − 1, whose
    // places the next ones take.
    block_sync();
    if (t + 2 < count) copies.load_keys(shared + t % 2 * ALL_KEYS, t + 2);
    copies.load_values(value_tiles + (t + 1) % 2 * ALL_VALUES, t + 1);
    copy_async_commit();
    start_scores(score, asked, Place(shared + (t + 1) % 2 * ALL_KEYS));
    start_sums(sum, weight, Place(value_tiles + t % 2 * ALL_VALUES));
    // While the values of tile t are summed.
    products_wait_but<1>(score);
    own.weigh(score, keep, t + 1, scale);
    products_wait(sum);
#pragma unroll
    for (int i = 0; i < VALUE / 2; i++) sum[i] *= keep[i / 2 % 2];
    pack_weights(weight, score);
  }
  copy_async_wait<0>();
  fence_for_products();
  block_sync();
  start_sums(sum, weight, Place(value_tiles + (count - 1) % 2 * ALL_VALUES));
  products_wait(sum);

#pragma unroll
  for (int half = 0; half < 2; half++) {
    own.sum[half] += shuffle_xor(own.sum[half], 1);
    own.sum[half] += shuffle_xor(own.sum[half], 2);
    int row = first_own + 8 * half;
    if (row >= rows) continue;
    float inverse = 1.0f / own.sum[half];
    T* to = out + wide(row, out_stride) + head * VALUE + lane() % 4 * 2;
#pragma unroll
    for (int c = 0; c < VALUE; c += 8) {
      const float* two = sum + c / 2 + 2 * half;
      *(u32*)(to + c) = pack(two[0] * inverse, two[1] * inverse);
    }
  }
}

#endif
