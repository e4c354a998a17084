# expect: nothing
pip install vllm==0.29.0
vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"}'
