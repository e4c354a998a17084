# expect: VL25 warning
# expect: VL48 warning
pip install vllm==0.28.0
vllm serve Qwen/Qwen3.8-Flash-Next -tp 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
