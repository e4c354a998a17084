// Shared by energy.cu and products.cu: error checks that exit, and random values.
#pragma once
#include <cuda_bf16.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                        \
  if (auto status = (call); status != decltype(status)(0)) {                               \
    fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)status), exit(1);   \
  }

/// Uniform values between -bound and bound.
__global__ void fill(__nv_bfloat16* out, size_t count, float bound, unsigned seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    unsigned long long z = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    out[i] = __float2bfloat16(((float)(z >> 40) / (1 << 23) - 1.0f) * bound);
  }
}
