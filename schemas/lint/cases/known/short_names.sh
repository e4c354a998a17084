# `-dp` is vLLM's short name.
# expect: VL24 warning
pip install vllm==0.28.0
vllm serve deepseek-ai/DeepSeek-V4-Flash-0731 -dp 8 --speculative-config '{"method": "dspark", "num_speculative_tokens": 5}'
