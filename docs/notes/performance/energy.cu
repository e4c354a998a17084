// Energy of the components of a round, each run alone for more than a second: nothing, blocks that
// wait, memory read by loads, by cp.async and by the copy engine, the L2 cache, and products. Where
// power is the limit, a round takes at least its energy divided by that limit.
//
//   nvcc -O3 -std=c++17 -arch=native energy.cu -o energy -lcublasLt -lnvidia-ml -lcuda && ./energy
// Prints one line per load: runs per second, mean watts, MHz at the end, millijoules per run (for
// reads, per 2^30 bytes), and the rate of reading (GB/s) or multiplying (TFLOP/s).
#include <cublasLt.h>
#include <cuda.h>
#include <nvml.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "probe.cuh"

static const size_t WORKSPACE = 32 << 20, MEMORY = (size_t)16 << 30;
static const double SECONDS = 1.3, UNCOUNTED = 0.5;
static nvmlDevice_t device;
static cublasLtHandle_t library;
static __nv_bfloat16 *memory, *rows_in;
static void *out, *workspace;

__global__ void wait(long long cycles) {
  for (long long begin = clock64(); clock64() - begin < cycles;) __nanosleep(1000);
}

/// Reads `count` pieces of 16 bytes `times` times, bypassing the L1 cache.
__global__ void read(const uint4* from, size_t count, int times, unsigned* found) {
  unsigned seen = 0;
  for (int time = 0; time < times; time++) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
      uint4 piece = __ldcg(from + i);
      seen ^= piece.x ^ piece.y ^ piece.z ^ piece.w;
    }
  }
  if (seen == 0x12345678) *found = seen;
}

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Millijoules since the driver was loaded, at the next change of the counter, which is coarse.
static unsigned long long energy(const std::function<void()>& load) {
  unsigned long long first, next;
  CHECK(nvmlDeviceGetTotalEnergyConsumption(device, &first));
  do {
    load();
    CHECK(nvmlDeviceGetTotalEnergyConsumption(device, &next));
  } while (next == first);
  return next;
}

/// `load` runs for some milliseconds and contains `each` units of `bytes` and `operations`.
static void measure(const char* name, double each, double bytes, double operations, const std::function<void()>& load) {
  long runs = 0;
  auto counted = [&] {
    load();
    CHECK(cudaDeviceSynchronize());
    runs++;
  };
  for (double begin = now(); now() - begin < UNCOUNTED;) counted();
  unsigned long long before = energy(counted);
  double begin = now();
  runs = 0;
  while (now() - begin < SECONDS) counted();
  unsigned long long spent = energy(counted) - before;
  double seconds = now() - begin, times = runs * each;
  unsigned clock;
  CHECK(nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &clock));
  printf("%-34s %9.1f /s %5.0f W %5u MHz %9.3f mJ %6.0f GB/s %6.0f TFLOP/s\n", name, times / seconds, spent / seconds / 1000, clock,
         spent / times, bytes * times / seconds / 1e9, operations * times / seconds / 1e12);
  fflush(stdout);
}

/// A product of `rows` with consecutive copies of weights in memory, by the offered algorithm that
/// is the fastest when sustained.
struct Product {
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t w, x, y;
  cublasLtMatmulAlgo_t algorithm;
  size_t own, copies, number = 0;

  Product(int rows, int inputs, int outputs) : own((size_t)inputs * outputs), copies(MEMORY / 2 / own) {
    CHECK(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t transposed = CUBLAS_OP_T;
    CHECK(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    CHECK(cublasLtMatrixLayoutCreate(&w, CUDA_R_16BF, inputs, outputs, inputs));
    CHECK(cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, inputs, rows, inputs));
    CHECK(cublasLtMatrixLayoutCreate(&y, CUDA_R_16BF, outputs, rows, outputs));
    cublasLtMatmulPreference_t preference;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE));
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0, best = 0, times = std::max(4, (int)(0.05 / (1e-5 + 2.0 * rows * own / 6e14)));
    CHECK(cublasLtMatmulAlgoGetHeuristic(library, description, w, x, y, y, preference, 8, found, &count));
    double shortest = 1e9;
    for (int at = 0; at < count; at++) {
      algorithm = found[at].algo;
      auto timed = [&] {
        double begin = now();
        for (int i = 0; i < times; i++) run();
        CHECK(cudaDeviceSynchronize());
        return now() - begin;
      };
      timed();
      double took = timed();
      if (took < shortest) shortest = took, best = at;
    }
    algorithm = found[best].algo;
  }
  void run() {
    float one = 1.0f, zero = 0.0f;
    CHECK(cublasLtMatmul(library, description, &one, memory + number++ % copies * own, w, rows_in, x, &zero, out, y, out, y,
                         &algorithm, workspace, WORKSPACE, 0));
  }
};

/// The four products of a layer of Llama-3.1-8B's shape, one after the other.
static void layer(int rows) {
  Product products[4] = {{rows, 4096, 6144}, {rows, 4096, 4096}, {rows, 4096, 28672}, {rows, 14336, 4096}};
  double weights = 0;
  for (Product& product : products) weights += product.own;
  char name[40];
  snprintf(name, sizeof name, "products of a layer, %d rows", rows);
  int times = std::max(1, 4096 / (256 + rows));
  measure(name, times, weights * 2, 2 * weights * rows, [&] {
    for (int i = 0; i < times; i++) {
      for (Product& product : products) product.run();
    }
  });
}

static const int STAGE = 16 << 10, STAGES = 12;

/// Layout of tiles of 16 KB in memory, and the order in which they are requested.
struct Order {
  const char* name;
  /// Bytes of a row of weights, and of the piece of it in a tile: if a tile has whole rows, tiles
  /// are contiguous.
  int row, piece;
  /// A block reads the tiles of its rows, or of a megabyte, from left to right; otherwise
  /// consecutive tiles go to different blocks.
  bool apart;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
};

/// Where tiles start, in elements and rows: the distance of a step from the previous one, and of a
/// tile from the one above.
struct Steps {
  int steps, count, step_column, step_row, tile_row;
  bool apart;
};

/// Blocks that copy stages of 16 rows of 1 KB by `cp.async`, UNDER_WAY stages in flight; a block
/// reads its rows from left to right.
__global__ void __launch_bounds__(256) copies_of_threads(const unsigned char* from, int count, int row) {
  constexpr int UNDER_WAY = 3, PIECE = 1024, HEIGHT = STAGE / PIECE;
  extern __shared__ __align__(1024) unsigned char shared[];
  int stage = 0, first = threadIdx.x * 16 / PIECE, at = threadIdx.x * 16 % PIECE;
  for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
    for (int step = 0; step < row / PIECE; step++) {
#pragma unroll
      for (int i = 0; i < HEIGHT; i += HEIGHT / 4) {
        const unsigned char* piece = from + ((size_t)tile * HEIGHT + first + i) * row + step * PIECE + at;
        unsigned to = (unsigned)__cvta_generic_to_shared(shared + stage * STAGE + (first + i) * PIECE + at);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(piece) : "memory");
      }
      asm volatile("cp.async.commit_group;\ncp.async.wait_group %0;" ::"n"(UNDER_WAY - 1) : "memory");
      __syncthreads();
      stage = (stage + 1) % UNDER_WAY;
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Blocks that only load tiles by the copy engine.
__global__ void __launch_bounds__(32, 1) tiles(const __grid_constant__ CUtensorMap map, const Steps plan) {
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ unsigned long long full[STAGES];
  if (threadIdx.x != 0) return;
  auto address = [](const void* at) { return (unsigned)__cvta_generic_to_shared(at); };
  for (int i = 0; i < STAGES; i++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address(full + i)));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  auto arrived = [&](int number) {
    unsigned there = 0;
    while (!there) {
      asm volatile(
          "{\n.reg .pred there;\nmbarrier.try_wait.parity.shared.b64 there, [%1], %2;\nselp.u32 %0, 1, 0, there;\n}"
          : "=r"(there)
          : "r"(address(full + number % STAGES)), "r"(number / STAGES & 1)
          : "memory");
    }
  };
  int number = 0;
  auto ask = [&](int column, int row) {
    unsigned long long* barrier = full + number % STAGES;
    if (number >= STAGES) arrived(number - STAGES);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(STAGE) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     address(shared + number % STAGES * STAGE)),
                 "l"(&map), "r"(column), "r"(row), "r"(address(barrier))
                 : "memory");
    number++;
  };
  auto step_of = [&](int tile, int step) { ask(step * plan.step_column, tile * plan.tile_row + step * plan.step_row); };
  if (plan.apart) {
    for (int tile = blockIdx.x; tile < plan.count; tile += gridDim.x) {
      for (int step = 0; step < plan.steps; step++) step_of(tile, step);
    }
  } else {
    for (int at = blockIdx.x; at < plan.count * plan.steps; at += gridDim.x) step_of(at / plan.steps, at % plan.steps);
  }
  for (int left = number < STAGES ? number : STAGES; left > 0; left--) arrived(number - left);
}

static void reads(const Order& order) {
  CUtensorMap map;
  cuuint64_t sizes[2] = {(cuuint64_t)order.row / 2, MEMORY / order.row}, pitches[1] = {(cuuint64_t)order.row};
  cuuint32_t box[2] = {(cuuint32_t)order.piece / 2, (cuuint32_t)(STAGE / order.piece)}, apart[2] = {1, 1};
  CHECK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, memory, sizes, pitches, box, apart,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, order.promotion,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  CHECK(cudaFuncSetAttribute(tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGE * STAGES));
  bool packed = order.piece == order.row;
  int height = STAGE / order.piece, steps = packed ? 64 : order.row / order.piece;
  Steps plan = {steps, 0, packed ? 0 : order.piece / 2, packed ? height : 0, packed ? height * steps : height, order.apart};
  plan.count = MEMORY / order.row / plan.tile_row;
  measure(order.name, plan.count * (double)steps * STAGE / (1 << 30), (double)(1 << 30), 0,
          [&] { tiles<<<132, 32, STAGE * STAGES>>>(map, plan); });
}

int main() {
  CHECK(nvmlInit());
  CHECK(nvmlDeviceGetHandleByIndex(0, &device));
  CHECK(cublasLtCreate(&library));
  CHECK(cudaMalloc(&memory, MEMORY));
  CHECK(cudaMalloc(&rows_in, (size_t)8192 * 14336 * 2));
  CHECK(cudaMalloc(&out, (size_t)8192 * 28672 * 2));
  CHECK(cudaMalloc(&workspace, WORKSPACE));
  fill<<<1024, 256>>>(memory, MEMORY / 2, 0.02f, 1);
  fill<<<1024, 256>>>(rows_in, (size_t)8192 * 14336, 1.0f, 2);
  CHECK(cudaDeviceSynchronize());
  const uint4* pieces = (const uint4*)memory;
  measure("nothing", 1, 0, 0, [] { usleep(5000); });
  measure("blocks that wait", 1, 0, 0, [] { wait<<<132, 1024>>>(8000000); });
  measure("memory, 1 GB", 16, (double)(1 << 30), 0, [&] { read<<<132 * 2, 1024>>>(pieces, MEMORY / 16, 1, (unsigned*)out); });
  for (int row : {8192, 28672}) {
    int rows = MEMORY / row / 16;
    measure(row == 8192 ? "cp.async, rows of 8 KB" : "cp.async, rows of 28 KB", (double)rows * 16 * row / (1 << 30),
            (double)(1 << 30), 0, [&] { copies_of_threads<<<132 * 4, 256, 3 * STAGE>>>((const unsigned char*)memory, rows, row); });
  }
  const CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  for (Order order : {Order{"tiles, rows of 8 KB, 128 x 128", 8192, 128, true}, Order{"tiles, rows of 8 KB, 32 x 512", 8192, 512, true},
                      Order{"tiles, rows of 28 KB, 128 x 128", 28672, 128, true}, Order{"tiles, 1 MB a block", 128, 128, true},
                      Order{"tiles, one by one", 128, 128, false}, Order{"tiles, promoted to 256", 8192, 128, true, promotion}}) {
    reads(order);
  }
  measure("second-level cache, 1 GB", 16, (double)(1 << 30), 0, [&] {
    read<<<132 * 2, 1024>>>(pieces, (16 << 20) / 16, 1024, (unsigned*)out);
  });
  for (int rows : {8, 32, 64, 128, 256, 480, 1024}) layer(rows);
  Product square(8192, 8192, 8192);
  measure("product of 8,192 x 8,192 x 8,192", 1, 0, 2.0 * 8192 * 8192 * 8192, [&] { square.run(); });
}
