# expect: VL25 info
pip install vllm==0.32.0
vllm serve Qwen/Qwen3.5-27B -pp 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
