// Linear layers of 17 to 128 rows on Hopper: `y = x · wᵀ + bias`, x `[rows, inputs]`, w
// `[outputs, inputs]`. T is a 2-byte type.
//
// As in linear.cu weights stream through a ring of stages in shared memory, which is filled before
// the previous kernel has ended. But a multiprocessor has one block, whose ring takes all of its
// shared memory: rows are read once for up to 224 columns of the result instead of 128. And one
// thread makes the copy engine copy whole tiles (bulk.cuh), while two warp groups multiply
// (wgmma.cuh), each at its own pace.
//
// A block computes COLUMNS columns over one part of the inputs at a time. Up to 64 rows the warp
// groups share the rows and take half of the columns each; with more they take half of the rows
// each. A product always has 64 rows. If a stage has fewer, the product reads whatever is in memory
// after them: rows do not mix, and the excess results are not written.
//
// A layer with few columns is divided into parts of `share` inputs, whose float sums the next
// kernel adds. An output's sum runs over the inputs of a part in the order of the instruction; the
// bias belongs to the first part. So a row's result depends on how a layer is divided, and not on
// the other rows.
//
// Rows that a norm has left unscaled are multiplied as they are, and their sums are multiplied by
// the scale, which a separate warp computes meanwhile. The first weights may be requested at a
// limited rate, one stage every `pause` cycles (ring.cuh).
//
// Gated kernels compute `y = silu(x · gateᵀ) · (x · upᵀ)` with w `[2 · outputs, inputs]`, gate
// first: half of a warp group's columns are of the gate, and the others are the corresponding
// columns of the up half.
#include "common.cuh"
#include "weights.cuh"
#include "ring.cuh"
#if defined(EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "wgmma.cuh"
#include "bulk.cuh"
#include "tile_ring.cuh"

/// Bytes of a stage with this many rows and columns.
#define STAGE_BYTES(rows, columns) (((rows) + (columns)) * ROW_BYTES)

/// A unit of work: columns, over a part of the inputs.
struct Unit {
  int first_output, part, begin, steps;
};

/// One block, up to ROWS rows. It takes every n-th unit, and its ring continues from one to the
/// next. A thread writes two neighbours of a row at once.
template <int ROWS, int COLUMNS, bool GATED>
__device__ __forceinline__ void block_of(void* y, int y_is_float, const Tiles* x, const Tiles* w, const T* bias, int rows,
                                         int inputs, int outputs, SCALE_PARAMETERS, const int* needed, int share, int parts,
                                         int pause, int stages) {
  if (left_out(needed)) return;
  // Columns of a warp group, and the length of a run of neighbours among them.
  constexpr bool SHARE_ROWS = ROWS <= 64;
  constexpr int OWN = SHARE_ROWS ? COLUMNS / 2 : COLUMNS, RUN = GATED ? OWN / 2 : OWN, OUTPUTS = GATED ? COLUMNS / 2 : COLUMNS;
  constexpr int BYTES = STAGE_BYTES(ROWS, COLUMNS);
  static_assert(ROWS % 8 == 0 && RUN % 8 == 0, "tiles are whole");
  DYNAMIC_SHARED(shared);
  TileRing ring(shared + stages * BYTES, stages);
  int across = (outputs + OUTPUTS - 1) / OUTPUTS, units = across * parts, first_place = (int)blockIdx.x;
  auto unit_of = [&](int place) {
    int part = place / across, begin = part * share;
    return Unit{(place - part * across) * OUTPUTS, part, begin, (min(share, inputs - begin) + PIECE - 1) / PIECE};
  };
  ring.make(stages);

  if (threadIdx.x >= MULTIPLIERS + WARP) {
    ring.find_scales(min(rows, ROWS), inputs, SCALE_ARGUMENTS);
    return;
  }
  if (threadIdx.x >= MULTIPLIERS) {
    if (threadIdx.x > MULTIPLIERS) return;
    auto load_weights = [&](const Unit& unit, int step, int at) {
      barrier_expect(ring.full + at, BYTES);
#pragma unroll
      for (int i = 0; i < COLUMNS / RUN; i++) {
        int row = unit.first_output + (GATED ? i / 2 * RUN + i % 2 * outputs : i * RUN);
        copy_tile(shared + at * BYTES + (ROWS + i * RUN) * ROW_BYTES, w, unit.begin + step * PIECE, row, ring.full + at,
                  passing());
      }
    };
    auto load_rows = [&](const Unit& unit, int step, int at) {
      copy_tile(shared + at * BYTES, x, unit.begin + step * PIECE, 0, ring.full + at, staying());
    };
    feed_units(ring, units, stages, pause, x, unit_of, load_weights, load_rows);
    return;
  }

  wait_for_predecessor();
  int group = same(warp() / 4), own_rows = SHARE_ROWS ? 0 : group * 64, own_columns = SHARE_ROWS ? group : 0;
  Place left = shared + own_rows * ROW_BYTES, right = shared + (ROWS + own_columns * OWN) * ROW_BYTES;
  Slot slot = {0, 0};
  for (int place = first_place; place < units; place += (int)gridDim.x) {
    Unit unit = unit_of(place);
    float sum[OWN / 2];
#pragma unroll
    for (int i = 0; i < OWN / 2; i++) sum[i] = 0.0f;
    ring.leave(multiply_tiles<OWN>(sum, ring, slot, unit.steps, stages, BYTES, left, right));

    void* to = parts > 1 ? (float*)y + (u64)unit.part * rows * outputs : y;
    int first_row = own_rows + warp() % 4 * 16 + lane() / 4;
    float scale[2] = {1.0f, 1.0f};
    if (squares) {
      barrier_await(ring.scaled, 0);
#pragma unroll
      for (int h = 0; h < 2; h++) scale[h] = ring.scales[min(first_row + 8 * h, ROWS - 1)];
    }
#pragma unroll
    for (int i = 0; i < RUN / 8; i++) {
      int output = unit.first_output + own_columns * RUN + i * 8 + lane() % 4 * 2;
      if (output >= outputs) continue;
      float2 own_bias = make_float2(0.0f, 0.0f), other_bias = own_bias;
      if (bias && unit.part == 0) {
        own_bias = unpack(*(const u32*)(bias + output));
        if (GATED) other_bias = unpack(*(const u32*)(bias + outputs + output));
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float* own = sum + 4 * i + 2 * h;
        int row = first_row + 8 * h;
        if (row >= rows) continue;
        float2 two = make_float2(own[0] * scale[h] + own_bias.x, own[1] * scale[h] + own_bias.y);
        if (GATED) {
          const float* other = own + RUN / 2;
          two = make_float2(gate(two.x, other[0] * scale[h] + other_bias.x), gate(two.y, other[1] * scale[h] + other_bias.y));
        }
        u64 at = (u64)row * outputs + output;
        if (y_is_float)
          *(float2*)((float*)to + at) = two;
        else
          *(u32*)((T*)to + at) = pack(two.x, two.y);
      }
    }
  }
}

#define PARAMETERS                                                                                                      \
  void *y, int y_is_float, const __grid_constant__ Tiles x, const __grid_constant__ Tiles w, const T *bias, int rows,     \
      int inputs, int outputs, SCALE_PARAMETERS, const int *needed, int share, int parts, int pause, int stages
#define ARGUMENTS y, y_is_float, &x, &w, bias, rows, inputs, outputs, SCALE_ARGUMENTS, needed, share, parts, pause, stages

/// `wide_<r>_<c>`: up to r rows, c columns per unit. Grid: at most as many blocks as there are
/// units, outputs / c · parts; THREADS threads. Tiles of x have r rows, those of w as many as a
/// warp group has columns. `inputs` and `outputs` are multiples of 8, `share` of PIECE; `bias` may
/// be null; y is `[rows, outputs]` of T, or of float if `y_is_float`, and with more than one part
/// float `[parts, rows, outputs]`. If `needed`, which may be null, points at 0, nothing is read or
/// written. Dynamic shared memory: stages · (STAGE_BYTES(r, c) + 16) + 8 + 4 r.
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_64(PARAMETERS) { block_of<32, 64, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_128(PARAMETERS) { block_of<32, 128, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_192(PARAMETERS) { block_of<32, 192, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_224(PARAMETERS) { block_of<32, 224, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_64(PARAMETERS) { block_of<64, 64, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_128(PARAMETERS) { block_of<64, 128, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_192(PARAMETERS) { block_of<64, 192, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_224(PARAMETERS) { block_of<64, 224, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_128_128(PARAMETERS) { block_of<128, 128, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_128_192(PARAMETERS) { block_of<128, 192, false>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_128_224(PARAMETERS) { block_of<128, 224, false>(ARGUMENTS); }

/// Gated: one part; `outputs` counts those of y, of which a unit has c / 2; tiles of w have half as
/// many rows, and w and bias twice as many. Otherwise as above.
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_64_gated(PARAMETERS) { block_of<32, 64, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_128_gated(PARAMETERS) { block_of<32, 128, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_192_gated(PARAMETERS) { block_of<32, 192, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_32_224_gated(PARAMETERS) { block_of<32, 224, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_64_gated(PARAMETERS) { block_of<64, 64, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_128_gated(PARAMETERS) { block_of<64, 128, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_192_gated(PARAMETERS) { block_of<64, 192, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_64_224_gated(PARAMETERS) { block_of<64, 224, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_128_128_gated(PARAMETERS) { block_of<128, 128, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_128_192_gated(PARAMETERS) { block_of<128, 192, true>(ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_128_224_gated(PARAMETERS) { block_of<128, 224, true>(ARGUMENTS); }
#endif
