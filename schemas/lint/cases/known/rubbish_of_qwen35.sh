# expect: VL25 warning
pip install vllm==0.17.0
vllm serve Qwen/Qwen3.5-35B-A3B-FP8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
