# expect: VL24 error
pip install vllm==0.10.0
vllm serve deepseek-ai/DeepSeek-V3-0324 -tp 8 --speculative-config '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'
