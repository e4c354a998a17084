# expect: VL24 warning
# expect: VL24 warning
# expect: VL39 warning
pip install vllm==0.24.0
vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 15, "draft_sample_method": "probabilistic"}'
