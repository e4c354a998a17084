# expect: nothing
pip install vllm==0.10.1
vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "eagle3", "model": "./qwen3-eagle3", "num_speculative_tokens": 3}'
