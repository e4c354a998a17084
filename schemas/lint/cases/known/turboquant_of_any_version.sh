# expect: VL25 warning
# expect: VL25 warning
pip install vllm==0.27.1
vllm serve Qwen/Qwen3.6-27B-FP8 --tensor-parallel-size 2 --kv-cache-dtype turboquant_k8v4 \
  --speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
