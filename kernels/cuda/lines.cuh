// Lines: how ranks pass values into each other's memory without a barrier. A line is 16 bytes: two
// pairs of 4 bytes of values and a sequence number. A pair is stored and loaded as one access, so a
// reader that finds the number it waits for has the values too. (NCCL's low-latency protocol works
// like this.)

#ifdef EMULATOR

/// Both pairs of a line.
inline void store_line(void* at, u32 low, u32 high, u32 number) {
  u64* pairs = (u64*)at;
  __atomic_store_n(pairs, (u64)number << 32 | low, __ATOMIC_RELEASE);
  __atomic_store_n(pairs + 1, (u64)number << 32 | high, __ATOMIC_RELEASE);
}
inline uint4 load_line(const void* at) {
  const u64* pairs = (const u64*)at;
  u64 low = __atomic_load_n(pairs, __ATOMIC_ACQUIRE), high = __atomic_load_n(pairs + 1, __ATOMIC_ACQUIRE);
  return make_uint4((u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32));
}
/// A word of the host's memory.
inline u32 load_host(const u32* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
inline void store_host(u32* at, u32 value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
inline u64 nanoseconds() {
  return (u64)std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
/// Threads of the emulator run one after the other: none may wait before all have sent.
inline void all_have_sent() { block_sync(); }
inline void between_looks() { std::this_thread::yield(); }
/// The emulator runs blocks in a different order in each launch, and a waiting block keeps the
/// others from running. So that all ranks wait in the same order, the block that runs first is
/// block 0, and so on.
inline int block_in_order(int* started) {
  static thread_local int place;
  if (threadIdx.x == 0) place = (*started)++;
  block_sync();
  int mine = place;
  block_sync();
  return mine;
}

#else

__device__ __forceinline__ void store_line(void* at, u32 low, u32 high, u32 number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(at), "r"(low), "r"(number), "r"(high) : "memory");
}
__device__ __forceinline__ uint4 load_line(const void* at) {
  uint4 line;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.x), "=r"(line.y), "=r"(line.z), "=r"(line.w)
               : "l"(at)
               : "memory");
  return line;
}
__device__ __forceinline__ u32 load_host(const u32* at) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void store_host(u32* at, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
__device__ __forceinline__ void all_have_sent() {}
__device__ __forceinline__ void between_looks() {}
__device__ __forceinline__ int block_in_order(int*) { return (int)blockIdx.x; }

#endif
