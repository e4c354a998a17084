// Shared by the attention kernels in which a lane has the scores of two rows, in the accumulator
// layout of products of 16 (row, head) pairs: rows lane / 4 and lane / 4 + 8, and of every eight
// columns 2 (lane % 4) and the next.
#pragma once

/// What a lane's two rows see of tiles of 32 · WORDS keys. Indices after the last pair repeat it,
/// and are not written.
template <int WORDS>
struct Sight {
  int row[2], prefix[2];
  u32 mask[2][WORDS];
#ifdef SINKS
  int first[2];
#endif

  /// For a warp's 16 pairs, the first of which is `first_pair`.
  __device__ __forceinline__ Sight(const Pairs& pairs, int first_pair, const int* row_prefix WINDOW_PARAMETERS) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      row[half] = row_of(pairs, first_pair + lane() / 4 + 8 * half);
      prefix[half] = load_fresh(row_prefix + row[half]);
#ifdef SINKS
      first[half] = first_seen(row[half], prefix[half], window, row_own_count);
#endif
    }
  }
  /// Loads the masks of a tile.
  __device__ __forceinline__ void look(const Pairs& pairs, const Split& split, int tile, const u32* row_own_mask, int mask_words) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int i = 0; i < WORDS; i++)
        mask[half][i] = look_at_mask<32 * WORDS>(pairs, split, tile, row_own_mask, mask_words, row[half], i * 32);
    }
  }
  /// The keys of the loaded tile that the rows see, as bits.
  __device__ __forceinline__ void seen(u32 (&keys)[2][WORDS], const Split& split, int tile) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int i = 0; i < WORDS; i++) {
#ifdef SINKS
        keys[half][i] = seen_keys_from<32 * WORDS>(first[half], split, tile, prefix[half], mask[half][i], i * 32);
#else
        keys[half][i] = seen_keys<32 * WORDS>(split, tile, prefix[half], mask[half][i], i * 32);
#endif
      }
    }
  }
};

struct Softmax {
  /// For both rows; scores are unscaled.
  float most[2], sum[2];
  /// Of every eight columns two of the first row, then two of the second.
  float acc[HEAD_DIM / 2];
};

__device__ __forceinline__ void begin(Softmax& s) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    s.most[half] = -infinity();
    s.sum[half] = 0.0f;
  }
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 2; i++) s.acc[i] = 0.0f;
}

#ifdef SINKS
/// Begins with the sinks of 16 pairs, the first of which is `first_pair`: in one warp of the first
/// split.
__device__ __forceinline__ void begin_with_sinks(Softmax& s, const Pairs& pairs, int first_pair, const T* sinks, float scale) {
  if (!sinks || (int)blockIdx.x > 0) return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    s.most[half] = to_float(sinks[head_of(pairs, first_pair + lane() / 4 + 8 * half)]) * LOG2_E / scale;
    s.sum[half] = lane() % 4 == 0 ? 1.0f : 0.0f;
  }
}
#endif

/// Raises the largest score of a row to `larger` and rescales its sums; all lanes of a warp
/// together.
__device__ __forceinline__ void raise(Softmax& s, int half, float larger, float scale) {
  float keep = exp2_fast((s.most[half] - reference_of(larger)) * scale);
  bool changes = s.most[half] != larger;
  s.most[half] = larger;
  if (ballot(changes) == 0) return;
  keep = changes ? keep : 1.0f;
  s.sum[half] *= keep;
#pragma unroll
  for (int i = 2 * half; i < HEAD_DIM / 2; i += 4) {
    s.acc[i] *= keep;
    s.acc[i + 1] *= keep;
  }
}

/// Adds the scores of COUNT · 2 keys to the online softmax, and returns the weights of their values
/// as the left factor of products of 16 keys each. The rows see the keys whose bit is set, the
/// first key at bit `first`. A lane sums its own columns.
template <int COUNT, int WORDS>
__device__ __forceinline__ void weigh(Softmax& s, float (&score)[COUNT], u32 (&weight)[COUNT / 8][4],
                                      const u32 (&seen)[2][WORDS], int first, float scale) {
  u32 all = ~0u;
#pragma unroll
  for (int i = 0; i < WORDS; i++) all &= seen[0][i] & seen[1][i];
  // Keys that a row does not see score −∞.
  if (ballot(all != ~0u) != 0) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      int key = first + i / 4 * 8 + lane() % 4 * 2 + i % 2;
      bool sees = seen[i / 2 % 2][WORDS == 1 ? 0 : i / 16] >> key % 32 & 1;
      score[i] = sees ? score[i] : -infinity();
    }
  }
  // Four at a time: each would otherwise wait for the previous one.
  float most[4] = {score[0], score[1], score[2], score[3]};
#pragma unroll
  for (int i = 4; i < COUNT; i++) most[i % 4] = max(most[i % 4], score[i]);
  float larger[2] = {max(s.most[0], max(most[0], most[1])), max(s.most[1], max(most[2], most[3]))};
#pragma unroll
  for (int half = 0; half < 2; half++) {
#pragma unroll
    for (int by = 1; by <= 2; by *= 2) larger[half] = max(larger[half], shuffle_xor(larger[half], by));
    raise(s, half, larger[half], scale);
  }
  float reference[2] = {reference_of(s.most[0]) * scale, reference_of(s.most[1]) * scale};
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int n = 0; n < COUNT / 4; n++) {
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      w[i] = exp2_fast(score[n * 4 + i] * scale - reference[i / 2]);
      sum[i] += w[i];
    }
    weight[n / 2][n % 2 * 2] = pack(w[0], w[1]);
    weight[n / 2][n % 2 * 2 + 1] = pack(w[2], w[3]);
  }
  s.sum[0] += sum[0] + sum[1];
  s.sum[1] += sum[2] + sum[3];
}

/// Sums over the lanes of a row.
__device__ __forceinline__ void add_up_lanes(Softmax& s) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    s.sum[half] += shuffle_xor(s.sum[half], 1);
    s.sum[half] += shuffle_xor(s.sum[half], 2);
  }
}

/// Stores a lane's state for `take_in`, values `apart` from each other.
__device__ __forceinline__ void hand_over(const Softmax& s, float* to, int apart) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    to[half * apart] = s.most[half];
    to[(2 + half) * apart] = s.sum[half];
  }
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 2; i++) to[(4 + i) * apart] = s.acc[i];
}

/// Merges another lane's state of the same pairs over other keys.
__device__ __forceinline__ void take_in(Softmax& s, const float* from, int apart, float scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float other = from[half * apart], larger = max(s.most[half], other), reference = reference_of(larger);
    float keep = exp2_fast((s.most[half] - reference) * scale), take = exp2_fast((other - reference) * scale);
    s.most[half] = larger;
    s.sum[half] = s.sum[half] * keep + from[(2 + half) * apart] * take;
#pragma unroll
    for (int i = 2 * half; i < HEAD_DIM / 2; i += 4) {
      s.acc[i] = s.acc[i] * keep + from[(4 + i) * apart] * take;
      s.acc[i + 1] = s.acc[i + 1] * keep + from[(5 + i) * apart] * take;
    }
  }
}

#ifdef KV_FP8
/// Calls `use` with each four consecutive dims of a lane, and the first of them: of every 16
/// columns, the first eight are the even dims, and the others the odd ones (attention_tiles.cu).
template <class Use>
__device__ __forceinline__ void each_four(const Softmax& s, int half, Use&& use) {
#pragma unroll
  for (int c = 0; c < HEAD_DIM; c += 16) {
    const float *even = s.acc + c / 2 + 2 * half, *odd = even + 4;
    use(c + lane() % 4 * 4, make_float4(even[0], odd[0], even[1], odd[1]));
  }
}
#endif

/// Writes a warp's 16 pairs, the first of which is the block's `first`: the result, or with several
/// splits this split's record.
__device__ __forceinline__ void write_pairs(const Softmax& s, T* out, const Pairs& pairs, const Split& split, int first, int heads,
                                            float scale, float* records, float* partial, int max_splits) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int own = first + lane() / 4 + 8 * half, pair = pairs.first_pair + own, column = lane() % 4 * 2;
    if (pair >= pairs.end_pair) continue;
    int place = row_of(pairs, pair) * heads + head_of(pairs, pair);
    if (split.count == 1) {
      float inverse = inverse_weight(pairs, s.sum[half]);
#ifdef KV_FP8
      each_four(s, half, [&](int dim, float4 four) {
        *(uint2*)(out + wide(place, HEAD_DIM) + dim) =
            make_uint2(pack(four.x * inverse, four.y * inverse), pack(four.z * inverse, four.w * inverse));
      });
#else
#pragma unroll
      for (int c = 0; c < HEAD_DIM; c += 8) {
        const float* two = s.acc + c / 2 + 2 * half;
        *(u32*)(out + wide(place, HEAD_DIM) + c + column) = pack(two[0] * inverse, two[1] * inverse);
      }
#endif
    } else {
      auto leave = [&](int at, auto values) {
        leave_record(records, partial, own, place, max_splits, at, values);
      };
#ifdef KV_FP8
      each_four(s, half, leave);
#else
#pragma unroll
      for (int c = 0; c < HEAD_DIM; c += 8) {
        const float* two = s.acc + c / 2 + 2 * half;
        leave(c + column, make_float2(two[0], two[1]));
      }
#endif
      if (column == 0) leave(HEAD_DIM, make_float2(s.most[half] * scale, s.sum[half]));
    }
  }
}
