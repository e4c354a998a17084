// Linear layers of 9 to 32 rows on Hopper: `y = x · wᵀ + bias`, x `[rows, inputs]`, w `[outputs, inputs]`. T is a 2-byte type.
//
// As linear.cu, but for the products, which are those of warp groups (wgmma.cuh): both factors come from shared memory, each
// once, where warps with operands in registers would each read all rows. A group has 64 outputs; where a block has fewer, it
// takes for the missing ones whatever lies behind them: outputs do not mix, and what it computes for them is not written. Rows
// are rounded up to 16, 24 or 32 alone, where linear_wide.cu multiplies 64.
//
// A layer of few outputs is dealt in parts of `share` inputs, whose sums are left in float for the kernel behind to add up.
// An output's sum runs over the inputs of a part in the order of the instruction; the bias belongs to the first part. So a
// row's result depends on how a layer is dealt, and on nothing in the other rows.
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` of w `[2 · outputs, inputs]`, gate first: of 16 outputs of a warp
// eight are the gate's, and eight those of the other half that belong to them.
#include "common.cuh"
#include "ring.cuh"
#if defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "wgmma.cuh"

/// Outputs of a block, at most, and its threads: a warp 16 outputs.
#define MOST_OUTPUTS 128
#define THREADS 256
/// Outputs, or rows, from one that a thread copies to its next.
#define APART (THREADS / CHUNKS)
/// One block: `tile` sums (a multiple of 16) of up to ROWS rows, over one part of the inputs.
template <int ROWS, bool GATED>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const T* x, int x_stride, const T* w, const T* bias, int rows,
                                         int inputs, int outputs, SCALE_PARAMETERS, int share, int tile) {
  constexpr int RING_STAGES = STAGES(ROWS);
  DYNAMIC_SHARED(shared);
  int thread = (int)threadIdx.x, stage_bytes = (tile + ROWS) * ROW_BYTES;
  int first_output = (int)blockIdx.x * (GATED ? tile / 2 : tile);
  int part = (int)blockIdx.y, begin = part * share, end = min(begin + share, inputs);
  int steps = (end - begin + PIECE - 1) / PIECE;

  // A thread copies the same chunk of every APART-th output and row. What lies behind the last is zeros.
  int chunk = thread % CHUNKS, own = thread / CHUNKS;
  auto output_of = [&](int sum) { return first_output + (GATED ? sum / 16 * 8 + sum % 8 : sum); };
  const T* own_weights = w + (u64)(output_of(own) + (GATED && own % 16 >= 8 ? outputs : 0)) * inputs + begin + chunk * 8;
  const T* own_rows = x + (u64)own * x_stride + begin + chunk * 8;
  u64 weights_apart = (u64)(GATED ? APART / 2 : APART) * inputs, rows_apart = (u64)APART * x_stride;
  auto load_weights = [&](int step, unsigned char* stage) {
    bool inside = begin + step * PIECE + chunk * 8 < end;
    const T* from = own_weights + step * PIECE;
#pragma unroll
    for (int i = 0; i < MOST_OUTPUTS / APART; i++, from += weights_apart) {
      int sum = own + i * APART;
      bool real = inside && output_of(sum) < outputs;
      if (sum < tile) copy_async_16_or_zero(stage + place_of<ROW_BYTES>(sum, chunk), real ? from : w, real, passing());
    }
  };
  auto load_rows = [&](int step, unsigned char* stage) {
    bool inside = begin + step * PIECE + chunk * 8 < end;
    const T* from = own_rows + step * PIECE;
#pragma unroll
    for (int i = 0; i < (ROWS + APART - 1) / APART; i++, from += rows_apart) {
      int row = own + i * APART;
      bool real = inside && row < rows;
      if (row < ROWS) copy_async_16_or_zero(stage + tile * ROW_BYTES + place_of<ROW_BYTES>(row, chunk), real ? from : x, real);
    }
  };
  Scales<ROWS, 1> of_rows(0, rows, squares, count);
  fill_ring<RING_STAGES, 1>(shared, stage_bytes, steps, load_weights, load_rows);
  of_rows.ask();

  float sum[ROWS / 2];
#pragma unroll
  for (int i = 0; i < ROWS / 2; i++) sum[i] = 0.0f;
  auto multiply = [&](int, const unsigned char* stage) {
    const unsigned char* left = stage + thread / 128 * 64 * ROW_BYTES;
    products_begin();
#pragma unroll
    for (int k = 0; k < PIECE / 16; k++) product_start<ROWS>(sum, left + k * 32, stage + tile * ROW_BYTES + k * 32);
    products_commit();
    products_wait(sum);
  };
  go_round<RING_STAGES>(shared, stage_bytes, steps, load_weights, load_rows, fence_for_products, multiply);
  const float* scales = squares ? of_rows.find((float*)shared, inputs, epsilon) : nullptr;

  if (gridDim.y > 1) y = (float*)y + (u64)part * rows * outputs;
  // Of a warp, sums lane / 4 and 8 more; of eight rows, 2 · (lane % 4) and the next.
  int own_sum = warp() * 16 + lane() / 4;
  if (own_sum >= tile) return;
  int output = output_of(own_sum);
  float low = 0.0f, high = 0.0f;
  if (bias && part == 0) {
    low = output < outputs ? to_float(bias[output]) : 0.0f;
    high = GATED ? output < outputs ? to_float(bias[outputs + output]) : 0.0f
                 : output + 8 < outputs ? to_float(bias[output + 8]) : 0.0f;
  }
#pragma unroll
  for (int t = 0; t < ROWS / 8; t++) {
#pragma unroll
    for (int i = 0; i < (GATED ? 2 : 4); i++) {
      int row = t * 8 + lane() % 4 * 2 + i % 2, to = output + i / 2 * 8;
      if (row >= rows || to >= outputs) continue;
      float scale = scales ? scales[row] : 1.0f;
      float value = sum[4 * t + i] * scale + (i < 2 ? low : high);
      if (GATED) value = gate(value, sum[4 * t + (GATED ? i + 2 : i)] * scale + high);
      write_result(y, y_is_float, (u64)row * outputs + to, value);
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const T *x, int x_stride, const T *w, const T *bias, int rows, int inputs, int outputs,      \
      SCALE_PARAMETERS, int share, int tile
#define ARGUMENTS y, y_is_float, x, x_stride, w, bias, rows, inputs, outputs, SCALE_ARGUMENTS, share, tile

/// `group_<r>`: up to r rows. Grid: (outputs / tile, parts); THREADS threads. `inputs` and `x_stride` are multiples of 8, `share`
/// of PIECE, `tile` of 16 up to MOST_OUTPUTS; `bias` may be null; y is `[rows, outputs]` of T, or of float if `y_is_float`, and
/// with more than one part float `[parts, rows, outputs]`. Dynamic shared memory: STAGES(r) · (MOST_OUTPUTS + r) · ROW_BYTES.
extern "C" __global__ void __launch_bounds__(THREADS, 5) group_16(PARAMETERS) { block_of<16, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 5) group_24(PARAMETERS) { block_of<24, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 5) group_32(PARAMETERS) { block_of<32, false>(ARGUMENTS); }

/// Gated: one part; `outputs` counts those of y, of which a block has tile / 2; w and bias have twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(THREADS, 4) group_16_gated(PARAMETERS) { block_of<16, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 4) group_24_gated(PARAMETERS) { block_of<24, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 4) group_32_gated(PARAMETERS) { block_of<32, true>(ARGUMENTS); }
#endif
