// Linear layers of 17 to 64 rows on Hopper: `y = x · wᵀ + bias`, x `[rows, inputs]`, w `[outputs, inputs]`. T is a 2-byte
// type.
//
// As in linear.cu weights stream through a ring of stages in shared memory, which is filled before the kernel ahead has
// ended. But a multiprocessor has one block, whose ring takes all of its shared memory: rows are read once for up to 224
// columns of the result instead of 128. And products are those of warp groups (wgmma.cuh), which read both factors from
// shared memory once, where warps with operands in registers would read each row eight times.
//
// A block computes COLUMNS columns over one part of the inputs; two warp groups share the rows and take half of the columns
// each. A product always has 64 rows. Where a stage has fewer, it takes for the missing ones whatever lies behind them: rows
// do not mix, and what it computes for them is not written.
//
// A layer of few columns is dealt in parts of `share` inputs, whose sums are left in float for the kernel behind to add up.
// An output's sum runs over the inputs of a part in the order of the instruction; the bias belongs to the first part. So a
// row's result depends on how a layer is dealt, and on nothing in the other rows.
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` of w `[2 · outputs, inputs]`, gate first: of 16 columns eight are
// the gate's, and eight those of the other half that belong to them.
#include "common.cuh"
#include "ring.cuh"
#if defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "wgmma.cuh"

/// -DWIDE_RING: bytes of a block's ring. Stages for so many rows and columns.
#define STAGE_BYTES(rows, columns) (((rows) + (columns)) * ROW_BYTES)
#define STAGES_OF(rows, columns)                                                                                        \
  (WIDE_RING / STAGE_BYTES(rows, columns) < 12 ? WIDE_RING / STAGE_BYTES(rows, columns) : 12)

#define THREADS 256
/// Columns, or rows, from one that a thread copies to its next.
#define APART (THREADS / CHUNKS)

/// One block, up to ROWS rows. A thread writes two neighbours of a row at once.
template <int ROWS, int COLUMNS, bool GATED>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const T* x, int x_stride, const T* w, const T* bias, int rows,
                                         int inputs, int outputs, int share) {
  constexpr int HALF = COLUMNS / 2, RING_STAGES = STAGES_OF(ROWS, COLUMNS);
  constexpr int BYTES = STAGE_BYTES(ROWS, COLUMNS);
  static_assert(COLUMNS % APART == 0 && ROWS % APART == 0 && RING_STAGES >= 3, "copies are whole, and under way");
  DYNAMIC_SHARED(shared);
  int thread = (int)threadIdx.x;
  int first_output = (int)blockIdx.x * (GATED ? HALF : COLUMNS);
  int part = (int)blockIdx.y, begin = part * share, end = min(begin + share, inputs);
  int steps = (end - begin + PIECE - 1) / PIECE;

  // A thread copies the same chunk of every APART-th column and row. What lies behind the last is zeros.
  int chunk = thread % CHUNKS, own = thread / CHUNKS;
  auto output_of = [&](int column) { return first_output + (GATED ? column / 16 * 8 + column % 8 : column); };
  const T* own_weights = w + (u64)(output_of(own) + (GATED && own % 16 >= 8 ? outputs : 0)) * inputs + begin + chunk * 8;
  const T* own_rows = x + (u64)own * x_stride + begin + chunk * 8;
  u64 weights_apart = (u64)(GATED ? APART / 2 : APART) * inputs, rows_apart = (u64)APART * x_stride;
  auto load_weights = [&](int step, unsigned char* stage) {
    bool inside = begin + step * PIECE + chunk * 8 < end;
    const T* from = own_weights + step * PIECE;
#pragma unroll
    for (int i = 0; i < COLUMNS / APART; i++, from += weights_apart) {
      int column = own + i * APART;
      bool real = inside && output_of(column) < outputs;
      copy_async_16_or_zero(stage + ROWS * ROW_BYTES + place_of(column, chunk), real ? from : w, real);
    }
  };
  auto load_rows = [&](int step, unsigned char* stage) {
    bool inside = begin + step * PIECE + chunk * 8 < end;
    const T* from = own_rows + step * PIECE;
#pragma unroll
    for (int i = 0; i < ROWS / APART; i++, from += rows_apart) {
      bool real = inside && own + i * APART < rows;
      copy_async_16_or_zero(stage + place_of(own + i * APART, chunk), real ? from : x, real);
    }
  };
  fill_ring<RING_STAGES>(shared, BYTES, steps, load_weights, load_rows);

  int half = thread / 128;
  float sum[HALF / 2];
#pragma unroll
  for (int i = 0; i < HALF / 2; i++) sum[i] = 0.0f;
  unsigned char* stage = shared;
  unsigned char* next = shared + (RING_STAGES - 1) * BYTES;
  unsigned char* behind = shared + RING_STAGES * BYTES;
  for (int step = 0; step < steps; step++) {
    copy_async_wait<RING_STAGES - 2>();
    fence_for_products();
    // Both groups have also multiplied what `next` holds.
    block_sync();
    if (step + RING_STAGES - 1 < steps) {
      load_weights(step + RING_STAGES - 1, next);
      load_rows(step + RING_STAGES - 1, next);
    }
    copy_async_commit();
    const unsigned char* right = stage + (ROWS + half * HALF) * ROW_BYTES;
    products_begin();
#pragma unroll
    for (int k = 0; k < PIECE / 16; k++) product_start<HALF>(sum, stage + k * 32, right + k * 32);
    products_commit();
    products_wait(sum);
    next = stage;
    stage = stage + BYTES == behind ? shared : stage + BYTES;
  }

  if (gridDim.y > 1) y = (float*)y + (u64)part * rows * outputs;
  int first_row = warp() % 4 * 16 + lane() / 4;
#pragma unroll
  for (int i = 0; i < HALF / 8; i += GATED ? 2 : 1) {
    int output = output_of(half * HALF + i * 8 + lane() % 4 * 2);
    if (output >= outputs) continue;
    float2 own_bias = make_float2(0.0f, 0.0f), other_bias = own_bias;
    if (bias && part == 0) {
      own_bias = unpack(*(const u32*)(bias + output));
      if (GATED) other_bias = unpack(*(const u32*)(bias + outputs + output));
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row = first_row + 8 * h;
      if (row >= rows) continue;
      float2 two = make_float2(sum[4 * i + 2 * h] + own_bias.x, sum[4 * i + 2 * h + 1] + own_bias.y);
      if (GATED) {
        const float* other = sum + 4 * (i + 1) + 2 * h;
        two = make_float2(gate(two.x, other[0] + other_bias.x), gate(two.y, other[1] + other_bias.y));
      }
      u64 at = (u64)row * outputs + output;
      if (y_is_float)
        *(float2*)((float*)y + at) = two;
      else
        *(u32*)((T*)y + at) = pack(two.x, two.y);
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const T *x, int x_stride, const T *w, const T *bias, int rows, int inputs, int outputs, int share
#define ARGUMENTS y, y_is_float, x, x_stride, w, bias, rows, inputs, outputs, share

/// `wide_<r>_<c>`: up to r rows, c columns a block. Grid: (outputs / c, parts); THREADS threads.
/// `inputs`, `x_stride` and `outputs` are multiples of 8, `share` of PIECE; `bias` may be null; y is `[rows, outputs]` of T, or of
/// float if `y_is_float`, and with more than one part float `[parts, rows, outputs]`. Dynamic shared memory: STAGES_OF(r, c) ·
/// STAGE_BYTES(r, c).
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_64(PARAMETERS) { block_of<32, 64, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_128(PARAMETERS) { block_of<32, 128, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_192(PARAMETERS) { block_of<32, 192, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_224(PARAMETERS) { block_of<32, 224, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_64(PARAMETERS) { block_of<64, 64, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_128(PARAMETERS) { block_of<64, 128, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_192(PARAMETERS) { block_of<64, 192, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_224(PARAMETERS) { block_of<64, 224, false>(ARGUMENTS); }

/// Gated: one part; `outputs` counts those of y, of which a block has c / 2; w and bias have twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_64_gated(PARAMETERS) { block_of<32, 64, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_128_gated(PARAMETERS) { block_of<32, 128, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_192_gated(PARAMETERS) { block_of<32, 192, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_224_gated(PARAMETERS) { block_of<32, 224, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_64_gated(PARAMETERS) { block_of<64, 64, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_128_gated(PARAMETERS) { block_of<64, 128, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_192_gated(PARAMETERS) { block_of<64, 192, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_224_gated(PARAMETERS) { block_of<64, 224, true>(ARGUMENTS); }
#endif
