// Merging of the splits of the attention kernels for tensor cores.
#pragma once

/// Floats of a split's record of a pair: HEAD_DIM sums, the largest score, the sum of weights, and
/// padding to whole accesses.
#define RECORD (HEAD_DIM + 4)

// With clusters, the splits of a pair are the blocks of a cluster: each keeps its records in shared
// memory, and merges an equal share of all columns, which it reads from the others. Without,
// records go through device memory, and the last block merges all.

/// Writes some columns of this split's record of a pair. `records` are those in shared memory, one
/// per pair of the block; `own` is the pair's index among these, `place` its index among all pairs.
template <class Columns>
__device__ __forceinline__ void leave_record(float* records, float* partial, int own, int place, int max_splits, int column,
                                             Columns columns) {
#ifdef CLUSTERS
  *(Columns*)(records + own * RECORD + column) = columns;
#else
  *(Columns*)(partial + (wide(place, max_splits) + blockIdx.x) * RECORD + column) = columns;
#endif
}

/// Four floats of a split's record. `own` points into this block's record, or without clusters into
/// that of the first split.
__device__ __forceinline__ float4 load_of_split(const float* own, int split) {
#ifdef CLUSTERS
  return load_from_block((const float4*)own, split);
#else
  uint4 raw = load_fresh_16(own + split * RECORD);
  return make_float4(bits_float(raw.x), bits_float(raw.y), bits_float(raw.z), bits_float(raw.w));
#endif
}

/// A thread's share of the merge: items of four columns of a pair, every `step`-th from `first` on.
struct Share {
  int first, step, items;
};

/// Merges the splits of ITEMS items together, SPLITS of each at a time.
template <int SPLITS, int ITEMS>
__device__ __forceinline__ void merge_items(T* out, const Pairs& pairs, const Share& share, int splits, int heads,
                                            const float* records, const float* partial, int max_splits) {
  constexpr int LOADS = SPLITS * ITEMS;
#pragma unroll 1
  for (int i = share.first; i < share.items; i += ITEMS * share.step) {
    int place[ITEMS], d[ITEMS];
    const float* from[ITEMS];
    float most[ITEMS], total[ITEMS], sum[ITEMS][4];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
      // After the last item, that item is repeated and not written.
      int item = min(i + k * share.step, share.items - 1), turn = item / (HEAD_DIM / 4);
      int pair = pairs.first_pair + turn;
      d[k] = item % (HEAD_DIM / 4) * 4;
      place[k] = row_of(pairs, pair) * heads + head_of(pairs, pair);
#ifdef CLUSTERS
      from[k] = records + turn * RECORD;
#else
      from[k] = partial + wide(place[k], max_splits) * RECORD;
#endif
      most[k] = -infinity();
      total[k] = sum[k][0] = sum[k][1] = sum[k][2] = sum[k][3] = 0.0f;
    }
#pragma unroll 1
    for (int begin = 0; begin < splits; begin += SPLITS) {
      float4 value[LOADS], weight[LOADS];
#pragma unroll
      for (int p = 0; p < LOADS; p++) {
        int split = begin + p % SPLITS;
        value[p] = weight[p] = make_float4(-infinity(), 0.0f, 0.0f, 0.0f);
        if (split >= splits) continue;
        weight[p] = load_of_split(from[p / SPLITS] + HEAD_DIM, split);
        value[p] = load_of_split(from[p / SPLITS] + d[p / SPLITS], split);
      }
#pragma unroll
      for (int p = 0; p < LOADS; p++) {
        if (begin + p % SPLITS >= splits) continue;
        int k = p / SPLITS;
        float larger = max(most[k], weight[p].x), reference = reference_of(larger);
        float keep = exp2_fast(most[k] - reference), share_of_split = exp2_fast(weight[p].x - reference);
        most[k] = larger;
        total[k] = total[k] * keep + share_of_split * weight[p].y;
        sum[k][0] = sum[k][0] * keep + share_of_split * value[p].x;
        sum[k][1] = sum[k][1] * keep + share_of_split * value[p].y;
        sum[k][2] = sum[k][2] * keep + share_of_split * value[p].z;
        sum[k][3] = sum[k][3] * keep + share_of_split * value[p].w;
      }
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
      if (i + k * share.step >= share.items) continue;
      float inverse = inverse_weight(pairs, total[k]);
      *(uint2*)(out + wide(place[k], HEAD_DIM) + d[k]) =
          make_uint2(pack(sum[k][0] * inverse, sum[k][1] * inverse), pack(sum[k][2] * inverse, sum[k][3] * inverse));
    }
  }
}

/// Ends a split, after its records are written: merges all splits of these pairs, in order. Called
/// by a whole block.
template <int PAIRS, int THREADS>
__device__ __forceinline__ void merge_splits(T* out, const Pairs& pairs, int splits, int heads, const float* records,
                                             float* partial, int* counters, int max_splits) {
  Share share = {(int)threadIdx.x, THREADS, min(PAIRS, pairs.end_pair - pairs.first_pair) * (HEAD_DIM / 4)};
#ifdef CLUSTERS
  cluster_arrive_with_own();
  cluster_wait();
  share.first += (int)blockIdx.x * THREADS;
  share.step *= splits;
#else
  __shared__ int is_last;
  block_sync();
  int* counter = counters + (u64)blockIdx.z * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) is_last = atomic_add_ordered(counter, 1) == splits - 1;
  block_sync();
  if (!is_last) return;
#endif
  // With many pairs a thread has several items: those of few splits are loaded together.
  if (splits <= 2)
    merge_items<2, 4>(out, pairs, share, splits, heads, records, partial, max_splits);
  else if (splits <= 4)
    merge_items<4, 2>(out, pairs, share, splits, heads, records, partial, max_splits);
  else
    merge_items<8, 1>(out, pairs, share, splits, heads, records, partial, max_splits);
#ifdef CLUSTERS
  // No block ends while another reads its records.
  cluster_arrive_relaxed();
  cluster_wait();
#else
  if (threadIdx.x == 0) *counter = 0;
#endif
}
