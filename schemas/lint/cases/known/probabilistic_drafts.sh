# expect: VL25 warning
pip install vllm==0.28.0
vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"}'
