# expect: VL24 warning
pip install vllm==0.21.0
vllm serve Qwen/Qwen3.5-27B --speculative-config '{"method": "draft_model", "model": "Qwen/Qwen3.5-0.8B", "num_speculative_tokens": 4}'
