# expect: VL25 warning
pip install vllm==0.27.1
vllm serve Qwen/Qwen3.5-27B --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
