# expect: VL24 warning
pip install vllm==0.33.0
vllm serve deepseek-ai/DeepSeek-V3-0324 --enable-elastic-ep --enable-expert-parallel --enable-eplb --data-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
vllm serve deepseek-ai/DeepSeek-V3-0324 --enable-expert-parallel --enable-eplb --data-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
