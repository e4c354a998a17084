// What all kernels share: the element type, warp and block operations, tensor-core and copy instructions.
//
// No header is included: NVRTC compiles these files on machines that have no CUDA toolkit. What is not plain C++ is
// written here as PTX, and again in emulator/emulator.h, which lets a C++ compiler run the kernels on the CPU.
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

/// Clusters: blocks side by side in x that run at the same time and use each other's dynamic shared memory. Kernels that are
/// launched so keep nothing in static shared memory over a `cluster_wait`: the emulator has one of it for all blocks.
#if __CUDA_ARCH__ >= 900
#define CLUSTERS 1
/// Says that a thread has come here; `cluster_wait` then waits until all threads of the cluster have, those that have ended apart. What
/// blocks have in their own shared memory can be read by the others then, and nothing that they wrote elsewhere: of that a thread would
/// wait until all of the device can see it, after whatever memory is busy with. A block must not end while others may read.
__device__ __forceinline__ void cluster_arrive_with_own() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed;" ::: "memory");
}
/// The same of threads that have read what others have, and publish nothing.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
/// The block's place in its cluster.
__device__ __forceinline__ int cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return (int)rank;
}
/// What another block of the cluster has where this one has `own`: 4, 8 or 16 bytes.
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
/// Adds, and orders: what this thread has written or seen written (also by its block, before a `block_sync`) can be seen
/// by a thread of any block whose own such addition comes later.
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

/// 16 bytes in one load, in order with what this thread writes. Not by the read-only path: caches and the residual stream
/// are read with it too.
__device__ __forceinline__ uint4 load_16(const void* at) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at));
  return value;
}
/// Two or four floats, zeros unless they are `there`. A condition around a plain load the compiler moves after the use
/// before it, so that of several such loads each waits for the last one's result; these are under way together.
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

/// Loads that go past the first-level cache, which may still hold what memory was before: the only ones for what is read
/// before `wait_for_predecessor`, and for what other blocks of the same kernel have written.
__device__ __forceinline__ int load_fresh(const int* at) {
  int value;
  asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(value) : "l"(at));
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

/// What second-level cache gives up first: what a round reads once, weights above all, would else drive out what is used again
/// soon, such as rows, sums, lists of pages and the kernels' code.
__device__ __forceinline__ u64 passing() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// What it keeps like anything else.
__device__ __forceinline__ u64 staying() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// As load_fresh…, of what passes.
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

/// Asks for a line of 128 bytes in second-level cache.
__device__ __forceinline__ void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

/// An address in shared memory for copies with a policy: one of 32 bits, a part of which is the same for all threads, ptxas of
/// CUDA 13.0 puts into an instruction that Hopper refuses as illegal.
__device__ __forceinline__ u64 shared_address_64(const void* at) {
  u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(at));
  return address;
}

/// Starts a copy of 16 bytes from global to shared memory, past the first-level cache.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
/// The same of 4 bytes.
__device__ __forceinline__ void copy_async_4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
/// Copies 16 bytes of zeros instead, if they are not real; then nothing is read.
__device__ __forceinline__ void copy_async_16_or_zero(void* shared, const void* global, bool real) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(real ? 16 : 0)
               : "memory");
}
/// Both, with a policy of second-level cache for what is read.
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
/// Waits until at most `pending` of the committed groups are under way.
template <int pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// Four 8×8 tiles of 2-byte elements from shared memory; lane i gives the address of row i % 8 of tile i / 8.
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

/// Transposes an 8×8 tile of 2-byte elements, of which lane i holds elements 2 (i % 4) and the next of row i / 4.
__device__ __forceinline__ u32 transpose_8x8(u32 pair) {
  u32 transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

/// Lets this many cycles pass.
__device__ __forceinline__ void let_pass(int cycles) {
  for (long long start = clock64(); clock64() - start < cycles;) {
  }
}

/// Lets the next kernel start (programmatic dependent launch), once all blocks of this one have said so or ended; so it
/// never takes a place that one of them waits for.
__device__ __forceinline__ void release_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Waits until the kernels before have ended and what they wrote can be seen. Every kernel does so before it reads or
/// writes anything that another one writes or reads, but for what a late release allows.
///
/// A kernel that releases its successor only after this wait has seen all earlier kernels end, since kernels end in
/// order. What is launched after may therefore read ahead of its own wait whatever no kernel from this one on writes,
/// with `load_fresh…` or `copy_async_16`; it still writes nothing before it waits. The same holds after a kernel that
/// releases nothing before it ends, such as a library's.
__device__ __forceinline__ void await_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Both at once, the release first: the next kernel starts the part that does not depend on this one.
__device__ __forceinline__ void wait_for_predecessor() {
  release_successor();
  await_predecessor();
}

/// d += a · b for a 16×16 (row-major fragments) and b 16×8 (column-major fragments) of T, accumulated in float.
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

#endif  // EMULATOR

/// The largest score of a row so far, finite, so that differences from it are numbers.
__device__ __forceinline__ float reference_of(float most) { return most == -infinity() ? 0.0f : most; }

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
#endif

#if defined(T_BF16) || defined(T_F16)
#define T_PAIRS 1
/// The two elements of a 32-bit word, the lower one first.
__device__ __forceinline__ float2 unpack(u32 word) {
  return make_float2(to_float(T{(u16)word}), to_float(T{(u16)(word >> 16)}));
}
__device__ __forceinline__ u32 pack(float low, float high) {
  return (u32)from_float(low).bits | (u32)from_float(high).bits << 16;
}
#endif

#if defined(T_PAIRS) || defined(T_F32)
/// `silu(gate) · up`; silu is rounded as in frameworks that run it as an operation of its own. What the fast instructions lose
/// vanishes in that rounding of a 2-byte type. A division is no instruction but a chain of them, and a thread of a linear layer
/// has up to 56 gates.
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

/// A number that all lanes of a warp have, so that the compiler knows it too: no branch on it parts them, and what follows from it is
/// computed once for a warp.
__device__ __forceinline__ int same(int number) { return shuffle(number, 0); }

/// The sum over a warp in every lane, in a fixed order.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) {
    float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

/// A product of numbers that are not negative, as one instruction.
__device__ __forceinline__ u64 wide(int a, int b) { return (u64)(u32)a * (u32)b; }

/// Elements from one row of this many sums of squares to the next: whole accesses.
__device__ __forceinline__ int squares_stride(int count) { return (count + 3) / 4 * 4; }

/// Where a row's 16-byte chunk lies in shared memory whose rows have this many bytes: permuted within 128 of them, so that those of
/// eight rows lie in different banks, and as products of warp groups read them.
template <int BYTES>
__device__ __forceinline__ u32 place_of(int row, int chunk) {
  return (u32)(row * BYTES + (chunk ^ (row & 7)) * 16);
}

/// The sum over a block in every thread, in a fixed order. `scratch` is shared, 32 floats; may be used again at once.
__device__ __forceinline__ float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  if (lane() == 0) scratch[warp()] = value;
  block_sync();
  // Every warp adds up the warps' sums: a barrier less than if one did.
  int warps = (int)((blockDim.x + WARP - 1) / WARP);
  float sum = warp_sum(lane() < warps ? scratch[lane()] : 0.0f);
  block_sync();
  return sum;
}
/// The largest over a block in every thread; `scratch` as above.
__device__ __forceinline__ float block_max(float value, float* scratch) {
  value = warp_max(value);
  if (lane() == 0) scratch[warp()] = value;
  block_sync();
  int warps = (int)((blockDim.x + WARP - 1) / WARP);
  float most = warp_max(lane() < warps ? scratch[lane()] : -infinity());
  block_sync();
  return most;
}
