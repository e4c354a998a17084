# The comment names the GPUs: 8x H20.
# expect: VL24 warning
pip install vllm==0.28.0
vllm serve deepseek-ai/DeepSeek-V4-Flash-0731 --tensor-parallel-size 8 --kv-cache-dtype fp8 --speculative-config '{"method": "dspark", "num_speculative_tokens": 5, "enable_adaptive_verification": true}'
