# expect: VL24 info
pip install vllm==0.28.0
vllm serve org/m --enable-auto-tool-choice --tool-call-parser qwen3_coder \
  --speculative-config '{"method": "eagle3", "model": "org/d", "num_speculative_tokens": 3}'
