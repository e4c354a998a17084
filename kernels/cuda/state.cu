// Small updates of the requests' state on the device.
#include "common.cuh"

/// Sets the length and the last token of slots: update `[count, 3]` holds slot, length and token; a
/// negative length leaves both unchanged. Grid ceil(count / 64), 64 threads.
extern "C" __global__ void __launch_bounds__(64) set_state(int* length, int* root, const int* update, int count) {
  wait_for_predecessor();
  int at = (int)(blockIdx.x * 64 + threadIdx.x);
  if (at >= count) return;
  int slot = update[3 * at], value = update[3 * at + 1];
  if (value < 0) return;
  length[slot] = value;
  root[slot] = update[3 * at + 2];
}

/// Puts the first tokens after prompts where the draft and the next round read them, without the
/// host: chosen[i] goes to token[place[i, 0]] and to update[place[i, 1]]. A token that does not
/// exist (NOT_FINITE) is replaced by 0: its request ends as soon as the host knows. place
/// `[count, 2]`. Grid ceil(count / 64), 64 threads.
extern "C" __global__ void __launch_bounds__(64)
    put_first(int* token, int* update, const int* place, const int* chosen, int count) {
  wait_for_predecessor();
  int at = (int)(blockIdx.x * 64 + threadIdx.x);
  if (at >= count) return;
  int id = max(chosen[at], 0);
  token[place[2 * at]] = id;
  update[place[2 * at + 1]] = id;
}
