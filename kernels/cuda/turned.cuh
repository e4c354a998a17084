// Rotation of the rotary part of the queries of latent attention.
#pragma once

/// How queries are rotated: see latent.cu.
struct Turns {
  const float2* table;
  int positions;
  const int* position;
  int rotated, interleaved;
};

/// Rotates a pair of the rotary part of a head, at the position of a row: from `from` to `to`,
/// which may be the same.
__device__ __forceinline__ void turn_pair(const T* from, T* to, int pair, int row, const Turns& turns) {
  int half = turns.rotated / 2, at = min(max(turns.position[row], 0), turns.positions - 1);
  int low = turns.interleaved ? 2 * pair : pair, high = turns.interleaved ? 2 * pair + 1 : pair + half;
  float a = to_float(from[low]), b = to_float(from[high]);
  float2 turn = turns.table[(u64)at * half + pair];
  // With explicit roundings, since kernels for few rows and for many have to agree.
  to[low] = from_float(multiply_add(a, turn.x, -(b * turn.y)));
  to[high] = from_float(multiply_add(b, turn.x, a * turn.y));
}

/// Rotates the rotary part of a head of some rows, in block (·, 0, ·): from after its first
/// `inputs` values, in rows `x_stride` apart, to after its first `outputs`, in rows `y_stride`
/// apart. `x` and `y` point to the head.
__device__ __forceinline__ void turn_rows(const T* x, int x_stride, int inputs, T* y, int y_stride, int outputs,
                                          const Turns& turns, int first, int behind) {
  int half = turns.rotated / 2;
  for (int i = (int)threadIdx.x; i < (behind - first) * half; i += (int)blockDim.x) {
    int row = first + i / half;
    turn_pair(x + (u64)row * x_stride + inputs, y + (u64)row * y_stride + outputs, i % half, row, turns);
  }
}
