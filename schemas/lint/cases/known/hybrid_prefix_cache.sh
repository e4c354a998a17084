# expect: VL25 warning
# expect: VL25 warning
pip install vllm==0.28.0
vllm serve Qwen/Qwen3.6-35B-A3B-FP8 --enable-prefix-caching --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
# expect: VL25 warning
