// What the ranks of a group pass to each other within a pass: sums of what each has computed a part of, and logits of which each
// has some tokens.
//
// Every rank has a mailbox: two turns, in each a lot of lines (lines.cuh) for each rank that sends. An exchange sends lines to
// all mailboxes and waits for those of its own. Exchanges are numbered, the same on all ranks, and take turns; that two are
// enough follows from the order of a stream: a rank sends number n once its own n - 1 has ended, so all others had begun n - 1,
// hence ended n - 2 and read what it left.
#include "common.cuh"
#include "lines.cuh"

#define MOST_RANKS 8
/// Looks at a line before the clock and the host are asked.
#define LOOKS 4096

/// A group, as one of its ranks sees it.
struct Group {
  /// Addresses of all mailboxes, in the order of ranks.
  const u64* mailboxes;
  /// The number of the last exchange, blocks of this one that have ended, and those that have begun.
  int* state;
  /// The host's words: whether to give up, and of each rank for whom it waited in vain, counted from 1.
  u32* words;
  int rank, ranks;
  /// Lines that a rank sends at once, at most.
  int capacity;
  /// Milliseconds to wait.
  int patience;
};

/// A line of a mailbox: that which a rank sends in an exchange of this number.
__device__ __forceinline__ unsigned char* line_at(const Group& group, u64 mailbox, u32 number, int sender, int line) {
  u64 lot = (u64)((number & 1) * group.ranks + sender);
  return (unsigned char*)mailbox + (lot * group.capacity + line) * 16;
}

/// Waits for a line from a rank. Zeros where it has waited for too long, or somebody has.
__device__ __forceinline__ uint2 await_line(const Group& group, u64 mailbox, u32 number, int sender, int line) {
  const unsigned char* at = line_at(group, mailbox, number, sender, line);
  u64 until = 0;
  for (int looks = 0;; looks++) {
    uint4 found = load_line(at);
    if (found.y == number && found.w == number) return make_uint2(found.x, found.z);
    if (looks < LOOKS) continue;
    looks = 0;
    between_looks();
    if (load_host(group.words)) return make_uint2(0, 0);
    u64 now = nanoseconds();
    if (!until) until = now + (u64)group.patience * 1000000;
    if (now > until) {
      store_host(group.words + 1 + group.rank, (u32)sender + 1);
      store_host(group.words, 1);
      return make_uint2(0, 0);
    }
  }
}

/// The exchange is over for a block; for the last one, over.
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

/// The sum over all ranks of a row that each has a part of: `[rows, width]` in T, or yet in `part_count` parts, float
/// `[part_count, all rows, width]`, `part` elements each, which are added up and rounded first. Added up in the order of ranks,
/// so that all have the same bits; `out` may be `add`. Each thread has four neighbours. Grid: (pieces of all rows).
extern "C" __global__ void __launch_bounds__(256, 4)
sum_ranks(T* out, int out_stride, const T* add, int add_stride, const float* parts, int part_count, u64 part, int width,
          int rows, const u64* mailboxes, int* state, u32* words, int rank, int ranks, int capacity, int patience) {
  const Group group{mailboxes, state, words, rank, ranks, capacity, patience};
  // Never written again.
  u64 there[MOST_RANKS];
#pragma unroll
  for (int r = 0; r < MOST_RANKS; r++) there[r] = r < ranks ? mailboxes[r] : 0;
  wait_for_predecessor();
  u32 number = (u32)load_fresh(state) + 1;
  int unit = block_in_order(&state[2]) * (int)blockDim.x + (int)threadIdx.x;
  int row = unit / (width / 4), column = unit % (width / 4) * 4;
  bool real = row < rows;
  uint2 own[LINES] = {};
  if (real) {
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (part_count) {
      const float* at = parts + (u64)row * width + column;
      for (int first = 0; first < part_count; first += 8) {
        float4 four[8];
#pragma unroll
        for (int p = 0; p < 8; p++) four[p] = load_if(first + p < part_count, (const float4*)(at + (first + p) * part));
#pragma unroll
        for (int p = 0; p < 8; p++) {
          if (first + p < part_count)
            x = make_float4(x.x + four[p].x, x.y + four[p].y, x.z + four[p].z, x.w + four[p].w);
        }
      }
      to_lines(x, own);
    } else {
      const u32* at = (const u32*)(add + (u64)row * add_stride + column);
#pragma unroll
      for (int l = 0; l < LINES; l++) own[l] = *(const uint2*)(at + 2 * l);
    }
#pragma unroll
    for (int r = 0; r < MOST_RANKS; r++) {
      if (r >= ranks || r == rank) continue;
#pragma unroll
      for (int l = 0; l < LINES; l++)
        store_line(line_at(group, there[r], number, rank, unit * LINES + l), own[l].x, own[l].y, number);
    }
  }
  all_have_sent();
  if (real) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int r = 0; r < MOST_RANKS; r++) {
      if (r >= ranks) continue;
      uint2 lines[LINES];
#pragma unroll
      for (int l = 0; l < LINES; l++)
        lines[l] = r == rank ? own[l] : await_line(group, there[rank], number, r, unit * LINES + l);
      float4 x = from_lines(lines);
      sum = r == 0 ? x : make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
    }
    to_lines(sum, own);
    u32* to = (u32*)(out + (u64)row * out_stride + column);
#pragma unroll
    for (int l = 0; l < LINES; l++) *(uint2*)(to + 2 * l) = own[l];
  }
  end_exchange(group, number);
}

/// Whole rows of logits, float `[rows, vocabulary]`, of which rank r has those of `part` tokens from the lesser of r · part and
/// vocabulary - part on, `[rows, part]`; of tokens that two have, the first's count. Each thread has two neighbours. Of all of
/// them an exchange brings as many as there is room for, from `first` on. Grid: (pieces).
extern "C" __global__ void __launch_bounds__(256, 4)
gather_ranks(float* out, const float* own_logits, int part, int vocabulary, int rows, u64 first, const u64* mailboxes,
             int* state, u32* words, int rank, int ranks, int capacity, int patience) {
  const Group group{mailboxes, state, words, rank, ranks, capacity, patience};
  u64 there[MOST_RANKS];
#pragma unroll
  for (int r = 0; r < MOST_RANKS; r++) there[r] = r < ranks ? mailboxes[r] : 0;
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
#pragma unroll
    for (int r = 0; r < MOST_RANKS; r++) {
      if (r >= ranks) continue;
      uint2 pair = r == rank ? own : await_line(group, there[rank], number, r, line);
      int start = min(r * part, vocabulary - part);
      u32* to = (u32*)out + (u64)row * vocabulary + start + column;
      if (start + column >= r * part) to[0] = pair.x;
      if (start + column + 1 >= r * part) to[1] = pair.y;
    }
  }
  end_exchange(group, number);
}
