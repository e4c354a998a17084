# expect: nothing
pip install vllm==0.32.0
vllm serve Qwen/Qwen3.5-27B --no-enable-prefix-caching --speculative-config '{"method": "suffix", "num_speculative_tokens": 8}'
