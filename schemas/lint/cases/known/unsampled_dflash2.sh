# expect: VL25 warning
pip install vllm==0.30.0
vllm serve Qwen/Qwen3.8-27B-FP8 --no-enable-prefix-caching --speculative-config '{"method": "dflash", "model": "incoai/Qwen3.8-27B-DFlash2", "num_speculative_tokens": 7}'
