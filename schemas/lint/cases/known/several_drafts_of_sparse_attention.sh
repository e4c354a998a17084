# expect: VL24 warning
pip install vllm==0.16.0
vllm serve deepseek-ai/DeepSeek-V3.2 --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
