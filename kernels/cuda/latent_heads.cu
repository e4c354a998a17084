// Products of latent attention with a matrix per head, on tensor cores: they absorb the projections
// of keys and values.
//
// The weights of a head are read once for up to 64 rows. They are the left factors, so that few
// rows are few columns. An element's sum runs over the inputs in one order, regardless of the rows.
//
// Not for float.
#include "common.cuh"

#ifdef T_PAIRS
#include "turned.cuh"

#define WARPS 4
/// Steps of 32 inputs whose weights are in flight together, the first of them before the wait: no
/// kernel writes weights.
#define AHEAD 4

/// A warp takes 16 outputs of a head for up to 8 · EIGHTS rows. Inputs are a multiple of 32,
/// outputs of 16. A lane reads 8 consecutive inputs of 32, in the left and right factors alike: the
/// first four are its inputs of one product, the last four of the next.
///
/// RELEASES_LATE: the next kernel is launched only when all kernels before this one have ended; see
/// `latent_queries`.
template <int EIGHTS, bool RELEASES_LATE>
__device__ __forceinline__ void multiply(const T* x, int x_stride, const T* weight, T* y, int y_stride, int first, int rows,
                                         int inputs, int outputs) {
  int output = ((int)blockIdx.y * WARPS + warp()) * 16;
  bool works = output < outputs;
  const T* low = weight + (u64)((works ? output : 0) + lane() / 4) * inputs + lane() % 4 * 8;
  const T* high = low + 8 * (u64)inputs;
  uint4 a[AHEAD][2];
  auto load = [&](int step) {
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      int k = (step + i) * 32;
      bool there = k < inputs;
      a[i][0] = there ? load_passing_16(low + k) : make_uint4(0, 0, 0, 0);
      a[i][1] = there ? load_passing_16(high + k) : make_uint4(0, 0, 0, 0);
    }
  };
  load(0);
  await_predecessor();
  if (RELEASES_LATE) release_successor();
  if (!works) return;
  float sum[EIGHTS][4];
#pragma unroll
  for (int e = 0; e < EIGHTS; e++) {
#pragma unroll
    for (int i = 0; i < 4; i++) sum[e][i] = 0.0f;
  }
#pragma unroll 1
  for (int step = 0; step * 32 < inputs; step += AHEAD) {
    if (step > 0) load(step);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      int k = (step + i) * 32;
      if (k >= inputs) break;
      const u32 one[4] = {a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y};
      const u32 other[4] = {a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w};
#pragma unroll
      for (int e = 0; e < EIGHTS; e++) {
        // After the last row, that row is repeated and not written.
        int row = min(first + e * 8 + lane() / 4, rows - 1);
        uint4 right = load_16(x + (u64)row * x_stride + k + lane() % 4 * 8);
        const u32 b[2][2] = {{right.x, right.y}, {right.z, right.w}};
        mma_16816(sum[e], one, b[0]);
        mma_16816(sum[e], other, b[1]);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < EIGHTS; e++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int row = first + e * 8 + lane() % 4 * 2 + i % 2;
      if (row < rows) y[(u64)row * y_stride + output + lane() / 4 + i / 2 * 8] = from_float(sum[e][i]);
    }
  }
}

template <int EIGHTS>
__device__ __forceinline__ void absorb(const T* x, const T* weight, T* y, const float2* table, int positions,
                                       const int* position, int rows, int nope, int rank, int rotated, int interleaved) {
  int head = (int)blockIdx.x, heads = (int)gridDim.x, first = (int)blockIdx.z * 8 * EIGHTS;
  int x_stride = heads * (nope + rotated), y_stride = heads * (rank + rotated);
  x += head * (nope + rotated);
  y += head * (rank + rotated);
  multiply<EIGHTS, true>(x, x_stride, weight + (u64)head * rank * nope, y, y_stride, first, rows, nope, rank);
  Turns turns = {table, positions, position, rotated, interleaved};
  if (blockIdx.y == 0) turn_rows(x, x_stride, nope, y, y_stride, rank, turns, first, min(first + 8 * EIGHTS, rows));
}

template <int EIGHTS>
__device__ __forceinline__ void expand(const T* x, const T* weight, T* y, int rows, int rank, int value) {
  int head = (int)blockIdx.x, heads = (int)gridDim.x;
  release_successor();
  multiply<EIGHTS, false>(x + head * rank, heads * rank, weight + (u64)head * value * rank, y + head * value, heads * value,
                   (int)blockIdx.z * 8 * EIGHTS, rows, rank, value);
}

#define ABSORB                                                                                                          \
  const T *x, const T *weight, T *y, const float2 *table, int positions, const int *position, int rows, int nope,       \
      int rank, int rotated, int interleaved
#define ABSORB_ARGUMENTS x, weight, y, table, positions, position, rows, nope, rank, rotated, interleaved

/// y `[rows, heads, rank + rotated]`: for each head `weight[head] · x`, then its rotary part,
/// rotated. x `[rows, heads, nope + rotated]`, weight `[heads, rank, nope]`; table as in latent.cu.
/// Grid (heads, ceil(rank / 64), ceil(rows / (8 · n))), 128 threads; n is the number in the name.
///
/// Of the kernels of latent attention, this one releases its successor only after its own wait: the
/// kernels that draft and accept read what is older than a pass before they wait, so every pass
/// needs a kernel that does. Attention, which follows, has nothing to do before its wait, so this
/// costs nothing.
extern "C" __global__ void __launch_bounds__(128) latent_queries_1(ABSORB) { absorb<1>(ABSORB_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128) latent_queries_2(ABSORB) { absorb<2>(ABSORB_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128) latent_queries_8(ABSORB) { absorb<8>(ABSORB_ARGUMENTS); }

#define EXPAND const T *x, const T *weight, T *y, int rows, int rank, int value
#define EXPAND_ARGUMENTS x, weight, y, rows, rank, value

/// y `[rows, heads, value]`: for each head `weight[head] · x`. x `[rows, heads, rank]`, weight
/// `[heads, value, rank]`. Grid (heads, ceil(value / 64), ceil(rows / (8 · n))), 128 threads.
extern "C" __global__ void __launch_bounds__(128) latent_values_1(EXPAND) { expand<1>(EXPAND_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128) latent_values_2(EXPAND) { expand<2>(EXPAND_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128) latent_values_8(EXPAND) { expand<8>(EXPAND_ARGUMENTS); }

#endif
