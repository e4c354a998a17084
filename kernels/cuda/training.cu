// Memory-bound steps of training: softmax over rows of scores and logits, norms, the optimiser.
// Each reads its tensors once or twice, where a chain of elementwise operations would six to ten
// times. Matrix products are the library's.
//
// A block takes a row. Sums are in float, in one order: the same batch gives the same bits. T is
// the type of activations.
#include "common.cuh"

#define THREADS 256

/// The largest of a row's values, and the sum of e^(value − largest).
struct Weights {
  float most, sum;
};

/// Over the `count` values of a row for which `counts(place)` is true; at least one.
template <class Counts>
__device__ __forceinline__ Weights weigh_row(const T* row, int count, float* scratch, Counts&& counts) {
  // Never −∞: the difference of two infinities is NaN.
  float most = -3e38f, sum = 0.0f;
  for (int i = (int)threadIdx.x; i < count; i += THREADS) {
    if (counts(i)) most = max(most, to_float(row[i]));
  }
  most = block_max(most, scratch);
  for (int i = (int)threadIdx.x; i < count; i += THREADS) {
    if (counts(i)) sum += exp_accurate(to_float(row[i]) - most);
  }
  return Weights{most, block_sum(sum, scratch)};
}

/// Softmax of scores `[groups, rows, keys]`: row i sees the keys up to i, and all from `rows` on; 0
/// for the others. Grid: groups · rows; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS) train_causal_softmax(T* out, const T* scores, int rows, int keys) {
  __shared__ float scratch[WARP];
  wait_for_predecessor();
  const T* from = scores + (u64)blockIdx.x * keys;
  T* to = out + (u64)blockIdx.x * keys;
  int own = (int)blockIdx.x % rows;
  auto sees = [&](int key) { return key <= own || key >= rows; };
  Weights all = weigh_row(from, keys, scratch, sees);
  float inverse = 1.0f / all.sum;
  for (int i = (int)threadIdx.x; i < keys; i += THREADS) {
    to[i] = from_float(sees(i) ? exp_accurate(to_float(from[i]) - all.most) * inverse : 0.0f);
  }
}

/// The gradient of scores from weights and their gradient, `[rows, keys]`: w · (g − Σ w g). Grid:
/// rows; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS) train_softmax_gradient(T* out, const T* weights, const T* gradient, int keys) {
  __shared__ float scratch[WARP];
  wait_for_predecessor();
  u64 row = (u64)blockIdx.x * keys;
  float sum = 0.0f;
  for (int i = (int)threadIdx.x; i < keys; i += THREADS) sum += to_float(weights[row + i]) * to_float(gradient[row + i]);
  sum = block_sum(sum, scratch);
  for (int i = (int)threadIdx.x; i < keys; i += THREADS) {
    out[row + i] = from_float(to_float(weights[row + i]) * (to_float(gradient[row + i]) - sum));
  }
}

/// Softmax of logits `[rows, columns]` as float, and Σ p log p of each row. Grid: rows; 256
/// threads.
extern "C" __global__ void __launch_bounds__(THREADS)
train_softmax(float* out, float* negative_entropy, const T* logits, int columns) {
  __shared__ float scratch[WARP];
  wait_for_predecessor();
  u64 row = (u64)blockIdx.x * columns;
  Weights all = weigh_row(logits + row, columns, scratch, [](int) { return true; });
  float log_sum = log_accurate(all.sum) + all.most, sum = 0.0f;
  for (int i = (int)threadIdx.x; i < columns; i += THREADS) {
    float log_p = to_float(logits[row + i]) - log_sum, p = exp_accurate(log_p);
    out[row + i] = p;
    // 0 · log 0 is 0.
    if (p > 0.0f) sum += p * log_p;
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) negative_entropy[blockIdx.x] = sum;
}

/// log Σ e^logit of each row, and Σ p (log p − log q) with q the softmax of the logits, p float
/// `[rows, columns]`. Grid: rows; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
train_divergence(float* out, float* log_sums, const T* logits, const float* p, const float* negative_entropy, int columns) {
  __shared__ float scratch[WARP];
  wait_for_predecessor();
  u64 row = (u64)blockIdx.x * columns;
  Weights all = weigh_row(logits + row, columns, scratch, [](int) { return true; });
  float log_sum = log_accurate(all.sum) + all.most, sum = 0.0f;
  for (int i = (int)threadIdx.x; i < columns; i += THREADS) sum += p[row + i] * to_float(logits[row + i]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) {
    log_sums[blockIdx.x] = log_sum;
    out[blockIdx.x] = negative_entropy[blockIdx.x] - sum + log_sum;
  }
}

/// The gradient of logits from that of a divergence: (q − p) · g. Grid: rows; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
train_divergence_gradient(T* out, const T* logits, const float* log_sums, const float* p, const float* gradient, int columns) {
  wait_for_predecessor();
  u64 row = (u64)blockIdx.x * columns;
  float log_sum = log_sums[blockIdx.x], factor = gradient[blockIdx.x];
  for (int i = (int)threadIdx.x; i < columns; i += THREADS) {
    out[row + i] = from_float((exp_accurate(to_float(logits[row + i]) - log_sum) - p[row + i]) * factor);
  }
}

/// The index of the largest value of each row, ties to the lower index. Grid: rows; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS) train_largest(u32* out, const T* x, int columns) {
  __shared__ float scratch[WARP];
  __shared__ int first[THREADS / WARP];
  wait_for_predecessor();
  const T* row = x + (u64)blockIdx.x * columns;
  float most = -infinity();
  for (int i = (int)threadIdx.x; i < columns; i += THREADS) most = max(most, to_float(row[i]));
  most = block_max(most, scratch);
  int place = columns - 1;
  for (int i = (int)threadIdx.x; i < columns; i += THREADS) {
    if (to_float(row[i]) == most) place = min(place, i);
  }
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) place = min(place, shuffle_xor(place, mask));
  if (lane() == 0) first[warp()] = place;
  block_sync();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < THREADS / WARP; i++) place = min(place, first[i]);
  out[blockIdx.x] = (u32)place;
}

/// 1 / sqrt(mean(x²) + epsilon) of a row.
__device__ __forceinline__ float scale_of(const T* row, int width, float epsilon, float* scratch) {
  float squares = 0.0f;
  for (int i = (int)threadIdx.x; i < width; i += THREADS) squares += to_float(row[i]) * to_float(row[i]);
  return inverse_root(block_sum(squares, scratch) / (float)width + epsilon);
}

/// y = x · scale · weight, rounded to T in between. x `[rows, width]`, weight float `[width]`.
/// Grid: rows; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS) train_norm(T* y, const T* x, const float* weight, int width, float epsilon) {
  __shared__ float scratch[WARP];
  wait_for_predecessor();
  const T* row = x + (u64)blockIdx.x * width;
  float scale = scale_of(row, width, epsilon, scratch);
  for (int i = (int)threadIdx.x; i < width; i += THREADS) {
    float normed = to_float(from_float(to_float(row[i]) * scale));
    y[(u64)blockIdx.x * width + i] = from_float(normed * to_float(from_float(weight[i])));
  }
}

/// Gradients of a norm: of x, and of the weight per block, float `[blocks, width]`, which the
/// caller sums. Grid: blocks; 256 threads, dynamic shared memory for `width` floats.
extern "C" __global__ void __launch_bounds__(THREADS)
train_norm_gradient(T* of_x, float* of_weight, const T* x, const float* weight, const T* gradient, int rows, int width, float epsilon) {
  __shared__ float scratch[WARP];
  DYNAMIC_SHARED(shared);
  float* sums = (float*)shared;
  wait_for_predecessor();
  for (int i = (int)threadIdx.x; i < width; i += THREADS) sums[i] = 0.0f;
  for (int r = (int)blockIdx.x; r < rows; r += (int)gridDim.x) {
    u64 row = (u64)r * width;
    float scale = scale_of(x + row, width, epsilon, scratch), along = 0.0f;
    for (int i = (int)threadIdx.x; i < width; i += THREADS) {
      float normed = to_float(x[row + i]) * scale, g = to_float(gradient[row + i]);
      sums[i] += g * normed;
      along += g * to_float(from_float(weight[i])) * normed;
    }
    along = block_sum(along, scratch) / (float)width;
    for (int i = (int)threadIdx.x; i < width; i += THREADS) {
      float normed = to_float(x[row + i]) * scale, g = to_float(gradient[row + i]) * to_float(from_float(weight[i]));
      of_x[row + i] = from_float((g - normed * along) * scale);
    }
  }
  for (int i = (int)threadIdx.x; i < width; i += THREADS) of_weight[(u64)blockIdx.x * width + i] = sums[i];
}

/// A step of AdamW over `count` floats: the moments are updated with `gradient` · `scale`; values
/// become value · `kept` − `rate` · first / (sqrt(second) · `root` + epsilon). Grid: any, about
/// count / 1,024; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
train_adam(float* value, float* first, float* second, const float* gradient, u64 count, float scale, float beta1, float beta2, float rate,
           float root, float epsilon, float kept) {
  wait_for_predecessor();
  for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) {
    float g = gradient[i] * scale;
    float m = first[i] * beta1 + g * (1.0f - beta1), v = second[i] * beta2 + g * g * (1.0f - beta2);
    first[i] = m;
    second[i] = v;
    value[i] = value[i] * kept - rate * m / (sqrtf(v) * root + epsilon);
  }
}

/// Sums of squares of floats, one per block, which the caller sums. Grid: blocks; 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS) train_squares(float* out, const float* x, u64 count) {
  __shared__ float scratch[WARP];
  wait_for_predecessor();
  float sum = 0.0f;
  for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) sum += x[i] * x[i];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
