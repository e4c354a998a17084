# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.26.0
vllm serve deepseek-ai/DeepSeek-V4-Pro-DSpark --tensor-parallel-size 16 --nnodes 2 --speculative-config '{"method": "dspark", "num_speculative_tokens": 7}'
