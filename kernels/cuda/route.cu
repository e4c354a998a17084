// The router of an expert layer: from rows to the experts of each, and from these to tiles of rows
// for each expert.
//
// A pair is a row and one of its `chosen` experts: pair = row · chosen + place, with places in
// ascending order of experts. Shared experts, which every row passes, follow the routed ones, with
// weight 1: they are the last places of a row.
//
// A tile is an expert with up to TILE of its pairs, in ascending order of rows. Tiles are ordered
// by expert, as records of integers: the expert, the number of its pairs, two unused, TILE pairs,
// and the bits of their TILE weights. Neither order depends on the order in which blocks run.
#include "common.cuh"
#include "order.cuh"

#define VECTOR (16 / (int)sizeof(T))
#define MOST_EXPERTS 512
#define MOST_CHOSEN 32
#define ROUTE_WARPS 8
/// Threads that find their best expert together: there are as many groups of them as a row has
/// experts at most.
#define ROUTE_GROUP (ROUTE_WARPS * WARP / MOST_CHOSEN)
/// Experts of a block.
#define ROUTE_EXPERTS (2 * ROUTE_WARPS)
#define RECORD_HEAD 4

__device__ __forceinline__ int record_size(int tile) { return RECORD_HEAD + 2 * tile; }

/// How experts are chosen; see reference/route.rs. `bias` `[routed experts]`, null for none, is
/// added to logits. `experts` and `chosen` include shared experts. If `gated`, one more logit
/// follows those of the routed experts: its sigmoid, instead of 1, is the weight of the shared
/// ones. If `uniform`, experts are chosen by pseudo-random logits, a hash of a row's own.
#define ROUTER_PARAMETERS                                                                                              \
  const T *bias, const float *correction, int experts, int chosen, int shared, int is_sigmoid, int groups,             \
      int groups_kept, int renormalises, float added, float factor, int gated, int uniform
#define ROUTER_ARGUMENTS                                                                                               \
  bias, correction, experts, chosen, shared, is_sigmoid, groups, groups_kept, renormalises, added, factor, gated, uniform

struct Choice {
  float score[MOST_EXPERTS];
  /// With the correction.
  float rank[MOST_EXPERTS];
  u64 key[MOST_EXPERTS];
  u64 best[MOST_CHOSEN];
  int own[MOST_CHOSEN];
  /// Of groups of experts, and then the candidates of the selection.
  u64 group[MOST_EXPERTS];
  Selection selection;
  float scratch[32];
};

/// The finaliser of MurmurHash3, and what it is given of an expert; see reference/route.rs.
__device__ __forceinline__ u32 mixed(u32 bits) {
  bits = (bits ^ bits >> 16) * 0x85ebca6bu;
  bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
  return bits ^ bits >> 16;
}
__device__ __forceinline__ u32 of_expert(int expert) { return ((u32)expert + 1) * 0x9e3779b9u; }

/// Replaces the logits of a row by pseudo-random ones in [0, 1), a hash of their bits. Called by a
/// whole block, of which each thread has read the logits that it replaces.
__device__ __forceinline__ void make_uniform(Choice& choice, int routed) {
  u32 row = 0;
  for (int e = (int)threadIdx.x; e < routed; e += (int)blockDim.x) row ^= mixed(float_bits(choice.score[e]) + of_expert(e));
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) row ^= shuffle_xor(row, mask);
  if (lane() == 0) choice.scratch[warp()] = bits_float(row);
  block_sync();
  row = 0;
  for (int w = 0; w < (int)blockDim.x / WARP; w++) row ^= float_bits(choice.scratch[w]);
  for (int e = (int)threadIdx.x; e < routed; e += (int)blockDim.x) {
    choice.score[e] = (float)(mixed(row ^ of_expert(e)) >> 8) * (1.0f / 16777216.0f);
  }
  block_sync();
}

/// Clears the keys of experts in groups that are not kept. Groups are ranked by the sum of their
/// two best.
__device__ __forceinline__ void keep_groups(Choice& choice, int routed, int groups, int groups_kept) {
  int size = routed / groups;
  for (int g = (int)threadIdx.x; g < groups; g += (int)blockDim.x) {
    u64 best = 0, second = 0;
    for (int i = 0; i < size; i++) {
      u64 key = choice.key[g * size + i];
      if (key > best) {
        second = best;
        best = key;
      } else if (key > second) {
        second = key;
      }
    }
    float sum = choice.rank[composite_index(best)];
    if (size > 1) sum += choice.rank[composite_index(second)];
    choice.group[g] = composite(sum, (u32)g);
  }
  block_sync();
  for (int e = (int)threadIdx.x; e < routed; e += (int)blockDim.x) {
    u64 own = choice.group[e / size];
    int better = 0;
    for (int g = 0; g < groups; g++) better += choice.group[g] > own;
    if (better >= groups_kept) choice.key[e] = 0;
  }
  block_sync();
}

/// Chooses the experts of a row from its logits. Called by a whole block.
__device__ __forceinline__ void choose(Choice& choice, const float* logits, int* expert, float* weight, ROUTER_PARAMETERS) {
  int routed = experts - shared, kept = chosen - shared, thread = (int)threadIdx.x;
  float most = -infinity(), sum = 0.0f;
  for (int e = thread; e < routed; e += (int)blockDim.x) choice.score[e] = load_fresh_float(logits + e);
  if (uniform) {
    make_uniform(choice, routed);
    correction = nullptr;
  }
  for (int e = thread; e < routed; e += (int)blockDim.x) most = max(most, choice.score[e]);
  if (!is_sigmoid) most = block_max(most, choice.scratch);
  for (int e = thread; e < routed; e += (int)blockDim.x) {
    float power = exp_accurate(is_sigmoid ? -choice.score[e] : choice.score[e] - most);
    choice.score[e] = is_sigmoid ? 1.0f / (1.0f + power) : power;
    sum += power;
  }
  if (!is_sigmoid) sum = block_sum(sum, choice.scratch);
  for (int e = thread; e < routed; e += (int)blockDim.x) {
    float score = is_sigmoid ? choice.score[e] : choice.score[e] / sum;
    float rank = correction ? score + correction[e] : score;
    choice.score[e] = score;
    choice.rank[e] = rank;
    choice.key[e] = composite(rank, (u32)e);
  }
  block_sync();
  if (groups_kept < groups) keep_groups(choice, routed, groups, groups_kept);
  u64 largest = 0;
  for (int e = thread; e < routed; e += (int)blockDim.x) largest = choice.key[e] > largest ? choice.key[e] : largest;
  auto keys = [&](u64, auto take) {
    for (int e = thread; e < routed; e += (int)blockDim.x) take(choice.key[e]);
  };
  select_best(choice.selection, choice.group, choice.best, keys, largest, kept, ROUTE_GROUP);
  // Ascending experts.
  if (thread < kept) {
    int own = (int)composite_index(choice.best[thread]), place = 0;
    for (int i = 0; i < kept; i++) place += (int)composite_index(choice.best[i]) < own;
    choice.own[place] = own;
  }
  block_sync();
  if (thread < chosen) {
    float of_all = 0.0f;
    for (int i = 0; i < kept; i++) of_all += choice.score[choice.own[i]];
    bool is_shared = thread >= kept;
    float score = is_shared ? 1.0f : choice.score[choice.own[thread]];
    if (!is_shared && renormalises) score /= of_all + added;
    expert[thread] = is_shared ? routed + thread - kept : choice.own[thread];
    if (is_shared && gated) score = 1.0f / (1.0f + exp_accurate(-load_fresh_float(logits + routed)));
    weight[thread] = is_shared ? score : score * factor;
  }
  block_sync();
}

/// Logits of ROWS rows for a block's experts; the last block of these rows chooses. See
/// route_rows_….
template <int ROWS>
__device__ __forceinline__ void route(const T* x, int x_stride, const T* w, int rows, int inputs, int rounds, float* logits,
                                      int* counters, int* expert, float* weight, int* tiles, int* tile_count, int tile,
                                      ROUTER_PARAMETERS) {
  __shared__ Choice choice;
  __shared__ int arrived;
  constexpr int TOGETHER = ROWS == 1 ? 8 : ROWS <= 4 ? 2 : 1;
  int all = experts - shared + gated, first_row = (int)blockIdx.y * ROWS, count = min(ROWS, rows - first_row);
  int first = (int)blockIdx.x * ROUTE_EXPERTS + warp() * 2;
  const T* own[2];
#pragma unroll
  for (int e = 0; e < 2; e++) {
    own[e] = w + (u64)min(first + e, all - 1) * inputs;
    for (int i = lane() * (128 / (int)sizeof(T)); i < inputs; i += WARP * (128 / (int)sizeof(T))) prefetch_line(own[e] + i);
  }
  wait_for_predecessor();
  const T* row[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) row[r] = x + (u64)(first_row + min(r, count - 1)) * x_stride;
  float sum[2][ROWS];
#pragma unroll
  for (int e = 0; e < 2; e++) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) sum[e][r] = 0.0f;
  }
  auto values = [](uint4 raw, float (&out)[VECTOR]) {
    const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
#ifdef T_PAIRS
      float2 two = unpack(words[i]);
      out[2 * i] = two.x;
      out[2 * i + 1] = two.y;
#else
      out[i] = bits_float(words[i]);
#endif
    }
  };
#pragma unroll TOGETHER
  for (int i = lane() * VECTOR; i < inputs; i += WARP * VECTOR) {
    uint4 of_expert[2], of_row[ROWS];
#pragma unroll
    for (int e = 0; e < 2; e++) of_expert[e] = load_16(own[e] + i);
#pragma unroll
    for (int r = 0; r < ROWS; r++) of_row[r] = load_16(row[r] + i);
    float a[2][VECTOR];
    values(of_expert[0], a[0]);
    values(of_expert[1], a[1]);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      float b[VECTOR];
      values(of_row[r], b);
#pragma unroll
      for (int k = 0; k < VECTOR; k++) {
        sum[0][r] = multiply_add(a[0][k], b[k], sum[0][r]);
        sum[1][r] = multiply_add(a[1][k], b[k], sum[1][r]);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < 2; e++) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      float logit = warp_sum(sum[e][r]);
      if (bias && first + e < all - gated) logit += to_float(bias[first + e]);
      if (rounds) logit = to_float(from_float(logit));
      if (lane() == 0 && r < count && first + e < all) logits[(u64)(first_row + r) * all + first + e] = logit;
    }
  }
  block_sync();
  if (threadIdx.x == 0) arrived = atomic_add_ordered(counters + blockIdx.y, 1);
  block_sync();
  if (arrived != (int)gridDim.x - 1) return;
  if (threadIdx.x == 0) counters[blockIdx.y] = 0;
#pragma unroll 1
  for (int r = 0; r < count; r++) {
    u64 at = first_row + r;
    choose(choice, logits + at * all, expert + at * chosen, weight + at * chosen, ROUTER_ARGUMENTS);
  }
  // The tiles of a single row are its pairs.
  int thread = (int)threadIdx.x;
  if (rows > 1 || thread >= chosen) return;
  if (thread == 0) *tile_count = chosen;
  bool is_shared = thread >= chosen - shared;
  int* record = tiles + thread * record_size(tile);
  record[0] = is_shared ? experts - shared + thread - (chosen - shared) : choice.own[thread];
  record[1] = 1;
  record[RECORD_HEAD] = thread;
  record[RECORD_HEAD + tile] = (int)float_bits(weight[thread]);
}

#define ROUTE                                                                                                          \
  const T *x, int x_stride, const T *w, int rows, int inputs, int rounds, float *logits, int *counters, int *expert,   \
      float *weight, int *tiles, int *tile_count, int tile, ROUTER_PARAMETERS
#define ROUTE_ARGUMENTS                                                                                                \
  x, x_stride, w, rows, inputs, rounds, logits, counters, expert, weight, tiles, tile_count, tile, ROUTER_ARGUMENTS

/// The experts and weights of rows, `[rows, chosen]` each. `w` is `[logits, inputs]`, `logits`
/// float `[rows, logits]`, one for each routed expert and then the gate's, rounded to T if
/// `rounds`; `counters` `[rows / 1, 4 or 16]` are zero before and after. For a single row also
/// writes its tiles. Every logit is summed in an order that depends on `inputs` alone. Grid:
/// (logits / ROUTE_EXPERTS, rows / 1, 4 or 16), 256 threads; `inputs` is a multiple of VECTOR.
extern "C" __global__ void __launch_bounds__(256, 1) route_rows_1(ROUTE) { route<1>(ROUTE_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 1) route_rows_4(ROUTE) { route<4>(ROUTE_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 1) route_rows_16(ROUTE) { route<16>(ROUTE_ARGUMENTS); }

/// Exclusive sums over a block's threads; `scratch` has room for its warps.
__device__ __forceinline__ int sum_before(int value, int* scratch) {
  int sum = value;
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    int other = shuffle_up(sum, by);
    if (lane() >= by) sum += other;
  }
  if (lane() == WARP - 1) scratch[warp()] = sum;
  block_sync();
  int before = 0;
  for (int i = 0; i < warp(); i++) before += scratch[i];
  block_sync();
  return before + sum - value;
}

/// The tiles of the pairs of some rows. A block writes those of its expert: it counts the pairs of
/// all experts to find where its own begin, and waits for no other block. A thread has a run of
/// consecutive pairs. Grid: experts, 256 threads.
extern "C" __global__ void __launch_bounds__(256)
group_pairs(const int* expert, const float* weight, int pairs, int experts, int tile, int* tiles, int* tile_count) {
  __shared__ int counts[MOST_EXPERTS], scratch[32], first_tile;
  int thread = (int)threadIdx.x, threads = (int)blockDim.x, own_expert = (int)blockIdx.x;
  for (int e = thread; e < experts; e += threads) counts[e] = 0;
  block_sync();
  wait_for_predecessor();
  int run = (pairs + threads - 1) / threads, begin = min(thread * run, pairs), end = min(begin + run, pairs), own = 0;
#pragma unroll 4
  for (int p = begin; p < end; p++) {
    int of = expert[p];
    atomic_add(&counts[of], 1);
    own += of == own_expert;
  }
  int place = sum_before(own, scratch);
  block_sync();
  int tiles_before = 0, all_tiles = 0;
  for (int e = thread; e < experts; e += threads) {
    int of = (counts[e] + tile - 1) / tile;
    all_tiles += of;
    tiles_before += e < own_expert ? of : 0;
  }
  int before = sum_before(tiles_before, scratch), all = sum_before(all_tiles, scratch);
  if (thread == threads - 1) {
    first_tile = before + tiles_before;
    if (own_expert == 0) *tile_count = all + all_tiles;
  }
  block_sync();
  int count = counts[own_expert], size = record_size(tile);
  for (int t = thread; t * tile < count; t += threads) {
    int* record = tiles + (u64)(first_tile + t) * size;
    record[0] = own_expert;
    record[1] = min(tile, count - t * tile);
  }
  for (int p = begin; p < end && own > 0; p++) {
    if (expert[p] != own_expert) continue;
    int* record = tiles + (u64)(first_tile + place / tile) * size + RECORD_HEAD + place % tile;
    record[0] = p;
    record[tile] = (int)float_bits(weight[p]);
    place++;
  }
}

/// Four consecutive elements of T as floats.
__device__ __forceinline__ float4 read_four(const T* at) {
#ifdef T_PAIRS
  uint2 raw = *(const uint2*)at;
  float2 low = unpack(raw.x), high = unpack(raw.y);
  return make_float4(low.x, low.y, high.x, high.y);
#else
  return *(const float4*)at;
#endif
}

/// The sum over a row's experts, in order, rounded to T. If `parts` is not null, it holds the
/// weighted summands `[chosen, rows, width]`; else `y` holds them without weights,
/// `[pairs, width]`. Width is a multiple of 4. Grid: (width / 1024, rows), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
sum_experts(T* out, int out_stride, const float* parts, const T* y, const float* weight, int chosen, int width) {
  wait_for_predecessor();
  u64 row = blockIdx.y, rows = gridDim.y;
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i >= width) return;
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 8
  for (int k = 0; k < chosen; k++) {
    float by = parts ? 1.0f : weight[row * chosen + k];
    float4 four = parts ? *(const float4*)(parts + (k * rows + row) * width + i) : read_four(y + (row * chosen + k) * width + i);
    sum[0] += by * four.x;
    sum[1] += by * four.y;
    sum[2] += by * four.z;
    sum[3] += by * four.w;
  }
#pragma unroll
  for (int k = 0; k < 4; k++) out[row * out_stride + i + k] = from_float(sum[k]);
}
