# expect: VL25 info
pip install vllm==0.27.1
vllm serve Qwen/Qwen3-8B --enable-sleep-mode --speculative-config '{"method": "eagle3", "model": "./qwen3-eagle3", "num_speculative_tokens": 3}'
