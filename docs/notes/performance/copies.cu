// Speed at which blocks that do nothing else load tiles of weights and of rows by the copy engine,
// as gate and up of Llama-3.1-8B's shape would for 256 rows: 28,672 columns of 4,096 inputs, on 128
// multiprocessors.
//
//   nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -DT_BF16 -I ../../../kernels/cuda
//   copies.cu -o copies -lcuda
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

// CUDA's own headers define a function of that name.
#define ballot ballot_of_warp
#include "common.cuh"
#include "wgmma.cuh"
#include "bulk.cuh"

#define INPUTS 4096
#define COLUMNS 28672
#define PIECE 64
#define STEPS (INPUTS / PIECE)
#define BLOCKS 128
#define RUNS 7
#define LAUNCHES 16

/// The copies of a block in a step; each of its units has INPUTS / PIECE steps.
struct Plan {
  const char* name;
  /// Height of the weights' tile and of the rows' tile; either may be 0.
  int weights, rows;
  int stages, units;
  /// Each block starts this many steps after the previous one; 0 if all start at the same step.
  int turned;
  /// All blocks load the same weights.
  bool same_weights;
  /// Clusters of two blocks, each of which loads half of the rows for both (multicast).
  bool pairs;
};

__device__ __forceinline__ void arrive_at(u64* barrier, int rank) {
  asm volatile(
      "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(
          shared_address(barrier)),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void copy_tile_to_both(void* shared, const Tiles* tiles, int column, int row, u64* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
      "[%4], %5;" ::"r"(shared_address(shared)),
      "l"(tiles), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"((u16)3)
      : "memory");
}

/// One thread issues copies, a warp releases stages as soon as they have arrived.
__global__ void __launch_bounds__(64, 1)
copies(const __grid_constant__ Tiles rows, const __grid_constant__ Tiles weights, const Plan plan) {
  DYNAMIC_SHARED(shared);
  int bytes = (plan.weights + plan.rows) * PIECE * 2, sharers = plan.pairs ? 2 : 1, rank = plan.pairs ? cluster_rank() : 0;
  u64* full = (u64*)(shared + plan.stages * bytes);
  u64* empty = full + plan.stages;
  if (threadIdx.x == 0) {
    for (int at = 0; at < plan.stages; at++) {
      barrier_init(full + at, 1);
      barrier_init(empty + at, sharers);
    }
    barriers_made();
  }
  if (plan.pairs)
    cluster_sync();
  else
    block_sync();
  for (int step = 0, at = 0, turn = 0; step < STEPS * plan.units; step++) {
    if (threadIdx.x == 0) {
      int place = (step + (int)blockIdx.x / sharers * plan.turned) % STEPS * PIECE;
      int unit = plan.same_weights ? 0 : step / STEPS * BLOCKS + (int)blockIdx.x;
      unsigned char* stage = shared + at * bytes;
      barrier_await(empty + at, turn ^ 1);
      barrier_expect(full + at, bytes);
      if (plan.weights) copy_tile(stage + plan.rows * PIECE * 2, &weights, place, unit * plan.weights, full + at, passing());
      int half = plan.rows / 2;
      if (plan.pairs)
        copy_tile_to_both(stage + rank * half * PIECE * 2, &rows, place, rank * half, full + at);
      else if (plan.rows)
        copy_tile(stage, &rows, place, 0, full + at, staying());
    } else if (threadIdx.x >= WARP) {
      barrier_await(full + at, turn);
      warp_sync();
      if (plan.pairs && lane() < sharers) arrive_at(empty + at, lane());
      if (!plan.pairs && lane() == 0) barrier_arrive(empty + at);
    }
    if (++at == plan.stages) at = 0, turn ^= 1;
  }
  if (plan.pairs) cluster_sync();
}

#define CHECK(call)                                                     \
  do {                                                                  \
    int error = (int)(call);                                            \
    if (error) {                                                        \
      std::fprintf(stderr, "line %d: CUDA error %d\n", __LINE__, error); \
      std::exit(1);                                                     \
    }                                                                   \
  } while (0)

static Tiles tiles_of(void* at, cuuint64_t rows, cuuint32_t tile_rows) {
  Tiles tiles;
  cuuint64_t size[2] = {INPUTS, rows}, stride[1] = {INPUTS * 2};
  cuuint32_t box[2] = {PIECE, tile_rows}, every[2] = {1, 1};
  CHECK(cuTensorMapEncodeTiled((CUtensorMap*)&tiles, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, at, size, stride, box, every,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return tiles;
}

static void measure(const Plan& plan, void* rows, void* const (&weights)[4]) {
  int bytes = plan.stages * ((plan.weights + plan.rows) * PIECE * 2 + 16);
  CHECK(cudaFuncSetAttribute(copies, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  Tiles of_rows = tiles_of(rows, 256, std::max(plan.pairs ? plan.rows / 2 : plan.rows, 8));
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {plan.pairs ? 2u : 1u, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = BLOCKS, config.blockDim = 64, config.dynamicSmemBytes = bytes, config.stream = stream;
  config.attrs = &cluster, config.numAttrs = 1;
  std::vector<float> times;
  // The first run warms up.
  for (int run = 0; run <= RUNS; run++) {
    CHECK(cudaEventRecord(begin, stream));
    for (int i = 0; i < LAUNCHES; i++) {
      // Weights that are no longer in the L2 cache.
      Tiles of_weights = tiles_of(weights[i % 4], COLUMNS, std::max(plan.weights, 8));
      CHECK(cudaLaunchKernelEx(&config, copies, of_rows, of_weights, plan));
    }
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaStreamSynchronize(stream));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (run > 0) times.push_back(milliseconds / LAUNCHES * 1e3f);
  }
  std::sort(times.begin(), times.end());
  double steps = (double)BLOCKS * STEPS * plan.units * PIECE * 2 / times[RUNS / 2] / 1e6;
  std::printf("%-56s %6.1f us (%.1f to %.1f)  weights %.2f TB/s, into blocks %.2f TB/s\n", plan.name, times[RUNS / 2], times[0],
              times[RUNS - 1], plan.same_weights ? 0.0 : steps * plan.weights, steps * (plan.weights + plan.rows));
}

int main() {
  void *rows, *weights[4];
  CHECK(cudaMalloc(&rows, 256ull * INPUTS * 2));
  CHECK(cudaMemset(rows, 0, 256ull * INPUTS * 2));
  for (void*& matrix : weights) {
    CHECK(cudaMalloc(&matrix, (size_t)COLUMNS * INPUTS * 2));
    CHECK(cudaMemset(matrix, 0, (size_t)COLUMNS * INPUTS * 2));
  }
  const Plan plans[] = {
      {"weights, 224 columns a block", 224, 0, 7, 1, 0, false, false},
      {"the same, 3 stages", 224, 0, 3, 1, 0, false, false},
      {"with 64 rows", 224, 64, 5, 1, 0, false, false},
      {"with 128 rows", 224, 128, 4, 1, 0, false, false},
      {"with 256 rows", 224, 256, 3, 1, 0, false, false},
      {"256 rows and the same weights for all", 224, 256, 3, 1, 0, true, false},
      {"256 rows alone", 0, 256, 6, 1, 0, true, false},
      {"256 rows alone, each block at another step", 0, 256, 6, 1, 5, true, false},
      {"256 rows and weights, twice 112 columns a block", 112, 256, 4, 2, 0, false, false},
      {"the same, rows shared by two blocks", 112, 256, 4, 2, 0, false, true},
      {"the same, not shared, each block at another step", 112, 256, 4, 2, 5, false, false},
  };
  for (const Plan& plan : plans) measure(plan, rows, weights);
}
