# expect: VL25 warning
pip install vllm==0.31.0
vllm serve Qwen/Qwen3.5-27B --no-enable-prefix-caching --speculative-config '{"method": "suffix", "num_speculative_tokens": 8}'
