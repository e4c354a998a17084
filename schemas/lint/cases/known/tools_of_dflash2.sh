# expect: VL25 warning
# expect: VL25 warning
pip install vllm==0.28.0
vllm serve Qwen/Qwen3.8-27B-FP8 --no-enable-prefix-caching --enable-auto-tool-choice --tool-call-parser qwen3_coder --speculative-config '{"method": "dflash", "model": "incoai/Qwen3.8-27B-DFlash2", "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"}'
