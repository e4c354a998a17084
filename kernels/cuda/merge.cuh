// Merges the partial sums of a row in attention.cu: first over the teams of a block, then over
// splits.
#pragma once

__device__ __forceinline__ float4 multiply_add(float share, float4 values, float4 sums) {
  return make_float4(multiply_add(share, values.x, sums.x), multiply_add(share, values.y, sums.y),
                     multiply_add(share, values.z, sums.z), multiply_add(share, values.w, sums.w));
}

__device__ __forceinline__ void write_quotients(const Operands& given, u64 place, float4 sums, float weight) {
  T* at = given.out + place;
#ifdef KV_FP8
  float by = given.value_scale;
  sums = make_float4(sums.x * by, sums.y * by, sums.z * by, sums.w * by);
#endif
  float4 quotients = make_float4(sums.x / weight, sums.y / weight, sums.z / weight, sums.w / weight);
#ifdef T_PAIRS
  *(uint2*)at = make_uint2(pack(quotients.x, quotients.y), pack(quotients.z, quotients.w));
#else
  *(float4*)at = quotients;
#endif
}

/// Merges the teams in order: into the result of a row that has one split, else into that of the
/// split.
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
    // A team without keys has the largest score −∞ and no weight.
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
      write_quotients(given, head * HEAD_DIM + four * 4, sees ? value : make_float4(0.0f, 0.0f, 0.0f, 0.0f),
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

/// The last block of a row's heads to finish merges the splits, in order.
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
  // In the memory of the teams' sums: the share of each split, and its weight.
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
    write_quotients(given, head * HEAD_DIM + four * 4, value, weight);
  }
}
