// Runs CUDA kernels on the CPU: every CUDA thread is a fiber, blocks run one after the other, and those of a cluster in turns,
// from barrier to barrier. For tests of what kernels compute; it says nothing about speed, and since fibers change
// only at synchronisation points, it finds fewer races than compute-sanitizer does.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#define EMULATOR 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) alignas(n)
#define __shared__ static thread_local
#define __constant__ static const
#define __grid_constant__
#define DYNAMIC_SHARED(name) unsigned char* name = emulator::dynamic_shared()

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
template <class N>
inline N min(N a, N b) { return b < a ? b : a; }
template <class N>
inline N max(N a, N b) { return a < b ? b : a; }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __clz(int value) { return value ? __builtin_clz((unsigned)value) : 32; }
inline float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline int __float_as_int(float value) { int bits; std::memcpy(&bits, &value, 4); return bits; }

namespace emulator {

constexpr int kWarp = 32;
constexpr size_t kStack = 96 << 10;
constexpr size_t kShared = 232 << 10;
// What a lane can exchange at once, in words of 8 bytes.
constexpr int kSlot = 4;

// The part of a fiber's state that a switch has to keep: the stack pointer; the rest lies on its stack.
extern "C" void spectune_switch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl spectune_switch
.hidden spectune_switch
.type spectune_switch,@function
spectune_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl spectune_switch
.hidden spectune_switch
.type spectune_switch,%function
spectune_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "the emulator knows x86-64 and aarch64"
#endif

// Blocks of a cluster, at most.
constexpr int kCluster = 8;

enum class State : unsigned char { kReady, kWarp, kBlock, kCluster, kPoll, kDone };

struct Warp {
  int live = 0, waiting = 0;
  // Two generations: a lane that has passed one barrier may already write for the next.
  unsigned generation = 0;
  // The generation whose values `folded` has.
  unsigned folded_in = 0;
  alignas(16) unsigned long long folded[kSlot * kWarp];
  alignas(16) unsigned long long slots[2][kWarp][kSlot];
  // Of a product of matrices, two generations of the factors, and the sums.
  alignas(32) float left[2][16][16], right[2][16][8], sums[2][16][8];
};

// A product of wgmma.cuh that a thread has started; one without sums is the end of a group.
struct Product {
  float* sum;
  int columns;
  const unsigned char *left, *right;
  // A left factor from registers, the inputs of this thread's two rows.
  float own[2][16];
  // If not 0, `right` has a row for each input, and every 64 columns lie this many bytes apart.
  int apart;
  // Whether both factors are 32 FP8 numbers of a row, and then whether the sum begins anew.
  bool numbers, anew;
};

// A block that runs.
struct Worker {
  dim3 index;
  // Its place in its cluster, whose blocks lie side by side.
  int rank = 0;
  Worker* cluster = nullptr;
  void* scheduler = nullptr;
  std::vector<void*> pointers;
  std::vector<State> states;
  std::vector<Warp> warps;
  // Of each thread, what it has started and not yet waited for.
  std::vector<std::vector<Product>> products;
  unsigned char* stacks = nullptr;
  size_t stack_count = 0;
  unsigned char* shared = nullptr;
  int current = 0, live = 0, blocked = 0, clustered = 0;
  // Whether a thread has changed what others may wait for, since this was last asked.
  bool changed = false;
  void (*call)(void* function, void** arguments) = nullptr;
  void* function = nullptr;
  void** arguments = nullptr;
};

inline thread_local Worker* worker = nullptr;
// Blocks have one dimension.
inline thread_local unsigned thread_x;
inline thread_local dim3 block_index, block_size, grid_size;

inline unsigned char* dynamic_shared() { return worker->shared; }

inline void yield_as(State state) {
  Worker& w = *worker;
  int self = w.current;
  w.states[self] = state;
  spectune_switch(&w.pointers[self], w.scheduler);
}

inline void sync_warp() {
  Worker& w = *worker;
  w.warps[w.current / kWarp].waiting++;
  yield_as(State::kWarp);
}

inline void sync_block() {
  worker->blocked++;
  yield_as(State::kBlock);
}

inline void sync_cluster() {
  worker->clustered++;
  yield_as(State::kCluster);
}

// Lets others run, until something may have changed.
inline void poll() { yield_as(State::kPoll); }

[[noreturn]] inline void fiber_main() {
  Worker& w = *worker;
  w.call(w.function, w.arguments);
  if (!w.products[w.current].empty()) { std::fprintf(stderr, "emulator: products that nobody waited for\n"); std::abort(); }
  w.live--;
  w.warps[w.current / kWarp].live--;
  yield_as(State::kDone);
  std::abort();
}
extern "C" inline void spectune_fiber_main() { fiber_main(); }

inline void* new_fiber(unsigned char* stack) {
  void** top = (void**)(stack + kStack);
#if defined(__x86_64__)
  *--top = nullptr;  // keeps the stack aligned as after a call
  *--top = (void*)spectune_fiber_main;
  for (int i = 0; i < 6; i++) *--top = nullptr;
#else
  top -= 20;
  std::memset(top, 0, 160);
  top[11] = (void*)spectune_fiber_main;
#endif
  return top;
}

inline void begin_block(Worker& w, int threads) {
  if ((size_t)threads > w.stack_count) {
    if (w.stacks) munmap(w.stacks, w.stack_count * kStack);
    w.stacks = (unsigned char*)mmap(nullptr, threads * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w.stacks == MAP_FAILED) { std::fprintf(stderr, "emulator: no memory for stacks\n"); std::abort(); }
    w.stack_count = threads;
  }
  if (!w.shared) w.shared = (unsigned char*)std::aligned_alloc(1024, kShared);
  // Shared memory starts with what the last block left, on a GPU and here: rubbish, so that its use shows.
  std::memset(w.shared, 0xFF, 4096);
  int warps = (threads + kWarp - 1) / kWarp;
  w.pointers.resize(threads);
  w.states.assign(threads, State::kReady);
  w.warps.resize(warps);
  w.products.resize(threads);
  for (int i = 0; i < warps; i++) {
    w.warps[i].live = threads - i * kWarp < kWarp ? threads - i * kWarp : kWarp;
    w.warps[i].waiting = 0;
    w.warps[i].generation = w.warps[i].folded_in = 0;
  }
  for (int i = 0; i < threads; i++) w.pointers[i] = new_fiber(w.stacks + i * kStack);
  w.live = threads;
  w.blocked = w.clustered = 0;
}

// Makes the threads that are in a state ready.
inline void wake(Worker& w, State state) {
  for (State& each : w.states)
    if (each == state) each = State::kReady;
}

// Runs a block until it has ended or all its threads that live are at the barrier of its cluster.
inline void run_block(Worker& w, int threads, unsigned order) {
  int warps = (int)w.warps.size();
  worker = &w;
  block_index = w.index;
  while (w.live > 0 && w.clustered < w.live) {
    bool ran = false;
    wake(w, State::kPoll);
    for (int k = 0; k < warps; k++) {
      // Warps run in a different order from launch to launch: what depends on the order shows.
      int i = (order & 1) ? warps - 1 - k : k;
      Warp& group = w.warps[i];
      for (;;) {
        bool progress = false;
        for (int j = 0; j < kWarp && i * kWarp + j < threads; j++) {
          int t = i * kWarp + ((order & 2) && i * kWarp + kWarp <= threads ? kWarp - 1 - j : j);
          if (w.states[t] != State::kReady) continue;
          w.current = t;
          thread_x = t;
          spectune_switch(&w.scheduler, w.pointers[t]);
          progress |= w.states[t] != State::kPoll;
        }
        ran |= progress;
        if (group.live > 0 && group.waiting == group.live) {
          group.waiting = 0;
          group.generation++;
          for (int j = i * kWarp; j < (i + 1) * kWarp && j < threads; j++)
            if (w.states[j] == State::kWarp) w.states[j] = State::kReady;
          continue;
        }
        if (!progress) break;
      }
    }
    ran |= w.changed;
    w.changed = false;
    if (w.live > 0 && w.blocked == w.live) {
      w.blocked = 0;
      wake(w, State::kBlock);
    } else if (!ran && w.live > 0 && w.clustered < w.live) {
      std::fprintf(stderr, "emulator: a block hangs: %d threads live, %d at the block's barrier, %d at the cluster's\n", w.live,
                   w.blocked, w.clustered);
      std::abort();
    }
  }
}

// Runs blocks side by side, from one barrier of the cluster to the next. Threads that have ended count as arrived.
inline void run_cluster(Worker* blocks, int count, int threads, unsigned order) {
  for (int rank = 0; rank < count; rank++) begin_block(blocks[rank], threads);
  for (bool live = true; live;) {
    live = false;
    for (int k = 0; k < count; k++) run_block(blocks[(order & 8) ? count - 1 - k : k], threads, order);
    for (int rank = 0; rank < count; rank++) {
      live |= blocks[rank].live > 0;
      blocks[rank].clustered = 0;
      wake(blocks[rank], State::kCluster);
    }
  }
}

using Call = void (*)(void*, void**);

/// `cluster` blocks that lie side by side in x are a cluster.
inline void launch(Call call, void* function, dim3 grid, dim3 block, int cluster, void** arguments) {
  static std::atomic<unsigned> launches{0};
  static thread_local Worker blocks[kCluster];
  unsigned order = launches++;
  if (cluster < 1 || cluster > kCluster || grid.x % cluster != 0) {
    std::fprintf(stderr, "emulator: %u blocks in clusters of %d\n", grid.x, cluster);
    std::abort();
  }
  size_t across = grid.x / cluster, count = across * grid.y * grid.z;
  block_size = block;
  grid_size = grid;
  for (size_t at = 0; at < count; at++) {
    size_t place = (order & 4) ? count - 1 - at : at;
    for (int rank = 0; rank < cluster; rank++) {
      Worker& w = blocks[rank];
      w.index = {(unsigned)(place % across * cluster + rank), (unsigned)(place / across % grid.y),
                 (unsigned)(place / across / grid.y)};
      w.rank = rank;
      w.cluster = blocks;
      w.call = call;
      w.function = function;
      w.arguments = arguments;
    }
    run_cluster(blocks, cluster, (int)block.x, order);
  }
}

// Exchanges at most kSlot words within a warp and returns where those of all lanes lie.
inline unsigned long long (*exchange(const void* value, size_t bytes))[kSlot] {
  Worker& w = *worker;
  int self = w.current;
  Warp& group = w.warps[self / kWarp];
  auto slots = group.slots[group.generation & 1];
  std::memcpy(slots[self % kWarp], value, bytes);
  sync_warp();
  return slots;
}

template <class N>
inline N shuffle_from(N value, int from) {
  auto slots = exchange(&value, sizeof(N));
  N result;
  std::memcpy(&result, slots[from & (kWarp - 1)], sizeof(N));
  return result;
}

// What shuffles with all lanes, by half as many lanes each time, make of a warp's values: the same operations in the same
// order, with one switch of fibers instead of five. The first lane that goes on computes them for all.
template <class N, class Combine>
inline N fold_warp(N value, Combine combine) {
  static_assert(sizeof(N) <= 8 * kSlot, "larger than a slot");
  auto slots = exchange(&value, sizeof(N));
  Worker& w = *worker;
  Warp& group = w.warps[w.current / kWarp];
  N* values = (N*)group.folded;
  if (group.folded_in != group.generation) {
    group.folded_in = group.generation;
    N next[kWarp];
    for (int i = 0; i < kWarp; i++) std::memcpy(&values[i], slots[i], sizeof(N));
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      for (int i = 0; i < kWarp; i++) next[i] = combine(values[i], values[i ^ mask]);
      std::memcpy(values, next, sizeof next);
    }
  }
  return values[w.current % kWarp];
}

}  // namespace emulator

struct ThreadIndex {
  struct X { operator unsigned() const { return emulator::thread_x; } } x;
};
static ThreadIndex threadIdx;
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

inline float infinity() { return INFINITY; }
inline u32 float_bits(float value) { u32 bits; std::memcpy(&bits, &value, 4); return bits; }
inline float bits_float(u32 bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline u16 bf16_bits(float value) {
  u32 bits = float_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline u16 f16_bits(float value) { _Float16 half = (_Float16)value; u16 bits; std::memcpy(&bits, &half, 2); return bits; }
inline float f16_value(u16 bits) { _Float16 half; std::memcpy(&half, &bits, 2); return (float)half; }

inline void block_sync() { emulator::sync_block(); }
inline void warp_sync() { emulator::sync_warp(); }

#define CLUSTERS 1
inline void cluster_arrive_relaxed() {}
inline void cluster_arrive_with_own() {}
inline void cluster_wait() { emulator::sync_cluster(); }
inline int cluster_rank() { return emulator::worker->rank; }
/// What another block has where this one has `own`, a place for this many bytes.
inline unsigned char* in_block(const void* own, int rank, size_t bytes) {
  emulator::Worker& w = *emulator::worker;
  size_t offset = (size_t)((const unsigned char*)own - w.shared);
  if (offset % bytes != 0 || offset + bytes > emulator::kShared) {
    std::fprintf(stderr, "emulator: an access to another block at the odd place %zu\n", offset);
    std::abort();
  }
  return w.cluster[rank].shared + offset;
}
template <class Value> inline Value load_from_block(const Value* own, int rank) {
  Value value;
  std::memcpy(&value, in_block(own, rank, sizeof(Value)), sizeof(Value));
  return value;
}
inline void memory_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

template <class N> inline N shuffle_xor(N value, int mask) {
  return emulator::shuffle_from(value, (emulator::worker->current % emulator::kWarp) ^ mask);
}
template <class N> inline N shuffle(N value, int lane) { return emulator::shuffle_from(value, lane); }
template <class N> inline N shuffle_up(N value, int by) {
  int self = emulator::worker->current % emulator::kWarp;
  return emulator::shuffle_from(value, self - by >= 0 ? self - by : self);
}
inline u32 ballot(bool value) {
  u32 own = value;
  auto slots = emulator::exchange(&own, sizeof own);
  u32 bits = 0;
  int first = emulator::worker->current / emulator::kWarp * emulator::kWarp;
  for (int i = 0; i < emulator::kWarp && first + i < (int)emulator::worker->states.size(); i++)
    if (slots[i][0] & 1) bits |= 1u << i;
  return bits;
}

template <class N> inline N atomic_add(N* at, N value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
template <class N> inline N atomic_max(N* at, N value) {
  N old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (old < value && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
inline int atomic_add_ordered(int* at, int value) { return atomic_add(at, value); }

inline float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
inline float exp_fast(float x) { return std::exp(x); }
inline float exp2_fast(float x) { return std::exp2(x); }
inline float inverse_fast(float x) { return 1.0f / x; }
inline float exp_accurate(float x) { return std::exp(x); }
inline float log_accurate(float x) { return std::log(x); }
inline float inverse_root(float x) { return 1.0f / std::sqrt(x); }

inline void check_alignment(const void* at, const char* what) {
  if ((uintptr_t)at % 16) { std::fprintf(stderr, "emulator: %s of 16 bytes at the odd address %p\n", what, at); std::abort(); }
}
inline uint4 load_16(const void* at) { check_alignment(at, "load"); uint4 v; std::memcpy(&v, at, 16); return v; }
inline float2 load_if(bool there, const float2* at) { return there ? *at : make_float2(0.0f, 0.0f); }
inline float4 load_if(bool there, const float4* at) { return there ? *at : make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
inline int load_fresh(const int* at) { return *at; }
inline u16 load_fresh_2(const void* at) { u16 v; std::memcpy(&v, at, 2); return v; }
inline void prefetch_line(const void*) {}
inline uint2 load_fresh_8(const void* at) {
  if ((uintptr_t)at % 8) { std::fprintf(stderr, "emulator: load of 8 bytes at the odd address %p\n", at); std::abort(); }
  uint2 v; std::memcpy(&v, at, 8); return v;
}
inline uint4 load_fresh_16(const void* at) { return load_16(at); }
inline u64 passing() { return 0; }
inline u64 staying() { return 0; }
inline u32 load_passing_4(const void* at) { return (u32)load_fresh((const int*)at); }
inline u32 load_fresh_any_4(const void* at) { return (u32)load_fresh((const int*)at); }
inline uint2 load_passing_8(const void* at) { return load_fresh_8(at); }
inline uint4 load_passing_16(const void* at) { return load_16(at); }
inline uint2 load_fresh_any_8(const void* at) { return load_fresh_8(at); }
inline uint4 load_fresh_any_16(const void* at) { return load_16(at); }
inline void copy_async_16(void* shared, const void* global, u64 = 0) {
  check_alignment(shared, "copy"); check_alignment(global, "copy"); std::memcpy(shared, global, 16);
}
inline void copy_async_4(void* shared, const void* global) {
  if ((uintptr_t)shared % 4 || (uintptr_t)global % 4) { std::fprintf(stderr, "emulator: copy of 4 bytes at an odd address\n"); std::abort(); }
  std::memcpy(shared, global, 4);
}
inline void copy_async_16_or_zero(void* shared, const void* global, bool real, u64 = 0) {
  if (real) copy_async_16(shared, global);
  else std::memset(shared, 0, 16);
}
inline void copy_async_commit() {}
template <int pending> inline void copy_async_wait() {}
inline void let_pass(int) {}
inline void wait_for_predecessor() {}
inline void release_successor() {}
inline void await_predecessor() {}

inline void ldmatrix_x4_as(u32 tile[4], const void* row, bool transposed) {
  check_alignment(row, "ldmatrix");
  u64 address = (u64)(uintptr_t)row;
  auto slots = emulator::exchange(&address, sizeof address);
  emulator::Worker& w = *emulator::worker;
  emulator::Warp& group = w.warps[w.current / emulator::kWarp];
  u32(*tiles)[4] = (u32(*)[4])group.folded;
  // The first lane that goes on reads for all, so that no lane can change what another has yet to read.
  if (group.folded_in != group.generation) {
    group.folded_in = group.generation;
    for (int t = 0; t < 4; t++) {
      for (int lane = 0; lane < emulator::kWarp; lane++) {
        int row = lane / 4, column = lane % 4 * 2;
        if (!transposed) {
          std::memcpy(&tiles[lane][t], (const u16*)(uintptr_t)slots[t * 8 + row][0] + column, 4);
          continue;
        }
        u16 low = ((const u16*)(uintptr_t)slots[t * 8 + column][0])[row];
        u16 high = ((const u16*)(uintptr_t)slots[t * 8 + column + 1][0])[row];
        tiles[lane][t] = (u32)low | (u32)high << 16;
      }
    }
  }
  std::memcpy(tile, tiles[w.current % emulator::kWarp], 16);
}
inline void ldmatrix_x4(u32 tile[4], const void* row) { ldmatrix_x4_as(tile, row, false); }
inline void ldmatrix_x4_transposed(u32 tile[4], const void* row) { ldmatrix_x4_as(tile, row, true); }

inline u32 transpose_8x8(u32 pair) {
  auto slots = emulator::exchange(&pair, sizeof pair);
  int self = emulator::worker->current % emulator::kWarp, row = self / 4, column = self % 4 * 2;
  auto element = [&](int r, int c) { return (u32)slots[r * 4 + c / 2][0] >> (c % 2 * 16) & 0xffff; };
  return element(column, row) | element(column + 1, row) << 16;
}

#if defined(T_BF16) || defined(T_F16)
inline float element_value(u16 bits) {
#if defined(T_BF16)
  return bits_float((u32)bits << 16);
#else
  return f16_value(bits);
#endif
}
namespace emulator {
// d += a · b of 16×16 and 16×8; `fill(left, right, row, quarter)` writes what a lane holds of both, d is as in mma_16816.
template <class Fill>
inline void multiply_16(float d[4], Fill&& fill) {
  Worker& w = *worker;
  int row = w.current % kWarp / 4, column = w.current % 4 * 2;
  Warp& group = w.warps[w.current / kWarp];
  auto left = group.left[group.generation & 1];
  auto right = group.right[group.generation & 1];
  auto sums = group.sums[group.generation & 1];
  fill(left, right, row, w.current % 4);
  for (int i = 0; i < 4; i++) sums[row + i / 2 * 8][column + i % 2] = d[i];
  sync_warp();
  // The first lane that goes on computes for all, a row of sums at a time; each sum in the order of its inputs.
  if (group.folded_in != group.generation) {
    group.folded_in = group.generation;
    using Row = float __attribute__((vector_size(32)));
    // Half of the rows at once, in registers: an addition waits for the last one of its own row only.
    for (int first = 0; first < 16; first += 8) {
      Row rows[8];
      std::memcpy(rows, sums[first], sizeof rows);
      for (int k = 0; k < 16; k++) {
        Row factor;
        std::memcpy(&factor, right[k], sizeof factor);
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++) rows[r] += left[first + r][k] * factor;
      }
      std::memcpy(sums[first], rows, sizeof rows);
    }
  }
  for (int i = 0; i < 4; i++) d[i] = sums[row + i / 2 * 8][column + i % 2];
}
}  // namespace emulator
// The fragments of m16n8k16: lane l holds of a rows l/4 and l/4+8, columns 2(l%4)+{0,1} and +8; of b rows (k)
// 2(l%4)+{0,1} and +8, column l/4; of d rows l/4 and l/4+8, columns 2(l%4)+{0,1}.
inline void mma_16816(float d[4], const u32 a[4], const u32 b[2]) {
  emulator::multiply_16(d, [&](auto& left, auto& right, int row, int pair) {
    int column = pair * 2;
    for (int i = 0; i < 4; i++) {
      left[row + i % 2 * 8][column + i / 2 * 8] = element_value((u16)a[i]);
      left[row + i % 2 * 8][column + i / 2 * 8 + 1] = element_value((u16)(a[i] >> 16));
    }
    for (int i = 0; i < 2; i++) {
      right[column + i * 8][row] = element_value((u16)b[i]);
      right[column + i * 8 + 1][row] = element_value((u16)(b[i] >> 16));
    }
  });
}

// Products of a warp group read shared memory at their own pace: here as late as can be, when they are waited for. What is
// written too early shows, and so does a sum that is used without a wait.
template <int COUNT> inline void take_registers() {}
template <int COUNT> inline void give_up_registers() {}
inline void fence_for_products() {}
inline void products_begin() {}
inline void products_commit() { emulator::worker->products[emulator::worker->current].push_back({}); }
/// Where a tile lies.
struct Place {
  const unsigned char* at;
  Place(const void* shared) : at((const unsigned char*)shared) {}
  Place operator+(u32 bytes) const { return Place(at + bytes); }
};
// Ends the program if products cannot read 16 inputs from here on: of a tile's first row, or of a whole tile where it is turned.
inline void check_tile(Place tile, bool turned) {
  uintptr_t within = (uintptr_t)tile.at % 1024;
  if (turned ? within == 0 : within % 32 == 0 && within < 128) return;
  std::fprintf(stderr, "emulator: a product of 16 inputs from the odd address %p\n", (const void*)tile.at);
  std::abort();
}
template <int COLUMNS> inline void product_start(float (&sum)[COLUMNS / 2], Place left, Place right) {
  using namespace emulator;
  check_tile(left, false);
  check_tile(right, false);
  worker->products[worker->current].push_back({sum, COLUMNS, left.at, right.at});
}
// The same with a left factor from registers; `apart` as of Product.
inline void start_with_registers(float* sum, int columns, const u32 (&left)[4], Place right, int apart) {
  using namespace emulator;
  check_tile(right, apart != 0);
  Product product{sum, columns, nullptr, right.at, {}, apart};
  auto slots = exchange(left, sizeof left);
  for (int h = 0; h < 2; h++) {
    for (int k = 0; k < 16; k++) {
      u32 words[4];
      std::memcpy(words, slots[worker->current % kWarp / 4 * 4 + k % 8 / 2], sizeof words);
      product.own[h][k] = element_value((u16)(words[k / 8 * 2 + h] >> (k % 2 * 16)));
    }
  }
  worker->products[worker->current].push_back(product);
}
template <int COLUMNS>
inline void product_of_registers_start(float (&sum)[COLUMNS / 2], const u32 (&left)[4], Place right, int apart) {
  start_with_registers(sum, COLUMNS, left, right, apart);
}
template <int COLUMNS>
inline void product_with_registers_start(float (&sum)[COLUMNS / 2], const u32 (&left)[4], Place right) {
  start_with_registers(sum, COLUMNS, left, right, 0);
}
template <int COLUMNS>
inline void product_of_numbers_start(float (&sum)[COLUMNS / 2], Place left, Place right, int adds) {
  using namespace emulator;
  check_tile(left, false);
  check_tile(right, false);
  worker->products[worker->current].push_back({sum, COLUMNS, left.at, right.at, {}, 0, true, !adds});
}
// The value of an FP8 number (e4m3).
inline float number_value(unsigned char bits) {
  int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float size = exponent == 15 && mantissa == 7 ? NAN
               : exponent == 0                 ? std::ldexp((float)mantissa, -9)
                                               : std::ldexp((float)(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -size : size;
}
inline const std::array<float, 256>& number_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> made;
    for (int i = 0; i < 256; i++) made[i] = number_value((unsigned char)i);
    return made;
  }();
  return values;
}
// The fragments of m16n8k32: lane l holds of a rows l/4 and l/4+8, columns 4(l%4)+{0,1,2,3} and +16; of b rows (k)
// 4(l%4)+{0,1,2,3} and +16, column l/4; of d as in m16n8k16.
inline void mma_16832_numbers(float d[4], const u32 a[4], const u32 b[2]) {
  const std::array<float, 256>& values = number_values();
  for (int half = 0; half < 2; half++) {
    emulator::multiply_16(d, [&](auto& left, auto& right, int row, int quarter) {
      for (int i = 0; i < 4; i++) {
        left[row][quarter * 4 + i] = values[a[half * 2] >> 8 * i & 255];
        left[row + 8][quarter * 4 + i] = values[a[half * 2 + 1] >> 8 * i & 255];
        right[quarter * 4 + i][row] = values[b[half] >> 8 * i & 255];
      }
    });
  }
}
// A product of FP8 numbers, for a thread of a warp group.
inline void compute_numbers(const emulator::Product& product, int self) {
  const std::array<float, 256>& values = number_values();
  auto read = [&](float (&to)[32], const unsigned char* at, int row) {
    int chunk = (int)((uintptr_t)at % 128) / 16;
    const unsigned char* tile = at - (uintptr_t)at % 128;
    for (int k = 0; k < 32; k++) to[k] = values[tile[row * 128 + ((chunk + k / 16) ^ row % 8) * 16 + k % 16]];
  };
  float own[2][32];
  for (int h = 0; h < 2; h++) read(own[h], product.left, self / 32 * 16 + self % 32 / 4 + 8 * h);
  for (int i = 0; i < product.columns / 2; i += 4) {
    for (int c = 0; c < 2; c++) {
      float other[32];
      read(other, product.right, i * 2 + self % 4 * 2 + c);
      for (int h = 0; h < 2; h++) {
        float sum = product.anew ? 0.0f : product.sum[i + c + 2 * h];
        for (int k = 0; k < 32; k++) sum += own[h][k] * other[k];
        product.sum[i + c + 2 * h] = sum;
      }
    }
  }
}
// Computes what a thread has started, but the last `pending` groups.
inline void compute_products(int pending) {
  using namespace emulator;
  auto& products = worker->products[worker->current];
  int self = worker->current % 128;
  size_t count = products.size();
  for (int groups = 0; count > 0; count--) {
    if (!products[count - 1].sum && groups++ == pending) break;
  }
  // Input k of a row of a tile, of which `at` says where its inputs begin.
  auto element = [](const unsigned char* at, int row, int k) {
    int chunk = (int)((uintptr_t)at % 128) / 16 + k / 8;
    const unsigned char* tile = at - (uintptr_t)at % 128;
    return element_value(((const u16*)(tile + row * 128 + (chunk ^ row % 8) * 16))[k % 8]);
  };
  // The same of a tile that has a row for each input.
  auto element_of_row = [](const unsigned char* tile, int row, int column) {
    return element_value(((const u16*)(tile + row * 128 + ((column / 8) ^ row % 8) * 16))[column % 8]);
  };
  for (size_t at = 0; at < count; at++) {
    const Product& product = products[at];
    if (!product.sum) continue;
    if (product.numbers) {
      compute_numbers(product, self);
      continue;
    }
    float own[2][16];
    for (int h = 0; h < 2; h++)
      for (int k = 0; k < 16; k++)
        own[h][k] = product.left ? element(product.left, self / 32 * 16 + self % 32 / 4 + 8 * h, k) : product.own[h][k];
    for (int i = 0; i < product.columns / 2; i += 4) {
      for (int c = 0; c < 2; c++) {
        int column = i * 2 + self % 4 * 2 + c;
        float low = product.sum[i + c], high = product.sum[i + 2 + c];
        for (int k = 0; k < 16; k++) {
          float value = product.apart ? element_of_row(product.right + column / 64 * product.apart, k, column % 64)
                                      : element(product.right, column, k);
          low += own[0][k] * value;
          high += own[1][k] * value;
        }
        product.sum[i + c] = low;
        product.sum[i + 2 + c] = high;
      }
    }
  }
  products.erase(products.begin(), products.begin() + (long)count);
}
template <int PENDING> inline void products_wait_but() { compute_products(PENDING); }
template <int PENDING, int COUNT> inline void products_wait_but(float (&)[COUNT]) { compute_products(PENDING); }
template <int COUNT> inline void products_wait(float (&)[COUNT]) { compute_products(0); }

// What the host says of a matrix (`Device::tiles`), and the copies of bulk.cuh: here at once.
struct alignas(128) Tiles {
  u64 address, count;
  struct {
    u64 extent, apart, tile;
  } axes[4];
  u64 unused[2];
};
static_assert(sizeof(Tiles) == 128, "as large as on a GPU");
// Those that a phase waits for, those that it still waits for, the number of the phase, and bytes that have been announced less
// those that have come.
struct Barrier {
  unsigned count : 15, left : 15, phase : 2;
  int bytes;
};
static_assert(sizeof(Barrier) == 8, "as large as on a GPU");
inline void change_barrier(unsigned char* at, int arrivals, int bytes) {
  Barrier barrier;
  std::memcpy(&barrier, at, sizeof barrier);
  if (arrivals > (int)barrier.left) {
    std::fprintf(stderr, "emulator: more arrive at a barrier than its phase waits for\n");
    std::abort();
  }
  emulator::worker->changed = true;
  barrier.left -= arrivals;
  barrier.bytes += bytes;
  if (barrier.left == 0 && barrier.bytes == 0) barrier.left = barrier.count, barrier.phase ^= 1;
  std::memcpy(at, &barrier, sizeof barrier);
}
inline void barrier_init(u64* barrier, int arrivals) {
  Barrier made{(unsigned)arrivals, (unsigned)arrivals, 0, 0};
  std::memcpy(barrier, &made, sizeof made);
}
inline void barriers_made() {}
inline void barrier_expect(u64* barrier, int bytes) { change_barrier((unsigned char*)barrier, 1, bytes); }
inline void barrier_arrive(u64* barrier) { change_barrier((unsigned char*)barrier, 1, 0); }
inline void barrier_await(u64* barrier, int phase) {
  for (;;) {
    Barrier now;
    std::memcpy(&now, barrier, sizeof now);
    if ((int)now.phase != (phase & 1)) return;
    emulator::poll();
  }
}
// Copies the tile that begins at such a place along each axis.
inline void copy_tile_at(void* shared, const Tiles* tiles, std::array<int, 4> first, u64* barrier) {
  if ((uintptr_t)shared % 1024) {
    std::fprintf(stderr, "emulator: a tile at the odd place %p\n", shared);
    std::abort();
  }
  int rows = 1;
  for (u64 a = 1; a < tiles->count; a++) rows *= (int)tiles->axes[a].tile;
  for (int row = 0; row < rows; row++) {
    u64 from = (u64)first[0];
    bool inside = true;
    for (int a = 1, rest = row; a < (int)tiles->count; a++) {
      auto& axis = tiles->axes[a];
      u64 at = (u64)first[a] + rest % axis.tile;
      rest /= (int)axis.tile;
      inside &= at < axis.extent;
      from += at * axis.apart;
    }
    for (int column = 0; column < 64; column++) {
      bool real = inside && (u64)(first[0] + column) < tiles->axes[0].extent;
      u16 element = real ? ((const u16*)tiles->address)[from + column] : 0;
      std::memcpy((unsigned char*)shared + row * 128 + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2, &element, 2);
    }
  }
  change_barrier((unsigned char*)barrier, 0, -rows * 128);
}
inline void copy_tile(void* shared, const Tiles* tiles, int column, int row, u64* barrier, u64) {
  copy_tile_at(shared, tiles, {column, row}, barrier);
}
inline void copy_tile_of_halves(void* shared, const Tiles* tiles, int column, int eight, u64* barrier, u64) {
  copy_tile_at(shared, tiles, {column, 0, 0, eight}, barrier);
}
inline void prefetch_tiles(const Tiles*) {}
#else
inline void mma_16816(float*, const u32*, const u32*) { std::abort(); }
inline void mma_16832_numbers(float*, const u32*, const u32*) { std::abort(); }
#endif

template <class... A, size_t... I>
inline void spectune_apply(void (*function)(A...), void** arguments, std::index_sequence<I...>) {
  function(*(std::remove_reference_t<A>*)arguments[I]...);
}
template <class... A>
inline void spectune_call(void (*function)(A...), void** arguments) {
  spectune_apply(function, arguments, std::index_sequence_for<A...>{});
}
/// Makes `spectune_launch_<name>` of a kernel, which the host calls as it would call the driver.
#define EMULATED_KERNEL(name)                                                                               \
  extern "C" __attribute__((visibility("default"))) void spectune_launch_##name(                            \
      const unsigned* grid, const unsigned* block, unsigned cluster, void** arguments) {                    \
    emulator::launch([](void* f, void** a) { spectune_call((decltype(&name))f, a); }, (void*)&name,          \
                     dim3{grid[0], grid[1], grid[2]}, dim3{block[0], block[1], block[2]}, (int)cluster,     \
                     arguments);                                                                            \
  }
