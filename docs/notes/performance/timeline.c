// Records start and end of every kernel, copy and fill of a CUDA program, including those in graphs, through CUPTI:
//
//   gcc -O1 -shared -fPIC -I$CUDA/extras/CUPTI/include -I$CUDA/include timeline.c -o timeline.so -lcupti
//   CUDA_INJECTION64_PATH=$PWD/timeline.so TIMELINE=kernels.tsv spectune bench … --output-len 48
//   python3 timeline.py kernels.tsv
//
// One line per kernel: start and end in nanoseconds, grid, threads per block, registers per thread, name. One line per
// copy or fill: start and end, bytes.
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

// CUDA 13; earlier ones: CUpti_ActivityKernel9, CUpti_ActivityMemcpy5, …Memset3.
#ifndef KERNEL_RECORD
#define KERNEL_RECORD CUpti_ActivityKernel10
#endif
#ifndef COPY_RECORD
#define COPY_RECORD CUpti_ActivityMemcpy6
#endif
#ifndef FILL_RECORD
#define FILL_RECORD CUpti_ActivityMemset4
#endif

static FILE* out;

static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* records) {
  *size = 8 << 20;
  *buffer = aligned_alloc(8, *size);
  *records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
  CUpti_Activity* record = NULL;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      COPY_RECORD* copy = (COPY_RECORD*)record;
      fprintf(out, "%llu\t%llu\t%llu bytes\t0\t0\tcopy\n", (unsigned long long)copy->start, (unsigned long long)copy->end,
              (unsigned long long)copy->bytes);
    }
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      FILL_RECORD* fill = (FILL_RECORD*)record;
      fprintf(out, "%llu\t%llu\t%llu bytes\t0\t0\tfill\n", (unsigned long long)fill->start, (unsigned long long)fill->end,
              (unsigned long long)fill->bytes);
    }
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    KERNEL_RECORD* kernel = (KERNEL_RECORD*)record;
    fprintf(out, "%llu\t%llu\t%d,%d,%d\t%d\t%d\t%.60s\n", (unsigned long long)kernel->start, (unsigned long long)kernel->end,
            kernel->gridX, kernel->gridY, kernel->gridZ, kernel->blockX, kernel->registersPerThread, kernel->name);
  }
  free(buffer);
}

static void flush(void) {
  cuptiActivityFlushAll(1);
  fflush(out);
}

int InitializeInjection(void) {
  const char* path = getenv("TIMELINE");
  out = path ? fopen(path, "w") : NULL;
  if (!out) {
    fprintf(stderr, "timeline: TIMELINE names no file that can be written\n");
    return 0;
  }
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  CUptiResult result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (result == CUPTI_SUCCESS) result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  if (result == CUPTI_SUCCESS) result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
  if (result != CUPTI_SUCCESS) fprintf(stderr, "timeline: CUPTI refuses, error %d\n", (int)result);
  atexit(flush);
  return 1;
}
