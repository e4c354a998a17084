// Copies of tiles from global to shared memory by Hopper's copy engine (TMA), and the barriers that
// signal their arrival.
//
// A tile is rows of 64 elements of 2 bytes, in the layout that wgmma.cuh reads. One thread starts
// the copy of a whole tile. Elements outside the matrix arrive as zeros.
//
// A barrier is in shared memory. Its phase ends when the expected number of arrivals and all
// announced bytes have arrived; then the next phase begins. Phases are distinguished by parity.
#pragma once

#ifndef EMULATOR

/// Descriptor of a matrix in global memory and its tiles, made by the host (`Device::tiles`). A
/// kernel parameter, as `const __grid_constant__ Tiles`.
struct __align__(128) Tiles {
  u64 words[16];
};

__device__ __forceinline__ void barrier_init(u64* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// Makes the barriers that this thread has initialised visible to the copy engine.
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// Arrives, and announces bytes.
__device__ __forceinline__ void barrier_expect(u64* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Waits for the end of a phase.
__device__ __forceinline__ void barrier_await(u64* barrier, int phase) {
  u32 ended;
  do {
    asm volatile(
        "{\n.reg .pred ended;\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\nselp.u32 %0, 1, 0, ended;\n}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(phase & 1)
        : "memory");
  } while (!ended);
}

/// Prefetches the descriptor of a matrix.
__device__ __forceinline__ void prefetch_tiles(const Tiles* tiles) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(tiles) : "memory");
}

/// Starts a copy of the tile whose first element is `column` of `row`; its bytes arrive at the
/// barrier. `policy` is one of the cache policies in common.cuh.
__device__ __forceinline__ void copy_tile(void* shared, const Tiles* tiles, int column, int row, u64* barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], "
      "[%4], %5;" ::"r"(shared_address(shared)),
      "l"(tiles), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
/// The same for a matrix cut as `Tile::OfHalves`; `eight` counts groups of eight rows of one half.
__device__ __forceinline__ void copy_tile_of_halves(void* shared, const Tiles* tiles, int column, int eight, u64* barrier,
                                                    u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %3, %4}], [%5], %6;" ::"r"(shared_address(shared)),
      "l"(tiles), "r"(column), "r"(0), "r"(eight), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

#endif  // EMULATOR
