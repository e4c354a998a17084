# expect: VL24 warning
pip install vllm==0.11.0
vllm serve nvidia/DeepSeek-R1-0528-FP4 -tp 4 --speculative-config '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'
