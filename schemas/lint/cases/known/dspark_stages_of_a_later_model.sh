# expect: VL24 error
pip install vllm==0.27.1
vllm serve deepseek-ai/DeepSeek-V4-Pro-0813 -tp 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
