# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.10.2
vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct -tp 4 --speculative-config '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}'
