# expect: nothing
pip install vllm==0.27.0
vllm serve deepseek-ai/DeepSeek-V3.2 --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
