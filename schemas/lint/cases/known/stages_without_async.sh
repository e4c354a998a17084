# expect: VL06 warning
# expect: VL25 warning
pip install vllm==0.28.0
vllm serve Qwen/Qwen3-32B -pp 2 --no-async-scheduling --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
