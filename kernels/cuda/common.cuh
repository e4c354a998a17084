// Shared by all kernels: the element type, warp and block operations, tensor-core and copy
// instructions.
//
// No header is included: NVRTC compiles these files on machines that have no CUDA toolkit. Whatever
// is not plain C++ is written here as PTX, and again in emulator/emulator.h, which lets a C++
// compiler run the kernels on the CPU.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 32

#ifndef EMULATOR

// ---------------------------------------------------------------------------------------------------------- instructions

/// Aligned for tiles of wgmma.cuh.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

__device__ __forceinline__ u32 float_bits(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float bits_float(u32 bits) { return __uint_as_float(bits); }

/// bf16 is the upper half of a float; rounding is to nearest even.
__device__ __forceinline__ u16 bf16_bits(float value) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ __forceinline__ u16 f16_bits(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ __forceinline__ float f16_value(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ void block_sync() { __syncthreads(); }
__device__ __forceinline__ void warp_sync() { __syncwarp(); }
__device__ __forceinline__ void memory_fence() { __threadfence(); }

/// Clusters: neighbouring blocks in x that run at the same time and can read each other's dynamic
/// shared memory. Kernels launched with clusters keep nothing in static shared memory across a
/// `cluster_wait`: the emulator has one copy of it for all blocks.
#if __CUDA_ARCH__ >= 900
#define CLUSTERS 1
/// Arrives at the cluster barrier; `cluster_wait` then waits until all threads of the cluster that
/// have not exited have arrived. This publishes only what blocks wrote to their own shared memory,
/// not other writes: a thread would have to wait until the whole device can see those, behind all
/// memory traffic in progress. A block must not end while others may read its memory.
__device__ __forceinline__ void cluster_arrive_with_own() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed;" ::: "memory");
}
/// The same for threads that have read other blocks' memory and publish nothing. It waits for no
/// load: what was read must have been used before, since blocks may end once all have arrived.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
/// The block's rank in its cluster.
__device__ __forceinline__ int cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return (int)rank;
}
/// Loads the value of another block of the cluster at the address that `own` has in this one: 4, 8
/// or 16 bytes.
__device__ __forceinline__ float load_from_block(const float* own, int rank) {
  float value;
  asm volatile(
      "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there];\n}"
      : "=f"(value)
      : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank)
      : "memory");
  return value;
}
__device__ __forceinline__ float4 load_from_block(const float4* own, int rank) {
  float4 value;
  asm volatile(
      "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank)
      : "memory");
  return value;
}
template <class Value>
__device__ __forceinline__ Value load_from_block(const Value* own, int rank) {
  static_assert(sizeof(Value) == 8, "others are above");
  u64 bits;
  asm volatile(
      "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.u64 %0, [there];\n}"
      : "=l"(bits)
      : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank)
      : "memory");
  Value value;
  memcpy(&value, &bits, 8);
  return value;
}
#else
// Without clusters, every block is its own cluster.
__device__ __forceinline__ void cluster_arrive_relaxed() {}
__device__ __forceinline__ void cluster_arrive_with_own() {}
__device__ __forceinline__ void cluster_wait() { __syncthreads(); }
__device__ __forceinline__ int cluster_rank() { return 0; }
template <class Value>
__device__ __forceinline__ Value load_from_block(const Value* own, int) { return *own; }
#endif
__device__ __forceinline__ float shuffle_xor(float value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ int shuffle_xor(int value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ u32 shuffle_xor(u32 value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ u64 shuffle_xor(u64 value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ __forceinline__ float shuffle(float value, int lane) { return __shfl_sync(~0u, value, lane); }
__device__ __forceinline__ int shuffle(int value, int lane) { return __shfl_sync(~0u, value, lane); }
__device__ __forceinline__ u32 shuffle(u32 value, int lane) { return __shfl_sync(~0u, value, lane); }
__device__ __forceinline__ u64 shuffle(u64 value, int lane) { return __shfl_sync(~0u, value, lane); }
__device__ __forceinline__ int shuffle_up(int value, int by) { return __shfl_up_sync(~0u, value, by); }
__device__ __forceinline__ u64 shuffle_up(u64 value, int by) { return __shfl_up_sync(~0u, value, by); }
__device__ __forceinline__ u32 ballot(bool value) { return __ballot_sync(~0u, value); }

__device__ __forceinline__ int atomic_add(int* at, int value) { return atomicAdd(at, value); }
__device__ __forceinline__ u32 atomic_add(u32* at, u32 value) { return atomicAdd(at, value); }
__device__ __forceinline__ u64 atomic_add(u64* at, u64 value) { return atomicAdd(at, value); }
__device__ __forceinline__ u32 atomic_max(u32* at, u32 value) { return atomicMax(at, value); }
/// Adds with acquire-release order: what this thread has written or seen written (also by its
/// block, before a `block_sync`) is visible to a thread of any block whose own such addition comes
/// later.
__device__ __forceinline__ int atomic_add_ordered(int* at, int value) {
  int old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
  return old;
}

/// a · b + c, rounded once.
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/// e^x, about 2 units in the last place.
__device__ __forceinline__ float exp_fast(float x) { return __expf(x); }
/// 2^x, about 2 units in the last place.
__device__ __forceinline__ float exp2_fast(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
/// 1 / x, about 1 unit in the last place.
__device__ __forceinline__ float inverse_fast(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
__device__ __forceinline__ float exp_accurate(float x) { return expf(x); }
__device__ __forceinline__ float log_accurate(float x) { return logf(x); }
__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }

/// Loads 16 bytes at once, ordered with this thread's writes. Does not use the read-only path,
/// because caches and the residual stream are read with it too.
__device__ __forceinline__ uint4 load_16(const void* at) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at));
  return value;
}
/// Loads two or four floats, or zeros unless `there`. With a condition around plain loads the
/// compiler moves each load after the use of the one before, so that each waits for the previous
/// result; these are in flight together.
__device__ __forceinline__ float2 load_if(bool there, const float2* at) {
  float2 value;
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.s32 there, %2, 0;\nmov.f32 %0, 0f00000000;\nmov.f32 %1, 0f00000000;\n"
      "@there ld.global.v2.f32 {%0, %1}, [%3];\n}"
      : "=&f"(value.x), "=&f"(value.y)
      : "r"((int)there), "l"(at));
  return value;
}
__device__ __forceinline__ float4 load_if(bool there, const float4* at) {
  float4 value;
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.s32 there, %4, 0;\nmov.f32 %0, 0f00000000;\nmov.f32 %1, 0f00000000;\n"
      "mov.f32 %2, 0f00000000;\nmov.f32 %3, 0f00000000;\n@there ld.global.v4.f32 {%0, %1, %2, %3}, [%5];\n}"
      : "=&f"(value.x), "=&f"(value.y), "=&f"(value.z), "=&f"(value.w)
      : "r"((int)there), "l"(at));
  return value;
}

/// Loads that bypass the L1 cache, which may hold stale data: required for what is read before
/// `wait_for_predecessor`, and for what other blocks of the same kernel have written.
__device__ __forceinline__ int load_fresh(const int* at) {
  int value;
  asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}
__device__ __forceinline__ u16 load_fresh_2(const void* at) {
  u16 value;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(value) : "l"(at));
  return value;
}
__device__ __forceinline__ uint2 load_fresh_8(const void* at) {
  uint2 value;
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(at));
  return value;
}
__device__ __forceinline__ uint4 load_fresh_16(const void* at) {
  uint4 value;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at));
  return value;
}
/// The same from global or shared memory.
__device__ __forceinline__ u32 load_fresh_any_4(const void* at) {
  u32 value;
  asm volatile("ld.cg.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ uint2 load_fresh_any_8(const void* at) {
  uint2 value;
  asm volatile("ld.cg.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ uint4 load_fresh_any_16(const void* at) {
  uint4 value;
  asm volatile("ld.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at)
               : "memory");
  return value;
}

/// L2 policy "evict first": data that a round reads once, above all weights, would otherwise evict
/// what is reused soon, such as rows, sums, page lists and the kernels' code.
__device__ __forceinline__ u64 passing() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// L2 policy "evict normal".
__device__ __forceinline__ u64 staying() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// As load_fresh…, with the policy `passing`.
__device__ __forceinline__ u32 load_passing_4(const void* at) {
  u32 value;
  asm volatile("ld.global.cg.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(value) : "l"(at), "l"(passing()));
  return value;
}
__device__ __forceinline__ uint2 load_passing_8(const void* at) {
  uint2 value;
  asm volatile("ld.global.cg.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
               : "=r"(value.x), "=r"(value.y)
               : "l"(at), "l"(passing()));
  return value;
}
__device__ __forceinline__ uint4 load_passing_16(const void* at) {
  uint4 value;
  asm volatile("ld.global.cg.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at), "l"(passing()));
  return value;
}

/// Prefetches a line of 128 bytes into the L2 cache.
__device__ __forceinline__ void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

/// A 64-bit address in shared memory for copies with a policy. From a 32-bit one, part of which is
/// the same for all threads, ptxas of CUDA 13.0 generates an instruction that Hopper rejects as
/// illegal.
__device__ __forceinline__ u64 shared_address_64(const void* at) {
  u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(at));
  return address;
}

/// Starts a copy of 16 bytes from global to shared memory, bypassing the L1 cache.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
/// The same for 4 bytes, through the L1 cache.
__device__ __forceinline__ void copy_async_4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
/// Writes 16 bytes of zeros instead if not `real`; then nothing is read.
__device__ __forceinline__ void copy_async_16_or_zero(void* shared, const void* global, bool real) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(real ? 16 : 0)
               : "memory");
}
/// Both, with an L2 policy for what is read.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"l"(shared_address_64(shared)), "l"(global),
               "l"(policy)
               : "memory");
}
__device__ __forceinline__ void copy_async_16_or_zero(void* shared, const void* global, bool real, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"l"(shared_address_64(shared)),
               "l"(global), "r"(real ? 16 : 0), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `pending` of the committed groups are in flight.
template <int pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// Loads four 8×8 tiles of 2-byte elements from shared memory; lane i gives the address of row i %
/// 8 of tile i / 8.
__device__ __forceinline__ void ldmatrix_x4(u32 tile[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void ldmatrix_x4_transposed(u32 tile[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(shared_address(row)));
}

/// Transposes an 8×8 tile of 2-byte elements; lane i holds elements 2 (i % 4) and 2 (i % 4) + 1 of
/// row i / 4.
__device__ __forceinline__ u32 transpose_8x8(u32 pair) {
  u32 transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

/// Waits for this many cycles.
__device__ __forceinline__ void let_pass(int cycles) {
  for (long long start = clock64(); clock64() - start < cycles;) {
  }
}

/// Lets the next kernel start (programmatic dependent launch) once all blocks of this one have
/// called this or ended; so it never takes a place that one of them waits for.
__device__ __forceinline__ void release_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Waits until the previous kernels have ended and their writes are visible. Every kernel does so
/// before it reads or writes anything that another one writes or reads, except what a late release
/// allows.
///
/// A kernel that releases its successor only after this wait has seen all earlier kernels end,
/// since kernels end in order. Kernels launched after it may therefore read, before their own wait,
/// anything that no kernel from this one on writes, with `load_fresh…` or `copy_async_16`; they
/// still write nothing before they wait. The same holds after a kernel that releases nothing before
/// it ends, such as a library's.
__device__ __forceinline__ void await_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Both at once, the release first: the next kernel starts its part that does not depend on this
/// one.
__device__ __forceinline__ void wait_for_predecessor() {
  release_successor();
  await_predecessor();
}

/// d += a · b for a 16×16 (row-major fragments) and b 16×8 (column-major fragments) of T,
/// accumulated in float.
__device__ __forceinline__ void mma_16816(float d[4], const u32 a[4], const u32 b[2]) {
#if defined(T_BF16)
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(T_F16)
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

#if __CUDA_ARCH__ == 900
/// Four FP8 numbers (e4m3) as pairs of halves.
__device__ __forceinline__ void halves_of(u32& low, u32& high, u32 four) {
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}
#endif
/// The same for FP8 numbers (e4m3), a 16×32 and b 32×8: a word has four, of neighbouring columns of
/// a and rows of b. From compute capability 8.9 on.
__device__ __forceinline__ void mma_16832_numbers(float d[4], const u32 a[4], const u32 b[2]) {
#if __CUDA_ARCH__ == 900
  // Warps of Hopper have no such instruction: products of halves are what ptxas makes of it too,
  // but with a sum of its own for each 32.
  u32 left[2][4], right[2][2];
#pragma unroll
  for (int i = 0; i < 4; i++) halves_of(left[0][i], left[1][i], a[i]);
#pragma unroll
  for (int i = 0; i < 2; i++) halves_of(right[0][i], right[1][i], b[i]);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(left[h][0]), "r"(left[h][1]), "r"(left[h][2]), "r"(left[h][3]), "r"(right[h][0]), "r"(right[h][1]));
  }
#elif __CUDA_ARCH__ >= 890
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  asm volatile("trap;");
#endif
}

#endif  // EMULATOR

/// The largest score of a row so far, or 0 if there is none, so that differences from it are
/// finite.
__device__ __forceinline__ float reference_of(float most) { return most == -infinity() ? 0.0f : most; }

__device__ __forceinline__ float load_fresh_float(const float* at) { return bits_float((u32)load_fresh((const int*)at)); }

// -------------------------------------------------------------------------------------------------------- the element type

#if defined(T_BF16)
struct T {
  u16 bits;
};
__device__ __forceinline__ float to_float(T value) { return bits_float((u32)value.bits << 16); }
__device__ __forceinline__ T from_float(float value) { return T{bf16_bits(value)}; }
#elif defined(T_F16)
struct T {
  u16 bits;
};
__device__ __forceinline__ float to_float(T value) { return f16_value(value.bits); }
__device__ __forceinline__ T from_float(float value) { return T{f16_bits(value)}; }
#elif defined(T_F32)
typedef float T;
__device__ __forceinline__ float to_float(T value) { return value; }
__device__ __forceinline__ T from_float(float value) { return value; }
__device__ __forceinline__ T load_fresh_element(const T* at) { return load_fresh_float(at); }
#endif

#if defined(T_BF16) || defined(T_F16)
#define T_PAIRS 1
__device__ __forceinline__ T load_fresh_element(const T* at) { return T{load_fresh_2(at)}; }
/// The two elements of a 32-bit word, the lower one first.
__device__ __forceinline__ float2 unpack(u32 word) {
  return make_float2(to_float(T{(u16)word}), to_float(T{(u16)(word >> 16)}));
}
__device__ __forceinline__ u32 pack(float low, float high) {
  return (u32)from_float(low).bits | (u32)from_float(high).bits << 16;
}
#ifdef EMULATOR
inline u32 multiply_pair(u32 pair, u32 by) {
  float2 one = unpack(pair), other = unpack(by);
  return pack(one.x * other.x, one.y * other.y);
}
#else
/// The products of the elements of two words.
__device__ __forceinline__ u32 multiply_pair(u32 pair, u32 by) {
  u32 product;
#if defined(T_BF16)
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(pair), "r"(by), "r"(0x80008000u));
#else
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
#endif
  return product;
}
#endif
#endif

#if defined(T_PAIRS) || defined(T_F32)
/// `silu(gate) · up`, with silu rounded as in frameworks that run it as a separate operation. The
/// error of the fast instructions vanishes in that rounding to a 2-byte type. A division is a chain
/// of instructions, and a thread of a linear layer has up to 56 gates.
__device__ __forceinline__ float gated(float gate, float up) {
#if defined(T_PAIRS)
  float silu = gate * inverse_fast(1.0f + exp_fast(-gate));
#else
  float silu = gate / (1.0f + exp_accurate(-gate));
#endif
  return to_float(from_float(silu)) * up;
}
#endif

// ----------------------------------------------------------------------------------------------------- warps and blocks

__device__ __forceinline__ int lane() { return (int)(threadIdx.x % WARP); }
__device__ __forceinline__ int warp() { return (int)(threadIdx.x / WARP); }

/// A value that is equal in all lanes of a warp, in a form that the compiler recognises as uniform:
/// branches on it do not diverge, and what follows from it is computed once per warp.
__device__ __forceinline__ int same(int number) { return shuffle(number, 0); }

/// Combines the values of a warp's lanes, in every lane, in a fixed order.
#ifdef EMULATOR
using emulator::fold_warp;
#else
template <class N, class Combine>
__device__ __forceinline__ N fold_warp(N value, Combine combine) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}
#endif
/// The sum over a warp in every lane, in a fixed order.
__device__ __forceinline__ float warp_sum(float value) {
  return fold_warp(value, [](float own, float other) { return own + other; });
}
/// The sums of several values, each as from `warp_sum`.
template <int COUNT>
__device__ __forceinline__ void warp_sums(float (&values)[COUNT]) {
#ifdef EMULATOR
  // One exchange for all.
  struct All {
    float of[COUNT];
  } all;
  for (int i = 0; i < COUNT; i++) all.of[i] = values[i];
  all = fold_warp(all, [](All own, All other) {
    for (int i = 0; i < COUNT; i++) own.of[i] = own.of[i] + other.of[i];
    return own;
  });
  for (int i = 0; i < COUNT; i++) values[i] = all.of[i];
#else
#pragma unroll
  for (int i = 0; i < COUNT; i++) values[i] = warp_sum(values[i]);
#endif
}
__device__ __forceinline__ float warp_max(float value) {
  return fold_warp(value, [](float own, float other) { return other > own ? other : own; });
}

/// A product of non-negative numbers, as one instruction.
__device__ __forceinline__ u64 wide(int a, int b) { return (u64)(u32)a * (u32)b; }

/// Maximum number of parts in which a linear layer leaves its sums.
#define MOST_PARTS 8
/// Maximum number of parts that are added to the residual stream at once: those of a linear layer,
/// or of a row's experts, of which many models have eight and a shared one.
#define MOST_ADDENDS 9

/// Elements between the rows of a matrix of `count` sums of squares per row: `count` rounded up to
/// whole 16-byte accesses.
__device__ __forceinline__ int squares_stride(int count) { return (count + 3) / 4 * 4; }

/// Offset of a row's 16-byte chunk in shared memory with rows of BYTES bytes: swizzled within 128
/// bytes, so that the same chunk of eight rows is in different banks, and as warp-group products
/// read it.
template <int BYTES>
__device__ __forceinline__ u32 place_of(int row, int chunk) {
  return (u32)(row * BYTES + (chunk ^ (row & 7)) * 16);
}

/// The place of the chunk that lies `chunks` after one at this place in the same row, if the two
/// numbers of chunks have no bit in common.
__device__ __forceinline__ u32 later_place(u32 place, int chunks) { return place ^ (u32)chunks * 16; }

/// The sum over a block in every thread, in a fixed order. `scratch` is 32 floats of shared memory,
/// reusable after the call.
__device__ __forceinline__ float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  if (lane() == 0) scratch[warp()] = value;
  block_sync();
  // Every warp sums the warps' sums: one barrier fewer than if only one did.
  int warps = (int)((blockDim.x + WARP - 1) / WARP);
  float sum = warp_sum(lane() < warps ? scratch[lane()] : 0.0f);
  block_sync();
  return sum;
}
/// The maximum over a block in every thread; `scratch` as above.
__device__ __forceinline__ float block_max(float value, float* scratch) {
  value = warp_max(value);
  if (lane() == 0) scratch[warp()] = value;
  block_sync();
  int warps = (int)((blockDim.x + WARP - 1) / WARP);
  float most = warp_max(lane() < warps ? scratch[lane()] : -infinity());
  block_sync();
  return most;
}
