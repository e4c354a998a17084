// Division of layers of many rows among blocks (linear_wide_fp8.cu, linear_products.cu). Included
// after weights.cuh.
#pragma once

/// A unit of work: outputs of some rows, over a part of the inputs.
struct Unit {
  int first_output, first_row, part, begin, steps;
};

/// The unit at a place: those that read the same weights follow each other.
template <int ROWS, int OUTPUTS>
__device__ __forceinline__ Unit unit_at(int place, int row_blocks, int across, int share, int inputs) {
  int column = place / row_blocks, part = column / across, begin = part * share;
  return Unit{(column - part * across) * OUTPUTS, (place - column * row_blocks) * ROWS, part, begin,
              (min(share, inputs - begin) + PIECE - 1) / PIECE};
}
