# expect: VL25 warning
pip install vllm==0.28.0
vllm serve deepseek-ai/DeepSeek-V3.1 -tp 8 --kv-offloading-size 64 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
