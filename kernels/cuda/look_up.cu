// Look-ups in the tokens of sequences by vLLM's rule for n-grams: what followed an earlier
// occurrence of the last n tokens, n as large as possible. The rules are those of the CPU's
// `text_drafts::prompt_lookup` and, for chains with chances, `text_drafts::second_source`.
#include "common.cuh"

#define LOOK_UP_THREADS 512
/// Texts that are looked up together: beginnings of a sequence, each one token longer.
#define QUERIES 8
/// A key is a number of equal tokens, at most 256, and a place before 2^23.
#define PLACE_BITS 23
#define PLACES ((1 << PLACE_BITS) - 1)
/// Ranges of numbers of equal tokens whose look-ups are counted together.
#define RANGES 7
/// What is kept of a slot: tokens counted so far, most drafts of a round, and as float for each
/// range how often look-ups were right and how often there was one.
#define COUNTED_WORDS (2 + 2 * RANGES)

struct LookUpRule {
  int min, max;
  bool earliest;
};

/// Number of equal tokens before two places, at most `most`; `end` is the one that comes first.
__device__ __forceinline__ int equal_before(const int* text, int end, int place, int most) {
  int limit = end < most ? end : most, equal = 0;
#pragma unroll 1
  while (equal < limit && text[end - 1 - equal] == text[place - 1 - equal]) equal++;
  return equal;
}

__device__ __forceinline__ u32 key_of(int equal, int end, bool earliest) {
  return (u32)equal << PLACE_BITS | (u32)(earliest ? PLACES - end : end);
}
__device__ __forceinline__ int place_of(u32 key, bool earliest) {
  int place = (int)(key & PLACES);
  return earliest ? PLACES - place : place;
}

/// Looks up the ends of `count` texts, the first `first`, `first + 1`, … tokens: writes the key of
/// the place after the longest equal run to best (shared), 0 if there is none. Among equally long
/// runs the latest is taken, or the earliest. Called by a block, which has passed a barrier since
/// the text was written.
__device__ __forceinline__ void find(const int* text, int first, int count, LookUpRule rule, u32* best) {
  int thread = (int)threadIdx.x, longest = first + count - 1, left = count;
  u32 own[QUERIES];
  int lasts[QUERIES];
#pragma unroll
  for (int i = 0; i < QUERIES; i++) {
    own[i] = 0;
    lasts[i] = i < count && first + i > 0 ? text[first + i - 1] : -1;
  }
  // From the best place on: a thread that has found the longest run there is has its best.
#pragma unroll 1
  for (int at = thread; at < longest - 1 && left > 0; at += LOOK_UP_THREADS) {
    int end = rule.earliest ? 1 + at : longest - 1 - at, token = text[end - 1];
#pragma unroll
    for (int i = 0; i < QUERIES; i++) {
      if (token != lasts[i] || end >= first + i || (int)(own[i] >> PLACE_BITS) == rule.max) continue;
      int equal = equal_before(text, end, first + i, rule.max);
      u32 key = equal < rule.min ? 0 : key_of(equal, end, rule.earliest);
      if (key <= own[i]) continue;
      own[i] = key;
      left -= equal == rule.max;
    }
  }
  block_sync();
  if (thread < QUERIES) best[thread] = 0;
  block_sync();
#pragma unroll
  for (int i = 0; i < QUERIES; i++) {
    if (own[i] > 0) atomic_max(best + i, own[i]);
  }
  block_sync();
}

/// The place of a number of equal tokens among ranges, of which each begins at `range_first`.
__device__ __forceinline__ int range_of(int equal, const int* range_first) {
  int range = RANGES - 1;
#pragma unroll 1
  while (range > 0 && range_first[range] > equal) range--;
  return range;
}

/// Looks up the drafts of a batch.
///
/// Reads length and root `[slots]`, batch_slot `[batch]`, and text `[slots, text_width]`: the
/// tokens of each slot's sequence before position length, to which the root is added. counted
/// `[slots, COUNTED_WORDS]`; range_first and range_share `[RANGES]`: the first length of each
/// range, and the share of look-ups that is expected to be right, which weighs as much as `weight`
/// look-ups.
///
/// Without trees (given_token is null) it writes chain_length `[batch]`, chain_token and
/// chain_chance `[batch, steps]`: at most `steps` tokens that follow, and the logarithm of the
/// share of look-ups of as many equal tokens that were right. First it looks up the end of the text
/// before each token that is new since the last time, and counts in `counted` whether that token
/// follows.
///
/// With trees it writes given_token and given_parent `[batch, nodes]` as host_trees reads them:
/// chains of at most `steps` drafts, and of at most those of the slot. With `filled` missing drafts
/// are copies of the root. Padding requests find nothing. Grid batch, 512 threads; min ≥ 1, max ≤
/// 256, steps < nodes ≤ 128.
extern "C" __global__ void __launch_bounds__(LOOK_UP_THREADS)
    look_up(int* text, int text_width, int* counted, const int* range_first, const float* range_share, float weight,
            const int* batch_slot, const int* length, const int* root, int min_run, int max_run, int earliest,
            int steps, int dummy_slot, int* chain_length, int* chain_token, float* chain_chance, int* given_token,
            int* given_parent, int nodes, int filled) {
  __shared__ u32 best[QUERIES];
  __shared__ float right[RANGES], all[RANGES];
  wait_for_predecessor();
  int request = (int)blockIdx.x, thread = (int)threadIdx.x, slot = batch_slot[request];
  bool runs = slot != dummy_slot, counts = !given_token;
  LookUpRule rule{min_run, max_run, earliest != 0};
  text += (u64)slot * text_width;
  counted += (u64)slot * COUNTED_WORDS;
  int tokens = 0, most = 0;
  u32 key = 0;
  if (runs) {
    int last = min(length[slot], text_width - 1);
    if (thread == 0) text[last] = root[slot];
    tokens = last + 1;
    most = min(steps, counted[1]);
    int first = counts ? min(counted[0], tokens) : tokens;
    if (thread < RANGES) {
      right[thread] = bits_float((u32)counted[2 + thread]);
      all[thread] = bits_float((u32)counted[2 + RANGES + thread]);
    }
    block_sync();
#pragma unroll 1
    for (; first <= tokens; first += QUERIES) {
      int count = min(QUERIES, tokens + 1 - first);
      find(text, first, count, rule, best);
      key = best[count - 1];
      if (thread > 0) continue;
#pragma unroll 1
      for (int i = 0; i < count && first + i < tokens; i++) {
        if (best[i] == 0) continue;
        int range = range_of((int)(best[i] >> PLACE_BITS), range_first);
        right[range] += text[place_of(best[i], rule.earliest)] == text[first + i] ? 1.0f : 0.0f;
        all[range] += 1.0f;
      }
    }
    block_sync();
    if (counts && thread < RANGES) {
      counted[2 + thread] = (int)float_bits(right[thread]);
      counted[2 + RANGES + thread] = (int)float_bits(all[thread]);
    }
    if (counts && thread == 0) counted[0] = tokens;
  }
  int place = place_of(key, rule.earliest), equal = (int)(key >> PLACE_BITS);
  int found = key > 0 ? min(most, tokens - place) : 0;
  if (given_token) {
    if (thread < 1 || thread >= nodes) return;
    int draft = thread - 1;
    u64 at = (u64)request * nodes + thread;
    bool exists = runs && draft < (filled ? most : found);
    given_token[at] = draft < found ? text[place + draft] : runs ? root[slot] : 0;
    given_parent[at] = exists ? draft : -1;
    return;
  }
  if (thread == 0) chain_length[request] = found;
  if (thread >= found) return;
  int range = range_of(equal + thread, range_first);
  float chance = (right[range] + weight * range_share[range]) / (all[range] + weight);
  u64 at = (u64)request * steps + thread;
  chain_token[at] = text[place + thread];
  chain_chance[at] = log_accurate(chance < 1.0f ? chance : 1.0f);
}
