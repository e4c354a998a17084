// What cuBLASLt's algorithms take for one product at a time, cold and when they run for long, where a GPU that takes all the
// power it may slows down; and the same product in parts of its inputs, whose sums are left in float.
//   nvcc -O3 -arch=native products.cu -o products -lcublasLt -lnvidia-ml && ./products [MILLISECONDS]
// A line an algorithm: rows, inputs, outputs, parts, what the library calls its tile, stages, cluster, parts of its own and
// inner order, microseconds alone (least of 5, weights not in second-level cache) and for long (mean), MHz and watts at the end.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <nvml.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                        \
  if (auto status = (call); status != decltype(status)(0)) {                               \
    fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)status), exit(1);   \
  }

__global__ void fill(__nv_bfloat16* out, size_t count, float bound, unsigned seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    unsigned long long z = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    out[i] = __float2bfloat16(((float)(z >> 40) / (1 << 23) - 1.0f) * bound);
  }
}

static const size_t WORKSPACE = 32 << 20, WEIGHTS = (size_t)1 << 31;
static float milliseconds = 60.0f;
static cublasLtHandle_t library;
static cudaEvent_t begin, end;
static nvmlDevice_t device;
static __nv_bfloat16 *weights, *rows_in;
static void *out, *workspace;

struct Line {
  int attributes[5];
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
  size_t own = (size_t)inputs * outputs, copies = std::max<size_t>(1, WEIGHTS / (own * 2));
  std::vector<Line> lines;
  for (int at = 0; at < count; at++) {
    int number = 0;
    auto run = [&] {
      float one = 1.0f, zero = 0.0f;
      return cublasLtMatmul(library, description, &one, weights + number++ % copies * own, w, rows_in, x, &zero, out, y, out, y,
                            &found[at].algo, workspace, WORKSPACE, 0);
    };
    if (run() != CUBLAS_STATUS_SUCCESS) continue;
    auto timed = [&](int times) {
      CHECK(cudaEventRecord(begin));
      for (int i = 0; i < times; i++) CHECK(run());
      CHECK(cudaEventRecord(end));
      CHECK(cudaEventSynchronize(end));
      float spent;
      CHECK(cudaEventElapsedTime(&spent, begin, end));
      return spent * 1000 / times;
    };
    Line line = {};
    line.alone = 1e9;
    for (int i = 0; i < 5; i++) line.alone = std::min(line.alone, timed(4));
    int times = std::max(4, (int)(milliseconds * 1000 / line.alone));
    timed(times);
    line.sustained = timed(times);
    CHECK(nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &line.clock));
    CHECK(nvmlDeviceGetPowerUsage(device, &line.watts));
    cublasLtMatmulAlgoConfigAttributes_t names[5] = {CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                                     CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                     CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING};
    for (int i = 0; i < 5; i++) {
      size_t written;
      unsigned char bytes[8] = {};
      cublasLtMatmulAlgoConfigGetAttribute(&found[at].algo, names[i], bytes, i == 2 ? 2 : 4, &written);
      line.attributes[i] = *(int*)bytes;
    }
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.sustained < b.sustained; });
  for (const Line& line : lines) {
    printf("%5d %6d %6d %d  ", rows, inputs, outputs, parts);
    for (int attribute : line.attributes) printf(" %5d", attribute);
    printf("  %7.1f %7.1f %5u %4u\n", line.alone, line.sustained, line.clock, line.watts / 1000);
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
