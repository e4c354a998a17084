# expect: nothing
pip install vllm==0.27.0
vllm serve Qwen/Qwen3-8B --reasoning-parser qwen3 --speculative-config '{"method": "eagle3", "model": "AngelSlim/Qwen3-8B_eagle3", "num_speculative_tokens": 2}'
