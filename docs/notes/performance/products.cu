// Time of cuBLASLt's algorithms for one product, cold and sustained (a GPU at its power limit slows
// down), and for the same product in parts of its inputs, whose sums stay in float. Includes the
// algorithms that the library offers, and all other tiles and clusters of the first of them.
//   nvcc -O3 -arch=native products.cu -o products -lcublasLt -lnvidia-ml && ./products
//   [MILLISECONDS]
// Prints one line per algorithm, for the three best offered and the six best others: rows, inputs,
// outputs, parts, the library's numbers for tile, stages, cluster, split-K and inner order,
// microseconds alone (minimum of 4, weights not in the L2 cache) and sustained (mean), MHz and
// watts at the end.
#include <cublasLt.h>
#include <nvml.h>

#include <algorithm>
#include <vector>

#include "probe.cuh"

static const size_t WORKSPACE = 32 << 20, WEIGHTS = (size_t)1 << 31;
static float milliseconds = 60.0f;
static cublasLtHandle_t library;
static cudaEvent_t begin, end;
static nvmlDevice_t device;
static __nv_bfloat16 *weights, *rows_in;
static void *out, *workspace;

struct Line {
  cublasLtMatmulAlgo_t algorithm;
  bool offered;
  float alone, sustained;
  unsigned clock, watts;
};

static void product(int rows, int inputs, int outputs, int parts, bool result_is_float) {
  cublasLtMatmulDesc_t description;
  CHECK(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasOperation_t transposed = CUBLAS_OP_T;
  CHECK(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  auto layout = [&](cudaDataType_t type, int height, int width, int apart, int64_t stride) {
    cublasLtMatrixLayout_t made;
    CHECK(cublasLtMatrixLayoutCreate(&made, type, height, width, apart));
    CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &parts, sizeof parts));
    CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return made;
  };
  int share = inputs / parts;
  auto w = layout(CUDA_R_16BF, share, outputs, inputs, share), x = layout(CUDA_R_16BF, share, rows, inputs, share);
  bool in_float = parts > 1 || result_is_float;
  auto y = layout(in_float ? CUDA_R_32F : CUDA_R_16BF, outputs, rows, outputs, (int64_t)rows * outputs);
  cublasLtMatmulPreference_t preference;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE));
  cublasLtMatmulHeuristicResult_t found[24];
  int count = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(library, description, w, x, y, y, preference, 24, found, &count));
  std::vector<Line> lines;
  for (int at = 0; at < count; at++) lines.push_back(Line{found[at].algo, true});
  unsigned tiles[4096];
  size_t written = 0;
  CHECK(cublasLtMatmulAlgoCapGetAttribute(&found[0].algo, CUBLASLT_ALGO_CAP_TILE_IDS, tiles, sizeof tiles, &written));
  for (size_t tile = 0; tile < written / sizeof *tiles; tile++) {
    // 1×1, 2×1, 4×1, 1×2, 2×2, 4×2 and 1×4 blocks.
    for (unsigned short cluster = 2; cluster < 9; cluster++) {
      Line line = {found[0].algo, false};
      auto set = [&](cublasLtMatmulAlgoConfigAttributes_t name, auto value) {
        return cublasLtMatmulAlgoConfigSetAttribute(&line.algorithm, name, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
      };
      cublasLtMatmulHeuristicResult_t checked;
      bool can = set(CUBLASLT_ALGO_CONFIG_TILE_ID, tiles[tile]) && set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) &&
                 set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1) && set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 0) &&
                 cublasLtMatmulAlgoCheck(library, description, w, x, y, y, &line.algorithm, &checked) == CUBLAS_STATUS_SUCCESS;
      // Small tiles, which fill the device far more often, are slow.
      if (can && checked.workspaceSize <= WORKSPACE && checked.wavesCount <= 3 * found[0].wavesCount) lines.push_back(line);
    }
  }
  size_t own = (size_t)inputs * outputs, copies = std::max<size_t>(1, WEIGHTS / (own * 2));
  int number = 0;
  auto run = [&](const Line& line) {
    float one = 1.0f, zero = 0.0f;
    return cublasLtMatmul(library, description, &one, weights + number++ % copies * own, w, rows_in, x, &zero, out, y, out, y,
                          &line.algorithm, workspace, WORKSPACE, 0);
  };
  auto timed = [&](const Line& line, int times) {
    CHECK(cudaEventRecord(begin));
    for (int i = 0; i < times; i++) CHECK(run(line));
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float spent;
    CHECK(cudaEventElapsedTime(&spent, begin, end));
    return spent * 1000 / times;
  };
  for (Line& line : lines) {
    line.alone = 1e9;
    if (run(line) != CUBLAS_STATUS_SUCCESS) continue;
    for (int i = 0; i < 4; i++) line.alone = std::min(line.alone, timed(line, 4));
  }
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.alone < b.alone; });
  int left[2] = {6, 3};
  std::vector<Line> best;
  for (const Line& line : lines) {
    if (line.alone < 1e9 && left[line.offered]-- > 0) best.push_back(line);
  }
  for (Line& line : best) {
    int times = std::max(4, (int)(milliseconds * 1000 / line.alone));
    timed(line, times);
    line.sustained = timed(line, times);
    CHECK(nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &line.clock));
    CHECK(nvmlDeviceGetPowerUsage(device, &line.watts));
  }
  std::sort(best.begin(), best.end(), [](const Line& a, const Line& b) { return a.sustained < b.sustained; });
  cublasLtMatmulAlgoConfigAttributes_t names[5] = {CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                                   CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                   CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING};
  for (const Line& line : best) {
    printf("%5d %6d %6d %d  ", rows, inputs, outputs, parts);
    for (int i = 0; i < 5; i++) {
      unsigned char bytes[8] = {};
      CHECK(cublasLtMatmulAlgoConfigGetAttribute(&line.algorithm, names[i], bytes, i == 2 ? 2 : 4, &written));
      printf(" %5d", *(int*)bytes);
    }
    printf("  %7.1f %7.1f %5u %4u%s\n", line.alone, line.sustained, line.clock, line.watts / 1000, line.offered ? "  offered" : "");
  }
}

int main(int count, char** arguments) {
  if (count > 1) milliseconds = atof(arguments[1]);
  CHECK(cublasLtCreate(&library));
  CHECK(nvmlInit());
  CHECK(nvmlDeviceGetHandleByIndex(0, &device));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaMalloc(&weights, WEIGHTS));
  CHECK(cudaMalloc(&rows_in, 1024 * 14336 * 2));
  CHECK(cudaMalloc(&out, (size_t)1024 * 128256 * 4));
  CHECK(cudaMalloc(&workspace, WORKSPACE));
  fill<<<1024, 256>>>(weights, WEIGHTS / 2, 0.02f, 1);
  fill<<<1024, 256>>>(rows_in, 1024 * 14336, 1.0f, 2);
  CHECK(cudaDeviceSynchronize());
  printf(" rows inputs outputs parts  tile stages cluster own swizzle    alone    long   MHz    W\n");
  for (int rows : {256, 480, 1024}) {
    product(rows, 4096, 28672, 1, false);
    product(rows, 14336, 4096, 1, false);
    if (rows < 1024) product(rows, 14336, 4096, 2, false);
    product(rows, 4096, 4096, 1, false);
    if (rows < 1024) product(rows, 4096, 4096, 2, false);
    product(rows, 4096, 6144, 1, false);
    product(rows, 4096, 128256, 1, true);
  }
}
