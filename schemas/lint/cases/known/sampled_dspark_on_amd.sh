# expect: VL24 warning
# expect: VL25 warning
# On 8x MI355X
pip install vllm==0.27.1
vllm serve deepseek-ai/DeepSeek-V4-Pro-DSpark --tensor-parallel-size 8 --speculative-config '{"method": "dspark", "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"}'
