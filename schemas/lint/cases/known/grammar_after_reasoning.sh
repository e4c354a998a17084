# expect: VL25 warning
# expect: VL25 warning
pip install vllm==0.26.0
vllm serve Qwen/Qwen3.6-27B-FP8 --no-enable-prefix-caching --reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser qwen3_coder --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
