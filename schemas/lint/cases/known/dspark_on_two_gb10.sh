# expect: VL24 warning
# expect: VL24 warning
# expect: VL25 warning
# On 2x GB10
pip install vllm==0.28.0
vllm serve deepseek-ai/DeepSeek-V4-Flash-DSpark --tensor-parallel-size 2 --nnodes 2 --speculative-config '{"method": "dspark", "num_speculative_tokens": 7}'
