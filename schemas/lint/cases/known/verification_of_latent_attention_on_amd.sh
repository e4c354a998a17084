# expect: VL25 warning
pip install vllm==0.24.0
VLLM_ROCM_USE_AITER=1 vllm serve deepseek-ai/DeepSeek-R1-0528 --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
