// Speed of reading keys and values of 768 positions per request from a paged cache, by blocks that
// do nothing else, one or two for each key/value head of a request: by cache layout, page order and
// kind of copy. Llama-3.1-8B's shape, 8 heads of 128 two-byte elements, pages of 16 positions.
//
//   nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 pages.cu -o pages
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

typedef unsigned u32;
typedef unsigned long long u64;

#define HEADS 8
#define HEAD_BYTES 256
#define PAGE 16
#define PAGES 48
#define THREADS 256
#define TOGETHER 8
#define ROOM (192 << 10)
#define CACHE_PAGES 12500
#define LAYERS 16
#define RUNS 15

static void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

__device__ u32 address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

/// Offset of a row in a page, which has rows of all heads, or, if `by_head`, all rows of a head
/// contiguous.
__device__ const char* row_of(const char* cache, int page, int row, int head, bool by_head) {
  return cache + (by_head ? ((u64)page * HEADS + head) * PAGE + row : ((u64)page * PAGE + row) * HEADS + head) * HEAD_BYTES;
}

/// Grid (splits, HEADS, requests). Loads to registers, TOGETHER at a time per thread.
__global__ void __launch_bounds__(THREADS)
load(const char* keys, const char* values, const int* table, bool by_head, u32* out) {
  int first = PAGES * (int)blockIdx.x / (int)gridDim.x, last = PAGES * ((int)blockIdx.x + 1) / (int)gridDim.x;
  const int* own = table + blockIdx.z * PAGES + first;
  int parts = (last - first) * 2 * PAGE * HEAD_BYTES / 16;
  u32 mixed = 0;
  for (int at = (int)threadIdx.x; at < parts; at += THREADS * TOGETHER) {
    uint4 v[TOGETHER] = {};
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) {
      int part = at + i * THREADS;
      if (part >= parts) continue;
      const char* cache = part / 256 % 2 ? values : keys;
      const char* from = row_of(cache, own[part / 512], part / 16 % PAGE, (int)blockIdx.y, by_head) + part % 16 * 16;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                   : "l"(from));
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) mixed ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (mixed == 0x12345) *out = mixed;
}

/// The same by the copy engine, all at once: one row per copy, or a page's rows of a head if these
/// are contiguous.
__global__ void __launch_bounds__(THREADS)
copy(const char* keys, const char* values, const int* table, bool by_head, u32* out) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ u64 arrived;
  int first = PAGES * (int)blockIdx.x / (int)gridDim.x, last = PAGES * ((int)blockIdx.x + 1) / (int)gridDim.x;
  const int* own = table + blockIdx.z * PAGES + first;
  int rows = by_head ? PAGE : 1, copies = (last - first) * 2 * PAGE / rows, bytes = rows * HEAD_BYTES;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&arrived)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&arrived)), "r"(copies * bytes) : "memory");
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < copies; i += THREADS) {
    int row = i % (PAGE / rows), of_page = i / (PAGE / rows);
    const char* from = row_of(of_page % 2 ? values : keys, own[of_page / 2], row, (int)blockIdx.y, by_head);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address(shared) + i * bytes % ROOM),
                 "l"(from), "r"(bytes), "r"(address(&arrived))
                 : "memory");
  }
  u32 ended;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(address(&arrived))
                 : "memory");
  } while (!ended);
  if (shared[threadIdx.x] == 77 && shared[0] == 3) *out = 1;
}

__global__ void overwrite(uint4* at, size_t count) {
  for (size_t i = blockIdx.x * 1024 + threadIdx.x; i < count; i += gridDim.x * 1024) at[i] = make_uint4(i, 0, 0, 0);
}

int main() {
  const size_t plane = (size_t)CACHE_PAGES * PAGE * HEADS * HEAD_BYTES;
  char *caches[2 * LAYERS], *other;
  u32* out;
  for (char*& cache : caches) {
    check(cudaMalloc(&cache, plane));
    check(cudaMemset(cache, 1, plane));
  }
  check(cudaMalloc(&other, 256 << 20));
  check(cudaMalloc(&out, 4));
  check(cudaFuncSetAttribute(copy, cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM));
  cudaStream_t stream;
  cudaEvent_t begin, end;
  check(cudaStreamCreate(&stream));
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::mt19937 random(1);
  for (int requests : {8, 64}) {
    for (bool shuffled : {false, true}) {
      std::vector<int> pages(CACHE_PAGES);
      for (int i = 0; i < CACHE_PAGES; i++) pages[i] = i;
      if (shuffled) std::shuffle(pages.begin(), pages.end(), random);
      int* table;
      check(cudaMalloc(&table, requests * PAGES * 4));
      check(cudaMemcpy(table, pages.data(), requests * PAGES * 4, cudaMemcpyHostToDevice));
      for (bool engine : {false, true}) {
        for (bool by_head : {false, true}) {
          // With 64 requests a block's share does not fit its shared memory.
          if (engine && requests == 64) continue;
          dim3 grid(requests == 8 ? 2 : 1, HEADS, requests);
          cudaGraph_t graph;
          cudaGraphExec_t run;
          check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
          for (int layer = 0; layer < LAYERS; layer++) {
            const char *keys = caches[2 * layer], *values = caches[2 * layer + 1];
            if (engine)
              copy<<<grid, THREADS, ROOM, stream>>>(keys, values, table, by_head, out);
            else
              load<<<grid, THREADS, 0, stream>>>(keys, values, table, by_head, out);
          }
          check(cudaStreamEndCapture(stream, &graph));
          check(cudaGraphInstantiate(&run, graph, 0));
          std::vector<float> times;
          for (int i = 0; i < RUNS; i++) {
            overwrite<<<264, 1024, 0, stream>>>((uint4*)other, (256 << 20) / 16);
            check(cudaEventRecord(begin, stream));
            check(cudaGraphLaunch(run, stream));
            check(cudaEventRecord(end, stream));
            check(cudaEventSynchronize(end));
            float milliseconds;
            check(cudaEventElapsedTime(&milliseconds, begin, end));
            times.push_back(milliseconds * 1000 / LAYERS);
          }
          std::sort(times.begin(), times.end());
          double bytes = (double)requests * PAGES * PAGE * HEADS * HEAD_BYTES * 2;
          std::printf("%2d requests, pages %s, %s, %s: %.2f us a layer, %.0f GB/s\n", requests,
                      shuffled ? "shuffled" : "in order", by_head ? "rows of a head together" : "heads of a row together",
                      engine ? "engine" : "registers", times[RUNS / 2], bytes / times[RUNS / 2] / 1e3);
        }
      }
    }
  }
}
