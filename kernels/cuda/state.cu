// Small updates of the requests' state on the device.
#include "common.cuh"

/// Sets the length and the last token of slots: update `[count, 3]` holds slot, length and token; a negative length
/// leaves both unchanged. Grid ceil(count / 64), 64 threads.
extern "C" __global__ void __launch_bounds__(64) set_state(int* length, int* root, const int* update, int count) {
  wait_for_predecessor();
  int at = (int)(blockIdx.x * 64 + threadIdx.x);
  if (at >= count) return;
  int slot = update[3 * at], value = update[3 * at + 1];
  if (value < 0) return;
  length[slot] = value;
  root[slot] = update[3 * at + 2];
}
