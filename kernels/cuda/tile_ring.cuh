// Shared by linear_group.cu, linear_wide.cu and linear_wide_fp8.cu: a ring that the copy engine
// fills with tiles (bulk.cuh) and whose tiles warp groups multiply (wgmma.cuh), each at its own
// pace, while another warp computes the scales of the rows (ring.cuh).
#pragma once

/// Threads of a block that multiply, and all threads: one more warp copies, and one computes the
/// rows' scales.
#define MULTIPLIERS 256
#define THREADS 320

/// Whether the result of a kernel is not needed, as decided by an earlier kernel: `needed` is not
/// null and points at 0. All threads of a block call this first, and end if it is true; it waits
/// for the previous kernel if `needed` is not null.
__device__ __forceinline__ bool left_out(const int* needed) {
  if (!needed) return false;
  wait_for_predecessor();
  return load_fresh(needed) == 0;
}

/// What follows the stages of a ring in shared memory.
struct TileRing {
  /// A stage is full when its bytes have arrived, and empty when all warps that multiply are done
  /// with it.
  u64 *full, *empty;
  /// Signals that `scales` are written.
  u64* scaled;
  float* scales;

  __device__ __forceinline__ TileRing(unsigned char* behind, int stages) {
    full = (u64*)behind;
    empty = full + stages;
    scaled = empty + stages;
    scales = (float*)(scaled + 1);
  }
  /// Initialises the barriers; `fillers` arrive at a stage that is full. Called by a whole block.
  __device__ __forceinline__ void make(int stages, int fillers = 1) const {
    if (threadIdx.x == MULTIPLIERS) {
      for (int at = 0; at < stages; at++) {
        barrier_init(full + at, fillers);
        barrier_init(empty + at, MULTIPLIERS / WARP);
      }
      barrier_init(scaled, WARP);
      barriers_made();
    }
    block_sync();
  }
  /// A warp is done with a stage.
  __device__ __forceinline__ void leave(int at) const {
    if (lane() == 0) barrier_arrive(empty + at);
  }
  /// Computes the scales of `rows` rows after the wait, if they are unscaled, and signals them.
  /// Called by a warp. With few rows, several lanes share a row's sums of squares.
  __device__ __forceinline__ void find_scales(int rows, int inputs, SCALE_PARAMETERS) const {
    if (!squares) return;
    wait_for_predecessor();
    int sharers = rows <= 4 ? 8 : rows <= 8 ? 4 : rows <= 16 ? 2 : 1;
    for (int row = lane() / sharers; row - lane() / sharers < rows; row += WARP / sharers) {
      float sum = 0.0f;
      const float* own = squares + (u64)row * squares_stride(count);
#pragma unroll 4
      for (int at = lane() % sharers * 4; at < count && row < rows; at += sharers * 4) {
        add_squares(sum, load_fresh_16(own + at), at, count);
      }
      for (int mask = sharers / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      if (row < rows && lane() % sharers == 0) scales[row] = inverse_root(sum / (float)inputs + epsilon);
    }
    barrier_arrive(scaled);
  }
};

/// A stage of a ring, and the parity of the number of passes over the ring.
struct Slot {
  int at, turn;
};

__device__ __forceinline__ void advance(Slot& slot, int stages) {
  if (++slot.at == stages) slot = {0, slot.turn ^ 1};
}

/// Starts the copies of the first `ahead` steps of a ring, as `fill_ring` of ring.cuh does: weights
/// before the wait, one stage every `pause` cycles, and rows after it.
template <class Weights, class Rows>
__device__ __forceinline__ void fill_tiles(int ahead, int pause, const Tiles* x, Weights&& load_weights, Rows&& load_rows) {
  for (int step = 0; step < ahead; step++) {
    load_weights(step, step);
    if (pause > 0 && step + 1 < ahead) let_pass(pause);
  }
  prefetch_tiles(x);
  wait_for_predecessor();
  for (int step = 0; step < ahead; step++) load_rows(step, step);
}

/// The copying thread of a block that takes every n-th unit: starts the copies of all steps as
/// stages become empty. `unit_of` returns a unit with its number of steps.
template <class UnitOf, class Weights, class Rows>
__device__ __forceinline__ void feed_units(const TileRing& ring, int units, int stages, int pause, const Tiles* x, UnitOf&& unit_of,
                                           Weights&& load_weights, Rows&& load_rows) {
  int first_place = (int)blockIdx.x;
  auto first = unit_of(first_place);
  int ahead = min(stages, first.steps);
  fill_tiles(
      ahead, pause, x, [&](int step, int at) { load_weights(first, step, at); },
      [&](int step, int at) { load_rows(first, step, at); });
  // Stages that have not been filled are empty.
  Slot slot = ahead == stages ? Slot{0, 0} : Slot{ahead, 1};
  for (int place = first_place; place < units; place += (int)gridDim.x) {
    auto unit = unit_of(place);
    for (int step = place == first_place ? ahead : 0; step < unit.steps; step++) {
      barrier_await(ring.empty + slot.at, slot.turn);
      load_weights(unit, step, slot.at);
      load_rows(unit, step, slot.at);
      advance(slot, stages);
    }
  }
}

/// Adds the products of `steps` steps of a ring, from `slot` on: `left` and `right` are a warp
/// group's tiles in the first stage; stages are `stage_bytes` apart. Releases all stages but the
/// last, which it returns.
template <int COLUMNS>
__device__ __forceinline__ int multiply_tiles(float (&sum)[COLUMNS / 2], const TileRing& ring, Slot& slot, int steps, int stages,
                                              int stage_bytes, Place left, Place right) {
  int before = 0;
  for (int step = 0; step < steps; step++) {
    barrier_await(ring.full + slot.at, slot.turn);
    u32 stage = (u32)(slot.at * stage_bytes);
    products_begin();
#pragma unroll
    for (u32 k = 0; k < PIECE / 16; k++) product_start<COLUMNS>(sum, left + stage + k * 32, right + stage + k * 32);
    products_commit();
    // The products of the previous step are done.
    products_wait_but<1>();
    if (step > 0) ring.leave(before);
    before = slot.at;
    advance(slot, stages);
  }
  products_wait(sum);
  return before;
}

#ifdef X_FP8
/// The same for FP8 numbers, all of whose stages it releases: left are weights, whose scales
/// `scaled` has, and right COLUMNS rows. `of_blocks` are the scales of the rows for the inputs of
/// the first stage, or null; those of the next are `apart` further.
template <int COLUMNS>
__device__ __forceinline__ void multiply_numbers(float (&sum)[COLUMNS / 2], Scaled<COLUMNS / 8>& scaled, const float* of_blocks,
                                                 int apart, const TileRing& ring, Slot& slot, int steps, int stages, int stage_bytes,
                                                 Place left, Place right) {
  auto& piece = *(float (*)[COLUMNS / 2])scaled.piece;
  auto& sums = *(float (*)[COLUMNS / 8][4])sum;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    scaled.ask(step + 1 < steps);
    scaled.ask_rows(of_blocks, lane() % 4 * 2, apart - 2);
    if (of_blocks) of_blocks += apart;
    barrier_await(ring.full + slot.at, slot.turn);
    u32 stage = (u32)(slot.at * stage_bytes);
    products_begin();
#pragma unroll
    for (u32 k = 0; k < PIECE / 32; k++) product_of_numbers_start<COLUMNS>(piece, left + stage + k * 32, right + stage + k * 32, k > 0);
    products_commit();
    products_wait(piece);
    ring.leave(slot.at);
    scaled.add(sums);
    advance(slot, stages);
  }
}
#endif
