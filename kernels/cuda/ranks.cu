// Exchanges between the ranks of a tensor-parallel group within a pass: sums of partial results,
// and logits of which each rank has some tokens.
//
// Every rank has a mailbox: two turns, each with an array of lines (lines.cuh) per sending rank. An
// exchange sends lines to all mailboxes and waits for those in its own. Exchanges are numbered,
// identically on all ranks, and alternate between the turns. Two are enough because of stream
// order: a rank sends number n once its own n - 1 has ended, so all others had started n - 1, hence
// ended n - 2 and read its lines.
#include "common.cuh"
#include "lines.cuh"

#define MOST_RANKS 8
/// Polls of a line before the clock and the host are checked.
#define LOOKS 4096
/// Polls before device memory is checked for a kernel that has given up.
#define FEW_LOOKS 64

/// A group, as one of its ranks sees it.
struct Group {
  /// Addresses of all mailboxes, in rank order.
  const u64* mailboxes;
  /// The number of the last exchange, the numbers of blocks of this one that have ended and that
  /// have started, and whether to give up.
  int* state;
  /// The host's words: whether to give up, and for each rank the rank whose line timed out, counted
  /// from 1.
  u32* words;
  int rank, ranks;
  /// Maximum number of lines that a rank sends in one exchange.
  int capacity;
  /// Timeout in milliseconds.
  int patience;
};

/// A line of a mailbox: what a rank sends in the exchange with this number.
__device__ __forceinline__ unsigned char* line_at(const Group& group, u64 mailbox, u32 number, int sender, int line) {
  u64 lot = (u64)((number & 1) * group.ranks + sender);
  return (unsigned char*)mailbox + (lot * group.capacity + line) * 16;
}

/// Waits for a line from a rank. Returns zeros if it, or another kernel, has timed out.
__device__ __forceinline__ uint2 await_line(const Group& group, u64 mailbox, u32 number, int sender, int line) {
  const unsigned char* at = line_at(group, mailbox, number, sender, line);
  u64 until = 0;
  for (int looks = 1;; looks++) {
    uint4 found = load_line(at);
    if (found.y == number && found.w == number) return make_uint2(found.x, found.z);
    // One thread learns from the host to give up; the others soon learn it from device memory.
    if (looks % FEW_LOOKS == 0 && load_fresh(group.state + 3)) return make_uint2(0, 0);
    if (looks % LOOKS) continue;
    between_looks();
    if (load_host(group.words)) {
      group.state[3] = 1;
      return make_uint2(0, 0);
    }
    u64 now = nanoseconds();
    if (!until) until = now + (u64)group.patience * 1000000;
    if (now > until) {
      store_host(group.words + 1 + group.rank, (u32)sender + 1);
      store_host(group.words, 1);
      group.state[3] = 1;
      return make_uint2(0, 0);
    }
  }
}

/// Counts a block as ended; the last block ends the exchange.
__device__ __forceinline__ void end_exchange(const Group& group, u32 number) {
  block_sync();
  if (threadIdx.x == 0 && atomic_add_ordered(&group.state[1], 1) == (int)gridDim.x - 1) {
    group.state[1] = group.state[2] = 0;
    group.state[0] = (int)number;
  }
}

/// Four values as T, in lines.
#ifdef T_PAIRS
#define LINES 1
__device__ __forceinline__ void to_lines(float4 x, uint2 lines[LINES]) {
  lines[0] = make_uint2(pack(x.x, x.y), pack(x.z, x.w));
}
__device__ __forceinline__ float4 from_lines(const uint2 lines[LINES]) {
  float2 low = unpack(lines[0].x), high = unpack(lines[0].y);
  return make_float4(low.x, low.y, high.x, high.y);
}
#else
#define LINES 2
__device__ __forceinline__ void to_lines(float4 x, uint2 lines[LINES]) {
  lines[0] = make_uint2(float_bits(x.x), float_bits(x.y));
  lines[1] = make_uint2(float_bits(x.z), float_bits(x.w));
}
__device__ __forceinline__ float4 from_lines(const uint2 lines[LINES]) {
  return make_float4(bits_float(lines[0].x), bits_float(lines[0].y), bits_float(lines[1].x), bits_float(lines[1].y));
}
#endif

/// Four consecutive elements of rows in T, as lines.
__device__ __forceinline__ void load_lines(const T* at, uint2 lines[LINES]) {
#pragma unroll
  for (int l = 0; l < LINES; l++) lines[l] = *((const uint2*)at + l);
}
__device__ __forceinline__ void store_lines(T* at, const uint2 lines[LINES]) {
#pragma unroll
  for (int l = 0; l < LINES; l++) *((uint2*)at + l) = lines[l];
}
__device__ __forceinline__ float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/// A rank's part of a sum: rows in T, or `part_count` parts of a linear layer, float
/// `[part_count, all rows, width]`, `part` elements each, which are summed and rounded.
struct Own {
  const T* add;
  int add_stride;
  const float* parts;
  int part_count;
  u64 part;
  int width;
};

/// Four consecutive elements of it.
__device__ __forceinline__ void own_lines(const Own& from, int row, int column, uint2 lines[LINES]) {
  if (!from.part_count) {
    load_lines(from.add + (u64)row * from.add_stride + column, lines);
    return;
  }
  float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const float* at = from.parts + (u64)row * from.width + column;
  for (int first = 0; first < from.part_count; first += 8) {
    // All loads are in flight before the first is added.
    float4 four[8];
#pragma unroll
    for (int p = 0; p < 8; p++)
      four[p] = load_if(first + p < from.part_count, (const float4*)(at + (first + p) * from.part));
#pragma unroll
    for (int p = 0; p < 8; p++) {
      if (first + p < from.part_count) x = plus(x, four[p]);
    }
  }
  to_lines(x, lines);
}

/// Sends lines to all other ranks.
__device__ __forceinline__ void send_lines(const Group& group, const u64 there[MOST_RANKS], u32 number, int unit,
                                           const uint2 lines[LINES]) {
#pragma unroll
  for (int r = 0; r < MOST_RANKS; r++) {
    if (r >= group.ranks || r == group.rank) continue;
#pragma unroll
    for (int l = 0; l < LINES; l++)
      store_line(line_at(group, there[r], number, group.rank, unit * LINES + l), lines[l].x, lines[l].y, number);
  }
}

/// The sum over all ranks, in rank order, so that all have the same bits.
__device__ __forceinline__ float4 sum_lines(const Group& group, u64 mailbox, u32 number, int unit, const uint2 own[LINES]) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
  for (int r = 0; r < group.ranks; r++) {
    uint2 lines[LINES];
#pragma unroll
    for (int l = 0; l < LINES; l++)
      lines[l] = r == group.rank ? own[l] : await_line(group, mailbox, number, r, unit * LINES + l);
    sum = r == 0 ? from_lines(lines) : plus(sum, from_lines(lines));
  }
  return sum;
}

/// Reads the addresses of all mailboxes, which never change; returns that of this rank.
__device__ __forceinline__ u64 read_mailboxes(const Group& group, u64 there[MOST_RANKS]) {
#pragma unroll
  for (int r = 0; r < MOST_RANKS; r++) there[r] = r < group.ranks ? group.mailboxes[r] : 0;
  return group.mailboxes[group.rank];
}

#define GROUP const u64 *mailboxes, int *state, u32 *words, int rank, int ranks, int capacity, int patience
#define GROUP_ARGUMENTS mailboxes, state, words, rank, ranks, capacity, patience

/// The sum over all ranks of rows of which each has a part (`Own`); `out` may be `add`. Each thread
/// has four consecutive elements. Grid: (pieces of all rows).
extern "C" __global__ void __launch_bounds__(256, 4)
sum_ranks(T* out, int out_stride, const T* add, int add_stride, const float* parts, int part_count, u64 part, int width,
          int rows, GROUP) {
  const Group group{GROUP_ARGUMENTS};
  const Own from{add, add_stride, parts, part_count, part, width};
  u64 there[MOST_RANKS];
  u64 mine = read_mailboxes(group, there);
  wait_for_predecessor();
  u32 number = (u32)load_fresh(state) + 1;
  int unit = block_in_order(&state[2]) * (int)blockDim.x + (int)threadIdx.x;
  int row = unit / (width / 4), column = unit % (width / 4) * 4;
  bool real = row < rows;
  uint2 own[LINES] = {};
  if (real) {
    own_lines(from, row, column, own);
    send_lines(group, there, number, unit, own);
  }
  all_have_sent();
  if (real) {
    to_lines(sum_lines(group, mine, number, unit, own), own);
    store_lines(out + (u64)row * out_stride + column, own);
  }
  end_exchange(group, number);
}

/// Maximum number of groups of four elements of a row per thread.
#define UNITS 2

/// The same, followed by `rms_norm`: `stream = stream + sum`, rounded to T, also written to `keep`
/// unless that is null, and `out = stream · inverse_root(mean(stream²) + epsilon) · weight`. For
/// few rows, where two kernels would wait for each other. Grid: rows.
extern "C" __global__ void __launch_bounds__(1024, 1)
sum_ranks_norm(T* out, int out_stride, T* stream, int stream_stride, const T* weight, T* keep, int keep_stride, float epsilon,
               const T* add, int add_stride, const float* parts, int part_count, u64 part, int width, GROUP) {
  __shared__ float scratch[32];
  const Group group{GROUP_ARGUMENTS};
  const Own from{add, add_stride, parts, part_count, part, width};
  u64 there[MOST_RANKS];
  u64 mine = read_mailboxes(group, there);
  wait_for_predecessor();
  u32 number = (u32)load_fresh(state) + 1;
  int row = block_in_order(&state[2]), unit = row * (width / 4);
  uint2 own[UNITS][LINES] = {};
  float4 x[UNITS];
#pragma unroll
  for (int u = 0; u < UNITS; u++) {
    int at = (int)threadIdx.x + u * (int)blockDim.x;
    if (at * 4 >= width) continue;
    own_lines(from, row, at * 4, own[u]);
    send_lines(group, there, number, unit + at, own[u]);
  }
  all_have_sent();
  float squares = 0.0f;
#pragma unroll
  for (int u = 0; u < UNITS; u++) {
    int at = (int)threadIdx.x + u * (int)blockDim.x;
    if (at * 4 >= width) continue;
    T* to = stream + (u64)row * stream_stride + at * 4;
    uint2 lines[LINES];
    load_lines(to, lines);
    float4 before = from_lines(lines);
    to_lines(sum_lines(group, mine, number, unit + at, own[u]), lines);
    to_lines(plus(before, from_lines(lines)), lines);
    store_lines(to, lines);
    if (keep) store_lines(keep + (u64)row * keep_stride + at * 4, lines);
    x[u] = from_lines(lines);
    squares += x[u].x * x[u].x + x[u].y * x[u].y + x[u].z * x[u].z + x[u].w * x[u].w;
  }
  float scale = inverse_root(block_sum(squares, scratch) / (float)width + epsilon);
#pragma unroll
  for (int u = 0; u < UNITS; u++) {
    int at = (int)threadIdx.x + u * (int)blockDim.x;
    if (at * 4 >= width) continue;
    uint2 lines[LINES];
    load_lines(weight + at * 4, lines);
    float4 w = from_lines(lines);
    to_lines(make_float4(x[u].x * scale * w.x, x[u].y * scale * w.y, x[u].z * scale * w.z, x[u].w * scale * w.w), lines);
    store_lines(out + (u64)row * out_stride + at * 4, lines);
  }
  end_exchange(group, number);
}

/// Whole rows of logits, float `[rows, vocabulary]`. Rank r has the logits of `part` tokens from
/// min(r · part, vocabulary - part) on, `[rows, part]`; of tokens that two ranks have, those of the
/// lower rank are used. Each thread has two consecutive elements. An exchange transfers as many as
/// fit, from `first` on. Grid: (pieces).
extern "C" __global__ void __launch_bounds__(256, 4)
gather_ranks(float* out, const float* own_logits, int part, int vocabulary, int rows, u64 first, GROUP) {
  const Group group{GROUP_ARGUMENTS};
  u64 there[MOST_RANKS];
  u64 mine = read_mailboxes(group, there);
  wait_for_predecessor();
  u32 number = (u32)load_fresh(state) + 1;
  int line = block_in_order(&state[2]) * (int)blockDim.x + (int)threadIdx.x;
  u64 unit = first + line;
  int pairs = part / 2, row = (int)(unit / pairs), column = (int)(unit % pairs) * 2;
  bool real = line < capacity && row < rows;
  uint2 own = make_uint2(0, 0);
  if (real) {
    own = *(const uint2*)(own_logits + (u64)row * part + column);
#pragma unroll
    for (int r = 0; r < MOST_RANKS; r++) {
      if (r < ranks && r != rank) store_line(line_at(group, there[r], number, rank, line), own.x, own.y, number);
    }
  }
  all_have_sent();
  if (real) {
#pragma unroll 1
    for (int r = 0; r < ranks; r++) {
      uint2 pair = r == rank ? own : await_line(group, mine, number, r, line);
      int start = min(r * part, vocabulary - part);
      u32* to = (u32*)out + (u64)row * vocabulary + start + column;
      if (start + column >= r * part) to[0] = pair.x;
      if (start + column + 1 >= r * part) to[1] = pair.y;
    }
  }
  end_exchange(group, number);
}
