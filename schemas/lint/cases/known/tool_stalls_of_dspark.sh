# expect: VL24 info
# expect: VL25 warning
pip install vllm==0.25.1
vllm serve deepseek-ai/DeepSeek-V4-Flash-DSpark -tp 8 --enable-auto-tool-choice --tool-call-parser deepseek_v4 \
  --speculative-config '{"method": "dspark", "num_speculative_tokens": 5}'
