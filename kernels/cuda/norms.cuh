// RMS norms of rows of which a thread has four elements at a time: few, so that it has asked for
// all parts of them before it waits for one. A block has a row, or with few rows a cluster of
// blocks.
// Included after vectors.cuh.
#pragma once

__device__ __forceinline__ u32 largest_of(float4 x) {
  return max(max(magnitude(x.x), magnitude(x.y)), max(magnitude(x.z), magnitude(x.w)));
}
__device__ __forceinline__ float4 operator*(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

#ifdef CLUSTERS
/// Blocks of a cluster, which share a row. Few rows by one block each would use few
/// multiprocessors, and large blocks start only when others have left.
#define SHARERS 8
#else
#define SHARERS 1
#endif

/// Elements that a warp has at a time.
#define RUN (4 * WARP)

/// What a warp, a block or a cluster has met: the sum of squares, and the largest magnitude, as
/// bits.
struct Met {
  float squares;
  u32 most;
};

/// What a row has met, from what each warp has: `met` has a place for each `run` of this block's
/// warps. Lanes take the runs of the whole row in turn, so that few and many rows have the same
/// bits. The blocks of a cluster, if SHARED, wait for it once more before they end, since others
/// read their memory; their warps need no barrier of the block.
template <bool SHARED>
__device__ __forceinline__ Met meet(const Met* met, int runs) {
  if (SHARED) {
    cluster_arrive_with_own();
    cluster_wait();
  } else {
    block_sync();
  }
  Met all = {0.0f, 0};
  for (int at = lane(); at < (SHARED ? SHARERS * runs : runs); at += WARP) {
    Met other = SHARED ? load_from_block(met + at % runs, at / runs) : met[at];
    all = Met{all.squares + other.squares, max(all.most, other.most)};
  }
  all = Met{warp_sum(all.squares), largest_of_lanes<WARP>(all.most)};
  if (SHARED) cluster_arrive_relaxed();
  return all;
}

/// The row of a thread.
struct Row {
  int at, count;
  bool is_first_thread;
};

#define NORM                                                                                                            \
  T *normed, int normed_stride, T *stream, int stream_stride, const T *add, int add_stride, const float *parts,         \
      int part_count, const T *weight, T *keep, int keep_stride, const int *source, int width, float epsilon
#define NORM_ARGUMENTS                                                                                                  \
  normed, normed_stride, stream, stream_stride, add, add_stride, parts, part_count, weight, keep, keep_stride, source,  \
      width, epsilon

/// `rms_norm` of elementwise.cu, of which `normed` may be null. `begin` is called with the largest
/// magnitude of the row's elements times their weights, as bits, and what these are multiplied by;
/// `write` by whole warps, with the first of a lane's elements, whether there are any, and the
/// result. Dynamic shared memory: 8 bytes per RUN elements of the row, or per warp if SHARED, where
/// a thread has four elements in all.
template <bool SHARED, class Begin, class Write>
__device__ __forceinline__ void norm_row_in_fours(NORM, Begin&& begin, Write&& write) {
  DYNAMIC_SHARED(shared);
  Met* met = (Met*)shared;
  int sharers = SHARED ? SHARERS : 1, rank = SHARED ? cluster_rank() : 0, warps = (int)blockDim.x / WARP;
  Row row{(int)blockIdx.x / sharers, (int)gridDim.x / sharers, rank == 0 && threadIdx.x == 0};
  int start = (rank * (int)blockDim.x + (int)threadIdx.x) * 4, step = (int)blockDim.x * 4;
  float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f), first = none;
  float4 first_weight = start < width ? read_four(weight + start) : none;
  wait_for_predecessor();
  T* own = stream + (u64)(source ? source[row.at] : row.at) * stream_stride;
  auto is_in_row = [&](int at) { return SHARED ? at == start : at - lane() * 4 < width; };
#pragma unroll 1
  for (int at = start, run = warp(); is_in_row(at); at += step, run += warps) {
    float4 x = none, by = none;
    if (at < width) {
      x = take_up(own + at, add, (u64)row.at * add_stride + at, parts + (u64)row.at * width + at, part_count,
                  (u64)row.count * width, keep, (u64)row.at * keep_stride + at);
      by = at == start ? first_weight : read_four(weight + at);
    }
    if (at == start) first = x;
    float squares = warp_sum(x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w);
    u32 most = largest_of_lanes<WARP>(largest_of(x * by));
    if (lane() == 0) met[run] = Met{squares, most};
  }
  Met all = meet<SHARED>(met, SHARED ? warps : (width + RUN - 1) / RUN);
  float root = inverse_root(all.squares / (float)width + epsilon);
  begin(row, all.most, root);
#pragma unroll 1
  for (int at = start; is_in_row(at); at += step) {
    bool real = at < width;
    float4 x = first, by = first_weight;
    if (at > start) {
      x = real ? read_four(own + at) : none;
      by = real ? read_four(weight + at) : none;
    }
    x = x * make_float4(root, root, root, root) * by;
    if (normed && real) write_four(normed + (u64)row.at * normed_stride + at, x);
    write(row, at, real, x);
  }
  if (SHARED) cluster_wait();
}
