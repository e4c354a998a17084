# expect: VL24 warning
pip install vllm==0.19.1
vllm serve Qwen/Qwen3-8B -tp 8 -dcp 8 --speculative-config '{"method": "eagle3", "model": "./qwen3-eagle3", "num_speculative_tokens": 3}'
