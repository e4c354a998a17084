// Linear layers of some rows: `y = x · wᵀ + bias`, x `[rows, inputs]`, w `[outputs, inputs]`. T is a 2-byte type.
//
// Weights stream through a ring of stages in shared memory: as many bytes are under way as the ring holds, whatever the
// warps are doing, and the ring is filled before the kernel ahead has ended. A warp multiplies 16 outputs with all rows of
// the block; a stage holds PIECE inputs of the block's weights and rows. Rows of a stage are 128 bytes, whose 16-byte chunks
// are permuted by the row (`chunk ^ row % 8`), so that the eight rows of an 8×8 tile lie in different banks.
//
// To give every multiprocessor its share, a layer's inputs may be dealt in parts of `share` inputs. An output's sum runs
// over the inputs of a part in order, and over the parts in order; the bias comes first. Either a block does one part, and
// leaves its sum in float for the kernel behind to add up, or all of them, with the same bits. So a row's result depends on
// the layer alone, not on the number of rows nor on the other rows (batch invariance).
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` of w `[2 · outputs, inputs]`, gate first: the 16 outputs of a warp
// are then 8 of the gate and the 8 of the other half that belong to them. The bits are those of silu_gate after the layer.
#include "common.cuh"
#include "ring.cuh"

/// One block: 16 outputs a warp (8 if GATED), ROWS rows, one part of the inputs, or if FOLD all of them.
template <int ROWS, bool GATED, bool FOLD>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const T* x, int x_stride, const T* w, const T* bias, int rows,
                                         int inputs, int outputs, SCALE_PARAMETERS, int share, int pause) {
  constexpr int TILES = ROWS / 8, RING_STAGES = STAGES(ROWS);
  // Many rows are scaled by their norm.
  constexpr bool SCALES = ROWS <= 32;
  DYNAMIC_SHARED(shared);
  int thread = (int)threadIdx.x, threads = (int)blockDim.x, warps = threads / WARP;
  int first_row = (int)blockIdx.x * ROWS, first_output = (int)blockIdx.y * warps * (GATED ? 8 : 16);
  int part = (int)blockIdx.z, stage_bytes = (warps * 16 + ROWS) * ROW_BYTES;
  int begin = FOLD ? 0 : part * share, end = FOLD ? inputs : min(begin + share, inputs);
  int steps = (end - begin + PIECE - 1) / PIECE;

  // A thread copies one chunk of every fourth row of a warp's 16, and what falls to it of the rows of x: so many of their stages;
  // what lies behind these is zeros. For outputs that the layer does not have it copies the first, and they are not written. All of it
  // is found ahead of the wait, behind which all stages are asked for at once.
  int chunk = thread % CHUNKS, own_row = thread / CHUNKS, apart = threads / CHUNKS;
  int inside = (end - begin - chunk * 8 + PIECE - 1) / PIECE;
  const T* from[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int row = own_row + i * apart, output = GATED ? first_output + row / 16 * 8 + row % 8 : first_output + row;
    output = output < outputs ? GATED && row % 16 >= 8 ? output + outputs : output : 0;
    from[i] = w + (u64)output * inputs + begin + chunk * 8;
  }
  auto load_weights = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      copy_async_16_or_zero(stage + place_of<ROW_BYTES>(own_row + i * apart, chunk), from[i] + step * PIECE, step < inside,
                            passing());
    }
  };
  const T* from_row = x + (u64)(first_row + own_row) * x_stride + begin + chunk * 8;
  int rows_here = min(rows - first_row, ROWS), inside_row = own_row < rows_here ? inside : 0;
  auto load_rows = [&](int step, unsigned char* stage) {
    stage += warps * 16 * ROW_BYTES;
    // Blocks have four warps or more: of 16 rows a thread has one.
#pragma unroll
    for (int i = 0; i < (ROWS + 15) / 16; i++) {
      int row = own_row + i * apart;
      bool real = step < inside_row && (i == 0 || row < rows_here);
      if (row < ROWS) {
        copy_async_16_or_zero(stage + place_of<ROW_BYTES>(row, chunk), from_row + (u64)(i * apart) * x_stride + step * PIECE, real);
      }
    }
  };
  // Rows of a tile of sums are outputs group and group + 8; columns are rows 2 · quarter and the next of eight.
  int group = lane() / 4, quarter = lane() % 4;
  int output = first_output + (GATED ? warp() * 8 + group : warp() * 16 + group);
  float low, high;
  find_bias<GATED>(low, high, bias, part, output, outputs);
  Scales<SCALES ? ROWS : 32, ROWS <= 8 ? 2 : 1> of_rows(first_row, rows, SCALES ? squares : nullptr, count);
  fill_ring<RING_STAGES>(shared, stage_bytes, steps, pause, load_weights, load_rows);
  of_rows.ask();

  float sum[TILES][4], all[FOLD ? TILES : 1][4];
#pragma unroll
  for (int t = 0; t < TILES; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sum[t][i] = 0.0f;
      if (FOLD) all[FOLD ? t : 0][i] = 0.0f;
    }
  }
  // A part's sum is complete; the bias belongs to the first.
  auto fold = [&]() {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        all[FOLD ? t : 0][i] += sum[t][i] + (i < 2 ? low : high);
        sum[t][i] = 0.0f;
      }
    }
    low = high = 0.0f;
  };
  auto multiply = [&](int step, const unsigned char* stage) {
    const unsigned char* weights = stage + warp() * 16 * ROW_BYTES;
    const unsigned char* rows_of = stage + warps * 16 * ROW_BYTES;
#pragma unroll
    for (int k = 0; k < PIECE / 16; k += 2) {
      u32 a[2][4];
#pragma unroll
      for (int h = 0; h < 2; h++) ldmatrix_x4(a[h], weights + place_of<ROW_BYTES>(lane() % 16, (k + h) * 2 + lane() / 16));
#pragma unroll
      for (int t = 0; t < TILES; t++) {
        // Eight rows, 32 inputs.
        u32 b[4];
        ldmatrix_x4(b, rows_of + place_of<ROW_BYTES>(t * 8 + lane() % 8, k * 2 + lane() / 8));
        mma_16816(sum[t], a[0], b);
        mma_16816(sum[t], a[1], b + 2);
      }
    }
    if (FOLD && (step + 1) * PIECE % share == 0) fold();
  };
  go_round<RING_STAGES>(shared, stage_bytes, steps, load_weights, load_rows, multiply);
  if (FOLD) fold();
  const float* scales = SCALES && squares ? of_rows.find((float*)shared, inputs, epsilon) : nullptr;

  if (gridDim.z > 1) y = (float*)y + (u64)part * rows * outputs;
#pragma unroll
  for (int t = 0; t < TILES; t++) {
#pragma unroll
    for (int i = 0; i < (GATED ? 2 : 4); i++) {
      int row = first_row + t * 8 + quarter * 2 + i % 2, to = output + i / 2 * 8;
      if (row >= rows || to >= outputs) continue;
      float scale = scales ? scales[row - first_row] : 1.0f;
      float value = FOLD ? all[FOLD ? t : 0][i] : sum[t][i] * scale + (i < 2 ? low : high);
      if (GATED) value = gate(value, sum[t][GATED ? i + 2 : i] * scale + high);
      write_result(y, y_is_float, (u64)row * outputs + to, value);
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const T *x, int x_stride, const T *w, const T *bias, int rows, int inputs, int outputs,      \
      SCALE_PARAMETERS, int share, int pause
#define ARGUMENTS y, y_is_float, x, x_stride, w, bias, rows, inputs, outputs, SCALE_ARGUMENTS, share, pause

/// `linear_<n>`: n rows a block. Grid: (rows / n, outputs / (16 · warps), parts), 4 to 8 warps; row blocks of the same
/// weights run side by side, so that all but one find them in second-level cache. `inputs` and `x_stride` are multiples of 8,
/// `share` of PIECE; `bias` may be null; y is float instead of T if `y_is_float`, and with more than one part in the grid it
/// is float `[parts, rows, outputs]`. Rows may be yet to be scaled if n is at most 32. Dynamic shared memory: STAGES(n) ·
/// (16 · warps + n) · ROW_BYTES.
extern "C" __global__ void __launch_bounds__(256, 4) linear_8(PARAMETERS) { block_of<8, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_16(PARAMETERS) { block_of<16, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_32(PARAMETERS) { block_of<32, false, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_64(PARAMETERS) { block_of<64, false, false>(ARGUMENTS); }

/// A block does all parts; the grid has one. Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, 2) linear_64_all(PARAMETERS) { block_of<64, false, true>(ARGUMENTS); }

/// Gated: 8 outputs a warp, one part; `outputs` counts those of y, w and bias have twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(256, 4) linear_8_gated(PARAMETERS) { block_of<8, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_16_gated(PARAMETERS) { block_of<16, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_32_gated(PARAMETERS) { block_of<32, true, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(256, 2) linear_64_gated(PARAMETERS) { block_of<64, true, false>(ARGUMENTS); }
